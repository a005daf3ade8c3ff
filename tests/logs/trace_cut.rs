//! Logs that end before their end: what is whole is read, and where it ends is told.

use std::io::{BufRead, BufReader, Write};

use alluvion::ErrorKind;
use alluvion::trace::{RmmCsv, Row, Trace};
use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

const LOGS: [&str; 4] = [
    "Thread,Time,Action,Pointer,Size,Stream
590,09:12:19.353101,allocate,0x302000000,22532048,0
591,09:12:19.353144,allocate failure,(nil),1099511627776,0x1

590,09:12:19.357194,allocate,0x303600000,1000,0x7f653d
590,09:12:19.540106,free,0x302000000,22532048,0x7f653d
",
    "Thread,Time,Action,Pointer,Size,Stream,Tag,Reserved\r
7,00:00:00.000001,allocate,0x100,1000,0,query;jöin,2097152\r
7,00:00:00.000002,free,0x100,1000,0,,4194304\r
",
    "\u{feff}Thread,Time,Action,Pointer,Size,Stream,Reserved
7,00:00:00.000001,allocate,0x100,1000,0,2097152
",
    "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,Start,End,Elapsed,Location
Alloc,0,0x7fae06600000,0,80,0,0,1,1.10549,1.1074,0.00191666,/home/a,b/driver.py:683
Free,0,0x7fae06600000,0,0,0,0,0,2.5e+01,25.1,0.00122238,utils.py:678
",
];

fn rows_of(log: impl BufRead) -> (Vec<Row>, Option<(usize, u64)>) {
    let mut rows = RmmCsv::new(log).unwrap_or_else(|error| panic!("{error}"));
    let read = rows.by_ref().map(|row| row.unwrap_or_else(|error| panic!("{error}"))).collect();
    (read, rows.cut().map(|cut| (cut.line(), cut.byte())))
}

/// Where the last line of `text` begins, and which one it is.
fn last_line_of(text: &[u8]) -> (usize, u64) {
    let ends: Vec<usize> = (0..text.len()).filter(|at| text[*at] == b'\n').collect();
    (ends.len() + 1, ends.last().map_or(0, |end| end + 1) as u64)
}

fn packed(members: &[&[u8]]) -> Vec<u8> {
    let mut packed = Vec::new();
    for member in members {
        let mut encoder = GzEncoder::new(&mut packed, Compression::best());
        encoder.write_all(member).expect("a vector takes everything");
        encoder.finish().expect("a vector takes everything");
    }
    packed
}

#[test]
fn a_log_that_is_cut_at_any_byte_has_its_whole_rows() {
    for log in LOGS.map(str::as_bytes) {
        let (all, cut) = rows_of(log);
        assert!(!all.is_empty() && cut.is_none());
        for at in 1..log.len() {
            // A byte order mark alone is an empty file, and half of one is no text.
            if log.starts_with(&[0xef]) && at <= 3 {
                continue;
            }
            let (rows, cut) = rows_of(&log[..at]);
            let (line, byte) = last_line_of(&log[..at]);
            let whole: Vec<&Row> = all.iter().filter(|row| row.line < line).collect();
            assert!(rows.iter().eq(whole), "byte {at}: {rows:?}");
            let is_blank = log[byte as usize..at].trim_ascii().is_empty();
            assert_eq!(cut, (!is_blank).then_some((line, byte)), "byte {at}");
        }
    }
}

/// Whoever unpacks: what it gives before it fails is what there is.
#[test]
fn a_packed_log_that_is_cut_at_any_byte_has_the_rows_that_can_be_unpacked() {
    let log = LOGS[0].as_bytes();
    let (all, _) = rows_of(log);
    let (first, second) = log.split_at(log.len() / 2);
    for members in [&[log][..], &[first, second]] {
        let packed = packed(members);
        let mut most = 0;
        for at in 1..packed.len() {
            let (rows, cut) = rows_of(BufReader::new(MultiGzDecoder::new(&packed[..at])));
            assert_eq!(rows, all[..rows.len()], "byte {at}");
            if cut.is_none() {
                // Between two members nobody can know that there was another.
                let end = MultiGzDecoder::new(&packed[..at]);
                assert!(std::io::read_to_string(end).is_ok_and(|text| text.ends_with('\n')), "byte {at}");
            }
            assert!(rows.len() >= most, "byte {at}");
            most = rows.len();
        }
        assert_eq!(most, all.len(), "all rows are there before the checksum is");
    }
}

#[test]
fn a_trace_says_where_its_log_ends() {
    let whole = Trace::from_rmm_csv(LOGS[0].as_bytes()).unwrap();
    assert_eq!((whole.events.len(), whole.failures, &whole.cut), (3, 1, &None));
    let text = LOGS[0].strip_suffix("d\n").unwrap();
    let trace = Trace::from_rmm_csv(text.as_bytes()).unwrap();
    assert_eq!((&trace.events[..], trace.failures), (&whole.events[..2], 1));
    let cut = trace.cut.expect("it is cut");
    assert_eq!((cut.line(), cut.byte() as usize), (6, text.rfind('\n').unwrap() + 1));
    assert_eq!(
        cut.to_string(),
        format!("it ends in line 6, after byte {}: that line has no line end, and is left out", cut.byte())
    );
}

