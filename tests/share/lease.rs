//! The lease alone: who joins, who ends, and what a file may be that is none. `tests/process/lease.rs` has the processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use alluvion::share::lease::{Hold, Lease, LeaseName, sweep};
use alluvion::{Error, ErrorKind};
use proptest::prelude::*;

use crate::rig::{await_fewer_descriptors, descriptors};
use crate::shared_directory::SharedDirectory;

fn begin(directory: &SharedDirectory) -> Lease {
    Lease::begin(directory.path(), |name| name.0.to_vec()).expect("there is room")
}

fn join(directory: &SharedDirectory, lease: LeaseName) -> Result<Hold, Error> {
    Hold::join(directory.path(), lease, &lease.0)
}

#[track_caller]
fn refused(joined: Result<Hold, Error>, kind: ErrorKind, words: &str) {
    let error = joined.expect_err("it is refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn it_ends_when_nobody_has_a_hold() {
    let directory = SharedDirectory::new();
    let mut lease = begin(&directory);
    let holds: Vec<_> = (0..3).map(|_| join(&directory, lease.name()).expect("it is live")).collect();
    assert!(holds.iter().all(Hold::exporter_lives));
    for (gone, hold) in holds.into_iter().enumerate() {
        assert_eq!(lease.holders().unwrap(), 3 - gone);
        assert!(!lease.try_end().unwrap());
        hold.end();
    }
    assert_eq!(lease.holders().unwrap(), 0);
    assert!(join(&directory, lease.name()).is_ok_and(|hold| {
        hold.end();
        true
    }));
    assert!(lease.try_end().unwrap() && lease.try_end().unwrap());
    refused(join(&directory, lease.name()), ErrorKind::Stale, "taken it back");
    assert_eq!((directory.files(), lease.holders().unwrap()), (0, 0));
}

#[test]
fn neither_side_keeps_a_descriptor() {
    let directory = SharedDirectory::new();
    // A directory that is open meanwhile counts itself, before and after.
    let before = descriptors();
    let leases: Vec<_> = (0..200).map(|_| begin(&directory)).collect();
    let holds: Vec<_> = leases.iter().map(|lease| join(&directory, lease.name()).unwrap()).collect();
    // Fewer than one for each of 200 leases, or for each of as many holds.
    await_fewer_descriptors(before + 100);
    assert_eq!(directory.files(), 200);
    holds.into_iter().for_each(Hold::end);
    drop(leases);
    assert_eq!(directory.files(), 0, "a lease that is dropped leaves no file");
}

#[test]
fn an_exporter_that_goes_leaves_its_importers_alone_and_nobody_else_joins() {
    let directory = SharedDirectory::new();
    let lease = begin(&directory);
    let name = lease.name();
    let hold = join(&directory, name).unwrap();
    drop(lease);
    assert!(!hold.exporter_lives());
    refused(join(&directory, name), ErrorKind::Stale, "its exporter has ended");
    hold.end();
}

#[test]
fn what_a_crash_leaves_counts_as_gone_and_what_was_leaked_does_not() {
    let directory = SharedDirectory::new();
    let (mut crashed, mut leaked) = (begin(&directory), begin(&directory));
    join(&directory, crashed.name()).unwrap().abandon();
    drop(join(&directory, leaked.name()).unwrap());
    assert!(crashed.try_end().unwrap());
    assert!(!leaked.try_end().unwrap());
    assert_eq!(leaked.holders().unwrap(), 1);
}

#[test]
fn there_are_so_many_seats_and_each_is_used_again() {
    let directory = SharedDirectory::new();
    let lease = begin(&directory);
    for _ in 0..2 {
        let mut holds = Vec::new();
        let full = loop {
            match join(&directory, lease.name()) {
                Ok(hold) => holds.push(hold),
                Err(error) => break error,
            }
        };
        assert_eq!((full.kind(), lease.holders().unwrap()), (ErrorKind::InUse, holds.len()));
        assert!(
            full.to_string().contains(&format!("{} processes", holds.len())) && holds.len() > 200,
            "{full}"
        );
        // Every other one, so that what is locked is no one range.
        let mut kept = Vec::new();
        for (at, hold) in holds.into_iter().enumerate() {
            if at % 2 == 0 { hold.end() } else { kept.push(hold) }
        }
        assert_eq!(lease.holders().unwrap(), kept.len());
        kept.into_iter().for_each(Hold::end);
    }
}

/// The system names any lock of a range, and not the first: who comes late to an early seat counts as well.
#[test]
fn those_are_counted_that_took_the_seat_of_another() {
    let directory = SharedDirectory::new();
    let lease = begin(&directory);
    let [first, second, third] = [(); 3].map(|()| join(&directory, lease.name()).unwrap());
    first.end();
    let fourth = join(&directory, lease.name()).unwrap();
    assert_eq!(lease.holders().unwrap(), 3);
    second.end();
    let fifth = join(&directory, lease.name()).unwrap();
    assert_eq!(lease.holders().unwrap(), 3);
    [third, fourth, fifth].into_iter().for_each(Hold::end);
    assert_eq!(lease.holders().unwrap(), 0);
}

#[test]
fn a_message_that_is_too_long_is_refused() {
    let directory = SharedDirectory::new();
    let error = Lease::begin(directory.path(), |_| vec![0; 481]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("481 bytes"), "{error}");
    assert_eq!(directory.files(), 0);
    assert!(Lease::begin(directory.path(), |_| vec![0; 480]).is_ok());
}

#[test]
fn a_message_of_something_else_opens_nothing() {
    let directory = SharedDirectory::new();
    let mut lease = begin(&directory);
    let name = lease.name();
    for message in [&[][..], &[0; 16], &name.0[..15], &[name.0.as_slice(), &[0]].concat()] {
        refused(
            Hold::join(directory.path(), name, message),
            ErrorKind::Malformed,
            "not the one that its exporter made",
        );
    }
    refused(join(&directory, LeaseName([7; 16])), ErrorKind::Stale, "another user's");
    assert!(lease.try_end().unwrap(), "a refusal leaves no hold");
}

#[test]
fn a_file_that_somebody_removes_is_never_over() {
    let directory = SharedDirectory::new();
    let mut lease = begin(&directory);
    let hold = join(&directory, lease.name()).unwrap();
    let path = directory.file(&format!("{:?}", lease.name()));
    fs::rename(&path, path.with_extension("away")).unwrap();
    for error in [lease.holders().unwrap_err(), lease.try_end().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InUse);
        assert!(error.to_string().contains("somebody has removed"), "{error}");
    }
    // Another file of that name is none of its business.
    fs::write(&path, b"").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(lease.try_end().unwrap_err().kind(), ErrorKind::InUse);
    hold.end();
}

