//! What becomes of a log whose writer fails, blocks, panics or calls back: it is told once, and no call breaks or hangs.

#![allow(clippy::disallowed_types, reason = "no model is run here")]

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use alluvion::adaptor::{Log, LogConfig, Logging};
use alluvion::source::Cuda;
use alluvion::testing::Bench;
use alluvion::{AnyResource, Error, ErrorKind, Resource, ResourceExt, Sim};

use crate::log_files::Paper;
use crate::raw_block::{Held, layout_of};

fn sim() -> Sim {
    Sim::with_config(Bench::config().devices(1))
}

fn pairs<R: Resource>(resource: &R, count: usize) {
    for _ in 0..count {
        Held::allocate_sync(resource, layout_of(100)).expect("there is memory").free_sync();
    }
}

#[track_caller]
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(300), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Collects what a log says about its end.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Error>>>);

impl Told {
    fn config(&self) -> LogConfig {
        let told = self.0.clone();
        LogConfig::default().room(64).on_failure(move |error| told.lock().unwrap().push(error.clone()))
    }

    fn errors(&self) -> Vec<Error> {
        self.0.lock().unwrap().clone()
    }
}

/// The log of `resource` is over, and nothing else is: a flush says why, calls go on, and rows are counted.
#[track_caller]
fn assert_is_over(resource: &Logging<Cuda>, told: &Told, why: &str) {
    let log = resource.book();
    let error = log.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unwritable);
    assert!(error.to_string().contains(why), "`{error}` does not say `{why}`");
    let before = (log.rows(), log.dropped());
    pairs(resource, 300);
    assert_eq!((log.rows(), log.dropped()), (before.0 + 600, before.1 + 600));
    assert_eq!(log.rows(), log.written() + log.dropped());
    assert_eq!(log.failure().map(|failure| failure.to_string()), Some(error.to_string()));
    wait_until("nobody was told", || !told.errors().is_empty());
    assert_eq!(told.errors().len(), 1, "it is told once");
    assert_eq!(told.errors()[0].to_string(), error.to_string());
    // A call that fails is told as ever.
    assert!(resource.allocate_sync(layout_of(1 << 50)).unwrap_err().is_out_of_memory());
}

/// Takes some writes, or flushes, and then answers something else.
struct Failing<F> {
    paper: Paper,
    writes_left: usize,
    answer: F,
    at_flush: bool,
}

impl<F: FnMut() -> io::Result<usize>> Write for Failing<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.writes_left == 0 && !self.at_flush {
            return (self.answer)();
        }
        self.writes_left = self.writes_left.saturating_sub(1);
        self.paper.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.at_flush { (self.answer)().map(drop) } else { Ok(()) }
    }
}

/// The n-th write fails, for each n: what was written before is whole, and the figures say how much that is.
#[test]
fn the_nth_write_fails() {
    let sim = sim();
    for writes_left in 0..6 {
        let (told, paper) = (Told::default(), Paper::default());
        let answer = || Err(io::Error::from(io::ErrorKind::StorageFull));
        let writer = Failing { paper: paper.clone(), writes_left, answer, at_flush: false };
        let resource = Cuda::new(&sim.device(0)).logging(told.config().write_to(writer).unwrap());
        for _ in 0..10 {
            pairs(&resource, 10);
            let _ = resource.book().flush();
        }
        assert_is_over(&resource, &told, "no storage space");
        let log = resource.book().clone();
        drop(resource);
        match writes_left {
            0 => assert_eq!(paper.text(), ""),
            _ => assert_eq!(paper.rows().len() as u64, log.written()),
        }
        assert!(writes_left < 2 || log.written() > 0, "what was written is counted");
    }
}

#[test]
fn a_flush_fails() {
    let (sim, told) = (sim(), Told::default());
    let answer = || Err(io::Error::from(io::ErrorKind::BrokenPipe));
    let writer = Failing { paper: Paper::default(), writes_left: 0, answer, at_flush: true };
    let resource = Cuda::new(&sim.device(0)).logging(told.config().write_to(writer).unwrap());
    pairs(&resource, 1);
    assert_is_over(&resource, &told, "broken pipe");
}

#[test]
fn a_writer_takes_nothing() {
    let (sim, told) = (sim(), Told::default());
    let writer = Failing { paper: Paper::default(), writes_left: 1, answer: || Ok(0), at_flush: false };
    let resource = Cuda::new(&sim.device(0)).logging(told.config().write_to(writer).unwrap());
    resource.book().flush().unwrap();
    pairs(&resource, 1);
    assert_is_over(&resource, &told, "failed to write whole buffer");
}

