//! Contents of what sleeps that are kept in a file: what comes back, and what an error leaves.

#![expect(unsafe_code, reason = "puts blocks to sleep")]

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::{env, fs, process};

use alluvion::driver::{Call, Code};
use alluvion::sim::{Fault, SimConfig};
use alluvion::source::Mapped;
use alluvion::tag::{Tag, with_tag};
use alluvion::{
    AnyResource, DeviceVec, ErrorKind, Pool, PoolConfig, Recipe, ResourceExt, Sim, SleepConfig, Stream,
};

use crate::sleep::{sleep_and_wake, sweep};

const MIB: usize = 1 << 20;

/// A folder of this test alone, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("alluvion-sleep-on-disk-{}-{name}", process::id()));
        // A process that was killed may have had this number, and left it.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary folder can be made");
        Self(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).expect("it is there");
        entries.map(|entry| entry.expect("it can be read").path()).collect()
    }

    /// The file of the one that sleeps.
    fn file(&self) -> PathBuf {
        let [file] = <[PathBuf; 1]>::try_from(self.files()).expect("one sleeps");
        file
    }

    fn config(&self) -> SleepConfig<'static> {
        SleepConfig::default().keep_on_disk(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn machine() -> Sim {
    Sim::with_config(SimConfig::default().seed(5).memory_bytes(256 << 20))
}

fn pool_of(sim: &Sim) -> (Pool<Mapped>, Stream) {
    let device = sim.device(0);
    let pool = Mapped::new(&device).and_then(|mapped| mapped.pool(PoolConfig::default()));
    (pool.expect("it has pages"), device.stream().expect("there are numbers left"))
}

fn numbers(len: usize, seed: u32) -> Vec<u32> {
    (0..len as u32).map(|at| at.wrapping_mul(2_654_435_761).wrapping_add(seed)).collect()
}

#[test]
fn contents_of_many_stages_come_back_and_the_file_goes() {
    let (sim, folder) = (machine(), Folder::new("stages"));
    let (pool, stream) = pool_of(&sim);
    // 16 MiB are copied at a time: blocks that end there, cross it, and are longer.
    let lengths = [4 * MIB - 64, 64, 1000, 11 * MIB, 1, MIB];
    let held: Vec<_> = lengths
        .iter()
        .zip(1..)
        .map(|(&len, seed)| {
            DeviceVec::from_slice_in(&numbers(len, seed), &stream, &pool).expect("there is room")
        })
        .collect();
    let before = sim.device(0).memory_info().expect("the driver answers").free_bytes;
    for _ in 0..2 {
        // SAFETY: nothing uses what sleeps.
        let mut sleeper = unsafe { pool.sleep(folder.config()) }.expect("there is room on the disk");
        let kept = sleeper.record().kept_bytes();
        assert!(kept >= lengths.iter().sum::<usize>() * 4 && kept < 70 * MIB, "{kept}");
        assert!(fs::metadata(folder.file()).expect("it is there").len() > kept as u64);
        assert!(sim.device(0).memory_info().expect("the driver answers").free_bytes >= before + 60 * MIB);
        // It is an ordinary saved file, while it is there.
        let saved = alluvion::saved::SavedFile::open(folder.file()).expect("it is whole");
        assert_eq!(saved.blocks().collect::<Vec<_>>(), [("contents", kept as u64)]);
        sleeper.wake().expect("there is memory");
        sleeper.wake().expect("it is awake");
        assert_eq!(folder.files(), [] as [PathBuf; 0]);
        for ((vector, &len), seed) in held.iter().zip(&lengths).zip(1..) {
            assert!(vector.to_vec(&stream).expect("it is awake") == numbers(len, seed), "{len} elements");
        }
    }
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

#[cfg(unix)]
#[test]
fn nobody_else_may_read_the_file() {
    use std::os::unix::fs::PermissionsExt;

    let (sim, folder) = (machine(), Folder::new("rights"));
    let (pool, stream) = pool_of(&sim);
    let _held = DeviceVec::from_slice_in(&numbers(1000, 1), &stream, &pool).expect("there is room");
    // SAFETY: nothing uses what sleeps.
    let sleeper = unsafe { pool.sleep(folder.config()) }.expect("there is room on the disk");
    assert_eq!(fs::metadata(folder.file()).expect("it is there").permissions().mode() & 0o777, 0o600);
    drop(sleeper);
    assert_eq!(folder.files(), [] as [PathBuf; 0], "what is lost needs no disk");
}

/// Blocks that were freed asleep have bytes in the file, and no memory.
#[test]
fn what_is_freed_meanwhile_is_left_alone() {
    let (sim, folder) = (machine(), Folder::new("freed"));
    let (pool, stream) = pool_of(&sim);
    let held: Vec<_> = (0..6)
        .map(|seed| DeviceVec::from_slice_in(&numbers(2 * MIB, seed), &stream, &pool).expect("there is room"))
        .collect();
    // SAFETY: nothing uses what sleeps.
    let mut sleeper = unsafe { pool.sleep(folder.config()) }.expect("there is room on the disk");
    let mut kept = Vec::new();
    for (vector, seed) in held.into_iter().zip(0..) {
        if seed % 2 == 0 {
            kept.push((vector, seed));
        }
    }
    sleeper.wake().expect("there is memory");
    for (vector, seed) in &kept {
        assert!(vector.to_vec(&stream).expect("it is awake") == numbers(2 * MIB, *seed));
    }
    drop(kept);
    // And where nothing is left.
    let last = DeviceVec::from_slice_in(&numbers(1000, 1), &stream, &pool).expect("there is room");
    // SAFETY: as above.
    let mut sleeper = unsafe { pool.sleep(folder.config()) }.expect("there is room on the disk");
    drop(last);
    sleeper.wake().expect("there is nothing to map");
    // SAFETY: as above.
    let mut empty = unsafe { pool.sleep(folder.config()) }.expect("there is nothing to write");
    empty.wake().expect("there is nothing to map");
    assert_eq!(folder.files(), [] as [PathBuf; 0]);
}

#[test]
fn where_it_cannot_be_written_nothing_sleeps() {
    let (sim, folder) = (machine(), Folder::new("unwritable"));
    let (pool, stream) = pool_of(&sim);
    let held = DeviceVec::from_slice_in(&numbers(1000, 1), &stream, &pool).expect("there is room");
    let file = folder.0.join("file");
    fs::write(&file, "no folder").expect("there is room");
    for (place, why) in [(folder.0.join("missing"), "No such file"), (file.clone(), "Not a directory")] {
        let config = SleepConfig::default().keep_on_disk(&place);
        // SAFETY: nothing uses what is to sleep.
        let refused = unsafe { pool.sleep(config) }.expect_err("there is no such folder");
        assert_eq!(refused.kind(), ErrorKind::Unwritable, "{refused}");
        assert!(refused.to_string().contains(place.to_str().expect("it is text")), "{refused}");
        assert!(!cfg!(target_os = "linux") || refused.to_string().contains(why), "{refused}");
        assert_eq!(pool.status().asleep_bytes, 0);
        assert!(held.to_vec(&stream).expect("it is awake") == numbers(1000, 1));
        drop(DeviceVec::<u8, _>::uninit_in(MIB, &stream, &pool).expect("the pool is awake"));
    }
    assert_eq!(folder.files(), [file]);
}

/// What was written to a file: `change` is undone when it returns.
fn with_damage(path: &Path, damage: impl FnOnce(&mut fs::File), body: impl FnOnce()) {
    let whole = fs::read(path).expect("it is there");
    let mut file = fs::File::options().read(true).write(true).open(path).expect("it is ours");
    damage(&mut file);
    body();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&whole)).expect("there is room");
}