#[test]
fn files_that_are_no_leases_are_errors() {
    let directory = SharedDirectory::new();
    let lease = begin(&directory);
    let path = directory.file(&format!("{:?}", lease.name()));
    let sound = fs::read(&path).unwrap();
    let name = LeaseName([1; 16]);
    let forged = path.with_file_name(
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .replace(&format!("{:?}", lease.name()), &format!("{name:?}")),
    );
    let open_with = |bytes: &[u8], mode: u32| {
        fs::write(&forged, bytes).unwrap();
        fs::set_permissions(&forged, fs::Permissions::from_mode(mode)).unwrap();
        Hold::join(directory.path(), name, &lease.name().0)
    };
    refused(open_with(&sound, 0o644), ErrorKind::Unwritable, "other users may use it");
    refused(open_with(&sound[..100], 0o600), ErrorKind::Malformed, "its size is not that of a lease");
    let mut other_version = sound.clone();
    other_version[8] = 9;
    refused(open_with(&other_version, 0o600), ErrorKind::Malformed, "another version");
    // It is as its exporter made it, and that is dead: nobody has the lock.
    refused(open_with(&sound, 0o600), ErrorKind::Stale, "its exporter has ended");
    assert!(!forged.exists(), "whoever finds the file of a dead exporter removes it");
    fs::create_dir(&forged).unwrap();
    refused(join(&directory, name), ErrorKind::Unwritable, "lease-");
    assert!(path.exists(), "and no other");
}

