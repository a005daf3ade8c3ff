//! Blocks in a file: what is saved is restored, and every damage is told.

#![expect(unsafe_code, reason = "saves and restores blocks by their addresses")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use alluvion::driver::{Call, Code};
use alluvion::saved::{SavedFile, Saver};
use alluvion::sim::Fault;
use alluvion::{DeviceVec, ErrorKind, PinnedAlloc, Sim};

const MIB: usize = 1 << 20;

/// A folder of one test, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("alluvion-saved-{}-{next}", std::process::id()));
        // A process that was killed may have had this number, and left it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.join("model")
    }

    fn files(&self) -> usize {
        fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn numbers(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 5 + at * 3) as u8).collect()
}

/// Three blocks, of which the second is empty.
fn three(sim: &Sim, path: &Path) {
    let stream = sim.device(0).stream().unwrap();
    let mut saver = Saver::create(path).unwrap();
    for (name, bytes) in [("first", 10_000), ("nothing", 0), ("last", 3)] {
        let block = DeviceVec::from_slice(&numbers(bytes), &stream).unwrap();
        saver.save(name, block.as_slice(), &stream).unwrap();
    }
    assert_eq!(saver.finish().unwrap(), fs::metadata(path).unwrap().len());
}

fn restored(sim: &Sim, path: &Path, name: &str) -> Result<Vec<u8>, alluvion::Error> {
    let stream = sim.device(0).stream()?;
    let mut saved = SavedFile::open(path)?;
    let bytes = saved.bytes_of(name).expect("it has the block") as usize;
    let mut block = DeviceVec::<u8>::uninit(bytes, &stream)?;
    saved.restore(name, block.as_mut_slice(), &stream)?;
    block.to_vec(&stream)
}

/// As other languages name them.
#[test]
fn blocks_that_are_known_by_their_addresses_come_back() {
    let (sim, folder) = (Sim::new(), Folder::new());
    let (stream, other) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
    let bytes = 9 * MIB + 1;
    let block = DeviceVec::from_slice(&numbers(bytes), &stream).unwrap();
    let address = block.as_device_ptr().address();
    let mut saver = Saver::create(folder.path()).unwrap();
    other.wait_for_stream(&stream).unwrap();
    // SAFETY: the block is as long, and nothing else uses it.
    unsafe { saver.save_block("block", address, bytes, &other, None) }.unwrap();
    // SAFETY: it has no bytes.
    unsafe { saver.save_block("nothing", 0, 0, &other, None) }.unwrap();
    // SAFETY: it is refused.
    let refused = unsafe { saver.save_block("nowhere", 0, 1, &other, None) }.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    saver.finish().unwrap();

    let into = DeviceVec::<u8>::filled(bytes, 0, &stream).unwrap();
    let address = into.as_device_ptr().address();
    let mut saved = SavedFile::open(folder.path()).unwrap();
    let pinned = PinnedAlloc::new(&sim.device(0)).unwrap();
    // SAFETY: as above.
    unsafe { saved.restore_block("block", address, bytes, &stream, Some(pinned)) }.unwrap();
    assert_eq!(into.to_vec(&stream).unwrap(), numbers(bytes));
    // SAFETY: as above.
    let refused = unsafe { saved.restore_block("block", address, bytes - 1, &stream, None) }.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LengthMismatch);
    // SAFETY: as above.
    unsafe { saved.restore_block("nothing", 0, 0, &stream, None) }.unwrap();
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

#[test]
fn blocks_of_every_length_come_back() {
    let (sim, folder) = (Sim::new(), Folder::new());
    let stream = sim.device(0).stream().unwrap();
    let lengths =
        [0, 1, 4095, 4096, 4097, 4 * MIB - 1, 4 * MIB, 8 * MIB + 1, 16 * MIB, 16 * MIB + 1, 20 * MIB + 5];
    let mut saver = Saver::create(folder.path()).unwrap();
    for bytes in lengths {
        let block = DeviceVec::from_slice(&numbers(bytes), &stream).unwrap();
        saver.save(&format!("{bytes} bytes"), block.as_slice(), &stream).unwrap();
    }
    saver.finish().unwrap();

    let elsewhere = Sim::new();
    let saved = SavedFile::open(folder.path()).unwrap();
    assert!(saved.blocks().map(|(_, bytes)| bytes as usize).eq(lengths));
    for bytes in lengths {
        assert!(
            restored(&elsewhere, &folder.path(), &format!("{bytes} bytes")).unwrap() == numbers(bytes),
            "{bytes}"
        );
    }
    assert!(sim.hazards().is_empty() && elsewhere.hazards().is_empty());
}