#[test]
fn a_file_that_is_damaged_or_cut_short_is_told_and_tried_again() {
    let (sim, folder) = (machine(), Folder::new("damaged"));
    let (pool, stream) = pool_of(&sim);
    let held = DeviceVec::from_slice_in(&numbers(5 * MIB, 1), &stream, &pool).expect("there is room");
    // SAFETY: nothing uses what sleeps.
    let mut sleeper = unsafe { pool.sleep(folder.config()) }.expect("there is room on the disk");
    let path = folder.file();
    let flip = |file: &mut fs::File| {
        let mut byte = [0];
        file.seek(SeekFrom::Start(17 << 20)).expect("it is so long");
        file.read_exact(&mut byte).expect("it is so long");
        file.seek(SeekFrom::Start(17 << 20)).expect("as before");
        file.write_all(&[!byte[0]]).expect("there is room");
    };
    with_damage(&path, flip, || {
        let damaged = sleeper.wake().expect_err("a byte is another one");
        assert_eq!(damaged.kind(), ErrorKind::Malformed, "{damaged}");
        assert!(damaged.to_string().contains("the contents of \"contents\" are damaged"), "{damaged}");
        assert!(sleeper.is_asleep());
    });
    let cut = |file: &mut fs::File| file.set_len(3 << 20).expect("it can be cut");
    with_damage(&path, cut, || {
        let cut_short = sleeper.wake().expect_err("the end is not there");
        assert_eq!(cut_short.kind(), ErrorKind::Unreadable, "{cut_short}");
        assert!(cut_short.to_string().contains(path.to_str().expect("it is text")), "{cut_short}");
        assert!(sleeper.is_asleep() && pool.status().asleep_bytes > 0);
    });
    sleeper.wake().expect("it is whole again");
    assert!(held.to_vec(&stream).expect("it is awake") == numbers(5 * MIB, 1));
    assert_eq!(folder.files(), [] as [PathBuf; 0]);
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

/// The file is open, so that it is there until it is closed.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_is_removed_is_no_loss() {
    let (sim, folder) = (machine(), Folder::new("removed"));
    let (pool, stream) = pool_of(&sim);
    let held = DeviceVec::from_slice_in(&numbers(1000, 1), &stream, &pool).expect("there is room");
    // SAFETY: nothing uses what sleeps.
    let mut sleeper = unsafe { pool.sleep(folder.config()) }.expect("there is room on the disk");
    fs::remove_dir_all(&folder.0).expect("it is ours");
    sleeper.wake().expect("it can be read still");
    assert!(held.to_vec(&stream).expect("it is awake") == numbers(1000, 1));
}

