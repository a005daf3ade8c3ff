//! What the log says, and to whom.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr::{null, null_mut};

use calluvion::RmmError::*;
use calluvion::{rmmAlloc, rmmGetLog, rmmLogSize, rmmWriteLog};

use crate::support::*;

const HEADER: &str = "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,\
    Current Allocs,Start,End,Elapsed,Location\n";

/// The rows, by column.
fn rows(log: &str) -> Vec<Vec<String>> {
    let rows = log.strip_prefix(HEADER).expect("the header row");
    rows.lines().map(|row| row.split(',').map(str::to_owned).collect()).collect()
}

fn seconds(text: &str) -> f64 {
    text.parse().expect("a number")
}

alone! {
    fn each_call_that_did_something_has_a_row(sim) {
        assert_eq!(initialize(options(POOL, MIB, true)), Success);
        assert_eq!(log(), HEADER);
        let stream = OwnStream::new(0);
        let block = alloc(1000);
        let (_, mut other) = try_alloc_on(2000, stream.raw());
        assert_eq!(try_alloc(0).0, Success);
        assert_eq!(free(null_mut()), Success);
        assert_eq!(realloc(&mut other, 3000), Success);
        sim.fail(c"cuMemAlloc", 1, 2);
        assert_eq!(try_alloc(100 * MIB).0, OutOfMemory);
        assert_eq!(free(block), Success);
        let freed = other;
        assert_eq!(realloc(&mut other, 0), Success);
        assert_eq!(free(freed), InvalidArgument);

        let log = log();
        let rows = rows(&log);
        let hex = |address: usize| format!("{address:#x}");
        let (block, freed) = (hex(block.addr()), hex(freed.addr()));
        let stream = hex(stream.raw().addr());
        let expected = [
            ["Alloc", "0", &block, "0", "1000", "0", "0", "1", "a.c:1"],
            ["Alloc", "0", &rows[1][2], &stream, "2000", "0", "0", "2", "a.c:1"],
            ["Realloc", "0", &freed, "0", "3000", "0", "0", "2", "b.c:2"],
            ["Alloc", "0", "0", "0", "104857600", "0", "0", "2", "a.c:1"],
            ["Free", "0", &block, "0", "1000", "0", "0", "1", "c.c:3"],
            ["Realloc", "0", "0", "0", "0", "0", "0", "0", "b.c:2"],
        ];
        let mut last = 0.0;
        assert_eq!(rows.len(), expected.len(), "{log}");
        for (row, expected) in rows.iter().zip(expected) {
            assert_eq!(row.len(), 12);
            assert_eq!([&row[..8], &row[11..]].concat(), expected);
            let [start, end, elapsed] = [8, 9, 10].map(|column| seconds(&row[column]));
            assert!(last <= start && start <= end, "{row:?}");
            assert!((end - start - elapsed).abs() < 1e-6, "{row:?}");
            last = start;
        }
    }
}

alone! {
    fn a_log_is_read_whole_in_part_and_from_a_file(_sim) {
        assert_eq!(initialize(options(PLAIN, 0, true)), Success);
        assert_eq!(free(alloc(1000)), Success);
        let log = log();
        assert_eq!(rows(&log).len(), 2);
        for room in [0, 1, HEADER.len(), log.len() - 1, log.len(), log.len() + 5] {
            let mut buffer = vec![b'!'; log.len() + 10];
            assert_eq!(unsafe { rmmGetLog(buffer.as_mut_ptr().cast(), room) }, Success);
            let written = room.min(log.len());
            assert_eq!(&buffer[..written], &log.as_bytes()[..written]);
            assert!(buffer[written..].iter().all(|&byte| byte == b'!'), "nothing behind it");
        }
        assert_eq!(unsafe { rmmGetLog(null_mut(), 0) }, Success);
        assert_eq!(unsafe { rmmGetLog(null_mut(), 1) }, InvalidArgument);

        let path = std::env::temp_dir().join(format!("alluvion-rmm-log-{}", std::process::id()));
        let name = CString::new(path.as_os_str().as_bytes()).expect("no 0 in it");
        for _ in 0..2 {
            assert_eq!(unsafe { rmmWriteLog(name.as_ptr()) }, Success);
        }
        assert_eq!(std::fs::read_to_string(&path).expect("it was written"), log);
        std::fs::remove_file(&path).expect("it is there");
        for nowhere in [c"/nowhere/at/all.csv", c"/"] {
            assert_eq!(unsafe { rmmWriteLog(nowhere.as_ptr()) }, Io);
        }
        assert!(!message().is_empty());
        assert_eq!(unsafe { rmmWriteLog(null()) }, InvalidArgument);
        assert_eq!(unsafe { rmmWriteLog(c"".as_ptr()) }, InvalidArgument);
        #[cfg(target_os = "linux")]
        assert_eq!(unsafe { rmmWriteLog(c"/dev/full".as_ptr()) }, Io, "the device is full");
    }
}

