//! Contents of what sleeps go to a disk that is full: nothing sleeps, nothing is lost, and no file is left. And a fork removes no file
//! of its parent's.

#![expect(unsafe_code, reason = "forks, and puts blocks to sleep")]

use std::{env, fs, process};

use alluvion::source::Mapped;
use alluvion::{DeviceVec, ErrorKind, PoolConfig, ResourceExt, Sim, SleepConfig};

use crate::child::{done, in_child};
use crate::full_disk::with_files_of;

#[test]
fn a_full_disk_is_told_and_a_fork_leaves_the_file() {
    in_child("sleep_on_disk::a_full_disk_is_told_and_a_fork_leaves_the_file", 1, || {
        let folder = env::temp_dir().join(format!("alluvion-sleep-full-{}", process::id()));
        // A process that was killed may have had this number, and left it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("there is room");
        let files = || fs::read_dir(&folder).expect("it is there").count();
        let sim = Sim::new();
        let stream = sim.device(0).stream().expect("there are numbers left");
        let pool =
            Mapped::new(&sim.device(0)).expect("it has pages").pool(PoolConfig::default()).expect("as is");
        let held = DeviceVec::filled_in(20 << 20, 7_u8, &stream, &pool).expect("there is room");
        let config = || SleepConfig::default().keep_on_disk(&folder);
        for limit in [0, 1000, 17 << 20] {
            with_files_of(limit, || {
                // SAFETY: nothing uses what is to sleep.
                let full = unsafe { pool.sleep(config()) }.expect_err("there is no room on the disk");
                assert_eq!(full.kind(), ErrorKind::Unwritable, "{full}");
                assert!(full.to_string().contains(".asleep"), "{full}");
            });
            assert_eq!((files(), pool.status().asleep_bytes), (0, 0));
            assert!(held.to_vec(&stream).expect("it is awake") == vec![7; 20 << 20]);
        }
        // SAFETY: as above.
        let mut sleeper = unsafe { pool.sleep(config()) }.expect("there is room again");
        assert_eq!(files(), 1);
        // SAFETY: the child makes no call but this drop and `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(sleeper);
            // SAFETY: it ends the child at once.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: it is our child, and the place is writable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((status, files()), (0, 1), "the file is the parent's");
        sleeper.wake().expect("there is memory");
        assert!(held.to_vec(&stream).expect("it is awake") == vec![7; 20 << 20]);
        assert_eq!(files(), 0);
        fs::remove_dir(&folder).expect("it is ours");
        done();
    });
}
