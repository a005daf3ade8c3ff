//! The reader of RMM's logs: real ones, and every way to be malformed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use alluvion::trace::{Action, Event, EventKind, RmmCsv, Row, Trace};
use alluvion::{Error, ErrorKind};
use flate2::read::GzDecoder;

const HEADING: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// As in `tests/traces/README.md`: trace, events, streams, threads, live peak in MiB, some rounded and some cut.
const TRACES: [(&str, usize, u32, u32, f64); 7] = [
    ("train_resnet", 26_211, 1, 2, 3114.0),
    ("train_gpt", 40_763, 1, 2, 12_965.0),
    ("serve_gpt", 121_086, 1, 1, 386.0),
    ("serve_streams", 112_844, 5, 5, 947.0),
    ("etl", 8160, 1, 1, 376.0),
    ("rnn", 7738, 1, 2, 537.0),
    ("streams", 12_000, 4, 4, 1274.0),
];

fn log(name: &str) -> impl BufRead {
    let path = format!("{}/tests/traces/{name}.csv.gz", env!("CARGO_MANIFEST_DIR"));
    BufReader::new(GzDecoder::new(File::open(path).expect("the trace is there")))
}

#[test]
fn real_traces_are_what_their_readme_says() {
    for (name, events, streams, threads, peak_mib) in TRACES {
        let trace = Trace::from_rmm_csv(log(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((trace.events.len(), trace.streams, trace.threads), (events, streams, threads), "{name}");
        assert_eq!((trace.failures, trace.strays), (0, 0), "{name}");
        let peak = trace.peak_live_bytes() as f64 / f64::from(1 << 20);
        assert!((peak - peak_mib).abs() < 1.0, "{name}: the live peak is {peak} MiB");
    }
}

#[test]
fn events_of_real_traces_come_before_they_go() {
    for (name, ..) in TRACES {
        let trace = Trace::from_rmm_csv(log(name)).unwrap();
        let (mut seen, mut live) = (0, vec![None; trace.blocks as usize]);
        for event in &trace.events {
            assert!(
                event.stream < trace.streams && event.thread < trace.threads && event.bytes > 0,
                "{event:?}"
            );
            match event.kind {
                EventKind::Allocate => {
                    assert_eq!(event.block, seen, "{name}: blocks are numbered in order");
                    seen += 1;
                    live[event.block as usize] = Some(event.bytes);
                }
                EventKind::Free => assert_eq!(live[event.block as usize].take(), Some(event.bytes), "{name}"),
            }
        }
        assert_eq!(seen, trace.blocks, "{name}");
    }
}

fn trace(rows: &[&str]) -> Result<Trace, Error> {
    let mut text = String::from(HEADING);
    for row in rows {
        text.push('\n');
        text.push_str(row);
    }
    text.push('\n');
    Trace::from_rmm_csv(text.as_bytes())
}

fn event(kind: EventKind, block: u32, stream: u32, thread: u32, bytes: u64) -> Event {
    Event { kind, block, stream, thread, bytes }
}

#[test]
fn rows_are_matched_by_address() {
    let trace = trace(&[
        "7,00:00:00.000001,allocate,0x100,1000,0",
        "8,00:00:00.000002,allocate,0x500,20,0xABC",
        "7,00:00:00.000003,free,0x100,1000,0xabc",
        "7,00:00:00.000004,allocate,0x100,30,0",
        "9,00:00:00.000005,free,0x500,20,0x1",
    ])
    .unwrap();
    use EventKind::{Allocate, Free};
    let wanted = [
        event(Allocate, 0, 0, 0, 1000),
        event(Allocate, 1, 1, 1, 20),
        event(Free, 0, 1, 0, 1000),
        event(Allocate, 2, 0, 0, 30),
        event(Free, 1, 2, 2, 20),
    ];
    assert_eq!(trace.events, wanted);
    assert_eq!((trace.blocks, trace.streams, trace.threads), (3, 3, 3));
    assert_eq!(trace.peak_live_bytes(), 1024 + 256);
}

#[test]
fn rows_that_are_no_events_are_left_out_and_counted() {
    let trace = trace(&[
        "7,00:00:00.000000,free,0x900,64,0",
        "7,00:00:00.000000,allocate,(nil),0,0",
        "7,00:00:00.000000,free,(nil),0,0",
        "7,00:00:00.000000,allocate failure,(nil),1099511627776,0",
        "7,00:00:00.000000,allocate,0x100,1,0",
    ])
    .unwrap();
    assert_eq!(trace.events, [event(EventKind::Allocate, 0, 0, 0, 1)]);
    assert_eq!((trace.failures, trace.strays), (1, 1));
    let refused = trace.refusals[0];
    assert_eq!((refused.after_events, refused.bytes, refused.stream, refused.thread), (0, 1 << 40, 0, 0));
}

#[test]
fn a_block_whose_free_is_missing_stays_live() {
    let trace = trace(&[
        "7,00:00:00.000000,allocate,0x100,300,0",
        "7,00:00:00.000001,allocate,0x100,200,0",
        "7,00:00:00.000002,free,0x100,200,0",
    ])
    .unwrap();
    assert_eq!(trace.events[2], event(EventKind::Free, 1, 0, 0, 200));
    assert_eq!(trace.peak_live_bytes(), 512 + 256);
}

#[test]
fn a_row_says_what_the_line_says() {
    let text = format!("{HEADING}\n590,23:59:60.000123,allocate failure,0xFFFFFFFFFFFFFFFF,42,0x2\n");
    let rows: Vec<_> = RmmCsv::new(text.as_bytes()).unwrap().map(Result::unwrap).collect();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.line, row.thread, row.action), (2, 590, Action::AllocateFailure));
    assert_eq!((row.address, row.bytes, row.stream), (u64::MAX, 42, 2));
    assert_eq!(row.microseconds, 86_400_000_123);
}