alone! {
    fn where_no_log_is_kept_it_is_the_header_row(_sim) {
        let is_empty = || assert_eq!((log(), rmmLogSize()), (HEADER.to_owned(), HEADER.len()));
        is_empty();
        assert_eq!(free(alloc(100)), Success);
        is_empty();
        assert_eq!(initialize(options(PLAIN, 0, false)), Success);
        assert_eq!(free(alloc(100)), Success);
        is_empty();
        assert_eq!(initialize(options(PLAIN, 0, true)), Success);
        assert_eq!(free(alloc(100)), Success);
        assert_eq!(rows(&log()).len(), 2);
        assert_eq!(finalize(), Success);
        is_empty();
        assert_eq!(initialize_again(), Success);
        is_empty();
    }
}

alone! {
    fn a_file_may_have_any_name_and_none(_sim) {
        assert_eq!(initialize(options(PLAIN, 0, true)), Success);
        let mut blocks = Vec::new();
        for file in [null(), c"".as_ptr(), c"a,b.c".as_ptr()] {
            // A name of the caller's is not kept.
            let copy = if file.is_null() { None } else { Some(unsafe { std::ffi::CStr::from_ptr(file) }.to_owned()) };
            let file = copy.as_ref().map_or(null(), |copy| copy.as_ptr());
            let mut block = null_mut();
            assert_eq!(unsafe { rmmAlloc(&raw mut block, 8, null_mut(), file, u32::MAX) }, Success);
            blocks.push(block);
        }
        let log = log();
        let locations: Vec<&str> = log.lines().skip(1).map(|row| row.splitn(12, ',').nth(11).expect("a location")).collect();
        assert_eq!(locations, [":4294967295", ":4294967295", "\"a,b.c:4294967295\""]);
        for block in blocks {
            assert_eq!(free(block), Success);
        }
    }
}

alone! {
    with(&[("ALLUVION_RMM_LOG_MEMORY", OsStr::new("1"))])
    fn rows_tell_the_memory_if_asked_for(_sim) {
        assert_eq!(initialize(options(PLAIN, 0, true)), Success);
        assert_eq!(free(alloc(3 * MIB)), Success);
        let told: Vec<[usize; 2]> =
            rows(&log()).iter().map(|row| [5, 6].map(|column| row[column].parse().expect("a number"))).collect();
        assert_eq!(told, [[DEVICE_BYTES - 3 * MIB, DEVICE_BYTES], [DEVICE_BYTES, DEVICE_BYTES]]);
    }
}

alone! {
    fn a_log_asks_the_driver_nothing(sim) {
        let pair = || assert_eq!(free(alloc(1000)), Success);
        assert_eq!(initialize(options(POOL, MIB, false)), Success);
        pair();
        let without = sim.calls(pair);
        assert_eq!(initialize(options(POOL, MIB, true)), Success);
        pair();
        assert_eq!(sim.calls(pair), without);
    }
}

alone! {
    fn rows_of_threads_have_an_order_that_the_blocks_had(_sim) {
        const THREADS: usize = 4;
        const ROUNDS: usize = 9000;
        assert_eq!(initialize(options(POOL, 64 * MIB, true)), Success);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mut block = alloc(1000 + thread);
                        if round % 3 == 0 {
                            assert_eq!(realloc(&mut block, 3000), Success);
                        }
                        assert_eq!(free(block), Success);
                    }
                });
            }
        });
        let rows = rows(&log());
        assert_eq!(rows.len(), THREADS * (2 * ROUNDS + ROUNDS / 3));
        // A row of a realloc does not say what it frees: what came of an allocation may come out again. What came of a realloc is
        // freed by a free alone here.
        let mut live: HashMap<&str, usize> = HashMap::new();
        for (place, row) in rows.iter().enumerate() {
            match row[0].as_str() {
                "Free" => assert!(live.remove(row[2].as_str()).is_some(), "{place}: {row:?} was not out"),
                _ => {
                    let before = live.insert(&row[2], place);
                    let is_right = before.is_none_or(|before| rows[before][0] == "Alloc");
                    assert!(is_right, "{place}: {row:?} was out since {before:?}");
                }
            }
        }
        assert_eq!(rows.last().expect("there are rows")[7], "0");
    }
}
