//! Blocks that lie on several pages, each of which is memory of its own: what a share of one sends, opens and costs.

#![expect(unsafe_code, reason = "sets an option of a socket")]

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use alluvion::driver::{Call, Code, ExportedMemory, HandleType};
use alluvion::resource::Export;
use alluvion::share::{ExportWay, Shared};
use alluvion::sim::Fault;
use alluvion::source::{Mapped, MappedConfig};
use alluvion::{AnyResource, DeviceVec, Error, ErrorKind, PoolConfig, Resource as _, ResourceExt, Stream};

use crate::rig::{Rig, mapped, sent};
use crate::shareable::{LEFT, Straddling};

/// Of a simulated device.
const PAGE: usize = 2 << 20;

type SharedBytes = Shared<DeviceVec<u8, AnyResource>>;

struct Stage {
    rig: Rig,
    stream: Stream,
    its_stream: Stream,
    resource: AnyResource,
}

impl Stage {
    fn new() -> Self {
        let rig = Rig::new();
        let (stream, its_stream) =
            (rig.first.device(0).stream().unwrap(), rig.second.device(0).stream().unwrap());
        let resource = AnyResource::new(Straddling::new(&rig.first.device(0)));
        Self { rig, stream, its_stream, resource }
    }

    /// A block that begins with the last bytes of one page, and ends so many bytes behind that page's end.
    fn vector(&self, behind: usize) -> DeviceVec<u8, AnyResource> {
        let bytes: Vec<u8> = (0..LEFT + behind).map(|at| (at % 251) as u8).collect();
        DeviceVec::from_slice_in(&bytes, &self.stream, self.resource.clone()).unwrap()
    }

    fn shared(&self, behind: usize) -> SharedBytes {
        let shared = self.rig.share(self.vector(behind), &self.stream);
        assert_eq!(shared.message().way(), ExportWay::AdjacentPagesByDescriptor);
        shared
    }

    #[track_caller]
    fn assert_clean(self) {
        let Self { rig, stream, its_stream, resource } = self;
        drop((resource, stream, its_stream));
        rig.assert_clean();
    }
}

/// How many descriptors of processes this process has.
fn process_descriptors() -> usize {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("pidfd")).count()
}

#[track_caller]
fn assert_is(bytes: &[u8], behind: usize) {
    assert_eq!(bytes.len(), LEFT + behind);
    let wrong = (0..bytes.len()).find(|&at| bytes[at] != (at % 251) as u8);
    assert_eq!(wrong, None, "the first byte that is another");
}

#[test]
fn a_block_may_begin_and_end_anywhere_on_its_pages() {
    for behind in [1, 256, PAGE - 256, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 5 * PAGE + 700] {
        let stage = Stage::new();
        let shared = stage.shared(behind);
        let pages = 1 + behind.div_ceil(PAGE);
        assert_eq!(
            shared.message().visible_bytes(),
            pages * PAGE,
            "{behind}: all of its pages, and no other"
        );
        let imported = stage.rig.open::<u8>(&shared, &stage.its_stream).unwrap();
        assert_is(&imported.to_vec(&stage.its_stream).unwrap(), behind);
        drop(imported);
        drop(shared.end().unwrap());
        stage.assert_clean();
    }
}

#[test]
fn what_an_importer_writes_comes_to_every_page() {
    let stage = Stage::new();
    let behind = 2 * PAGE + 1000;
    let config = stage.rig.share_config().writable();
    let neighbour = stage.vector(500);
    let shared = Shared::with_config(stage.vector(behind), config, &stage.stream).unwrap();
    let mut imported = stage.rig.open_mut::<u8>(&shared, &stage.its_stream).unwrap();
    imported.fill(9, &stage.its_stream).unwrap();
    drop(imported);
    let vector = shared.end().unwrap();
    assert!(vector.to_vec(&stage.stream).unwrap().iter().all(|&byte| byte == 9));
    assert_is(&neighbour.to_vec(&stage.stream).unwrap(), 500);
    drop((vector, neighbour));
    stage.assert_clean();
}

