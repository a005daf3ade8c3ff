//! A hand-over, in every way that there is: the bytes, their order, and what is left.

use alluvion::driver::{Call, Code, DeviceAttribute};
use alluvion::share::{ExportWay, Shared, status};
use alluvion::sim::Fault;
use alluvion::source::Cuda;
use alluvion::testing::Stall;
use alluvion::{AnyResource, DeviceBuffer, DeviceVec, PoolConfig, ResourceExt};

use crate::rig::{Rig, await_fewer_descriptors, descriptors, ways};

fn numbers(count: u32) -> Vec<u32> {
    (0..count).map(|number| number.wrapping_mul(0x9E37_79B9)).collect()
}

#[test]
fn each_way_hands_the_bytes_over_and_leaves_nothing() {
    for (name, resource) in ways() {
        let rig = Rig::new();
        let device = rig.first.device(0);
        let resource = resource(&device);
        let (stream, its_stream) = (device.stream().unwrap(), rig.second.device(0).stream().unwrap());
        // A neighbour, so that a piece does not begin where its segment does.
        let neighbour = DeviceVec::filled_in(1000, 7_u32, &stream, resource.clone()).unwrap();
        let vector = DeviceVec::from_slice_in(&numbers(5000), &stream, resource.clone()).unwrap();
        let shared = rig.share(vector, &stream);
        assert_eq!((shared.len(), shared.importers().unwrap()), (5000, 0), "{name}");
        assert_eq!(shared.to_vec(&stream).unwrap(), numbers(5000), "{name}: it is read meanwhile");
        {
            let imported = rig.open(&shared, &its_stream).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(imported.to_vec(&its_stream).unwrap(), numbers(5000), "{name}");
            assert_eq!(
                imported.slice(10..12).unwrap().to_vec(&its_stream).unwrap(),
                numbers(12)[10..],
                "{name}"
            );
            assert_eq!((imported.len(), imported.capacity()), (5000, 5000));
            let figures = status(&rig.second.device(0));
            assert_eq!((figures.imports, figures.imported_bytes), (1, 20_000), "{name}");
            assert_eq!(shared.importers().unwrap(), 1, "{name}");
        }
        assert_eq!(status(&rig.second.device(0)).imports, 0, "{name}");
        let vector = shared.end().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(vector.to_vec(&stream).unwrap(), numbers(5000), "{name}");
        drop((vector, neighbour, resource, stream, its_stream));
        rig.assert_clean();
    }
}

#[test]
fn what_an_importer_writes_the_exporter_reads() {
    for (name, resource) in ways() {
        let rig = Rig::new();
        let (stream, its_stream) =
            (rig.first.device(0).stream().unwrap(), rig.second.device(0).stream().unwrap());
        let vector = DeviceVec::filled_in(100, 1_u16, &stream, resource(&rig.first.device(0))).unwrap();
        let shared = Shared::with_config(vector, rig.share_config().writable(), &stream).unwrap();
        let mut imported =
            rig.open_mut(&shared, &its_stream).unwrap_or_else(|error| panic!("{name}: {error}"));
        imported.slice_mut(50..).unwrap().fill(9, &its_stream).unwrap();
        drop(imported);
        let vector = shared.end().unwrap();
        assert_eq!(vector.to_vec(&stream).unwrap(), [[1; 50], [9; 50]].concat(), "{name}");
        drop((vector, stream, its_stream));
        rig.assert_clean();
    }
}

#[test]
fn an_importer_follows_what_came_before_on_every_stream() {
    let rig = Rig::new();
    let device = rig.first.device(0);
    let (home, other, its_stream) =
        (device.stream().unwrap(), device.stream().unwrap(), rig.second.device(0).stream().unwrap());
    let resource = AnyResource::new(Cuda::new(&device));
    let mut vector = DeviceVec::filled_in(1000, 1_u8, &home, resource).unwrap();
    let mut stall = Stall::on(&other);
    vector.fill(2, &other).unwrap();
    let shared = rig.share(vector, &home);
    let imported = std::thread::scope(|scope| {
        let opens = scope.spawn(|| rig.open(&shared, &its_stream).unwrap());
        let asked = || rig.second.calls()[Call::EventQuery];
        let before = asked();
        while asked() < before + 3 {
            std::thread::yield_now();
        }
        assert!(!opens.is_finished(), "it waits for a write that has not run");
        stall.let_go();
        opens.join().unwrap()
    });
    assert_eq!(imported.to_vec(&its_stream).unwrap(), [2; 1000]);
    drop(imported);
    drop((shared.end().unwrap(), home, other, its_stream));
    rig.assert_clean();
}

