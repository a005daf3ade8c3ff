//! Snapshots as files: what is in them, and when they are written.

#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, Mutex};
use std::{env, process, thread};

use alluvion::adaptor::GuardConfig;
use alluvion::error::SnapshotFile;
use alluvion::relief::Relief;
use alluvion::sim::SimConfig;
use alluvion::source::Cuda;
use alluvion::suballoc::{
    Arena, ArenaConfig, BlockState, BlockView, FixedSize, FixedSizeConfig, Growth, Reuse, Snapshot,
};
use alluvion::tag::{Tag, with_tag};
use alluvion::testing::{Bench, Stall};
use alluvion::{DeviceVec, Error, Pool, PoolConfig, Recipe, Resource, ResourceExt, Sim, Stream};
use serde_json::Value;

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// A folder of this test alone, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("alluvion-snapshots-{}-{name}", process::id()));
        // A process that was killed may have had this number, and left it.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary folder can be made");
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder is there");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("it is read").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn parse(json: &[u8]) -> Value {
    serde_json::from_slice(json).expect("a snapshot is JSON")
}

fn json_of(snapshot: &Snapshot) -> Value {
    let mut json = Vec::new();
    snapshot.write_json(&mut json).expect("a vector takes what it is given");
    parse(&json)
}

fn read(path: &Path) -> Value {
    parse(&fs::read(path).expect("the file was written"))
}

#[track_caller]
fn file_of(error: &Error) -> Option<SnapshotFile> {
    error.out_of_memory_report().expect("it is out of memory").snapshot_file.clone()
}

#[test]
fn all_that_is_in_a_snapshot_is_in_its_file() {
    let bench = Bench::sim();
    let (first, second) = (bench.stream(), bench.stream());
    let config = PoolConfig::default().initial(16 * MIB).reuse(Reuse::Own);
    let pool = Cuda::new(&bench.device()).pool(config).expect("there is as much");
    let live = [3 * MIB, 1000].map(|bytes| Held::of(&pool, bytes, first.as_ref()));
    // Large ones are not cached when a larger request comes; small ones are.
    Held::of(&pool, 2 * MIB, second.as_ref()).free(second.as_ref());
    Held::of(&pool, 5000, second.as_ref()).free(second.as_ref());
    Held::allocate_sync(&pool, layout_of(700)).expect("there is room").free_sync();
    let mut snapshot = pool.snapshot();
    let tag = with_tag("quo\"te", Tag::current);
    snapshot.label(|block| if block == live[0].pointer { tag } else { Tag::NONE });
    let json = json_of(&snapshot);
    assert_eq!((&json["format"], &json["version"]), (&"alluvion-snapshot".into(), &1.into()));
    assert_eq!((&json["device"]["driver"], &json["device"]["ordinal"]), (&"sim".into(), &0.into()));
    assert!(json["unix_microseconds"].as_u64().is_some_and(|time| time > 1_700_000_000_000_000));
    assert!(json.get("out_of_memory").is_none(), "nothing ran out");

    let address = |value: &Value| {
        let text = value.as_str().and_then(|text| text.strip_prefix("0x")).expect("an address");
        u64::from_str_radix(text, 16).expect("hexadecimal")
    };
    let segments = json["segments"].as_array().expect("a list");
    assert_eq!(segments.len(), snapshot.segments.len());
    for (written, segment) in segments.iter().zip(&snapshot.segments) {
        assert_eq!(address(&written["address"]), segment.address.address());
        assert_eq!(written["bytes"], segment.bytes);
    }
    let blocks = json["blocks"].as_array().expect("a list");
    assert_eq!(blocks.len(), snapshot.blocks.len());
    let (mut kinds, mut bytes) = (Vec::new(), 0);
    for (written, block) in blocks.iter().zip(&snapshot.blocks) {
        assert_eq!(address(&written["address"]), block.address.address());
        assert_eq!(written["bytes"], block.bytes);
        bytes += block.bytes;
        let (state, stream, epoch) = match block.state {
            BlockState::Live => ("live", None, None),
            BlockState::Cached(stream) => ("cached", stream, None),
            BlockState::Pending(point) => ("pending", Some(point.stream()), Some(point.epoch())),
            BlockState::Free => ("free", None, None),
            _ => unreachable!("there are four"),
        };
        assert_eq!(written["state"], state);
        assert_eq!(written.get("stream").and_then(Value::as_str), stream.map(|id| id.to_string()).as_deref());
        assert_eq!(written.get("epoch").is_some(), epoch.is_some());
        assert_eq!(written.get("tag").and_then(Value::as_str), (block.tag != Tag::NONE).then_some("quo\"te"));
        kinds.push((state, stream.is_some(), block.tag != Tag::NONE));
    }
    for kind in [
        ("live", false, true),
        ("live", false, false),
        ("cached", true, false),
        ("cached", false, false),
        ("free", false, false),
    ] {
        assert!(kinds.contains(&kind), "{kind:?} is not in {kinds:?}");
    }
    // The figures are of the same moment.
    let status = &json["status"];
    assert_eq!(status["reserved_bytes"], bytes);
    assert_eq!((&status["live_blocks"], &status["misses"]), (&2.into(), &pool.status().misses.into()));
    let sum: u64 =
        ["live_bytes", "cached_bytes", "free_bytes"].iter().filter_map(|name| status[name].as_u64()).sum();
    assert_eq!(sum, bytes as u64);
    assert_eq!(pool.status(), snapshot.status);
    live.into_iter().for_each(|block| block.free(first.as_ref()));
    bench.check();
}