#[test]
fn pages_that_nothing_of_what_is_shared_lies_on_are_not_sent() {
    let stage = Stage::new();
    let mut vector = stage.vector(4 * PAGE);
    vector.truncate(LEFT);
    let shared = stage.rig.share(vector, &stage.stream);
    assert_eq!(
        (shared.message().way(), shared.message().visible_bytes()),
        (ExportWay::PagesByDescriptor, PAGE)
    );
    let mut vector = shared.try_end().unwrap();
    drop(vector);
    vector = stage.vector(4 * PAGE);
    vector.truncate(LEFT + PAGE + 1);
    let shared = stage.rig.share(vector, &stage.stream);
    assert_eq!(shared.message().visible_bytes(), 3 * PAGE);
    let imported = stage.rig.open::<u8>(&shared, &stage.its_stream).unwrap();
    assert_is(&imported.to_vec(&stage.its_stream).unwrap(), PAGE + 1);
    drop(imported);
    drop(shared.end().unwrap());
    stage.assert_clean();
}

/// An arena lies on several pages of a pool, and its blocks on one or two of them.
#[test]
fn a_block_in_a_segment_on_several_pages_sends_its_own() {
    let stage = Stage::new();
    let arena =
        stage.resource.clone().arena(alluvion::suballoc::ArenaConfig::default().bytes(8 << 20)).unwrap();
    let arena = AnyResource::new(arena);
    let vectors: Vec<_> = (0..6_u8)
        .map(|byte| DeviceVec::filled_in(PAGE / 2 + 1000, byte, &stage.stream, arena.clone()).unwrap())
        .collect();
    let shared: Vec<_> = vectors.into_iter().map(|vector| stage.rig.share(vector, &stage.stream)).collect();
    for (byte, shared) in shared.iter().enumerate() {
        let imported = stage.rig.open::<u8>(shared, &stage.its_stream).unwrap();
        assert!(imported.to_vec(&stage.its_stream).unwrap().iter().all(|&found| usize::from(found) == byte));
    }
    let ways: Vec<_> = shared.iter().map(|shared| shared.message().way()).collect();
    assert!(
        ways.contains(&ExportWay::AdjacentPagesByDescriptor) && ways.contains(&ExportWay::PagesByDescriptor)
    );
    shared.into_iter().for_each(|shared| drop(shared.end().unwrap()));
    drop(arena);
    stage.assert_clean();
}

#[test]
fn each_page_costs_a_few_calls() {
    for pages in [2_u64, 5, 20] {
        let stage = Stage::new();
        let vector = stage.vector((pages as usize - 2) * PAGE + 10);
        let before = stage.rig.first.calls();
        let shared = stage.rig.share(vector, &stage.stream);
        let made = stage.rig.first.calls() - before;
        assert_eq!(made[Call::MemoryExport], pages, "each page once");
        let before = stage.rig.second.calls();
        let imported = stage.rig.open::<u8>(&shared, &stage.its_stream).unwrap();
        let made = stage.rig.second.calls() - before;
        for call in [Call::MemoryImport, Call::MemoryMap, Call::MemoryRelease] {
            assert_eq!(made[call], pages, "{call:?} for each page");
        }
        assert_eq!((made[Call::VirtualReserve], made[Call::MemorySetAccess]), (1, 1), "once for all");
        let before = stage.rig.second.calls();
        drop(imported);
        let made = stage.rig.second.calls() - before;
        assert_eq!((made[Call::MemoryUnmap], made[Call::VirtualFree]), (pages, 1));
        drop(shared.end().unwrap());
        stage.assert_clean();
    }
}

#[test]
fn opened_twice_and_by_two_processes() {
    let stage = Stage::new();
    let shared = stage.shared(3 * PAGE);
    let third = stage.rig.first.process();
    let third_stream = third.device(0).stream().unwrap();
    let one = stage.rig.open::<u8>(&shared, &stage.its_stream).unwrap();
    let two = stage.rig.open::<u8>(&shared, &stage.its_stream).unwrap();
    let three = stage.rig.open::<u8>(&shared, &third_stream).unwrap();
    assert_eq!(one.as_device_ptr(), two.as_device_ptr());
    assert_eq!(shared.importers().unwrap(), 2);
    drop(one);
    for (imported, stream) in [(two, &stage.its_stream), (three, &third_stream)] {
        assert_is(&imported.to_vec(stream).unwrap(), 3 * PAGE);
    }
    drop(shared.end().unwrap());
    drop(third_stream);
    third.assert_clean();
    stage.assert_clean();
}

