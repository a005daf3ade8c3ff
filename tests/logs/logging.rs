//! What `Logging` writes: rows as RMM's, in an order that happened, all of them, and none that breaks a call.

use std::fs;
use std::io;
use std::time::Duration;

use alluvion::adaptor::{Log, LogConfig, Logging};
use alluvion::source::{Cuda, CudaAsync};
use alluvion::suballoc::{Growth, SuballocBook};
use alluvion::tag::with_tag;
use alluvion::testing::{Bench, Delayed};
use alluvion::trace::{Action, RmmCsv, Trace};
use alluvion::{AnyResource, DeviceVec, ErrorKind, PoolConfig, Resource, ResourceExt, Sim};

use crate::log_files::{Paper, Scratch};
use crate::raw_block::{Held, layout_of};

fn sim() -> Sim {
    Sim::with_config(Bench::config().devices(1))
}

/// The columns of a line but the first two, which are of the thread and the time.
fn said(line: &str) -> String {
    line.splitn(3, ',').nth(2).unwrap_or_default().to_owned()
}

#[test]
fn rows_are_those_of_rmm_byte_for_byte() {
    let (sim, paper) = (sim(), Paper::default());
    let device = sim.device(0);
    let stream = device.stream().unwrap();
    let resource = Cuda::new(&device).logging(Log::write_to(paper.clone()).unwrap());
    let mut wanted = vec!["Thread,Time,Action,Pointer,Size,Stream".to_owned()];

    let block = Held::allocate(&resource, layout_of(1000), stream.as_ref()).unwrap();
    let (address, handle) = (block.pointer.address(), stream.as_ref().raw().0);
    block.free(stream.as_ref());
    wanted.push(format!("allocate,{address:#x},1000,{handle:#x}"));
    wanted.push(format!("free,{address:#x},1000,{handle:#x}"));

    let legacy = device.default_stream();
    let block = Held::allocate(&resource, layout_of(42), legacy.as_ref()).unwrap();
    let address = block.pointer.address();
    block.free(device.per_thread_stream().unwrap().as_ref());
    wanted.push(format!("allocate,{address:#x},42,0x1"));
    wanted.push(format!("free,{address:#x},42,0x2"));

    let block = Held::allocate_sync(&resource, layout_of(99)).unwrap();
    let address = block.pointer.address();
    block.free_sync();
    wanted.push(format!("allocate,{address:#x},99,0"));
    wanted.push(format!("free,{address:#x},99,0"));

    let block = Held::allocate(&resource, layout_of(0), stream.as_ref()).unwrap();
    block.free(stream.as_ref());
    wanted.push(format!("allocate,(nil),0,{handle:#x}"));
    wanted.push(format!("free,(nil),0,{handle:#x}"));

    let error = resource.allocate(layout_of(1 << 50), stream.as_ref()).unwrap_err();
    assert!(error.is_out_of_memory());
    let error = resource.allocate_sync(layout_of(1 << 50)).unwrap_err();
    assert!(error.is_out_of_memory());
    wanted.push(format!("allocate failure,(nil),{},{handle:#x}", 1_u64 << 50));
    wanted.push(format!("allocate failure,(nil),{},0", 1_u64 << 50));

    resource.book().flush().unwrap();
    let text = paper.text();
    assert!(text.ends_with('\n') && !text.contains('\r'));
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(wanted[0].as_str()));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.iter().map(|line| said(line)).collect::<Vec<_>>(), wanted[1..]);
    // The thread as the system numbers it, and the time with six digits behind the point.
    for line in &lines {
        let mut columns = line.split(',');
        let thread = columns.next().unwrap();
        assert!(fs::exists(format!("/proc/self/task/{thread}")).unwrap(), "{line}");
        let time = columns.next().unwrap();
        assert!(time.len() == 15 && &time[2..3] == ":" && &time[8..9] == ".", "{line}");
    }
}

#[test]
fn a_line_has_the_bytes_of_a_line_of_rmms() {
    // A row of a real log, read and written again.
    use alluvion::trace::RmmCsvWriter;
    for name in ["etl", "streams", "serve_streams", "train_gpt"] {
        let path = format!("{}/tests/traces/{name}.csv.gz", env!("CARGO_MANIFEST_DIR"));
        let mut text = String::new();
        let mut file = flate2::read::GzDecoder::new(fs::File::open(path).unwrap());
        io::Read::read_to_string(&mut file, &mut text).unwrap();
        let mut writer = RmmCsvWriter::new(Vec::new());
        for row in RmmCsv::new(text.as_bytes()).unwrap() {
            writer.write(&row.unwrap()).unwrap();
        }
        assert!(writer.finish().unwrap() == text.as_bytes(), "{name}");
    }
}