#[test]
fn columns_may_move_and_lines_may_end_as_on_windows() {
    let text = "Stream,Note,Size,Pointer,Action,Time,Thread\r\n\r\n0x3,hi,64,0x100,allocate,00:00:01.000000,5\r\n\r\n";
    let rows: Vec<_> = RmmCsv::new(text.as_bytes()).unwrap().map(Result::unwrap).collect();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.line, row.thread, row.microseconds, row.stream), (3, 5, 1_000_000, 3));
    assert_eq!((row.action, row.address, row.bytes), (Action::Allocate, 0x100, 64));
}

#[test]
fn a_heading_alone_is_an_empty_trace() {
    assert_eq!(trace(&[]).unwrap(), Trace { tags: vec![String::new()], ..Trace::default() });
}

#[track_caller]
fn malformed(text: &[u8], line: usize, reason: &str) {
    let error = Trace::from_rmm_csv(text).expect_err(reason);
    assert_eq!((error.kind(), error.line()), (ErrorKind::Malformed, Some(line)), "{error}");
    assert!(error.to_string().contains(reason), "`{error}` does not say `{reason}`");
    assert!(error.to_string().starts_with(&format!("malformed: line {line}: ")), "{error}");
}

#[test]
fn what_is_no_log_is_refused_with_line_and_reason() {
    malformed(b"", 1, "the file is empty: a log has at least its heading");
    malformed(b"Thread,Time,Action,Pointer,Size\n", 1, "the heading has no column Stream");
    malformed(b"\x80\n", 1, "it is not text");
    let good = "1,00:00:00.000000,allocate,0x100,8,0";
    for (row, reason) in [
        ("1,00:00:00.000000,allocate,0x100,8", "it has 5 columns where the heading has 6"),
        ("1,00:00:00.000000,allocate,0x100,8,0,0", "it has 7 columns"),
        ("x,00:00:00.000000,allocate,0x100,8,0", "Thread is `x` and not a number"),
        ("1,00:00:00,allocate,0x100,8,0", "Time is `00:00:00` and not a time"),
        ("1,24:00:00.000000,allocate,0x100,8,0", "Time is `24:00:00.000000`"),
        ("1,00:00:00.00000é,allocate,0x100,8,0", "Time is `00:00:00.00000é`"),
        ("1,00:00:00:00.000000,allocate,0x100,8,0", "Time is `00:00:00:00.000000`"),
        ("1,00:00:00.000000,realloc,0x100,8,0", "Action is `realloc` and not one of allocate"),
        ("1,00:00:00.000000,allocate,100,8,0", "Pointer is `100` and not an address"),
        ("1,00:00:00.000000,allocate,0x+10,8,0", "Pointer is `0x+10`"),
        ("1,00:00:00.000000,allocate,0x,8,0", "Pointer is `0x`"),
        ("1,00:00:00.000000,allocate,0x10000000000000000,8,0", "Pointer is `0x10000000000000000`"),
        ("1,00:00:00.000000,allocate,0x100,-8,0", "Size is `-8` and not a number of bytes"),
        ("1,00:00:00.000000,allocate,0x100,18446744073709551616,0", "Size is `18446744073709551616`"),
        (
            "1,00:00:00.000000,allocate,0x100,9223372036854775807,0",
            "Size is more than an allocation can have",
        ),
        ("1,00:00:00.000000,allocate,0x100,8,legacy", "Stream is `legacy` and not the handle of a stream"),
        (&"1".repeat(5000), "it is longer than 4096 bytes"),
        (
            &format!("{},00:00:00.000000,allocate,0x100,8,0", "9".repeat(3000)),
            &format!("Thread is `{}`", "9".repeat(40)),
        ),
    ] {
        malformed(format!("{HEADING}\n{good}\n\n{row}\n").as_bytes(), 4, reason);
    }
}