/// A register labels blocks that begin further on than the pool knows, because a guard is between them.
#[test]
fn a_register_labels_through_a_guard() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().initial(MIB)).expect("there is as much");
    let guard = pool.guard(GuardConfig::default()).expect("there is a stream and pinned memory");
    let tracking = guard.tracking();
    let held = [("one", 1000), ("two", 50_000)]
        .map(|(name, bytes)| with_tag(name, || Held::of(&tracking, bytes, stream.as_ref())));
    let plain = Held::of(&tracking, 300, stream.as_ref());
    let mut snapshot = tracking.upstream().upstream().snapshot();
    snapshot.label_by(tracking.book());
    let tag_at = |block: &Held<'_, _>| {
        let inside = |seen: &&BlockView| {
            seen.address <= block.pointer && block.pointer < seen.address.offset(seen.bytes)
        };
        snapshot.blocks.iter().find(inside).expect("it is in the picture").tag.name()
    };
    assert_eq!((tag_at(&held[0]), tag_at(&held[1]), tag_at(&plain)), ("one", "two", ""));
    let labelled = snapshot.blocks.iter().filter(|block| block.tag != Tag::NONE).count();
    assert_eq!(labelled, 2, "nothing that is free or somebody else's");
    held.into_iter().chain([plain]).for_each(|block| block.free(stream.as_ref()));
    drop(tracking);
    bench.check();
}