#[test]
fn a_file_is_made_emptied_and_written_to_its_end() {
    let scratch = Scratch::new("file.csv");
    fs::write(&scratch.0, "what was there").unwrap();
    let sim = sim();
    let stream = sim.device(0).stream().unwrap();
    let resource = Cuda::new(&sim.device(0)).logging(Log::create(&scratch.0).unwrap());
    assert_eq!(resource.describe().to_string(), format!("Logging({}) > Cuda(gpu 0)", scratch.0.display()));
    for bytes in 1..=1000 {
        Held::allocate(&resource, layout_of(bytes), stream.as_ref()).unwrap().free(stream.as_ref());
    }
    assert_eq!((resource.book().rows(), resource.book().dropped()), (2000, 0));
    drop(resource);
    let trace = scratch.trace();
    assert_eq!((trace.events.len(), trace.strays, trace.threads, trace.streams), (2000, 0, 1, 1));
    assert!(trace.events.iter().map(|event| event.bytes).eq((1..=1000).flat_map(|bytes| [bytes, bytes])));
}

/// Two devices, each with a stack that logs to the file which the environment names: it is one log, and none overwrites the rows of
/// another. Whatever the file is called.
#[cfg(unix)]
#[test]
fn logs_in_one_file_are_one_log() {
    let (sim, scratch, link) = (sim(), Scratch::new("shared.csv"), Scratch::new("link.csv"));
    let first = Cuda::new(&sim.device(0)).logging(Log::create(&scratch.0).unwrap());
    std::os::unix::fs::symlink(&scratch.0, &link.0).unwrap();
    for _ in 0..100 {
        Held::allocate_sync(&first, layout_of(100)).unwrap().free_sync();
    }
    first.book().flush().unwrap();
    let second = Cuda::new(&sim.device(0)).logging(Log::create(&link.0).unwrap());
    for resource in [&first, &second] {
        Held::allocate_sync(resource, layout_of(100)).unwrap().free_sync();
        resource.book().flush().unwrap();
    }
    let error = LogConfig::default().tags(true).create(&scratch.0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    drop((first, second));
    assert_eq!(scratch.trace().events.len(), 204);
    // That one is over: the file is emptied.
    drop(LogConfig::default().tags(true).create(&scratch.0).unwrap());
    assert_eq!(scratch.trace().events.len(), 0);
}

#[test]
fn a_log_without_calls_is_a_heading() {
    let paper = Paper::default();
    drop(LogConfig::default().tags(true).reserved(true).write_to(paper.clone()).unwrap());
    assert_eq!(paper.text(), "Thread,Time,Action,Pointer,Size,Stream,Tag,Reserved\n");
}

#[test]
fn a_path_that_cannot_be_written_is_an_error_at_once() {
    let error = Log::create("/nowhere/at/all.csv").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unwritable);
    assert!(error.to_string().starts_with("unwritable: /nowhere/at/all.csv: "), "{error}");
    let folder = Log::create(std::env::temp_dir()).unwrap_err();
    assert_eq!(folder.kind(), ErrorKind::Unwritable);
}

#[test]
fn several_layers_write_one_log() {
    let (sim, paper) = (sim(), Paper::default());
    let stream = sim.device(0).stream().unwrap();
    let log = Log::write_to(paper.clone()).unwrap();
    let one = Cuda::new(&sim.device(0)).logging(log.clone());
    let two = AnyResource::new(CudaAsync::new(&sim.device(0)).unwrap().logging(log.clone()));
    assert_ne!(one.id(), two.id());
    drop(DeviceVec::<u8, _>::zeroed_in(100, stream.as_ref(), &one).unwrap());
    drop(DeviceVec::<u8, _>::zeroed_in(200, stream.as_ref(), two.clone()).unwrap());
    assert_eq!(two.find::<Logging>().map(Log::rows), Some(4));
    log.flush().unwrap();
    let sizes: Vec<u64> = paper.rows().iter().map(|row| row.bytes).collect();
    assert_eq!(sizes, [100, 100, 200, 200]);
    // The last of the handles ends it.
    drop((log, one));
    drop(DeviceVec::<u8, _>::zeroed_in(300, stream.as_ref(), two.clone()).unwrap());
    drop(two);
    assert_eq!(paper.rows().len(), 6);
}