#[test]
fn nothing_comes_after_an_error() {
    let text = format!("{HEADING}\nnonsense\n1,00:00:00.000000,allocate,0x100,8,0\n");
    let mut rows = RmmCsv::new(text.as_bytes()).unwrap();
    assert!(rows.next().is_some_and(|row| row.is_err()));
    assert!(rows.next().is_none());
}

/// Fails after what it has.
struct Torn<'t>(&'t [u8]);

impl Read for Torn<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.read(into) {
            Ok(0) => Err(io::Error::other("the disk is gone")),
            read => read,
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_to_its_end_is_an_error() {
    let text = format!("{HEADING}\n1,00:00:00.000000,allocate,0x100,8,0\n");
    let error = Trace::from_rmm_csv(BufReader::new(Torn(text.as_bytes()))).unwrap_err();
    assert_eq!((error.kind(), error.line()), (ErrorKind::Unreadable, Some(3)));
    assert_eq!(error.to_string(), "unreadable: line 3: the disk is gone");
}

/// Whatever a file holds, reading it ends, and without a panic.
#[test]
fn every_mutation_of_a_log_is_read_or_refused() {
    let text =
        format!("{HEADING}\n1,00:00:00.000000,allocate,0x100,8,0\n1,00:00:00.000000,free,0x100,8,0x12\n");
    let mut read = 0;
    for at in 0..text.len() {
        for byte in [0, b',', b'\n', b'x', b'9', b'-', 0x80, 0xff] {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = byte;
            match Trace::from_rmm_csv(&bytes[..]) {
                Ok(_) => read += 1,
                Err(error) => assert!(error.line().is_some_and(|line| (1..=4).contains(&line)), "{error}"),
            }
            let cut = Trace::from_rmm_csv(&bytes[..at]);
            assert!(cut.is_ok() || cut.is_err_and(|error| error.line().is_some()));
        }
    }
    assert!(read > 0);
}

#[test]
fn tags_and_reserved_bytes_are_read_where_there_are_columns_for_them() {
    let text = "Thread,Time,Action,Pointer,Size,Stream,Tag,Reserved
7,00:00:00.000001,allocate,0x100,1000,0,query;join,2097152
7,00:00:00.000002,allocate,0x500,20,0x3,,
7,00:00:00.000003,free,0x100,1000,0,,4194304
";
    let trace = Trace::from_rmm_csv(text.as_bytes()).unwrap();
    assert_eq!(trace.tags, ["", "query;join"]);
    assert_eq!((trace.stream_handles, trace.thread_numbers), (vec![0, 3], vec![7]));
    let said: Vec<_> = trace.moments.iter().map(|moment| (moment.tag, moment.reserved_bytes)).collect();
    assert_eq!(said, [(1, Some(2 << 20)), (0, None), (0, Some(4 << 20))]);
    assert_eq!(trace.moments[1].address, 0x500);
}

#[test]
fn what_is_reserved_is_a_number() {
    let text = "Thread,Time,Action,Pointer,Size,Stream,Reserved\n7,00:00:00.000001,free,0x100,1,0,much\n";
    let error = Trace::from_rmm_csv(text.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "malformed: line 2: Reserved is `much` and not a number of bytes");
}

#[test]
fn time_goes_on_past_midnight() {
    let trace = trace(&[
        "7,23:59:59.999999,allocate,0x100,1,0",
        "7,00:00:00.000002,free,0x100,1,0",
        "8,00:00:00.000001,allocate,0x100,1,0",
    ])
    .unwrap();
    let times: Vec<_> = trace.moments.iter().map(|moment| moment.microseconds).collect();
    assert_eq!(times, [86_399_999_999, 86_400_000_002, 86_400_000_001]);
}

/// The separator before the microseconds was a colon in RMM 0.16, and a null pointer has been printed in three ways.
#[test]
fn rows_of_older_logs_are_rows() {
    let text = format!(
        "{HEADING}\n590,09:12:19:353101,allocate,0x302000000,64,0x0\n590,09:12:19:353102,allocate failure,0x0,128,(nil)\n\
         590,09:12:19:353103,free,0x302000000,64,0\n"
    );
    let rows: Vec<_> = RmmCsv::new(text.as_bytes()).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows[0].microseconds, ((9 * 60 + 12) * 60 + 19) * 1_000_000 + 353_101);
    assert!(rows.iter().all(|row| row.stream == 0) && rows[1].address == 0);
    let trace = Trace::from_rmm_csv(text.as_bytes()).unwrap();
    assert_eq!((trace.events.len(), trace.failures, trace.strays), (2, 1, 0));
    for time in
        ["09:12:353101", "09:12:19:35310", "09:12:19:3531011", "09:12:19:-53101", "09:12:19:00:353101"]
    {
        let row = format!("{HEADING}\n590,{time},free,0x1,1,0\n");
        malformed(row.as_bytes(), 2, &format!("Time is `{time}`"));
    }
}