#[test]
fn a_writer_that_is_interrupted_is_asked_again() {
    let (sim, paper) = (sim(), Paper::default());
    struct Interrupted(Paper, bool);
    impl Write for Interrupted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 = !self.1;
            // And takes one byte at a time.
            if self.1 { Err(io::ErrorKind::Interrupted.into()) } else { self.0.write(&bytes[..1]) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let resource =
        Cuda::new(&sim.device(0)).logging(Log::write_to(Interrupted(paper.clone(), false)).unwrap());
    pairs(&resource, 100);
    drop(resource);
    assert_eq!(paper.rows().len(), 200);
}

#[cfg(target_os = "linux")]
#[test]
fn the_disk_is_full() {
    let (sim, told) = (sim(), Told::default());
    let resource = Cuda::new(&sim.device(0)).logging(told.config().create("/dev/full").unwrap());
    pairs(&resource, 10);
    assert_is_over(&resource, &told, "No space left on device");
    assert_eq!(resource.book().written(), 0);
    assert!(told.errors()[0].to_string().starts_with("unwritable: /dev/full: "));
}

#[test]
fn a_writer_panics() {
    let sim = sim();
    for writes_left in 0..3 {
        let (told, paper) = (Told::default(), Paper::default());
        let answer = || std::panic::resume_unwind(Box::new("on purpose"));
        let writer = Failing { paper: paper.clone(), writes_left, answer, at_flush: false };
        let resource = Cuda::new(&sim.device(0)).logging(told.config().write_to(writer).unwrap());
        for _ in 0..5 {
            pairs(&resource, 10);
            let _ = resource.book().flush();
        }
        assert_is_over(&resource, &told, "the writer panicked");
    }
}

/// Whatever panics after that: the one who is told, the writer when it is dropped, and what was thrown.
#[test]
fn everything_panics() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !thread::panicking() {
                std::panic::resume_unwind(Box::new(()));
            }
        }
    }
    struct Spiteful(#[allow(dead_code, reason = "it is there to be dropped")] Bomb);
    impl Write for Spiteful {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            std::panic::resume_unwind(Box::new(Bomb));
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    static TOLD: AtomicUsize = AtomicUsize::new(0);
    let sim = sim();
    let config = LogConfig::default().on_failure(|_| {
        TOLD.fetch_add(1, Ordering::Relaxed);
        std::panic::resume_unwind(Box::new(Bomb));
    });
    let resource = Cuda::new(&sim.device(0)).logging(config.write_to(Spiteful(Bomb)).unwrap());
    pairs(&resource, 100);
    assert!(resource.book().flush().is_err());
    drop(resource);
    assert_eq!(TOLD.load(Ordering::Relaxed), 1);
}

/// A gate that holds a writer up.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let mut is_open = self.0.0.lock().unwrap();
        while !*is_open {
            is_open = self.0.1.wait(is_open).unwrap();
        }
    }
}

struct Gated(Gate, Paper);

impl Write for Gated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.pass();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_blocks_makes_calls_wait_and_loses_nothing() {
    let (sim, gate, paper) = (sim(), Gate::default(), Paper::default());
    let log = LogConfig::default().room(16).write_to(Gated(gate.clone(), paper.clone())).unwrap();
    let resource = Cuda::new(&sim.device(0)).logging(log);
    thread::scope(|scope| {
        let calls: Vec<_> = (0..3).map(|_| scope.spawn(|| pairs(&resource, 500))).collect();
        wait_until("nobody has to wait", || resource.book().stalls() >= 3);
        assert!(calls.iter().all(|calls| !calls.is_finished()));
        gate.open();
    });
    let log = resource.book().clone();
    drop(resource);
    log.flush().unwrap();
    assert_eq!((paper.rows().len(), log.dropped()), (3000, 0));
}

/// The threads that wait for room are let go when the writer fails.
#[test]
fn a_writer_fails_while_calls_wait_for_it() {
    let (sim, gate, told) = (sim(), Gate::default(), Told::default());
    struct Shut(Gate);
    impl Write for Shut {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            self.0.pass();
            Err(io::Error::from(io::ErrorKind::BrokenPipe))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = told.config().room(4).write_to(Shut(gate.clone())).unwrap();
    let resource = Cuda::new(&sim.device(0)).logging(log);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| pairs(&resource, 500));
        }
        let flush = scope.spawn(|| resource.book().flush());
        wait_until("nobody has to wait", || resource.book().stalls() >= 3);
        gate.open();
        assert_eq!(flush.join().unwrap().unwrap_err().kind(), ErrorKind::Unwritable);
    });
    assert_eq!((resource.book().dropped(), resource.book().written()), (3000, 0));
    assert_is_over(&resource, &told, "broken pipe");
}