#[test]
fn without_shared_events_the_host_waits() {
    let rig = Rig::with(Rig::config().attribute(DeviceAttribute::SharedEvents, 0));
    let (stream, its_stream) =
        (rig.first.device(0).stream().unwrap(), rig.second.device(0).stream().unwrap());
    let resource = AnyResource::new(Cuda::new(&rig.first.device(0)));
    let shared = rig.share(DeviceVec::filled_in(1000, 3_u8, &stream, resource).unwrap(), &stream);
    assert!(stream.is_idle().unwrap());
    let imported = rig.open(&shared, &its_stream).unwrap();
    assert_eq!(imported.to_vec(&its_stream).unwrap(), [3; 1000]);
    drop(imported);
    drop((shared.end().unwrap(), stream, its_stream));
    rig.assert_clean();
}

/// A process cannot have any number of events that others open.
#[test]
fn without_another_event_the_host_waits() {
    for call in [Call::EventCreate, Call::EventHandle] {
        let rig = Rig::new();
        let (stream, its_stream) =
            (rig.first.device(0).stream().unwrap(), rig.second.device(0).stream().unwrap());
        let resource = AnyResource::new(Cuda::new(&rig.first.device(0)));
        let vector = DeviceVec::filled_in(1000, 3_u8, &stream, resource).unwrap();
        rig.first.inject(Fault::every(call, Code::OUT_OF_MEMORY));
        let shared = rig.share(vector, &stream);
        rig.first.clear_faults();
        assert!(stream.is_idle().unwrap(), "{call:?}");
        let imported = rig.open(&shared, &its_stream).unwrap();
        assert_eq!(imported.to_vec(&its_stream).unwrap(), [3; 1000], "{call:?}");
        drop(imported);
        drop((shared.end().unwrap(), stream, its_stream));
        rig.assert_clean();
    }
}

#[test]
fn pieces_of_one_segment_open_it_once() {
    let rig = Rig::new();
    let (stream, its_stream) =
        (rig.first.device(0).stream().unwrap(), rig.second.device(0).stream().unwrap());
    let pool = Cuda::new(&rig.first.device(0)).pool(PoolConfig::default().initial(4 << 20)).unwrap();
    let pool = AnyResource::new(pool);
    let shared: Vec<_> = (0..100_u32)
        .map(|number| rig.share(DeviceVec::filled_in(100, number, &stream, pool.clone()).unwrap(), &stream))
        .collect();
    let before = rig.second.calls()[Call::MemoryOpen];
    let mut imported: Vec<_> = shared.iter().map(|shared| rig.open(shared, &its_stream).unwrap()).collect();
    assert_eq!(rig.second.calls()[Call::MemoryOpen] - before, 1);
    assert_eq!(rig.second.live().opened, 1);
    for (number, imported) in (0..).zip(&imported) {
        assert_eq!(imported.get(99, &its_stream).unwrap(), number);
    }
    let last = imported.pop().unwrap();
    drop(imported);
    assert_eq!(last.get(0, &its_stream).unwrap(), 99, "the others have not closed it");
    drop(last);
    assert_eq!(rig.second.live().opened, 0);
    for shared in shared {
        drop(shared.try_end().unwrap());
    }
    drop((pool, stream, its_stream));
    rig.assert_clean();
}