/// A pool moves and returns free pages alone: those of a block that is out stay, each of them.
#[test]
fn no_page_of_a_share_moves_or_goes_back() {
    let stage = Stage::new();
    let shared = stage.shared(3 * PAGE);
    let imported = stage.rig.open::<u8>(&shared, &stage.its_stream).unwrap();
    let before = stage.rig.first.live().mappings;
    for _ in 0..3 {
        drop(stage.vector(6 * PAGE));
        stage.stream.synchronize().unwrap();
        stage.resource.trim(0).unwrap();
    }
    assert_eq!(stage.rig.first.live().mappings, before, "what was free went back, and no page of the share");
    assert_is(&imported.to_vec(&stage.its_stream).unwrap(), 3 * PAGE);
    drop(imported);
    let vector = shared.end().unwrap();
    assert_is(&vector.to_vec(&stage.stream).unwrap(), 3 * PAGE);
    drop(vector);
    stage.resource.trim(0).unwrap();
    assert!(stage.rig.first.live().mappings < before, "now they do");
    stage.assert_clean();
}

/// The second page of three is refused, on either side, at each call: nothing stays, and the next try works.
#[test]
fn a_page_that_fails_takes_the_others_back() {
    let calls = [
        (Call::MemoryExport, false),
        (Call::MemoryImport, true),
        (Call::MemoryMap, true),
        (Call::MemorySetAccess, true),
        (Call::VirtualReserve, true),
    ];
    for (call, is_importers) in calls {
        let stage = Stage::new();
        let nth = if matches!(call, Call::MemorySetAccess | Call::VirtualReserve) { 1 } else { 2 };
        let vector = stage.vector(PAGE + 10);
        let first_before = (stage.rig.first.live(), stage.rig.first.device(0).memory_info().unwrap());
        let sim = if is_importers { &stage.rig.second } else { &stage.rig.first };
        let second_before = stage.rig.second.live();
        if !is_importers {
            sim.inject(Fault::nth(call, nth, Code::OUT_OF_MEMORY));
        }
        let vector = match Shared::with_config(vector, stage.rig.share_config(), &stage.stream) {
            Ok(shared) => {
                assert!(is_importers, "{call:?}");
                sim.inject(Fault::nth(call, nth, Code::OUT_OF_MEMORY));
                let error = stage.rig.open::<u8>(&shared, &stage.its_stream).unwrap_err();
                assert_eq!(error.call(), Some(call), "{error}");
                shared.try_end().expect("nobody has it")
            }
            Err(refused) => {
                assert_eq!(refused.error().call(), Some(call), "{}", refused.error());
                refused.into_value()
            }
        };
        assert_eq!(sim.faults_left(), 0, "{call:?} was made");
        assert_eq!(stage.rig.second.live(), second_before, "{call:?}: the importer has nothing");
        let first_after = (stage.rig.first.live(), stage.rig.first.device(0).memory_info().unwrap());
        assert_eq!(first_after, first_before, "{call:?}: the exporter has what it had");
        assert_eq!(stage.rig.directory.files(), 0, "{call:?}");
        let shared = stage.rig.share(vector, &stage.stream);
        let imported = stage.rig.open::<u8>(&shared, &stage.its_stream).unwrap();
        assert_is(&imported.to_vec(&stage.its_stream).unwrap(), PAGE + 10);
        drop(imported);
        drop(shared.end().unwrap());
        stage.assert_clean();
    }
}

/// A page that cannot be unmapped keeps the exporter's memory, as it does where there is one page.
#[test]
fn a_page_that_stays_mapped_keeps_the_lease() {
    let stage = Stage::new();
    let shared = stage.shared(PAGE);
    let imported = stage.rig.open::<u8>(&shared, &stage.its_stream).unwrap();
    stage.rig.second.inject(Fault::nth(Call::MemoryUnmap, 2, Code::UNKNOWN));
    drop(imported);
    let shared = shared.try_end().expect_err("the importer still has a page");
    assert_eq!(shared.importers().unwrap(), 1);
    assert_eq!(stage.rig.second.live().mappings, 1);
}

