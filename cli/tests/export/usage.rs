//! What is not understood, what fails, and what happens to files.

use std::fs;
use std::process::{Command, Stdio};

use super::program::{Folder, alluvion, printed, refused, text};
use super::{PLAIN, SNAPSHOT, TAGGED};

const FORMATS: [&str; 4] = ["memory-viz", "perfetto", "folded", "prometheus"];

#[test]
fn help_has_examples() {
    let help = text(&["export", "--help"]);
    assert!(help.contains("Examples:") && FORMATS.iter().all(|format| help.contains(format)), "{help}");
}

#[test]
fn what_is_not_understood_is_said() {
    let folder = Folder::new("export-usage");
    let (log, snapshot) = (folder.file("log.csv", PLAIN), folder.file("snapshot.json", SNAPSHOT));
    for (arguments, words) in [
        (vec!["export"], "required"),
        (vec!["export", &log], "--format"),
        (vec!["export", &log, "--format", "svg"], "svg"),
        (vec!["export", &log, "--format", "perfetto", "--at-end"], "--format folded"),
        (vec!["export", &log, "--format", "folded", "--at-end", "--total"], "cannot be used with"),
        (vec!["export", &snapshot, "--format", "perfetto"], "one moment"),
        (vec!["export", &snapshot, "--format", "folded", "--total"], "one moment"),
        (vec!["export", &snapshot, "--format", "prometheus", "--resource", "pool"], "for logs"),
        (vec!["export", &log, "--format", "folded", "--resource", "pool"], "no difference"),
        (vec!["export", &log, "--format", "perfetto", "--resource", "pond"], "pond"),
        (vec!["export", &log, "--format", "perfetto", "--resource", "pool | cuda"], "names a source"),
    ] {
        let said = refused(2, &arguments);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn what_cannot_be_read_is_said() {
    let folder = Folder::new("export-unreadable");
    let far = SNAPSHOT.replace("\"ordinal\": 2", "\"ordinal\": 4000000000");
    for (path, words) in [
        (folder.path("none.csv"), "none.csv"),
        (folder.file("empty.csv", ""), "the file is empty: a log has at least its heading"),
        (folder.file("half.csv", format!("{}\n", &PLAIN[..PLAIN.len() - 20])), "line 6"),
        (folder.file("torn.json", &SNAPSHOT[..200]), "it is no snapshot"),
        (
            folder.file("gaps.json", SNAPSHOT.replace("0x302000300", "0x302000301")),
            "should be at 0x302000300",
        ),
        (folder.file("torn.gz", [0x1f, 0x8b, 8, 0, 0]), "torn.gz"),
        (folder.file("far.json", far), "device 4000000000"),
    ] {
        let said = refused(1, &["export", &path, "--format", "memory-viz"]);
        assert!(said.contains(words), "{path}: {said}");
    }
}

#[test]
fn an_empty_log_is_a_log() {
    let folder = Folder::new("export-empty");
    let path = folder.file("log.csv", "Thread,Time,Action,Pointer,Size,Stream\n");
    for format in FORMATS {
        printed(&["export", &path, "--format", format]);
    }
}

#[test]
fn a_file_changes_when_the_export_is_whole() {
    let folder = Folder::new("export-file");
    // A line that is no row, and has its end: no log that was cut.
    let half = format!("{}\n", &TAGGED[..TAGGED.len() - 20]);
    let (log, torn) = (folder.file("log.csv", TAGGED), folder.file("torn.csv", half));
    let out = folder.file("out", "before");
    refused(1, &["export", &torn, "--format", "folded", "-o", &out]);
    assert_eq!(fs::read(&out).unwrap(), b"before");
    for format in FORMATS {
        assert!(printed(&["export", &log, "--format", format, "-o", &out]).is_empty());
        assert_eq!(fs::read(&out).unwrap(), printed(&["export", &log, "--format", format]), "{format}");
    }
    assert_eq!(folder.names(), ["log.csv", "out", "torn.csv"]);
    let nowhere = folder.path("no/such/folder");
    assert!(refused(1, &["export", &log, "--format", "folded", "-o", &nowhere]).contains("folder"));
    assert!(
        refused(1, &["export", &log, "--format", "folded", "-o", &folder.path("")]).contains("directory")
    );
}

#[test]
fn whoever_reads_a_part_of_it_gets_that_part() {
    let folder = Folder::new("export-part");
    let rows: String = (0..20_000)
        .map(|n| format!("590,09:00:00.000001,allocate,{:#x},256,0\n", 0x3_0000_0000_u64 + n * 256))
        .collect();
    let log = folder.file("log.csv", format!("Thread,Time,Action,Pointer,Size,Stream\n{rows}"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_alluvion"))
        .args(["export", &log, "--format", "perfetto"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn no_input_makes_it_panic() {
    let folder = Folder::new("export-any");
    // Every fourteenth byte of each file is changed or is the last, in turn through all formats.
    let changes: [fn(u8) -> u8; 4] = [|_| b'9', |_| b'f', |byte| byte ^ 0x80, |_| b','];
    for (name, input) in [("log", TAGGED), ("plain", PLAIN), ("snapshot", SNAPSHOT)] {
        for (round, at) in (0..input.len()).step_by(14).enumerate() {
            let mut bytes = input.as_bytes().to_vec();
            bytes[at] = changes[round % 4](bytes[at]);
            if round % 5 == 4 {
                bytes.truncate(at);
            }
            let path = folder.file(name, &bytes);
            let format = FORMATS[round % FORMATS.len()];
            let output = alluvion(&["export", &path, "--format", format]);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(matches!(output.status.code(), Some(0..=2)), "byte {at} of {name}, {format}: {errors}");
            assert!(!errors.contains("panicked"), "byte {at} of {name}, {format}: {errors}");
        }
    }
}

#[test]
fn a_log_is_not_overwritten_by_its_own_export() {
    let folder = Folder::new("export-onto-itself");
    let log = folder.file("log.csv", PLAIN);
    let roundabout = folder.path("./log.csv");
    for output in [&log, &roundabout] {
        let said = refused(2, &["export", &log, "--format", "folded", "-o", output]);
        assert!(said.contains("would be overwritten"), "{said}");
    }
    assert_eq!(fs::read_to_string(&log).expect("it is there"), PLAIN);
    assert_eq!(folder.names(), ["log.csv"]);
}