#[test]
fn a_tag_and_a_block_of_a_stack_go_to_files_of_their_own() {
    let (sim, folder) = (machine(), Folder::new("tags"));
    let device = sim.device(0);
    let stream = device.stream().expect("there are numbers left");
    let recipe: Recipe = "stats | tracking | pool | mapped".parse().expect("it is one");
    let stack: AnyResource = recipe.build(&device).expect("it has pages");
    let make = |seed| DeviceVec::from_slice_in(&numbers(MIB, seed), &stream, stack.clone());
    let (weights, tag) = with_tag("weights", || (make(1), Tag::current()));
    let (weights, cache, other) = (weights.unwrap(), make(2).unwrap(), make(3).unwrap());
    // SAFETY: nothing uses what sleeps.
    let by_tag = unsafe { stack.sleep(folder.config().tag(tag)) }.expect("there is room on the disk");
    let asleep = cache.sleep(folder.config()).expect("there is room on the disk");
    assert_eq!((by_tag.kept_bytes(), asleep.kept_bytes(), folder.files().len()), (4 * MIB, 4 * MIB, 2));
    assert!(other.to_vec(&stream).expect("the rest goes on") == numbers(MIB, 3));
    by_tag.wake().expect("there is memory");
    let cache = asleep.wake().expect("there is memory");
    assert_eq!(folder.files(), [] as [PathBuf; 0]);
    for (vector, seed) in [(&weights, 1), (&cache, 2), (&other, 3)] {
        assert!(vector.to_vec(&stream).expect("it is awake") == numbers(MIB, seed));
    }
}

#[test]
fn a_wake_without_memory_is_tried_again() {
    let (sim, folder) = (machine(), Folder::new("memory"));
    let (pool, stream) = pool_of(&sim);
    let held = DeviceVec::from_slice_in(&numbers(MIB, 1), &stream, &pool).expect("there is room");
    // SAFETY: nothing uses what sleeps.
    let mut sleeper = unsafe { pool.sleep(folder.config()) }.expect("there is room on the disk");
    sim.inject(Fault::every(Call::MemoryCreate, Code::OUT_OF_MEMORY));
    assert!(sleeper.wake().expect_err("there is none").is_out_of_memory());
    assert!(sleeper.is_asleep() && folder.file().exists());
    sim.clear_faults();
    sleeper.wake().expect("there is memory again");
    assert!(held.to_vec(&stream).expect("it is awake") == numbers(MIB, 1));
}

#[test]
fn every_driver_call_fails_once() {
    let folder = Folder::new("calls");
    let no_file_is_left = || assert_eq!(folder.files(), [] as [PathBuf; 0], "a file is left");
    let swept = sweep().run(|sim| sleep_and_wake(sim, |_| Ok(folder.config()), no_file_is_left));
    assert!(swept.calls >= 60, "the program hardly calls the driver: {swept}");
}
