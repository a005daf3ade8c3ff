//! A log, as it is shipped: calls, flushes, failures, ends and its file. What its users see is what its models ask.
//!
//! The reference counts of handles are the standard library's, which the model does not see: [`Handle`] stands for them.

#![allow(clippy::disallowed_types, reason = "what a sink has taken is no part of the model")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex as Unmodelled};

use alluvion::adaptor::{Log, LogConfig, Logging};
use alluvion::source::Null;
use alluvion::{Layout, Resource, ResourceExt};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex};
use loom_tests::{Rig, Seen, explore_bounded, spawn};

/// What a sink has taken.
#[derive(Clone, Default)]
struct Taken(Arc<Unmodelled<Vec<u8>>>);

impl Taken {
    /// How many rows, all whole. The heading is none.
    fn rows(&self) -> usize {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).expect("a log is text");
        assert!(text.is_empty() || text.ends_with('\n'), "a row is torn");
        assert!(text.lines().skip(1).all(|row| row.split(',').count() == 6), "a row is torn: {text}");
        text.lines().count().saturating_sub(1)
    }
}

impl Write for Taken {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Room for two rows, the least that there is.
fn log(sink: impl Write + Send + 'static) -> Log {
    LogConfig::default().room(2).on_failure(|_| {}).write_to(sink).expect("there are few threads")
}

fn stack(log: Log) -> Logging<Null> {
    Null::new(&Rig::new().device).logging(log)
}

/// Logs a row.
fn row(log: &Log) {
    let layout = Layout::from_bytes(256).expect("a small size");
    stack(log.clone()).allocate_sync(layout).expect("there is none to run out of");
}

/// A handle of a log, whose last one knows of all that was done with the others before. The count comes with the drop that it
/// stands for: the model changes threads where it sees something, and it sees nothing in between.
struct Handle {
    log: Option<Log>,
    count: Arc<AtomicU64>,
}

impl Handle {
    fn new(log: Log) -> Self {
        Self { log: Some(log), count: Arc::new(AtomicU64::new(0)) }
    }

    fn log(&self) -> &Log {
        self.log.as_ref().expect("it is not dropped")
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self { log: self.log.clone(), count: Arc::clone(&self.count) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        drop(self.log.take());
    }
}

#[test]
fn a_flush_waits_for_what_was_logged_before() {
    explore_bounded(Some(2), || {
        let taken = Taken::default();
        let log = log(taken.clone());
        row(&log);
        log.flush().expect("nothing is wrong");
        assert_eq!((taken.rows(), log.written()), (1, 1), "a flush comes before the rows");
        drop(log);
    });
}

#[test]
fn flushes_of_two_threads_both_return() {
    explore_bounded(Some(1), || {
        let taken = Taken::default();
        let log = Handle::new(log(taken.clone()));
        let other = spawn({
            let log = log.clone();
            move || log.log().flush().expect("nothing is wrong")
        });
        row(log.log());
        log.log().flush().expect("nothing is wrong");
        assert_eq!(taken.rows(), 1);
        drop(log);
        other.join().unwrap();
    });
}

/// The writer sleeps when there is nothing, and whoever logs wakes it. One that is not woken is a deadlock, which loom reports.
#[test]
fn a_sleeping_writer_is_woken() {
    /// Tells how many bytes it has taken.
    #[derive(Clone, Default)]
    struct Tells(Arc<(Mutex<usize>, Condvar)>);
    impl Write for Tells {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            *self.0.0.lock().unwrap() += bytes.iter().filter(|byte| **byte == b'\n').count();
            self.0.1.notify_all();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    explore_bounded(Some(2), || {
        let tells = Tells::default();
        let log = log(tells.clone());
        for lines in [2, 3] {
            row(&log);
            let mut taken = tells.0.0.lock().unwrap();
            while *taken < lines {
                taken = tells.0.1.wait(taken).unwrap();
            }
        }
        drop(log);
    });
}

/// Two threads log and let go of the log; the last one waits for the writer, which has written all.
#[test]
fn the_end_misses_no_row() {
    explore_bounded(Some(1), || {
        let taken = Taken::default();
        let log = Handle::new(log(taken.clone()));
        let other = spawn({
            let log = log.clone();
            move || row(log.log())
        });
        row(log.log());
        drop(log);
        other.join().unwrap();
        assert_eq!(taken.rows(), 2, "the end misses a row");
    });
}

/// A write fails: whoever waits for a flush or for room is let go, and every row is counted.
#[test]
fn a_failure_lets_everybody_go() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    static FULL: Seen = Seen::never();
    explore_bounded(Some(1), || {
        let log = Handle::new(log(Full));
        let other = spawn({
            let log = log.clone();
            move || assert!(log.log().flush().is_err(), "nothing is written")
        });
        for _ in 0..3 {
            row(log.log());
        }
        assert!(log.log().flush().is_err());
        assert_eq!((log.log().rows(), log.log().written(), log.log().dropped()), (3, 0, 3));
        FULL.note(log.log().stalls() > 0);
        other.join().unwrap();
        drop(log);
    });
    assert!(FULL.times() > 0, "nobody waits for room");
}

/// The last handle of a log goes on one thread while another makes a log in its file: it is the same one, or a new one that begins
/// when the first is written to its end.
#[test]
fn two_logs_never_write_one_file() {
    static SAME: [Seen; 2] = [Seen::never(), Seen::never()];
    let path = std::env::temp_dir().join(format!("alluvion-model-{}.csv", std::process::id()));
    let file = path.clone();
    explore_bounded(Some(2), move || {
        let config = || LogConfig::default().room(2);
        let first = config().create(&file).expect("it can be written");
        row(&first);
        let ending = spawn(move || drop(first));
        let second = config().create(&file).expect("it can be written");
        let is_same = second.rows() > 0;
        drop(second);
        ending.join().unwrap();
        let text = std::fs::read(&file).expect("it is there");
        let taken = Taken(Arc::new(Unmodelled::new(text)));
        assert_eq!(taken.rows(), usize::from(is_same), "two logs have written one file");
        SAME[usize::from(is_same)].note(true);
    });
    std::fs::remove_file(path).expect("it is there");
    assert!(SAME.iter().all(|same| same.times() > 0), "{SAME:?}");
}