#[test]
fn elements_are_saved_behind_the_work_of_other_streams() {
    let (sim, folder) = (Sim::new(), Folder::new());
    let (computes, copies) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
    let mut numbers = DeviceVec::<f32>::zeroed(3 * MIB, &computes).unwrap();
    numbers.fill(2.5, &computes).unwrap();
    let mut saver = Saver::create(folder.path()).unwrap();
    saver.save("numbers", numbers.as_slice(), &copies).unwrap();
    saver.finish().unwrap();

    let mut saved = SavedFile::open(folder.path()).unwrap();
    let mut back = DeviceVec::<f32>::zeroed(3 * MIB, &computes).unwrap();
    saved.restore("numbers", back.as_mut_slice(), &copies).unwrap();
    back.fill(7.0, &computes).unwrap();
    saved.restore("numbers", back.as_mut_slice(), &copies).unwrap();
    assert!(back.to_vec(&computes).unwrap().iter().all(|&number| number == 2.5));
    assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
}

#[test]
fn a_long_block_takes_four_buffers_of_the_host() {
    let (sim, folder) = (Sim::new(), Folder::new());
    let stream = sim.device(0).stream().unwrap();
    let block = DeviceVec::<u8>::zeroed(100 * MIB, &stream).unwrap();
    let before = sim.calls();
    let mut saver = Saver::create(folder.path()).unwrap();
    saver.save("zeros", block.as_slice(), &stream).unwrap();
    let made = sim.calls() - before;
    assert_eq!((made[Call::RegisterHost], made[Call::CopyAsync]), (4, 25));
    saver.finish().unwrap();

    let mut back = DeviceVec::<u8>::filled(100 * MIB, 1, &stream).unwrap();
    let before = sim.calls();
    SavedFile::open(folder.path()).unwrap().restore("zeros", back.as_mut_slice(), &stream).unwrap();
    let made = sim.calls() - before;
    assert_eq!((made[Call::RegisterHost], made[Call::CopyAsync]), (4, 25));
    assert!(back.to_vec(&stream).unwrap() == vec![0; 100 * MIB]);
}

#[test]
fn there_are_no_half_files() {
    let (sim, folder) = (Sim::new(), Folder::new());
    let stream = sim.device(0).stream().unwrap();
    let block = DeviceVec::<u8>::zeroed(100, &stream).unwrap();
    let mut saver = Saver::create(folder.path()).unwrap();
    saver.save("zeros", block.as_slice(), &stream).unwrap();
    assert!(!folder.path().exists());
    drop(saver);
    assert_eq!(folder.files(), 0);

    three(&sim, &folder.path());
    let mut saver = Saver::create(folder.path()).unwrap();
    saver.begin("half", 10).unwrap();
    saver.write(b"half").unwrap();
    let error = saver.finish().unwrap_err();
    assert_eq!(error.to_string(), "length mismatch: 10 elements wanted, 4 given");
    assert_eq!((folder.files(), SavedFile::open(folder.path()).unwrap().blocks().len()), (1, 3), "as it was");
}

#[test]
fn what_cannot_be_written_says_so_and_where() {
    let folder = Folder::new();
    let nowhere = folder.0.join("no").join("folder");
    let error = Saver::create(&nowhere).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unwritable);
    assert!(error.to_string().contains(nowhere.to_str().unwrap()), "{error}");

    // A folder has the name by the time that the file would get it.
    let saver = Saver::create(folder.path()).unwrap();
    fs::create_dir(folder.path()).unwrap();
    assert_eq!(saver.finish().unwrap_err().kind(), ErrorKind::Unwritable);
    assert_eq!(folder.files(), 1, "the temporary file is removed");
}