#[test]
fn a_descriptor_of_something_else_is_refused() {
    let stage = Stage::new();
    let (shared, other) = (stage.shared(PAGE), stage.shared(PAGE));
    let one_page = stage.rig.share(
        DeviceVec::filled_in(100, 1_u8, &stage.stream, AnyResource::new(mapped(&stage.rig.first.device(0))))
            .unwrap(),
        &stage.stream,
    );
    let emptied = UnixDatagram::from(sent(&stage.shared(PAGE)).unwrap());
    emptied.recv(&mut [0; 4096]).unwrap();
    let (silent, _end) = UnixDatagram::pair().unwrap();
    let (chatty, end) = UnixDatagram::pair().unwrap();
    end.send(b"ALVP, or so").unwrap();
    let foreign: [(&str, OwnedFd); 7] = [
        ("a parcel of another block", sent(&other).unwrap()),
        ("a page", sent(&one_page).unwrap()),
        ("a parcel that somebody has emptied", emptied.into()),
        ("a socket", silent.into()),
        ("a socket with words", chatty.into()),
        ("/dev/null", File::open("/dev/null").unwrap().into()),
        ("a file", File::open("/proc/self/exe").unwrap().into()),
    ];
    let before = stage.rig.second.live();
    for (what, descriptor) in foreign {
        let error =
            stage.rig.import(shared.message(), Some(descriptor)).open::<u8>(&stage.its_stream).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed, "{what}: {error}");
        assert_eq!(stage.rig.second.live(), before, "{what}");
    }
    let error = stage.rig.import(shared.message(), None).open::<u8>(&stage.its_stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let imported = stage.rig.open::<u8>(&shared, &stage.its_stream).unwrap();
    assert_is(&imported.to_vec(&stage.its_stream).unwrap(), PAGE);
    drop(imported);
    for shared in [shared, other, one_page] {
        drop(shared.end().unwrap());
    }
    stage.assert_clean();
}

/// Other pages may lie at the same addresses by then.
#[test]
fn the_parcel_of_an_earlier_share_is_refused() {
    let stage = Stage::new();
    let earlier = stage.shared(PAGE);
    let parcel = sent(&earlier).unwrap();
    let shared = stage.rig.share(earlier.end().unwrap(), &stage.stream);
    let error = stage.rig.import(shared.message(), Some(parcel)).open::<u8>(&stage.its_stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
    let imported = stage.rig.open::<u8>(&shared, &stage.its_stream).unwrap();
    assert_is(&imported.to_vec(&stage.its_stream).unwrap(), PAGE);
    drop(imported);
    drop(shared.end().unwrap());
    stage.assert_clean();
}

/// A socket can be told to add a descriptor of the sender's process to each message, once for each look at it.
#[test]
fn descriptors_that_a_socket_adds_are_closed() {
    const SO_PASSPIDFD: libc::c_int = 76;
    const LOOKS: usize = 200;
    let stage = Stage::new();
    let shared = stage.shared(PAGE);
    let (socket, end) = UnixDatagram::pair().unwrap();
    let on: libc::c_int = 1;
    // SAFETY: the option is an int of four bytes, which is read during the call.
    let told = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PASSPIDFD, (&raw const on).cast(), 4)
    };
    if told != 0 {
        // A kernel before 6.5.
        return;
    }
    end.send(b"ALVP, or so").unwrap();
    let before = process_descriptors();
    for _ in 0..LOOKS {
        let descriptor = OwnedFd::from(socket.try_clone().unwrap());
        let import = stage.rig.import(shared.message(), Some(descriptor));
        assert_eq!(import.open::<u8>(&stage.its_stream).unwrap_err().kind(), ErrorKind::Malformed);
    }
    // Other tests of this program may have some meanwhile: no exact number.
    let after = process_descriptors();
    assert!(after < before + LOOKS / 2, "{after} after {before}");
    drop(shared.end().unwrap());
    stage.assert_clean();
}

