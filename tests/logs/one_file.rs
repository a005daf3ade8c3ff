//! Logs that are to be in one file: no two write it, whatever it is called and however long the last one takes.

#![cfg(unix)]
#![allow(clippy::disallowed_types, reason = "no model is run here")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use alluvion::adaptor::{Log, LogConfig, Logging};
use alluvion::source::Null;
use alluvion::{ErrorKind, Resource, ResourceExt, Sim};

use crate::log_files::Scratch;
use crate::raw_block::layout_of;

fn stack(log: Log) -> Logging<Null> {
    Null::new(&Sim::new().device(0)).logging(log)
}

fn rows<R: Resource>(resource: &R, count: usize) {
    for _ in 0..count {
        let _ = resource.allocate_sync(layout_of(1000)).expect("there is none to run out of");
    }
}

/// A pipe, whose writer waits while nobody reads.
fn pipe(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    let made = Command::new("mkfifo").arg(&scratch.0).status().expect("there is such a program");
    assert!(made.success());
    scratch
}

/// Opens a pipe to be read: once somebody opens it to write.
fn opened(path: &Path) -> mpsc::Receiver<BufReader<File>> {
    let (send, receive) = mpsc::channel();
    let path = path.to_owned();
    thread::spawn(move || send.send(BufReader::new(File::open(path).expect("it is there"))));
    receive
}

/// So many rows are more than a pipe holds, 64 KiB: the writer waits, and the last handle of its log for the writer.
const MANY: usize = 4000;

/// The last handle of a log goes on one thread; its writer is held up. Another log in that file is refused in time, and made
/// once the first has been written to its end.
#[test]
fn a_log_that_is_held_up_is_waited_for_and_then_refused() {
    let scratch = pipe("held-up.fifo");
    let reading = opened(&scratch.0);
    let first = stack(Log::create(&scratch.0).unwrap());
    let mut reader = reading.recv().unwrap();
    rows(&first, MANY);
    let mut endings = vec![thread::spawn(move || drop(first))];
    // As soon as nobody has the first any more: until then it is joined. Whoever goes last waits for the reader, which is this
    // thread, so a handle that was joined goes elsewhere.
    let error = loop {
        match Log::create(&scratch.0) {
            Ok(log) => {
                assert!(log.rows() >= MANY as u64, "it is the first");
                endings.push(thread::spawn(move || drop(log)));
            }
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unwritable);
    let said = error.to_string();
    assert!(said.contains("held-up.fifo") && said.contains("the last log in it is still"), "{said}");
    assert!(endings.iter().any(|ending| !ending.is_finished()));
    // Somebody else waits from now on. Whether it comes before or behind the end of the first, it is alone.
    let path = scratch.0.clone();
    let waiting = thread::spawn(move || Log::create(path));
    let mut line = String::new();
    for _ in 0..=MANY {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
        assert_eq!(line.split(',').count(), 6, "{line}");
    }
    endings.into_iter().for_each(|ending| ending.join().unwrap());
    let second = stack(waiting.join().unwrap().unwrap());
    rows(&second, 1);
    drop(second);
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with("Thread,Time,") && rest.lines().count() == 2, "{rest}");
}

/// The last handle of a log goes while another one is made in its file: rows of both, or of the second alone, and nothing torn.
#[test]
fn a_log_that_is_made_while_the_last_one_ends() {
    let scratch = Scratch::new("one-after-the-other.csv");
    for _ in 0..60 {
        let first = stack(Log::create(&scratch.0).unwrap());
        rows(&first, 5000);
        let (going, gone) = mpsc::channel();
        let second = thread::scope(|scope| {
            scope.spawn(move || {
                going.send(()).unwrap();
                drop(first);
            });
            gone.recv().unwrap();
            Log::create(&scratch.0).unwrap()
        });
        let before = second.rows();
        assert!(before == 0 || before == 5000);
        let second = stack(second);
        rows(&second, 10);
        drop(second);
        let trace = scratch.trace();
        assert_eq!(trace.events.len() as u64, before + 10);
    }
}

#[test]
fn two_names_of_one_file_are_one() {
    let (scratch, hard, soft) =
        (Scratch::new("named.csv"), Scratch::new("hard.csv"), Scratch::new("soft.csv"));
    let first = Log::create(&scratch.0).unwrap();
    fs::hard_link(&scratch.0, &hard.0).unwrap();
    std::os::unix::fs::symlink(&scratch.0, &soft.0).unwrap();
    let logs = [first, Log::create(&hard.0).unwrap(), Log::create(&soft.0).unwrap()];
    for log in logs.clone() {
        rows(&stack(log), 1);
    }
    assert!(logs.iter().all(|log| log.rows() == 3));
    let other = LogConfig::default().tags(true).create(&hard.0);
    assert_eq!(other.unwrap_err().kind(), ErrorKind::InvalidArgument);
    drop(logs);
    assert_eq!(scratch.trace().events.len(), 3);
    // A file that has been taken away is another one.
    let first = Log::create(&scratch.0).unwrap();
    fs::remove_file(&scratch.0).unwrap();
    let second = Log::create(&scratch.0).unwrap();
    rows(&stack(first), 1);
    rows(&stack(second.clone()), 2);
    assert_eq!(second.rows(), 2);
    drop(second);
    assert_eq!(scratch.trace().events.len(), 2);
}

/// Whoever is told that a log is over may make the next one in its file.
#[test]
fn whoever_is_told_makes_the_next_log_in_the_file() {
    let scratch = pipe("told.fifo");
    let (tell, told) = mpsc::channel();
    let path = scratch.0.clone();
    let config = LogConfig::default().on_failure(move |_| {
        // Waits until somebody reads again.
        let _ = tell.send(Log::create(&path));
    });
    let reading = opened(&scratch.0);
    let first = stack(config.create(&scratch.0).unwrap());
    let mut reader = reading.recv().unwrap();
    // What is in a pipe stays there for as long as anybody has it open, and the first log may have it open still when the next
    // reader comes.
    let mut heading = String::new();
    reader.read_line(&mut heading).unwrap();
    first.book().flush().unwrap();
    drop(reader);
    rows(&first, 1);
    assert!(first.book().flush().is_err(), "nobody reads");
    let reading = opened(&scratch.0);
    let next = told.recv().unwrap().unwrap();
    drop(next);
    let mut rest = String::new();
    reading.recv().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!(rest.lines().count(), 1, "{rest}");
    assert_eq!(first.book().dropped(), 1);
}