/// A writer that allocates from the very stack that it writes about, waits for its log, and holds the last handle of it.
#[test]
fn a_writer_calls_back() {
    struct Callback {
        stack: Arc<OnceLock<AnyResource>>,
        errors: Arc<Mutex<Vec<String>>>,
        paper: Paper,
        /// So many writes still call back.
        left: usize,
    }
    impl Write for Callback {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(stack) = self.stack.get().filter(|_| self.left > 0) {
                self.left -= 1;
                // Twice as many rows as there is room for, so that each write makes another one. That has an end, because other
                // threads find room by chance alone until then.
                pairs(stack, 4);
                let log = stack.find::<Logging>().expect("it is logged");
                if let Err(error) = log.flush() {
                    self.errors.lock().unwrap().push(error.to_string());
                }
            }
            self.paper.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (sim, stack, errors, paper) = (sim(), Arc::default(), Arc::default(), Paper::default());
    let writer =
        Callback { stack: Arc::clone(&stack), errors: Arc::clone(&errors), paper: paper.clone(), left: 100 };
    let log = LogConfig::default().room(4).write_to(writer).unwrap();
    let resource = AnyResource::new(Cuda::new(&sim.device(0)).logging(log.clone()));
    assert!(stack.set(resource.clone()).is_ok());
    pairs(&resource, 100);
    wait_until("the writer hangs", || !errors.lock().unwrap().is_empty());
    assert!(errors.lock().unwrap()[0].contains("a thread that writes a log cannot wait for one"));
    assert!(log.dropped() > 0, "there was no room for what it did itself");
    log.flush().expect("it writes on");
    assert!(paper.rows().len() >= 200, "no row of another thread is left out");
    // A circle: it holds itself, and is leaked. Nothing is to be said against that.
    drop((resource, log));
}

/// Waiting, as channels do, parks the thread and takes calls of `unpark` that were meant for somebody else: here that of a second
/// flush, which is asked for while the writer is at the first.
#[test]
fn a_writer_that_parks_is_still_woken() {
    #[derive(Clone, Default)]
    struct Parks(Arc<AtomicUsize>);
    impl Write for Parks {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
            thread::park_timeout(Duration::ZERO);
            Ok(())
        }
    }
    let parks = Parks::default();
    let log = Log::write_to(parks.clone()).unwrap();
    // The writer goes to sleep after a hundred turns without a row: that shall be behind some first flush.
    let flushing = thread::spawn(move || {
        for _ in 0..600 {
            let flushes = parks.0.load(Ordering::SeqCst);
            thread::scope(|scope| {
                scope.spawn(|| log.flush().unwrap());
                while parks.0.load(Ordering::SeqCst) == flushes {
                    thread::yield_now();
                }
                log.flush().unwrap();
            });
        }
    });
    wait_until("a flush hangs", || flushing.is_finished());
    flushing.join().unwrap();
}

/// Room is memory: what nobody can want is not taken for it.
#[test]
fn absurd_room_is_cut_to_what_there_can_be() {
    let (sim, paper) = (sim(), Paper::default());
    let log = LogConfig::default().room(usize::MAX).write_to(paper.clone()).unwrap();
    let resource = Cuda::new(&sim.device(0)).logging(log);
    pairs(&resource, 100);
    drop(resource);
    assert_eq!(paper.rows().len(), 200);
}

/// Failing logs are independent of each other.
#[test]
fn one_log_fails_and_another_goes_on() {
    let (sim, told, paper) = (sim(), Told::default(), Paper::default());
    let answer = || Err(io::Error::from(io::ErrorKind::StorageFull));
    let failing = Failing { paper: Paper::default(), writes_left: 0, answer, at_flush: false };
    let inner = Cuda::new(&sim.device(0)).logging(told.config().write_to(failing).unwrap());
    let outer = inner.logging(Log::write_to(paper.clone()).unwrap());
    pairs(&outer, 1000);
    outer.book().flush().unwrap();
    assert_eq!((paper.rows().len(), outer.book().dropped()), (2000, 0));
    assert!(outer.upstream().book().flush().is_err());
}

/// Until something is logged, a sink is given the heading, once.
#[test]
fn a_sink_is_not_called_for_nothing() {
    #[derive(Clone, Default)]
    struct Counts(Arc<Mutex<Vec<usize>>>);
    impl Write for Counts {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.0.lock().unwrap().push(bytes.len());
            Ok(())
        }
    }
    let counts = Counts::default();
    let log = Log::write_to(counts.clone()).unwrap();
    for _ in 0..10 {
        log.flush().unwrap();
    }
    drop(log);
    assert_eq!(counts.0.lock().unwrap().len(), 1, "the heading");
}