const INTERFACE: &str = "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,Start,End,Elapsed,Location";

/// What RMM kept while its interface was one of C.
#[test]
fn the_log_of_the_c_interface_is_a_log() {
    let text = format!(
        "{INTERFACE}\n\
         Alloc,0,0x7fae06600000,0,80,0,0,1,1.10549,1.1074,0.00191666,/home/a,b/driver.py:683\n\
         Alloc,0,0,0x55d0,17179869184,0,0,1,1.2,1.3,0.1,driver.py:684\n\
         Alloc,0,0,0,0,0,0,1,1.2,1.3,0.1,driver.py:684\n\
         Free,0,0x7fae06600000,0,0,0,0,0,2.5e+01,25.1,0.00122238,utils.py:678\n"
    );
    let rows: Vec<_> = RmmCsv::new(text.as_bytes()).unwrap().map(Result::unwrap).collect();
    let said: Vec<_> = rows.iter().map(|row| (row.line, row.action, row.address, row.bytes)).collect();
    let wanted = [
        (2, Action::Allocate, 0x7fae_0660_0000, 80),
        (3, Action::AllocateFailure, 0, 17_179_869_184),
        (4, Action::Allocate, 0, 0),
        (5, Action::Free, 0x7fae_0660_0000, 0),
    ];
    assert_eq!(said, wanted);
    assert_eq!((rows[0].microseconds, rows[3].microseconds, rows[1].stream), (1_105_490, 25_000_000, 0x55d0));
    let trace = Trace::from_rmm_csv(text.as_bytes()).unwrap();
    assert_eq!((trace.events.len(), trace.failures, trace.strays, trace.peak_live_bytes()), (2, 1, 0, 256));
    assert_eq!(trace.events[1].bytes, 80);
}