/// A writer that is full after so many bytes.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What each block is for is in the file too: the ledger has noted it.
#[test]
fn a_pool_with_a_ledger_writes_what_its_blocks_are_for() {
    let folder = Folder::new("tags");
    let bench = Bench::sim();
    let stream = bench.stream();
    let config = PoolConfig::default().initial(8 * MIB).maximum(8 * MIB);
    let pool = |checked, name| {
        let config = config.clone().checked(checked).snapshot_on_out_of_memory(folder.file(name));
        Cuda::new(&bench.device()).pool(config).expect("there is as much")
    };
    let tags_of = |pool: &Pool<Cuda>, name| {
        let one = with_tag("query", || with_tag("join", || Held::of(pool, MIB, stream.as_ref())));
        let two = Held::of(pool, MIB, stream.as_ref());
        let freed = with_tag("scratch", || Held::of(pool, MIB, stream.as_ref()));
        freed.free(stream.as_ref());
        assert!(pool.allocate(layout_of(8 * MIB), stream.as_ref()).unwrap_err().is_out_of_memory());
        one.free(stream.as_ref());
        two.free(stream.as_ref());
        let json = read(&folder.file(name));
        let tags =
            json["blocks"].as_array().expect("a list").iter().filter_map(|block| block["tag"].as_str());
        tags.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(tags_of(&pool(true, "checked.json"), "checked.json"), ["query;join"]);
    assert!(
        tags_of(&pool(false, "plain.json"), "plain.json").is_empty(),
        "a pool that keeps no ledger knows no tags"
    );
    bench.check();
}

#[test]
fn a_full_disk_is_told() {
    let bench = Bench::sim();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().initial(MIB)).expect("there is as much");
    for room in [0, 100] {
        let error = pool.snapshot().write_json(Full(room)).expect_err("it is full");
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
    pool.snapshot().write_json(Full(10_000)).expect("it is not full");
}

/// A pool of 8 MiB of which everything is used or pending, which runs out on `stream` asking for 2 MiB.
fn run_out(path: &Path, bench: &Bench, stream: &Stream) -> Error {
    let config =
        PoolConfig::default().initial(8 * MIB).maximum(8 * MIB).checked(true).snapshot_on_out_of_memory(path);
    let pool = Cuda::new(&bench.device()).pool(config).expect("there is as much");
    let mut blocks: Vec<_> = (0..8).map(|_| Held::of(&pool, MIB, stream.as_ref())).collect();
    blocks.sort_by_key(|block| block.pointer);
    // Every other one is freed: there is enough, in pieces.
    let (mut kept, mut is_kept) = (Vec::new(), false);
    for block in blocks {
        is_kept = !is_kept;
        if is_kept { kept.push(block) } else { block.free(stream.as_ref()) }
    }
    let error = pool.allocate(layout_of(2 * MIB), stream.as_ref()).expect_err("there are only pieces");
    kept.into_iter().for_each(|block| block.free(stream.as_ref()));
    error
}

#[test]
fn a_pool_that_runs_out_writes_where_it_stood() {
    let folder = Folder::new("where");
    let bench = Bench::sim();
    let stream = bench.stream();
    let path = folder.file("pool.json");
    let error = run_out(&path, &bench, &stream);
    assert_eq!(file_of(&error), Some(SnapshotFile::Written(path.clone())));
    assert!(error.to_string().ends_with(&format!("; a snapshot is in {}", path.display())), "{error}");
    let json = read(&path);
    let report = &json["out_of_memory"];
    assert_eq!((&report["cause"], &report["requested_bytes"]), (&"fragmentation".into(), &(2 * MIB).into()));
    assert_eq!(report["stream"], stream.id().to_string());
    assert_eq!((&report["maximum_bytes"], &report["live_bytes"]), (&(8 * MIB).into(), &(4 * MIB).into()));
    assert!(report["message"].as_str().is_some_and(|message| message.contains("not in one piece")));
    let live =
        json["blocks"].as_array().expect("a list").iter().filter(|block| block["state"] == "live").count();
    assert_eq!(live, 4);
    assert_eq!(folder.names(), ["pool.json"], "nothing half written is left");
    bench.check();
}

/// Holds what was written against `tests/snapshots`. With `ALLUVION_WRITE_EXPECTED` set it is written there instead.
#[track_caller]
fn is_the_example(name: &str, written: &str, stream: &Stream) {
    // What is another at each run: the time, and the number of this machine. What another target has: the size of the books.
    let json = parse(written.as_bytes());
    let id = stream.id().to_string();
    let machine = id.split_once('.').expect("a machine's number comes first").0;
    let written = written
        .replace(&json["unix_microseconds"].to_string(), "1767225600000000")
        .replace(
            &format!("\"metadata_bytes\": {}", json["status"]["metadata_bytes"]),
            "\"metadata_bytes\": 4096",
        )
        .replace(&format!("stream {machine}."), "stream 0.")
        .replace(&format!("\"stream\": \"{machine}."), "\"stream\": \"0.");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if env::var_os("ALLUVION_WRITE_EXPECTED").is_some() {
        fs::write(&example, &written).expect("it can be written");
    }
    let expected = fs::read_to_string(&example).expect("it is there");
    assert_eq!(written, expected, "set ALLUVION_WRITE_EXPECTED, if the change is meant");
}

#[test]
fn the_example_of_a_pool_at_work_is_what_is_written() {
    let bench = Bench::sim();
    let (first, second) = (bench.stream(), bench.stream());
    let config = PoolConfig::default().initial(4 * MIB).maximum(16 * MIB).checked(true);
    let pool = Cuda::new(&bench.device()).pool(config).expect("there is as much");
    let take = |bytes| Held::of(&pool, bytes, first.as_ref());
    let mut held = vec![take(MIB), take(20_000), take(700)];
    take(2000).free(first.as_ref());
    // The pool grows, and the block that was freed has gone back to the core before; what was submitted until then is not over.
    let stall = Stall::on(first.as_ref());
    held.push(take(3 * MIB));
    held.push(Held::of(&pool, 100_000, second.as_ref()));
    held.remove(2).free(first.as_ref());
    held.pop().expect("five less one").free(second.as_ref());
    let join = with_tag("query", || with_tag("join", Tag::current));
    let mut snapshot = pool.snapshot();
    snapshot.label(|block| if block == held[0].pointer { join } else { Tag::NONE });
    let mut json = Vec::new();
    snapshot.write_json(&mut json).expect("a vector takes what it is given");
    is_the_example("pool.json", std::str::from_utf8(&json).expect("JSON is text"), &first);
    drop(stall);
    held.into_iter().for_each(|block| block.free(first.as_ref()));
    bench.check();
}

#[test]
fn the_example_of_a_pool_that_ran_out_is_what_is_written() {
    let folder = Folder::new("example");
    let bench = Bench::sim();
    let (first, second) = (bench.stream(), bench.stream());
    let path = folder.file("pool.json");
    let config = PoolConfig::default().maximum(8 * MIB).growth(Growth::Step(8 * MIB)).reuse(Reuse::Own);
    let config = config.checked(true).snapshot_on_out_of_memory(&path);
    let pool = Cuda::new(&bench.device()).pool(config).expect("it starts with nothing");
    let mut held: Vec<_> = (0..6).map(|_| Held::of(&pool, MIB, first.as_ref())).collect();
    held.sort_by_key(|block| block.pointer);
    held.remove(4).free(first.as_ref());
    held.remove(2).free(second.as_ref());
    held.remove(1).free(second.as_ref());
    pool.allocate(layout_of(3 * MIB), first.as_ref()).expect_err("another stream has it");
    let json = fs::read_to_string(&path).expect("it was written");
    is_the_example("out-of-memory.json", &json, &first);
    held.into_iter().for_each(|block| block.free(first.as_ref()));
    bench.check();
}

#[test]
fn there_is_an_end_to_files() {
    let folder = Folder::new("end");
    let bench = Bench::sim();
    let config = PoolConfig::default().maximum(MIB).snapshot_on_out_of_memory(folder.file("pool.json"));
    let pools =
        [(); 2].map(|()| Cuda::new(&bench.device()).pool(config.clone()).expect("it starts with nothing"));
    let ask = |pool: &Pool<Cuda>| pool.allocate_sync(layout_of(2 * MIB)).expect_err("it is above the limit");
    let written: Vec<_> = (0..6).map(|time| file_of(&ask(&pools[time % 2]))).collect();
    let names = ["pool.json", "pool-2.json", "pool-3.json", "pool-4.json"];
    let expected = names.map(|name| Some(SnapshotFile::Written(folder.file(name))));
    assert_eq!((&written[..4], &written[4..]), (&expected[..], &[None, None][..]));
    assert_eq!(folder.names(), ["pool-2.json", "pool-3.json", "pool-4.json", "pool.json"]);
    // Another configuration of the same name begins again, in place of what is there.
    let config = PoolConfig::default().maximum(MIB).snapshot_on_out_of_memory(folder.file("pool.json"));
    let again = Cuda::new(&bench.device()).pool(config).expect("it starts with nothing");
    assert_eq!(file_of(&ask(&again)), expected[0]);
}

/// The stacks of a program that uses all devices are of one recipe.
#[test]
fn the_devices_of_one_recipe_write_a_file_each() {
    let folder = Folder::new("devices");
    let sim = Sim::with_config(SimConfig::default().devices(3));
    let recipe =
        format!("pool(maximum=1MiB,snapshot_on_out_of_memory={:?}) | cuda", folder.file("pool.json"));
    let recipe: Recipe = recipe.parse().expect("it is one");
    let stacks = sim.machine().per_device(|device| recipe.build(device)).expect("they can be built");
    for _ in 0..2 {
        for (_, stack) in &stacks {
            let error = stack.allocate_sync(layout_of(2 * MIB)).expect_err("it is above the limit");
            assert!(matches!(file_of(&error), Some(SnapshotFile::Written(_))), "{error}");
        }
    }
    let names = [
        "pool-2.json",
        "pool-gpu1-2.json",
        "pool-gpu1.json",
        "pool-gpu2-2.json",
        "pool-gpu2.json",
        "pool.json",
    ];
    assert_eq!(folder.names(), names);
    for (name, ordinal) in [("pool.json", 0), ("pool-gpu2-2.json", 2)] {
        let written = fs::read_to_string(folder.file(name)).expect("it is there");
        assert!(written.contains(&format!("\"ordinal\": {ordinal}")), "{name}");
    }
}

#[test]
fn many_threads_that_run_out_at_once_write_a_file_each() {
    let folder = Folder::new("threads");
    let bench = Bench::sim();
    let config = PoolConfig::default().maximum(MIB).snapshot_on_out_of_memory(folder.file("pool.json"));
    let pool = Arc::new(Cuda::new(&bench.device()).pool(config).expect("it starts with nothing"));
    let start = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (pool, start) = (Arc::clone(&pool), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                file_of(&pool.allocate_sync(layout_of(2 * MIB)).expect_err("it is above the limit"))
            })
        })
        .collect();
    let mut files: Vec<_> =
        threads.into_iter().filter_map(|thread| thread.join().expect("it does not panic")).collect();
    files.sort_by_key(|file| format!("{file}"));
    assert_eq!(files.len(), 4);
    for file in files {
        let SnapshotFile::Written(path) = file else { panic!("{file}") };
        assert_eq!(read(&path)["out_of_memory"]["cause"], "too_large");
    }
}