#[test]
fn blocks_of_one_page_send_one_descriptor() {
    let rig = Rig::new();
    let stream = rig.first.device(0).stream().unwrap();
    let pool = crate::rig::mapped(&rig.first.device(0)).pool(PoolConfig::default().initial(2 << 20)).unwrap();
    let pool = AnyResource::new(pool);
    let before = descriptors();
    let shared: Vec<_> = (0..50)
        .map(|_| rig.share(DeviceVec::filled_in(100, 0_u8, &stream, pool.clone()).unwrap(), &stream))
        .collect();
    let exports = rig.first.calls()[Call::MemoryExport];
    assert_eq!(exports, 1);
    // Fewer than one for each share.
    await_fewer_descriptors(before + 40);
    assert!(shared.iter().all(|shared| shared.message().way() == ExportWay::PagesByDescriptor));
    drop(shared);
    drop((pool, stream));
    rig.assert_clean();
}

#[test]
fn an_importer_that_opens_the_same_twice_has_one_part() {
    let rig = Rig::new();
    let (stream, its_stream) =
        (rig.first.device(0).stream().unwrap(), rig.second.device(0).stream().unwrap());
    let resource = AnyResource::new(Cuda::new(&rig.first.device(0)));
    let shared = rig.share(DeviceVec::filled_in(10, 5_u64, &stream, resource).unwrap(), &stream);
    let (one, two) = (rig.open(&shared, &its_stream).unwrap(), rig.open(&shared, &its_stream).unwrap());
    assert_eq!(one.as_device_ptr(), two.as_device_ptr());
    assert_eq!((shared.importers().unwrap(), rig.second.live().opened), (1, 1));
    drop(one);
    let shared = shared.try_end().expect_err("one is left");
    assert_eq!(two.to_vec(&its_stream).unwrap(), [5; 10]);
    drop(two);
    drop((shared.try_end().unwrap(), stream, its_stream));
    rig.assert_clean();
}

#[test]
fn a_buffer_of_no_bytes_is_shared_too() {
    let rig = Rig::new();
    let (stream, its_stream) =
        (rig.first.device(0).stream().unwrap(), rig.second.device(0).stream().unwrap());
    let resource = AnyResource::new(Cuda::new(&rig.first.device(0)));
    for capacity in [0, 100] {
        let mut buffer = DeviceBuffer::uninit_in(capacity, &stream, resource.clone()).unwrap();
        buffer.clear();
        let shared = Shared::with_config(buffer, rig.share_config(), &stream).unwrap();
        let imported = rig.import(shared.message(), None).open::<u8>(&its_stream).unwrap();
        assert!(imported.is_empty() && imported.to_vec(&its_stream).unwrap().is_empty());
        assert_eq!((shared.importers().unwrap(), rig.second.live().opened), (1, 0));
        drop(imported);
        assert_eq!(shared.try_end().unwrap().capacity(), capacity);
    }
    drop((resource, stream, its_stream));
    rig.assert_clean();
}

/// A share and an open cost so many driver calls, whatever else is shared.
#[test]
fn the_thousandth_costs_what_the_second_does() {
    let rig = Rig::new();
    let (stream, its_stream) =
        (rig.first.device(0).stream().unwrap(), rig.second.device(0).stream().unwrap());
    let pool = AnyResource::new(Cuda::new(&rig.first.device(0)).pool(PoolConfig::default()).unwrap());
    let (mut shared, mut imported, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..1000_u32 {
        let vector = DeviceVec::filled_in(16, number, &stream, pool.clone()).unwrap();
        let before = [&rig.first, &rig.second].map(|sim| sim.calls().total());
        shared.push(rig.share(vector, &stream));
        // So that the importer asks once whether that is over.
        stream.synchronize().unwrap();
        imported.push(rig.open(&shared[number as usize], &its_stream).unwrap());
        let after = [&rig.first, &rig.second].map(|sim| sim.calls().total());
        costs.push([after[0] - before[0], after[1] - before[1]]);
    }
    assert_eq!(costs[999], costs[1], "calls of exporter and importer");
    assert!(costs[1][0] <= 16 && costs[1][1] <= 16, "{:?}", costs[1]);
    drop((imported, shared, pool, stream, its_stream));
    rig.assert_clean();
}