/// Good lines after a bad one: nothing was cut, something is wrong.
#[test]
fn a_line_that_is_cut_in_the_middle_of_a_log_is_an_error() {
    let lines: Vec<&str> = LOGS[0].lines().collect();
    for at in 2..lines[1].len() - 1 {
        let text = format!("{}\n{}\n{}\n", lines[0], &lines[1][..at], lines[4]);
        let error = Trace::from_rmm_csv(text.as_bytes()).unwrap_err();
        assert_eq!((error.kind(), error.line()), (ErrorKind::Malformed, Some(2)), "{error}");
    }
    let text = format!("{}\n{}\nnonsense\n", lines[0], lines[1]);
    let error = Trace::from_rmm_csv(text.as_bytes()).unwrap_err();
    assert_eq!((error.kind(), error.line()), (ErrorKind::Malformed, Some(3)), "its line has an end: {error}");
}

#[test]
fn what_is_no_log_is_not_taken_for_one_that_was_cut() {
    for (text, words) in [
        (&b""[..], "line 1: the file is empty: a log has at least its heading"),
        (b" \n", "line 1: the heading has no column Thread"),
        (b"\xef\xbb\xbf", "line 1: the file is empty"),
        (b"Thread,Times", "line 1: the heading has no column Time"),
        (b"# A page", "line 1: the heading has no column Thread"),
        (b"\xff\xfeT\0h\0r\0e\0a\0d\0", "line 1: it is text in UTF-16: write the file again in UTF-8"),
        (b"\xfe\xff\0T\0h\0\n", "line 1: it is text in UTF-16"),
        (b"\x80\n", "line 1: it is not text"),
    ] {
        let error = Trace::from_rmm_csv(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
        assert!(error.to_string().contains(words), "`{error}` does not say `{words}`");
    }
    // A line that goes on and on is no half of a row.
    let text = [LOGS[0].as_bytes(), &[b'1'; 5000]].concat();
    let error = Trace::from_rmm_csv(&text[..]).unwrap_err();
    assert!(error.to_string().contains("line 7: it is longer than 4096 bytes"), "{error}");
}

#[cfg(feature = "gzip")]
mod unpacked {
    use alluvion::trace::Unpacked;

    use super::*;

    fn trace(file: &[u8]) -> Trace {
        Trace::from_rmm_csv(Unpacked::new(file).unwrap()).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_packed_log_that_is_cut_anywhere_says_so() {
        let log = LOGS[0].as_bytes();
        let (first, second) = log.split_at(log.len() / 2);
        for members in [&[log][..], &[first, second]] {
            let packed = packed(members);
            assert_eq!(trace(&packed), trace(log));
            let end_of_first = self::packed(&members[..1]).len();
            for at in 1..packed.len() {
                let cut = trace(&packed[..at]).cut;
                let why = cut.as_ref().map(|cut| cut.why());
                match at.checked_sub(end_of_first) {
                    Some(0) => assert_eq!(why, Some("that line has no line end, and is left out")),
                    _ => assert_eq!(why, Some("what gzip packed has no end"), "byte {at}"),
                }
            }
        }
    }

    #[test]
    fn what_comes_after_the_packed_log_is_passed_over() {
        let (log, whole) = (packed(&[LOGS[0].as_bytes()]), trace(LOGS[0].as_bytes()));
        let with = |after: &[u8]| trace(&[&log, after].concat());
        for zeros in [1, 512, 100_000] {
            assert_eq!(with(&vec![0; zeros]), whole);
        }
        assert_eq!(with(&[&[0; 9], &log[..]].concat()[..9]), whole);
        for rubbish in [&b"rubbish"[..], b"\0\0r", b"\n"] {
            let trace = with(rubbish);
            let cut = trace.cut.expect("there is more than the log");
            assert_eq!((cut.line(), cut.byte() as usize), (7, LOGS[0].len()));
            assert_eq!(cut.why(), "after the end of what gzip packed there are other bytes");
            assert_eq!(trace.events, whole.events);
        }
    }

    /// What gzip has checksums for.
    #[test]
    fn a_packed_log_that_was_changed_is_an_error() {
        let mut log = packed(&[LOGS[0].as_bytes()]);
        let at = log.len() - 6;
        log[at] ^= 1;
        let error = Trace::from_rmm_csv(Unpacked::new(&log[..]).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreadable, "{error}");
        let error = Trace::from_rmm_csv(Unpacked::new(&b"\x1f no gzip, this"[..]).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreadable, "{error}");
    }
}