#[test]
fn what_the_log_of_the_c_interface_does_not_say_is_refused() {
    let good = "Alloc,0,0x100,0,80,0,0,1,1.5,1.6,0.1,a:1";
    for (row, reason) in [
        (
            "Realloc,0,0,0,80,0,0,1,1.5,1.6,0.1,a:1",
            "it is a Realloc, and such rows name neither the old nor the new",
        ),
        ("Alloc,0,0x100,0,80,0,0,1,1.5,1.6,0.1", "it has 11 columns where the heading has 12"),
        ("Alloc,0", "it has 2 columns where the heading has 12"),
        ("alloc,0,0x100,0,80,0,0,1,1.5,1.6,0.1,a:1", "Event Type is `alloc` and not one of Alloc, Free"),
        ("Alloc,0,100,0,80,0,0,1,1.5,1.6,0.1,a:1", "Address is `100`"),
        ("Alloc,0,0x100,7,80,0,0,1,1.5,1.6,0.1,a:1", "Stream is `7`"),
        ("Alloc,0,0x100,0,-80,0,0,1,1.5,1.6,0.1,a:1", "Size (bytes) is `-80`"),
        ("Alloc,0,0x100,0,80,0,0,1,inf,1.6,0.1,a:1", "Start is `inf` and not a number of seconds"),
        ("Alloc,0,0x100,0,80,0,0,1,-1,1.6,0.1,a:1", "Start is `-1`"),
        ("Alloc,0,0x100,0,80,0,0,1,1e99,1.6,0.1,a:1", "Start is `1e99`"),
        ("Alloc,0,0x100,0,80,0,0,1,,1.6,0.1,a:1", "Start is ``"),
    ] {
        malformed(format!("{INTERFACE}\n{good}\n{row}\n").as_bytes(), 3, reason);
    }
}