#[test]
fn a_sweep_takes_the_files_of_the_dead_alone() {
    let directory = SharedDirectory::new();
    let lease = begin(&directory);
    let path = directory.file(&format!("{:?}", lease.name()));
    let text = path.to_str().unwrap();
    let [dead, strange] =
        [&text[..text.len() - 32], &text[..text.len() - 31]].map(|start| format!("{start}{:032}", 0));
    for file in [&dead, &strange] {
        fs::copy(&path, file).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    assert_eq!((sweep(directory.path()), sweep(directory.path())), (1, 0));
    assert!(path.exists() && fs::exists(&strange).unwrap() && !fs::exists(&dead).unwrap());
    assert_eq!(sweep(&path.join("no directory")), 0);
}

/// Somebody has linked a file of this user's there, by the name that a lease has.
#[test]
fn a_sweep_writes_into_no_file_that_is_something_else() {
    let directory = SharedDirectory::new();
    drop(begin(&directory));
    let theirs = directory.path().join("theirs");
    let make = |name: &str, bytes: &[u8]| {
        let path = directory.room().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let link = make(&format!("lease-{:032}", 1), &[7; 4096]);
    fs::hard_link(&link, &theirs).unwrap();
    assert_eq!(sweep(directory.path()), 0);
    refused(join(&directory, LeaseName([0; 16])), ErrorKind::Stale, "its exporter has ended");
    assert_eq!(fs::read(&theirs).unwrap(), [7; 4096]);
    assert!(link.exists());
    // Who died before it had made its table.
    let empty = make(&format!("lease-{:032}", 2), &[0; 4096]);
    assert_eq!(sweep(directory.path()), 1);
    assert!(!empty.exists());
}

/// A directory that other users have or can have made, or that they may write.
#[test]
fn the_directory_is_this_users_alone() {
    let directory = SharedDirectory::new();
    drop(begin(&directory));
    let room = directory.room();
    assert_eq!(fs::metadata(&room).unwrap().permissions().mode() & 0o7777, 0o700);
    let begin = || Lease::begin(directory.path(), |name| name.0.to_vec());
    let refused = |words: &str| {
        let error = begin().expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Unwritable, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    fs::set_permissions(&room, fs::Permissions::from_mode(0o770)).unwrap();
    refused("other users may use it: its mode is 770");
    fs::set_permissions(&room, fs::Permissions::from_mode(0o700)).unwrap();
    drop(begin().unwrap());
    let elsewhere = directory.path().join("elsewhere");
    fs::rename(&room, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &room).unwrap();
    refused("it is no directory");
}

#[test]
fn no_room_is_an_error_and_leaves_nothing() {
    let directory = SharedDirectory::new();
    let none = directory.path().join("none");
    let error = Lease::begin(&none, |_| Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unwritable);
    let file = directory.path().join("a file");
    fs::write(&file, b"").unwrap();
    assert_eq!(Lease::begin(&file, |_| Vec::new()).unwrap_err().kind(), ErrorKind::Unwritable);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is in a file, somebody who joins gets an error or a hold, and goes.
    #[test]
    fn any_bytes_are_an_error_or_a_lease(changes in prop::collection::vec((0_usize..4096, any::<u8>()), 0..40)) {
        let directory = SharedDirectory::new();
        let mut lease = begin(&directory);
        let path = directory.file(&format!("{:?}", lease.name()));
        let mut bytes = fs::read(&path).unwrap();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        // In place: its exporter has the lock.
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
        if let Ok(hold) = join(&directory, lease.name()) {
            // A seat may name anybody now.
            prop_assert!(lease.holders().unwrap() >= 1);
            hold.end();
        }
        let _ = lease.try_end().unwrap();
    }
}