#[test]
fn names_are_checked_and_nothing_is_lost() {
    let (sim, folder) = (Sim::new(), Folder::new());
    let stream = sim.device(0).stream().unwrap();
    let block = DeviceVec::from_slice(&numbers(10), &stream).unwrap();
    let mut saver = Saver::create(folder.path()).unwrap();
    saver.save("block", block.as_slice(), &stream).unwrap();
    for wrong in ["block", &*"n".repeat(4097)] {
        assert_eq!(
            saver.save(wrong, block.as_slice(), &stream).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
    }
    assert_eq!(saver.begin("too much", u64::MAX).unwrap_err().kind(), ErrorKind::InvalidArgument);
    saver.begin("dropped", 3).unwrap();
    assert_eq!(saver.write(b"four").unwrap_err().kind(), ErrorKind::LengthMismatch);
    assert_eq!(saver.write(b"three").unwrap_err().kind(), ErrorKind::LengthMismatch, "no block is begun");
    saver.save("", block.as_slice(), &stream).unwrap();
    saver.finish().unwrap();

    let mut saved = SavedFile::open(folder.path()).unwrap();
    assert!(saved.blocks().eq([("block", 10), ("", 10)]));
    let mut small = DeviceVec::<u8>::zeroed(9, &stream).unwrap();
    let unknown = saved.restore("blok", small.as_mut_slice(), &stream).unwrap_err();
    assert!(unknown.to_string().contains("\"blok\""), "{unknown}");
    assert_eq!(
        saved.restore("block", small.as_mut_slice(), &stream).unwrap_err().kind(),
        ErrorKind::LengthMismatch
    );
    assert_eq!(small.to_vec(&stream).unwrap(), [0; 9], "nothing was written there");
    assert_eq!(restored(&sim, &folder.path(), "block").unwrap(), numbers(10));
}

/// Each call of the driver fails in its turn, once while saving and once while restoring; the second try succeeds.
#[test]
fn a_driver_call_that_fails_loses_nothing() {
    for call in [Call::RegisterHost, Call::CopyAsync, Call::EventRecord, Call::EventCreate] {
        for nth in 1..4 {
            let (sim, folder) = (Sim::new(), Folder::new());
            let stream = sim.device(0).stream().unwrap();
            let block = DeviceVec::from_slice(&numbers(20 * MIB), &stream).unwrap();
            let mut saver = Saver::create(folder.path()).unwrap();
            saver.save("before", block.slice(..5).unwrap(), &stream).unwrap();
            sim.inject(Fault::nth(call, nth, Code::OUT_OF_MEMORY));
            let failed = saver.save("block", block.as_slice(), &stream);
            sim.clear_faults();
            if failed.is_err() {
                saver.save("block", block.as_slice(), &stream).unwrap();
            }
            saver.finish().unwrap();

            let mut saved = SavedFile::open(folder.path()).unwrap();
            assert!(saved.blocks().eq([("before", 5), ("block", 20 * MIB as u64)]), "{call:?}");
            let mut back = DeviceVec::<u8>::zeroed(20 * MIB, &stream).unwrap();
            sim.inject(Fault::nth(call, nth, Code::OUT_OF_MEMORY));
            let failed = saved.restore("block", back.as_mut_slice(), &stream);
            sim.clear_faults();
            if failed.is_err() {
                saved.restore("block", back.as_mut_slice(), &stream).unwrap();
            }
            assert!(back.to_vec(&stream).unwrap() == numbers(20 * MIB), "{call:?}");
            assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
        }
    }
}

#[test]
fn a_file_that_is_cut_short_says_how_much_is_there() {
    let (sim, folder) = (Sim::new(), Folder::new());
    three(&sim, &folder.path());
    let whole = fs::read(folder.path()).unwrap();
    for bytes in (0..whole.len()).step_by(997).chain([whole.len() - 1]) {
        fs::write(folder.path(), &whole[..bytes]).unwrap();
        let error = SavedFile::open(folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
        assert!(error.to_string().contains(&format!("{bytes} ")), "{error}");
    }
    let error = SavedFile::open(folder.0.join("nothing")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreadable);
    assert!(error.to_string().starts_with("unreadable: "), "{error}");
}

#[test]
fn every_damaged_byte_is_told() {
    let (sim, folder) = (Sim::new(), Folder::new());
    three(&sim, &folder.path());
    let whole = fs::read(folder.path()).unwrap();
    // Each byte of the header, of the short block and of the table, and one of 23 of the rest.
    for at in (0..whole.len())
        .filter(|&at| at < 64 || (16_320..16_400).contains(&at) || at >= 20_480 || at % 23 == 0)
    {
        let mut damaged = whole.clone();
        damaged[at] ^= 32;
        fs::write(folder.path(), &damaged).unwrap();
        let read = SavedFile::open(folder.path()).and_then(|mut saved| {
            let names: Vec<String> = saved.blocks().map(|(name, _)| name.to_owned()).collect();
            names.iter().try_for_each(|name| {
                let mut contents = vec![0; saved.begin(name)? as usize];
                saved.read(&mut contents)
            })
        });
        let is_between =
            (48..4096).contains(&at) || (14_096..16_384).contains(&at) || (16_387..20_480).contains(&at);
        assert_eq!(read.is_err(), !is_between, "byte {at}");
        if let Err(error) = read {
            assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
        }
    }
    damaged_on_a_device(&sim, &folder.path(), whole);
}

fn damaged_on_a_device(sim: &Sim, path: &Path, mut file: Vec<u8>) {
    file[5000] ^= 1;
    fs::write(path, &file).unwrap();
    let error = restored(sim, path, "first").unwrap_err();
    assert!(error.to_string().contains("the contents of \"first\" are damaged"), "{error}");
    assert_eq!(restored(sim, path, "last").unwrap(), numbers(3), "the others are as they were");
}

/// A reader that does not know the length, in parts of its own.
#[test]
fn contents_are_read_in_any_parts() {
    let (sim, folder) = (Sim::new(), Folder::new());
    three(&sim, &folder.path());
    let mut saved = SavedFile::open(folder.path()).unwrap();
    assert_eq!(saved.begin("first").unwrap(), 10_000);
    let mut read = vec![0; 10_000];
    for part in read.chunks_mut(999) {
        saved.read(part).unwrap();
    }
    assert_eq!(read, numbers(10_000));
    assert_eq!(saved.read(&mut [0]).unwrap_err().kind(), ErrorKind::LengthMismatch);
    assert_eq!(saved.begin("nothing").unwrap(), 0);
    saved.read(&mut []).unwrap();
}

/// In buffers of lengths that fit nothing, with a thread of its own and, where there is little, without.
#[test]
fn contents_go_through_buffers_of_any_length() {
    through_buffers(100_000);
    through_buffers(3 * MIB);
}

fn through_buffers(bytes: usize) {
    let (sim, folder) = (Sim::new(), Folder::new());
    let mut saver = Saver::create(folder.path()).unwrap();
    saver.begin("numbers", bytes as u64).unwrap();
    let all = numbers(bytes);
    saver.write(&all[..10]).unwrap();
    let back = saver.write_behind(|behind| {
        let mut back = 0;
        for part in all[10..].chunks(777) {
            // Longer than what is written of it.
            let mut buffer = part.to_vec();
            buffer.push(255);
            back += usize::from(behind.write(buffer, part.len())?.is_some());
        }
        Ok(back)
    });
    assert_eq!(back.unwrap(), (bytes - 10).div_ceil(777) - 2, "two are on their way at the end");
    saver.begin("nothing", 0).unwrap();
    saver.finish().unwrap();

    let mut saved = SavedFile::open(folder.path()).unwrap();
    for (first, room) in [(0, 1000), (10, bytes), (bytes - 1, 7), (bytes, 1)] {
        assert_eq!(saved.begin("numbers").unwrap(), bytes as u64);
        let mut read = vec![0; first];
        saved.read(&mut read).unwrap();
        let buffers = saved.read_ahead(|ahead| {
            ahead.give(vec![0; room])?;
            ahead.give(vec![0; 2 * room])?;
            let mut buffers = 0;
            while let Some((buffer, bytes)) = ahead.take()? {
                read.extend_from_slice(&buffer[..bytes]);
                buffers += 1;
                ahead.give(buffer)?;
            }
            assert!(ahead.take()?.is_none() && format!("{ahead:?}").contains("0 bytes left"));
            Ok(buffers)
        });
        assert!(buffers.unwrap() <= 2 + 2 * bytes / (3 * room) && read == all, "{first}, {room}");
        saved.read(&mut []).unwrap();
    }
    saved.begin("nothing").unwrap();
    saved.read_ahead(|ahead| ahead.give(vec![0]).and_then(|()| ahead.take())).unwrap();
    assert!(restored(&sim, &folder.path(), "numbers").unwrap() == all);
}

#[test]
fn a_thread_of_its_own_is_asked_for_no_more_than_there_is() {
    let folder = Folder::new();
    let mut saver = Saver::create(folder.path()).unwrap();
    let none = saver.write_behind(|behind| behind.write([0; 4], 0));
    assert_eq!(none.unwrap_err().kind(), ErrorKind::LengthMismatch, "no block is begun");
    for (has, bytes) in [(4, 5), (11, 11)] {
        saver.begin("numbers", 10).unwrap();
        let wrong = saver.write_behind(|behind| behind.write(vec![1; has], bytes));
        assert_eq!(wrong.unwrap_err().kind(), ErrorKind::LengthMismatch);
        assert_eq!(saver.write(b"1").unwrap_err().kind(), ErrorKind::LengthMismatch, "it is dropped");
    }
    saver.begin("numbers", 10).unwrap();
    saver.write_behind(|behind| behind.write(numbers(10), 10)).unwrap();
    saver.begin("half", 10).unwrap();
    saver.write_behind(|behind| behind.write(numbers(10), 9)).unwrap();
    saver.write(&[9]).unwrap();
    saver.finish().unwrap();

    let mut saved = SavedFile::open(folder.path()).unwrap();
    let nothing = saved.read_ahead(|ahead| ahead.give([0; 4]));
    assert_eq!(nothing.unwrap_err().kind(), ErrorKind::LengthMismatch, "no block is begun");
    saved.begin("numbers").unwrap();
    let without = saved.read_ahead(|ahead| ahead.take().map(|of: Option<(Vec<u8>, usize)>| of.is_some()));
    assert_eq!(without.unwrap_err().kind(), ErrorKind::InvalidArgument);
    saved.begin("numbers").unwrap();
    let empty = saved.read_ahead(|ahead| ahead.give(Vec::new()));
    assert_eq!(empty.unwrap_err().kind(), ErrorKind::InvalidArgument);
    saved.begin("numbers").unwrap();
    saved.read_ahead(|ahead| ahead.give([0; 4]).and_then(|()| ahead.take().map(drop))).unwrap();
    assert_eq!(saved.read(&mut [0; 6]).unwrap_err().kind(), ErrorKind::LengthMismatch, "it is begun again");
    saved.begin("half").unwrap();
    let read = saved.read_ahead(|ahead| ahead.give([0; 10]).and_then(|()| ahead.take())).unwrap();
    assert_eq!(read.unwrap().1, 10);
}

/// The thread is not waited for in vain, whatever becomes of the caller.
#[test]
fn a_panic_while_a_thread_reads_goes_up() {
    let folder = Folder::new();
    let mut saver = Saver::create(folder.path()).unwrap();
    saver.begin("long", 4 * MIB as u64).unwrap();
    saver.write(&numbers(4 * MIB)).unwrap();
    saver.finish().unwrap();
    let mut saved = SavedFile::open(folder.path()).unwrap();
    saved.begin("long").unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        saved.read_ahead(|ahead| ahead.give(vec![0; MIB]).map(|()| panic!("the caller's")))
    }));
    assert_eq!(panicked.map(drop).unwrap_err().downcast_ref(), Some(&"the caller's"));
    saved.begin("long").unwrap();
    let mut read = vec![0; 4 * MIB];
    saved.read(&mut read).unwrap();
    assert!(read == numbers(4 * MIB));
}