/// Each has the first file to write, and the last one to be ready leaves it there.
#[test]
fn pools_that_name_one_file_write_all_of_it() {
    let folder = Folder::new("one-file");
    let (path, device) = (folder.file("pool.json"), Bench::sim().device());
    for round in 0..20 {
        let start = Barrier::new(8);
        let run_out = || {
            let config = PoolConfig::default().maximum(MIB).snapshot_on_out_of_memory(&path);
            let pool = Cuda::new(&device).pool(config).expect("nothing is taken");
            start.wait();
            file_of(&pool.allocate_sync(layout_of(2 * MIB)).expect_err("it is more than the maximum"))
        };
        let files: Vec<_> = thread::scope(|scope| {
            let running: Vec<_> = (0..8).map(|_| scope.spawn(run_out)).collect();
            running.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
        });
        for file in files {
            assert_eq!(file, Some(SnapshotFile::Written(path.clone())), "round {round}");
        }
        assert_eq!(read(&path)["format"], "alluvion-snapshot");
        assert_eq!(folder.names(), ["pool.json"], "round {round}");
    }
}

#[test]
fn where_nothing_can_be_written_the_request_fails_as_ever() {
    let folder = Folder::new("nowhere");
    let bench = Bench::sim();
    let stream = bench.stream();
    // The name is taken by a folder; and a folder is missing.
    fs::create_dir_all(folder.file("taken.json").join("inside")).expect("it can be made");
    for name in ["taken.json", "missing/pool.json"] {
        let path = folder.file(name);
        let error = run_out(&path, &bench, &stream);
        assert!(error.is_out_of_memory());
        match file_of(&error) {
            Some(SnapshotFile::Failed { path: at, why, .. }) => assert!(at == path && !why.is_empty()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(folder.names(), ["taken.json"], "nothing half written is left");
    bench.check();
}

#[test]
fn what_a_handler_mends_writes_nothing() {
    let folder = Folder::new("mended");
    let bench = Bench::sim();
    let stream = bench.stream();
    type Spare = DeviceVec<u8, Arc<Pool<Cuda>>>;
    let keep: Arc<Mutex<Option<Spare>>> = Arc::default();
    let kept = Arc::clone(&keep);
    let config = PoolConfig::default()
        .maximum(4 * MIB)
        .snapshot_on_out_of_memory(folder.file("pool.json"))
        .on_out_of_memory(move |report| {
            assert_eq!(report.snapshot_file, None, "the request has not failed yet");
            match kept.lock().expect("no thread panics").take() {
                Some(_) => Relief::Freed,
                None => Relief::None,
            }
        });
    let pool = Arc::new(Cuda::new(&bench.device()).pool(config).expect("it starts with nothing"));
    let spare = DeviceVec::zeroed_in(3 * MIB, stream.as_ref(), Arc::clone(&pool)).expect("there is room");
    *keep.lock().expect("no thread panics") = Some(spare);
    let block = Held::of(&*pool, 3 * MIB, stream.as_ref());
    assert_eq!(folder.names(), [""; 0]);
    assert!(pool.allocate(layout_of(3 * MIB), stream.as_ref()).is_err());
    assert_eq!(folder.names(), ["pool.json"]);
    block.free(stream.as_ref());
    bench.check();
}

#[test]
fn every_suballocator_can() {
    let folder = Folder::new("every");
    let bench = Bench::sim();
    let cuda = || Cuda::new(&bench.device());
    let arena = ArenaConfig::default().bytes(2 * MIB).snapshot_on_out_of_memory(folder.file("arena.json"));
    let arena = Arena::new(cuda(), arena).expect("there is as much");
    let fixed = FixedSizeConfig::default().block(MIB).blocks(2).maximum(2 * MIB);
    let fixed = fixed.snapshot_on_out_of_memory(folder.file("fixed.json"));
    let fixed = FixedSize::new(cuda(), fixed).expect("there is as much");
    let pool = cuda().pool(PoolConfig::default().maximum(4 * MIB)).expect("it starts with nothing");
    let bins = pool.binning().blocks(2).bin(MIB).snapshot_on_out_of_memory(folder.file("bins.json"));
    let bins = bins.build().expect("there is as much");
    let stacks: [(&str, &dyn Resource, usize); 3] =
        [("arena.json", &arena, 2), ("fixed.json", &fixed, 2), ("bins.json", &bins, 4)];
    for (name, resource, blocks) in stacks {
        let held: Vec<_> = (0..blocks)
            .map(|_| resource.allocate_sync(layout_of(MIB)).expect("there is room"))
            .map(|block| Held::adopt(&resource, block, layout_of(MIB)))
            .collect();
        let error = resource.allocate_sync(layout_of(MIB)).expect_err("there is no more");
        assert_eq!(file_of(&error), Some(SnapshotFile::Written(folder.file(name))), "{error}");
        assert_eq!(read(&folder.file(name))["status"]["live_bytes"], blocks * MIB);
        held.into_iter().for_each(Held::free_sync);
    }
    bench.check();
}
