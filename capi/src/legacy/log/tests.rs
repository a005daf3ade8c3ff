#![expect(unsafe_code, reason = "calls functions that read strings of C")]

use super::rows::{FORGOTTEN_AT_ONCE, MOST_ROWS};
use super::*;

const HEADER: &str = "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,\
    Current Allocs,Start,End,Elapsed,Location";

fn row(event: Event, address: u64) -> Row {
    Row { event, device: 0, address, stream: 0, bytes: 80, start: 1_105_490_000 }
}

fn add(log: &Log, row: Row, change: i8, file: &std::ffi::CStr, line: u32) {
    // SAFETY: a string that ends in 0.
    unsafe { log.add(row, Memory::default(), change, Caller::new(file.as_ptr(), line)) };
}

fn lines(log: &Log) -> Vec<String> {
    let mut text = Vec::new();
    log.write(&mut text).expect("memory takes everything");
    let text = String::from_utf8(text).expect("the names are UTF-8");
    assert!(text.ends_with('\n'));
    text.lines().map(str::to_owned).collect()
}

/// All of a row but its end and what it took.
fn columns(line: &str) -> Vec<&str> {
    let mut columns: Vec<&str> = line.split(',').collect();
    assert_eq!(columns.len(), 12, "{line}");
    columns.drain(9..11);
    columns
}

#[test]
fn rows_are_as_the_first_rmm_wrote_them() {
    let log = Log::new();
    add(&log, row(Event::Alloc, 0x7fae_0660_0000), 1, c"numba/driver.py", 683);
    let device_1 = Row { device: 1, stream: 0x55aa, bytes: 7, ..row(Event::Realloc, 0x1000) };
    add(&log, device_1, 0, c"a.c", 1);
    add(&log, row(Event::Free, 0x7fae_0660_0000), -1, c"a.c", 2);
    let lines = lines(&log);
    assert_eq!(lines[0], HEADER);
    assert_eq!(
        columns(&lines[1]),
        ["Alloc", "0", "0x7fae06600000", "0", "80", "0", "0", "1", "1.105490000", "numba/driver.py:683"]
    );
    assert_eq!(
        columns(&lines[2]),
        ["Realloc", "1", "0x1000", "0x55aa", "7", "0", "0", "1", "1.105490000", "a.c:1"]
    );
    assert_eq!(
        columns(&lines[3]),
        ["Free", "0", "0x7fae06600000", "0", "80", "0", "0", "0", "1.105490000", "a.c:2"]
    );
    assert_eq!(lines.len(), 4);
}

#[test]
fn no_name_of_a_file_breaks_a_row() {
    let log = Log::new();
    add(&log, row(Event::Alloc, 0), 0, c"a,b.c", 1);
    add(&log, row(Event::Alloc, 0), 0, c"say \"a\".c", 2);
    add(&log, row(Event::Alloc, 0), 0, c"", 3);
    // SAFETY: no string.
    unsafe { log.add(row(Event::Alloc, 0), Memory::default(), 0, Caller::new(std::ptr::null(), 4)) };
    let long = std::ffi::CString::new("x".repeat(5000)).expect("no 0 in it");
    add(&log, row(Event::Alloc, 0), 0, &long, 5);
    let lines = lines(&log);
    assert!(lines[1].ends_with(",\"a,b.c:1\""), "{}", lines[1]);
    assert!(lines[2].ends_with(",\"say \"\"a\"\".c:2\""), "{}", lines[2]);
    assert!(lines[3].ends_with(",:3") && lines[4].ends_with(",:4"), "{lines:?}");
    assert!(lines[5].ends_with(&format!(",{}:5", "x".repeat(MOST_FILE_BYTES))));
}

#[test]
fn a_row_may_end_later_or_be_taken_out() {
    let log = Log::new();
    log.begin_with(5);
    let caller = Caller::new(c"a.c".as_ptr(), 1);
    // SAFETY: a string that ends in 0.
    let ends = unsafe { log.begin(Row { start: 0, ..row(Event::Free, 0x1000) }, -1, caller) };
    // SAFETY: as above.
    let goes = unsafe { log.begin(row(Event::Free, 0x2000), -1, caller) };
    assert_eq!(lines(&log).len(), 3);
    add(&log, row(Event::Alloc, 0x1000), 1, c"a.c", 2);
    log.take_out(goes, -1);
    log.end(ends, Memory { free: 3, total: 4 });
    add(&log, row(Event::Alloc, 0x3000), 1, c"a.c", 3);
    let lines = lines(&log);
    assert_eq!(columns(&lines[1])[..8], ["Free", "0", "0x1000", "0", "80", "3", "4", "4"]);
    assert_ne!(lines[1].split(',').nth(9), Some("0.000000000"), "it has an end");
    assert_eq!(columns(&lines[2])[2], "0x1000");
    // 5 at first, one freed, two allocated; what was taken out does not count.
    assert_eq!((columns(&lines[3])[2], columns(&lines[3])[7], lines.len()), ("0x3000", "6", 4));
}

#[test]
fn the_oldest_rows_go_when_there_are_too_many() {
    assert_eq!(size_of::<rows::Entry>(), 88, "the documented memory is this many MiB");
    let log = Log::new();
    // SAFETY: a string that ends in 0.
    let oldest = unsafe { log.begin(row(Event::Free, 1), -1, Caller::new(c"old.c".as_ptr(), 1)) };
    for number in 1..MOST_ROWS {
        add(&log, row(Event::Alloc, number as u64 + 1), 1, c"a.c", 1);
    }
    // Not as text: a million rows take seconds.
    let addresses = || -> Vec<u64> {
        log.rows().copy().1.iter().flat_map(|some| some.iter().map(|entry| entry.row.address)).collect()
    };
    assert_eq!(addresses(), (1..=MOST_ROWS as u64).collect::<Vec<_>>());
    add(&log, row(Event::Alloc, MOST_ROWS as u64 + 1), 1, c"a.c", 2);
    let kept = addresses();
    assert_eq!(kept, (FORGOTTEN_AT_ONCE as u64 + 1..=MOST_ROWS as u64 + 1).collect::<Vec<_>>());
    // It is not there any more, and nothing else changes in its place.
    log.end(oldest, Memory { free: 77, total: 77 });
    log.take_out(oldest, -1);
    // As many as rows were put in, but the first and those that are held.
    assert_eq!(log.rows().copy().0, FORGOTTEN_AT_ONCE as i64 - 1);
    let is_as_it_was = |entry: &rows::Entry| entry.at_end.memory.free == 0 && !entry.is_out;
    assert!(log.rows().copy().1.iter().all(|some| some.iter().all(is_as_it_was)));
    assert_eq!(addresses(), kept);
}

#[test]
fn a_copy_stays_as_it_was() {
    let log = Log::new();
    add(&log, row(Event::Alloc, 1), 1, c"a.c", 1);
    let (_, copy) = log.rows().copy();
    add(&log, row(Event::Alloc, 2), 1, c"a.c", 2);
    assert_eq!(copy.iter().map(|some| some.len()).sum::<usize>(), 1);
    assert_eq!(lines(&log).len(), 3);
}

#[test]
fn rows_of_threads_have_one_order() {
    let log = Log::new();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..1000 {
                    add(log, row(Event::Alloc, thread << 32 | number), 1, c"a.c", 1);
                }
            });
        }
    });
    let lines = lines(&log);
    for (place, line) in lines[1..].iter().enumerate() {
        assert_eq!(columns(line)[7], (place + 1).to_string(), "the live blocks count up, row by row");
    }
    assert_eq!(lines.len(), 4001);
}