#[cfg(unix)]
#[test]
fn links_are_followed_to_read_and_replaced_to_write() {
    use std::os::unix::fs::symlink;

    let (sim, folder) = (Sim::new(), Folder::new());
    let (file, link) = (folder.path(), folder.0.join("link"));
    three(&sim, &file);
    let before = fs::read(&file).unwrap();
    symlink(&file, &link).unwrap();
    assert_eq!(restored(&sim, &link, "last").unwrap(), numbers(3));
    let mut saver = Saver::create(&link).unwrap();
    saver.begin("other", 1).unwrap();
    saver.write(b"1").unwrap();
    saver.finish().unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_file() && fs::read(&file).unwrap() == before);
    assert_eq!(SavedFile::open(&link).unwrap().bytes_of("other"), Some(1));
    // To nothing, and in a ring: there is no file to read, and the link is replaced.
    for (at, to) in [("dangling", "nowhere"), ("ring", "ring")] {
        let path = folder.0.join(at);
        symlink(to, &path).unwrap();
        assert_eq!(SavedFile::open(&path).unwrap_err().kind(), ErrorKind::Unreadable);
        Saver::create(&path).unwrap().finish().unwrap();
        assert_eq!(SavedFile::open(&path).unwrap().blocks().len(), 0);
    }
    assert!(!folder.0.join("nowhere").exists());
}

/// To open a pipe waits for somebody at its other end, and to read from a device may never end.
#[cfg(target_os = "linux")]
#[test]
fn what_is_no_file_is_not_read() {
    let folder = Folder::new();
    let pipe = folder.0.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [&*pipe, &folder.0, Path::new("/dev/zero"), Path::new("/dev/null")] {
        let error = SavedFile::open(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreadable, "{error}");
        assert!(error.to_string().contains("no file"), "{error}");
        assert_eq!(Saver::create(path).unwrap_err().kind(), ErrorKind::Unwritable);
    }
}