#[test]
fn tags_and_what_is_reserved_are_columns_if_wanted() {
    let (sim, paper) = (sim(), Paper::default());
    let log = LogConfig::default().tags(true).reserved(true).write_to(paper.clone()).unwrap();
    let config = PoolConfig::default().growth(Growth::Exact);
    let pool = Cuda::new(&sim.device(0)).pool(config).unwrap().logging(log);
    let first = Held::allocate_sync(&pool, layout_of(1 << 20)).unwrap();
    let second = with_tag("query", || {
        with_tag(&"join".repeat(2000), || Held::allocate_sync(&pool, layout_of(2 << 20)).unwrap())
    });
    first.free_sync();
    second.free_sync();
    assert_eq!(pool.trim(0).unwrap(), 3 << 20);
    with_tag(" spaces ", || assert!(pool.allocate_sync(layout_of(1 << 50)).is_err()));
    pool.book().flush().unwrap();
    let rows = paper.rows();
    let said: Vec<_> =
        rows.iter().map(|row| (&row.tag[..row.tag.len().min(10)], row.reserved_bytes)).collect();
    let (one, both) = (Some(1 << 20), Some(3 << 20));
    assert_eq!(said, [("", one), ("query;join", both), ("", both), ("", both), ("spaces", Some(0))]);
    assert_eq!(rows[1].tag.len(), 2048, "a line stays as short as readers want it");
    assert_eq!(pool.find::<SuballocBook>().map(SuballocBook::reserved_bytes), Some(0));
    // Over a source there is nobody who reserves.
    let paper = Paper::default();
    let log = LogConfig::default().reserved(true).write_to(paper.clone()).unwrap();
    let source = Cuda::new(&sim.device(0)).logging(log);
    Held::allocate_sync(&source, layout_of(1)).unwrap().free_sync();
    source.book().flush().unwrap();
    assert!(paper.rows().iter().all(|row| row.reserved_bytes.is_none()));
}

/// A sink that takes nothing until the other end of its channel is dropped.
struct Gate(Paper, std::sync::mpsc::Receiver<()>);

impl io::Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nothing is ever sent: an error says that the gate is open.
        let _ = self.1.recv();
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Addresses are handed out again as soon as they are free, and the upstream dawdles: whoever wrote the free behind the upstream
/// would write it behind the next allocation.
#[test]
fn no_address_is_allocated_twice_without_a_free_between() {
    let (sim, paper) = (sim(), Paper::default());
    let upstream = Delayed::new(Cuda::new(&sim.device(0)), Duration::ZERO);
    // The sink takes nothing before somebody has waited for a place: that a queue of 64 is full at times is a part of the test.
    let (open, opened) = std::sync::mpsc::channel::<()>();
    let log = LogConfig::default().room(64).write_to(Gate(paper.clone(), opened)).unwrap();
    let resource = upstream.logging(log);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = sim.device(0).stream().unwrap();
                for turn in 0..2000 {
                    let block =
                        Held::allocate(&resource, layout_of(256 + turn % 3), stream.as_ref()).unwrap();
                    block.free(stream.as_ref());
                }
            });
        }
        while resource.book().stalls() == 0 {
            std::thread::yield_now();
        }
        drop(open);
    });
    resource.book().flush().unwrap();
    assert_eq!(resource.book().rows(), 16_000);
    let mut live = std::collections::HashSet::new();
    for row in paper.rows() {
        match row.action {
            Action::Allocate => assert!(live.insert(row.address), "line {}: {:#x}", row.line, row.address),
            Action::Free => assert!(live.remove(&row.address), "line {}: {:#x}", row.line, row.address),
            Action::AllocateFailure => unreachable!("there is memory"),
        }
    }
    assert!(live.is_empty());
    let trace = Trace::from_rmm_csv(paper.text().as_bytes()).unwrap();
    assert_eq!((trace.threads, trace.streams), (4, 4));
}

#[test]
fn times_are_of_the_wall_clock_and_go_on() {
    let (sim, paper) = (sim(), Paper::default());
    let resource = Cuda::new(&sim.device(0)).logging(Log::write_to(paper.clone()).unwrap());
    for _ in 0..3 {
        Held::allocate_sync(&resource, layout_of(1)).unwrap().free_sync();
        std::thread::sleep(Duration::from_millis(3));
    }
    resource.book().flush().unwrap();
    let times: Vec<u64> = paper.rows().iter().map(|row| row.microseconds).collect();
    let day = 24 * 60 * 60 * 1_000_000;
    let took = (times[5] + day - times[0]) % day;
    assert!((6_000..60_000_000).contains(&took), "{times:?}");
}

#[test]
fn a_log_that_is_leaked_goes_on() {
    let (sim, paper) = (sim(), Paper::default());
    let stream = sim.device(0).stream().unwrap();
    let log = Log::write_to(paper.clone()).unwrap();
    let resource = Cuda::new(&sim.device(0)).logging(log.clone());
    Held::allocate(&resource, layout_of(5), stream.as_ref()).unwrap().free(stream.as_ref());
    std::mem::forget(resource);
    log.flush().unwrap();
    assert_eq!(paper.rows().len(), 2);
    std::mem::forget(log);
}

/// The writer sleeps when there has been nothing for a while, and the next call wakes it.
#[test]
fn a_sleeping_writer_is_woken() {
    let (sim, paper) = (sim(), Paper::default());
    let resource = Cuda::new(&sim.device(0)).logging(Log::write_to(paper.clone()).unwrap());
    for turn in 1..=3 {
        std::thread::sleep(Duration::from_millis(200));
        Held::allocate_sync(&resource, layout_of(1)).unwrap().free_sync();
        // Without being asked.
        let begun = std::time::Instant::now();
        while resource.book().written() < 2 * turn {
            assert!(begun.elapsed() < Duration::from_secs(300), "it sleeps on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(paper.rows().len(), 6);
}
