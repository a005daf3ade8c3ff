//! A block on several pages, shared and opened by a process that has few descriptors left.

#![expect(unsafe_code, reason = "limits descriptors")]

use std::fs;

use alluvion::share::{ExportWay, Import, Imported, ShareConfig, Shared};
use alluvion::testing::Bench;
use alluvion::{AnyResource, DeviceVec, Sim, Stream};

use crate::rerun::{is_child, run_child};
use crate::shareable::{LEFT, Straddling};
use crate::shared_directory::SharedDirectory;

const PAGE: usize = 2 << 20;
const PAGES: usize = 12;
/// More than a share or an open of so many pages needs.
const ENOUGH: usize = 60;

fn numbers_of_descriptors() -> Vec<usize> {
    let names = fs::read_dir("/proc/self/fd").expect("Linux says").flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

/// Runs `body` where `room` more descriptors can be opened.
fn with_room<T>(room: usize, body: impl FnOnce() -> T) -> T {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the place is writable.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before) }, 0);
    // Without that of the folder, which is closed again.
    let open: Vec<usize> = numbers_of_descriptors();
    let is_open =
        |number: &usize| fs::exists(format!("/proc/self/fd/{number}")).is_ok_and(|is_there| is_there);
    let open: Vec<usize> = open.into_iter().filter(is_open).collect();
    let mut limit = 0;
    let mut free = 0;
    while free < room || open.contains(&limit) {
        free += usize::from(!open.contains(&limit));
        limit += 1;
    }
    let few = libc::rlimit { rlim_cur: limit as libc::rlim_t, ..before };
    // SAFETY: it is a whole limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) }, 0);
    let done = body();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const before) }, 0);
    done
}

type SharedBytes = Shared<DeviceVec<u8, AnyResource>>;

fn open(
    shared: &SharedBytes,
    directory: &SharedDirectory,
    stream: &Stream,
) -> Result<Imported<u8>, alluvion::Error> {
    let descriptor =
        shared.descriptor().expect("it needs one").try_clone_to_owned().expect("there is one left");
    // The copy is the program's.
    with_room(ENOUGH, || {
        Import::new(shared.message()).directory(directory.path()).descriptor(descriptor).open(stream)
    })
}

#[test]
fn without_descriptors_a_share_and_an_open_fail_and_lose_nothing() {
    const TEST: &str = "shared_pages::without_descriptors_a_share_and_an_open_fail_and_lose_nothing";
    if !is_child(TEST) {
        let ended = run_child(TEST, &[]);
        assert!(ended.status.success(), "{}{}", ended.printed, ended.said);
        return;
    }
    let directory = SharedDirectory::new();
    let first = Sim::with_config(Bench::config());
    let second = first.process();
    let (stream, its_stream) =
        (first.device(0).stream().expect("a stream"), second.device(0).stream().expect("a stream"));
    let resource = AnyResource::new(Straddling::new(&first.device(0)));
    let length = LEFT + (PAGES - 1) * PAGE;
    let mut vector = DeviceVec::filled_in(length, 7_u8, &stream, resource.clone()).expect("there is memory");
    let config = || ShareConfig::default().directory(directory.path());
    // What the first of each sets up stays.
    let shared = Shared::with_config(vector, config(), &stream).expect("there are descriptors");
    drop(open(&shared, &directory, &its_stream).expect("there are descriptors"));
    vector = shared.try_end().expect("nobody has it");

    let before = (numbers_of_descriptors().len(), first.live(), second.live());
    let (mut refused_shares, mut refused_opens) = (0, 0);
    for room in 0..=ENOUGH {
        let what = format!("with room for {room}");
        let shared = match with_room(room, || Shared::with_config(vector, config(), &stream)) {
            Ok(shared) => shared,
            Err(refused) => {
                refused_shares += 1;
                vector = refused.into_value();
                assert_eq!((numbers_of_descriptors().len(), first.live(), second.live()), before, "{what}");
                assert_eq!(directory.files(), 0, "{what}");
                Shared::with_config(vector, config(), &stream).expect("there are descriptors")
            }
        };
        let (held, live) = (numbers_of_descriptors().len(), second.live());
        let descriptor =
            shared.descriptor().expect("it needs one").try_clone_to_owned().expect("there is one");
        let import = Import::new(shared.message()).directory(directory.path()).descriptor(descriptor);
        match with_room(room, || import.open::<u8>(&its_stream)) {
            Ok(imported) => drop(imported),
            Err(_) => refused_opens += 1,
        }
        assert_eq!((numbers_of_descriptors().len(), second.live()), (held, live), "{what}");
        let imported =
            open(&shared, &directory, &its_stream).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(imported.get(length - 1, &its_stream).expect("it is there"), 7, "{what}");
        drop(imported);
        vector = shared.try_end().expect("nobody has it");
    }
    assert!((PAGES..ENOUGH).contains(&refused_shares), "{refused_shares} shares were refused");
    assert!((PAGES..ENOUGH).contains(&refused_opens), "{refused_opens} opens were refused");
    drop((vector, resource, stream, its_stream));
    first.assert_clean();
    second.assert_clean();
}

/// Linux counts the descriptors of one user that wait in sockets, unless he is privileged.
#[test]
fn too_many_descriptors_on_their_way_are_named() {
    const TEST: &str = "shared_pages::too_many_descriptors_on_their_way_are_named";
    /// Too long for the range of short blocks, whose pages are others.
    const LONG: usize = 128 << 10;
    /// A user that has nothing else.
    const NOBODY: libc::uid_t = 65_432;
    if !is_child(TEST) {
        let ended = run_child(TEST, &[]);
        assert!(ended.status.success(), "{}{}", ended.printed, ended.said);
        return;
    }
    // SAFETY: it takes numbers.
    let is_changed = unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) } == 0;
    // SAFETY: it takes nothing, and cannot fail.
    if !is_changed && unsafe { libc::geteuid() } == 0 {
        println!("not tested: this user is privileged, and stays so");
        return;
    }
    let directory = SharedDirectory::new();
    let sim = Sim::with_config(Bench::config());
    let stream = sim.device(0).stream().expect("a stream");
    let resource = AnyResource::new(Straddling::new(&sim.device(0)));
    let share = || {
        let vector = DeviceVec::filled_in(LONG, 7_u8, &stream, resource.clone()).expect("there is memory");
        let apart =
            DeviceVec::filled_in(PAGE - LONG, 0_u8, &stream, resource.clone()).expect("there is memory");
        let shared = Shared::with_config(vector, ShareConfig::default().directory(directory.path()), &stream);
        if let Ok(shared) = &shared {
            assert_eq!(shared.message().way(), ExportWay::AdjacentPagesByDescriptor);
        }
        (shared, apart)
    };
    let (mut shared, mut apart) = (Vec::new(), Vec::new());
    // Two descriptors of each wait, and one is open.
    let refused = with_room(30, || {
        loop {
            let (outcome, next) = share();
            apart.push(next);
            match outcome {
                Ok(one) => shared.push(one),
                Err(refused) => break refused,
            }
        }
    });
    assert!(refused.error().to_string().contains("`ulimit -n`"), "{}", refused.error());
    assert_eq!(refused.error().kind(), alluvion::ErrorKind::Unwritable);
    // How many depends on what else of this user waits in sockets.
    assert!(!shared.is_empty(), "none was shared");
    // Those that are there end as ever, and leave room.
    drop(refused);
    shared.truncate(2);
    let (outcome, next) = share();
    drop((outcome.expect("there is room"), next));
    drop((shared, apart, resource, stream));
    sim.assert_clean();
    assert_eq!(directory.files(), 0);
}