#[test]
fn a_file_is_opened_by_its_path() {
    let path = |name: &str| format!("{}/tests/traces/{name}", env!("CARGO_MANIFEST_DIR"));
    let packed = Trace::read(path("etl.csv.gz"));
    if cfg!(feature = "gzip") {
        assert_eq!(packed.unwrap(), Trace::from_rmm_csv(log("etl")).unwrap());
    } else {
        assert_eq!(packed.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    let error = Trace::read(path("README.md")).unwrap_err();
    assert_eq!((error.kind(), error.line()), (ErrorKind::Malformed, Some(1)));
    let error = Trace::read(path("none.csv")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreadable);
    assert!(error.to_string().contains("none.csv: "), "{error}");
}

mod property {
    use alluvion::trace::RmmCsvWriter;
    use proptest::prelude::*;

    use super::*;

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let action = prop_oneof![Just(Action::Allocate), Just(Action::AllocateFailure), Just(Action::Free)];
        let number = prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0..0x1000_u64];
        let row = (
            (any::<u64>(), 0..86_401_000_000_u64, action),
            (number.clone(), any::<u64>(), number),
            (
                proptest::option::of(0..4096_u32),
                "([^,\\s\\p{C}]([^,\\p{C}]{0,20}[^,\\s\\p{C}])?)?",
                proptest::option::of(any::<u64>()),
            ),
        );
        let row = row.prop_map(
            |((thread, microseconds, action), (address, bytes, stream), (device, tag, reserved_bytes))| Row {
                line: 0,
                thread,
                microseconds,
                action,
                address,
                bytes,
                stream,
                device,
                tag: tag.into(),
                reserved_bytes,
            },
        );
        proptest::collection::vec(row, 0..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// What is written is read, and written again as it was.
        #[test]
        fn rows_that_are_written_are_read(mut rows in rows(), more in 0..3) {
            let mut writer = match more {
                2 => RmmCsvWriter::with_every_column(Vec::new()),
                1 => RmmCsvWriter::with_tags_and_reserved(Vec::new()),
                _ => RmmCsvWriter::new(Vec::new()),
            };
            for (at, row) in rows.iter_mut().enumerate() {
                row.line = at + 2;
                if more < 2 {
                    row.device = None;
                }
                if more < 1 {
                    (row.tag, row.reserved_bytes) = (Box::default(), None);
                }
                writer.write(row).unwrap();
            }
            let text = writer.finish().unwrap();
            let read: Vec<Row> = RmmCsv::new(&text[..]).unwrap().map(Result::unwrap).collect();
            prop_assert_eq!(read, rows);
        }
    }
}

#[test]
fn a_row_that_no_line_can_say_is_refused() {
    use alluvion::trace::RmmCsvWriter;
    let text = format!("{HEADING}\n1,23:59:59.999999,allocate,0x100,8,0\n");
    let row = RmmCsv::new(text.as_bytes()).unwrap().next().unwrap().unwrap();
    let mut writer = RmmCsvWriter::with_tags_and_reserved(Vec::new());
    for (microseconds, tag) in
        [(86_401_000_000, ""), (0, "a,b"), (0, "a\nb"), (0, " a"), (0, &"a".repeat(2049)), (u64::MAX, "")]
    {
        let refused = writer.write(&Row { microseconds, tag: tag.into(), ..row.clone() }).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{microseconds} {tag}");
    }
    writer.write(&row).unwrap();
    assert_eq!(RmmCsv::new(&writer.finish().unwrap()[..]).unwrap().count(), 1);
    let mut writer = RmmCsvWriter::with_every_column(Vec::new());
    let refused = writer.write(&Row { device: Some(4096), ..row.clone() }).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    writer.write(&Row { device: Some(4095), ..row }).unwrap();
    assert_eq!(RmmCsv::new(&writer.finish().unwrap()[..]).unwrap().count(), 1);
}

#[test]
fn a_log_that_cannot_be_written_is_an_error() {
    use alluvion::trace::RmmCsvWriter;
    let mut nothing: [u8; 3] = [0; 3];
    let error = RmmCsvWriter::new(&mut nothing[..]).finish().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unwritable);
}

#[test]
fn a_row_of_yesterday_after_midnight_makes_no_day() {
    let times = ["23:59:59.900000", "00:00:00.100000", "23:59:59.950000", "00:00:00.200000"];
    let rows: String = times
        .iter()
        .enumerate()
        .map(|(at, time)| format!("1,{time},allocate,{:#x},10,0\n", at + 1))
        .collect();
    let log = format!("Thread,Time,Action,Pointer,Size,Stream\n{rows}");
    let trace = Trace::from_rmm_csv(log.as_bytes()).expect("the log is well formed");
    let day = 24 * 60 * 60 * 1_000_000_u64;
    let found: Vec<u64> = trace.moments.iter().map(|moment| moment.microseconds).collect();
    assert_eq!(found, [day - 100_000, day + 100_000, day - 50_000, day + 200_000]);
}