/// More than one message of the system carries, and each page is where it was.
#[test]
fn more_pages_than_a_message_carries() {
    const PAGES: usize = 300;
    let rig = Rig::with(Rig::config().memory_bytes(1 << 30));
    let (stream, its_stream) =
        (rig.first.device(0).stream().unwrap(), rig.second.device(0).stream().unwrap());
    let resource = AnyResource::new(Straddling::new(&rig.first.device(0)));
    let mut vector = DeviceVec::<u8, _>::uninit_in((PAGES - 1) * PAGE, &stream, resource.clone()).unwrap();
    let places = |page: usize| page * PAGE..page * PAGE + 2;
    for page in 0..PAGES - 1 {
        let mut part = vector.slice_mut(places(page)).unwrap();
        part.copy_from_slice(&[page as u8, (page / 256) as u8], &stream).unwrap();
    }
    let shared = rig.share(vector, &stream);
    assert_eq!(shared.message().visible_bytes(), PAGES * PAGE);
    let imported = rig.open::<u8>(&shared, &its_stream).unwrap();
    for page in 0..PAGES - 1 {
        let read = imported.slice(places(page)).unwrap().to_vec(&its_stream).unwrap();
        assert_eq!(read, [page as u8, (page / 256) as u8]);
    }
    assert_eq!(rig.second.calls()[Call::MemoryMap], PAGES as u64);
    drop(imported);
    drop(shared.end().unwrap());
    drop((resource, stream, its_stream));
    rig.assert_clean();
}

#[test]
fn an_importer_or_an_exporter_that_is_killed() {
    let stage = Stage::new();
    let shared = stage.shared(2 * PAGE);
    let imported = stage.rig.open::<u8>(&shared, &stage.its_stream).unwrap();
    stage.rig.second.kill();
    // What the kernel does for a process that is killed: it takes the lock.
    drop(imported);
    let vector = shared.end().unwrap();
    assert_is(&vector.to_vec(&stage.stream).unwrap(), 2 * PAGE);
    drop(vector);
    let Stage { rig, stream, its_stream, resource } = stage;
    drop((resource, stream, its_stream));
    rig.first.assert_clean();
    assert_eq!(rig.directory.files(), 0);

    let stage = Stage::new();
    let shared = stage.shared(2 * PAGE);
    let (message, descriptor) = (shared.message().clone(), sent(&shared));
    let imported = stage.rig.open::<u8>(&shared, &stage.its_stream).unwrap();
    // What a process had queued dies with it.
    stage.stream.synchronize().unwrap();
    stage.rig.first.kill();
    let Stage { rig, stream, its_stream, resource } = stage;
    drop((shared, stream, resource));
    assert_is(&imported.to_vec(&its_stream).unwrap(), 2 * PAGE);
    drop(imported);
    let late = rig.import(&message, descriptor).open::<u8>(&its_stream);
    assert!(late.as_ref().is_err_and(Error::is_stale), "{late:?}");
    drop(its_stream);
    rig.second.assert_clean();
}

#[test]
fn too_many_pages_and_fabric_handles_are_refused() {
    let memory = Arc::new(ExportedMemory::FileDescriptor(File::open("/dev/null").unwrap().into()));
    let export = |pages| Export::of_adjacent_pages((0..pages).map(|_| (Arc::clone(&memory), PAGE)), 1 << 40);
    assert_eq!(export(1012).unwrap().visible_bytes(), 1012 * PAGE);
    assert_eq!(export(1).unwrap().way(), ExportWay::PagesByDescriptor);
    assert_eq!(export(0).unwrap().way(), ExportWay::Nothing);
    let error = export(1013).unwrap_err();
    assert!(error.is_unsupported() && error.to_string().contains("more than 1012 pages"), "{error}");

    let rig = Rig::new();
    let (device, stream) = (rig.first.device(0), rig.first.device(0).stream().unwrap());
    let config = MappedConfig::default().handle_types(HandleType::FABRIC);
    let pool = Mapped::with_config(&device, config).unwrap().pool(PoolConfig::default()).unwrap();
    let pool = AnyResource::new(pool);
    let front = DeviceVec::filled_in(PAGE - LEFT, 1_u8, &stream, pool.clone()).unwrap();
    let vector = DeviceVec::filled_in(3 * LEFT, 2_u8, &stream, pool.clone()).unwrap();
    let refused = Shared::with_config(vector, rig.share_config(), &stream).unwrap_err();
    assert!(refused.error().is_unsupported(), "{}", refused.error());
    assert!(refused.error().to_string().contains("one fabric handle"), "{}", refused.error());
    drop((refused, front, pool, stream));
    rig.assert_clean();
}
