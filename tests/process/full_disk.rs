//! Blocks are saved to a disk that is full: it is told, the file that had the name stays as it was, and nothing else is left.

#![expect(unsafe_code, reason = "limits the files of a process")]

use std::{env, fs, process};

use alluvion::saved::{SavedFile, Saver};
use alluvion::{DeviceVec, Error, ErrorKind, Sim};

use crate::child::{done, in_child};

/// Runs `body` while no file of the process may have more than so many bytes: the system then answers a write as on a full disk.
pub(crate) fn with_files_of(bytes: libc::rlim_t, body: impl FnOnce()) {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the place is writable.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut before) }, 0);
    // SAFETY: it is ignored: else the first write beyond the limit ends the process.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let few = libc::rlimit { rlim_cur: bytes, ..before };
    // SAFETY: it is a whole limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const few) }, 0);
    body();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const before) }, 0);
}

#[test]
fn a_full_disk_is_told_and_the_block_can_be_saved_again() {
    in_child("full_disk::a_full_disk_is_told_and_the_block_can_be_saved_again", 1, || {
        let folder = env::temp_dir().join(format!("alluvion-saver-full-{}", process::id()));
        // A process that was killed may have had this number, and left it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("there is room");
        let path = folder.join("model");
        let files = || fs::read_dir(&folder).expect("it is there").count();
        let sim = Sim::new();
        let stream = sim.device(0).stream().expect("there are numbers left");
        let block = DeviceVec::filled(20 << 20, 7_u8, &stream).expect("there is room");
        let told = |error: Error| {
            assert_eq!(error.kind(), ErrorKind::Unwritable, "{error}");
            assert!(error.to_string().contains(path.to_str().expect("it is text")), "{error}");
        };
        Saver::create(&path).and_then(Saver::finish).expect("there is room for a file without blocks");
        let before = fs::read(&path).expect("it is there");
        // In the first buffer, in one of the middle, and in the last.
        for limit in [5000, 9 << 20, 20 << 20] {
            let mut saver = Saver::create(&path).expect("an empty file needs no room");
            with_files_of(limit, || {
                told(saver.save("block", block.as_slice(), &stream).expect_err("there is no room"));
                // Nor for parts of the caller's.
                saver.begin("parts", 30 << 20).expect("nothing is written yet");
                let behind = saver.write_behind(|behind| {
                    (0..30).try_for_each(|_| behind.write(vec![1; 1 << 20], 1 << 20).map(drop))
                });
                told(behind.expect_err("there is no room"));
            });
            assert_eq!((files(), fs::read(&path).expect("it is there") == before), (2, true));
            saver.save("block", block.as_slice(), &stream).expect("there is room again");
            with_files_of(20 << 20, || told(saver.finish().expect_err("there is no room for the table")));
            assert_eq!((files(), fs::read(&path).expect("it is there") == before), (1, true));
        }
        let mut saver = Saver::create(&path).expect("there is room");
        with_files_of(0, || told(saver.save("block", block.as_slice(), &stream).expect_err("there is none")));
        saver.save("block", block.as_slice(), &stream).expect("there is room");
        saver.finish().expect("there is room");
        let mut back = DeviceVec::<u8>::zeroed(20 << 20, &stream).expect("there is room");
        let mut saved = SavedFile::open(&path).expect("it is whole");
        saved.restore("block", back.as_mut_slice(), &stream).expect("it is whole");
        assert!(back.to_vec(&stream).expect("it is there") == vec![7; 20 << 20] && files() == 1);
        fs::remove_dir_all(&folder).expect("it is ours");
        done();
    });
}
