//! Who ends first, who dies, and what is opened where it cannot be: an error or what the documentation says, and nothing is left.

use std::sync::Arc;

use alluvion::driver::{Call, CaptureMode, Code, Driver};
use alluvion::share::{ExportWay, Import, Shared, status, sweep};
use alluvion::sim::Fault;
use alluvion::source::Cuda;
use alluvion::testing::Stall;
use alluvion::{AnyResource, DeviceVec, Error, ErrorKind, Machine, Sim, Stream};

use crate::rig::{Rig, await_fewer_descriptors, descriptors, mapped, sent, ways};

type SharedBytes = Shared<DeviceVec<u8, AnyResource>>;

/// A hundred bytes of 4, shared from `Cuda`.
fn hundred(rig: &Rig, stream: &Stream) -> SharedBytes {
    let resource = AnyResource::new(Cuda::new(&rig.first.device(0)));
    rig.share(DeviceVec::filled_in(100, 4_u8, stream, resource).unwrap(), stream)
}

fn streams(rig: &Rig) -> (Stream, Stream) {
    (rig.first.device(0).stream().unwrap(), rig.second.device(0).stream().unwrap())
}

#[track_caller]
fn refused<T>(outcome: Result<T, Error>, kind: ErrorKind, words: &str) {
    let Err(error) = outcome else { panic!("it is opened") };
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn the_process_that_shares_does_not_open_it() {
    let rig = Rig::new();
    let (stream, its_stream) = streams(&rig);
    let shared = hundred(&rig, &stream);
    refused(rig.open(&shared, &stream), ErrorKind::OwnProcess, "use the container");
    drop((shared.try_end().unwrap(), stream, its_stream));
    rig.assert_clean();
}

#[test]
fn what_was_taken_back_is_stale() {
    for (name, resource) in ways() {
        let rig = Rig::new();
        let (stream, its_stream) = streams(&rig);
        let vector = DeviceVec::filled_in(100, 4_u8, &stream, resource(&rig.first.device(0))).unwrap();
        let shared = rig.share(vector, &stream);
        let (message, descriptor) = (shared.message().clone(), sent(&shared));
        let vector = shared.try_end().unwrap();
        let opened = rig.import(&message, descriptor).open::<u8>(&its_stream);
        assert!(opened.as_ref().is_err_and(Error::is_stale), "{name}: {opened:?}");
        drop((vector, stream, its_stream));
        rig.assert_clean();
    }
}

#[test]
fn an_exporter_that_was_dropped_takes_nothing_from_its_importers() {
    for (name, resource) in ways() {
        let rig = Rig::new();
        let (stream, its_stream) = streams(&rig);
        let device = rig.first.device(0);
        let vector = DeviceVec::filled_in(100, 4_u8, &stream, resource(&device)).unwrap();
        let shared = rig.share(vector, &stream);
        let (message, descriptor) = (shared.message().clone(), sent(&shared));
        let imported = rig.open(&shared, &its_stream).unwrap();
        drop(shared);
        assert_eq!((status(&device).parked, status(&device).parked_bytes), (1, 100), "{name}");
        assert_eq!(sweep(&device), 0, "{name}");
        // Somebody else may come, as long as one is there.
        let late = rig.import(&message, descriptor).open::<u8>(&its_stream).unwrap();
        drop(imported);
        assert_eq!(sweep(&device), 0, "{name}");
        assert_eq!(late.to_vec(&its_stream).unwrap(), [4; 100], "{name}");
        drop(late);
        assert_eq!((sweep(&device), status(&device).parked), (1, 0), "{name}");
        drop((stream, its_stream, device));
        rig.assert_clean();
    }
}

#[test]
fn a_share_frees_a_few_that_were_dropped_before() {
    let rig = Rig::new();
    let (stream, its_stream) = streams(&rig);
    let device = rig.first.device(0);
    let mut imported = Vec::new();
    for _ in 0..20 {
        let shared = hundred(&rig, &stream);
        imported.push(rig.open(&shared, &its_stream).unwrap());
        drop(shared);
    }
    assert_eq!(status(&device).parked, 20);
    imported.truncate(10);
    // Two shares ask after 16, of which some are still open.
    drop(hundred(&rig, &stream));
    drop(hundred(&rig, &stream));
    assert!((10..20).contains(&status(&device).parked), "{:?}", status(&device));
    drop(imported);
    sweep(&device);
    assert_eq!(status(&device).parked, 0);
    drop((stream, its_stream, device));
    rig.assert_clean();
}

#[test]
fn the_end_waits_for_the_last_importer_and_its_work() {
    let rig = Rig::new();
    let (stream, its_stream) = streams(&rig);
    let shared = hundred(&rig, &stream);
    let imported = rig.open(&shared, &its_stream).unwrap();
    let stall = Stall::on(&its_stream);
    std::thread::scope(|scope| {
        let ends = scope.spawn(|| shared.end().unwrap());
        // A drop that did not wait for the stall would end, and the exporter with it.
        let waits = rig.second.calls()[Call::StreamSynchronize];
        let drops = scope.spawn(move || drop(imported));
        while rig.second.calls()[Call::StreamSynchronize] == waits {
            std::thread::yield_now();
        }
        assert!(!ends.is_finished() && !drops.is_finished());
        drop(stall);
        drops.join().unwrap();
        assert_eq!(ends.join().unwrap().to_vec(&stream).unwrap(), [4; 100]);
    });
    drop((stream, its_stream));
    rig.assert_clean();
}

#[test]
fn an_importer_that_is_killed_has_nothing_any_more() {
    for (name, resource) in ways() {
        let rig = Rig::new();
        let (stream, its_stream) = streams(&rig);
        let vector = DeviceVec::filled_in(100, 4_u8, &stream, resource(&rig.first.device(0))).unwrap();
        let shared = rig.share(vector, &stream);
        let imported = rig.open(&shared, &its_stream).unwrap();
        assert_eq!(shared.importers().unwrap(), 1, "{name}");
        rig.second.kill();
        // What the kernel does for a process that is killed: it takes the lock.
        drop(imported);
        assert_eq!(shared.importers().unwrap(), 0, "{name}");
        let vector = shared.end().unwrap();
        assert_eq!(vector.to_vec(&stream).unwrap(), [4; 100], "{name}");
        drop((vector, stream, its_stream));
        rig.first.assert_clean();
        assert_eq!(rig.directory.files(), 0, "{name}");
    }
}

#[test]
fn an_exporter_that_is_killed_leaves_its_importers_their_memory() {
    for (name, resource) in ways() {
        let rig = Rig::new();
        let (stream, its_stream) = streams(&rig);
        let vector = DeviceVec::filled_in(100, 4_u8, &stream, resource(&rig.first.device(0))).unwrap();
        let shared = rig.share(vector, &stream);
        let (message, descriptor) = (shared.message().clone(), sent(&shared));
        let imported = rig.open(&shared, &its_stream).unwrap();
        // What a process had queued dies with it.
        stream.synchronize().unwrap();
        rig.first.kill();
        drop((shared, stream));
        assert_eq!(imported.to_vec(&its_stream).unwrap(), [4; 100], "{name}");
        // Whether it is open already or not.
        for _ in 0..2 {
            let again = descriptor.as_ref().map(|descriptor| descriptor.try_clone().unwrap());
            let late = rig.import(&message, again).open::<u8>(&its_stream);
            assert!(late.as_ref().is_err_and(Error::is_stale), "{name}: {late:?}");
        }
        drop(imported);
        let late = rig.import(&message, descriptor).open::<u8>(&its_stream);
        assert!(late.as_ref().is_err_and(Error::is_stale), "{name}: {late:?}");
        drop(its_stream);
        rig.second.assert_clean();
    }
}

#[test]
fn an_exporter_that_dies_between_message_and_open_is_stale() {
    let rig = Rig::new();
    let (stream, its_stream) = streams(&rig);
    let shared = hundred(&rig, &stream);
    let message = shared.message().clone();
    rig.first.kill();
    drop(shared);
    refused(rig.import(&message, None).open::<u8>(&its_stream), ErrorKind::Stale, "its exporter has ended");
    drop((its_stream, stream));
    rig.second.assert_clean();
}

/// A device that waited for the event of a dead process would wait for ever.
#[test]
fn an_exporter_that_dies_before_its_work_is_done_is_stale() {
    let rig = Rig::new();
    let (stream, its_stream) = streams(&rig);
    let resource = AnyResource::new(Cuda::new(&rig.first.device(0)));
    let mut vector = DeviceVec::filled_in(100, 4_u8, &stream, resource).unwrap();
    let stall = Stall::on(&stream);
    vector.fill(5, &stream).unwrap();
    let shared = rig.share(vector, &stream);
    let message = shared.message().clone();
    std::thread::scope(|scope| {
        let opens = scope.spawn(|| rig.import(&message, None).open::<u8>(&its_stream));
        let asked = || rig.second.calls()[Call::EventQuery];
        let before = asked();
        while asked() < before + 3 {
            std::thread::yield_now();
        }
        // Its lock goes with it, here with its file's name.
        for entry in std::fs::read_dir(rig.directory.room()).unwrap().flatten() {
            std::fs::remove_file(entry.path()).unwrap();
        }
        refused(opens.join().unwrap(), ErrorKind::Stale, "its exporter has ended");
    });
    assert!(its_stream.is_idle().unwrap());
    assert_eq!(rig.second.live().opened, 0);
    drop(stall);
    drop((shared, stream, its_stream));
    rig.second.assert_clean();
}

/// Eight threads open and close one block: the driver does not survive two imports of one block of a pool.
#[test]
fn threads_that_open_and_close_the_same_take_turns() {
    for (name, resource) in ways() {
        let rig = Rig::new();
        let (stream, its_stream) = streams(&rig);
        let vector = DeviceVec::filled_in(100, 4_u8, &stream, resource(&rig.first.device(0))).unwrap();
        let shared = rig.share(vector, &stream);
        stream.synchronize().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let imported =
                            rig.open(&shared, &its_stream).unwrap_or_else(|error| panic!("{name}: {error}"));
                        assert_eq!(imported.get(99, &its_stream).unwrap(), 4);
                        let live = rig.second.live();
                        assert!(live.opened + live.mappings + live.pooled <= 1, "{name}: {live}");
                    }
                });
            }
        });
        drop((shared.try_end().unwrap(), stream, its_stream));
        rig.assert_clean();
    }
}

/// As libcuda and the runtime have in one program: each knows nothing of what the other has open, and a process has a block once.
#[test]
fn two_machines_of_one_process_have_a_block_one_after_the_other() {
    let rig = Rig::new();
    let driver: Arc<dyn Driver> = Arc::clone(rig.second.sim_driver()) as _;
    let other = Machine::new(driver).unwrap();
    let stream = rig.first.device(0).stream().unwrap();
    let (its_stream, others_stream) =
        (rig.second.device(0).stream().unwrap(), other.device(0).unwrap().stream().unwrap());
    for (name, make) in ways() {
        let vector = DeviceVec::filled_in(100, 7_u8, &stream, make(&rig.first.device(0))).unwrap();
        let shared = rig.share(vector, &stream);
        let first = rig.open(&shared, &its_stream).unwrap();
        let second = rig.open(&shared, &others_stream);
        if matches!(shared.message().way(), ExportWay::PoolByDescriptor | ExportWay::PoolByFabric) {
            refused(second, ErrorKind::InUse, "another machine of this process");
        } else {
            assert_eq!(second.unwrap().to_vec(&others_stream).unwrap(), [7; 100], "{name}");
        }
        assert_eq!(first.to_vec(&its_stream).unwrap(), [7; 100], "{name}");
        drop(first);
        // A failure gives the turn back, too.
        for call in [Call::PoolImport, Call::PoolImportPointer] {
            rig.second.inject(Fault::every(call, Code::OUT_OF_MEMORY));
            drop(rig.open(&shared, &its_stream));
            rig.second.clear_faults();
        }
        let third = rig.open(&shared, &others_stream).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(third.to_vec(&others_stream).unwrap(), [7; 100], "{name}");
        drop(third);
        drop(shared.end().unwrap());
    }
    drop((stream, its_stream, others_stream, other));
    rig.assert_clean();
}

#[test]
fn another_type_or_more_than_was_allowed_is_refused() {
    let rig = Rig::new();
    let (stream, its_stream) = streams(&rig);
    let resource = AnyResource::new(Cuda::new(&rig.first.device(0)));
    let shared = rig.share(DeviceVec::filled_in(100, 1.0_f32, &stream, resource).unwrap(), &stream);
    let import = || rig.import(shared.message(), None);
    refused(
        import().open::<f64>(&its_stream),
        ErrorKind::InvalidArgument,
        "elements `f32` of 4 bytes were shared",
    );
    refused(import().open::<u32>(&its_stream), ErrorKind::InvalidArgument, "`u32` of 4 are to be opened");
    refused(import().open_mut::<f32>(&its_stream), ErrorKind::InvalidArgument, "shares it to be read");
    refused(import().open_bytes_mut(&its_stream), ErrorKind::InvalidArgument, "shares it to be read");
    refused(Import::new(shared.message()).open::<f32>(&its_stream), ErrorKind::Stale, "");
    let bytes = import().open_bytes(&its_stream).unwrap();
    assert_eq!(bytes.len(), 400);
    drop(bytes);
    drop((shared.try_end().unwrap(), stream, its_stream));
    rig.assert_clean();
}

#[test]
fn a_descriptor_that_is_missing_or_anothers_is_refused() {
    let rig = Rig::new();
    let (stream, its_stream) = streams(&rig);
    let resource = AnyResource::new(mapped(&rig.first.device(0)));
    let shared = rig.share(DeviceVec::filled_in(100, 4_u8, &stream, resource).unwrap(), &stream);
    let import = |descriptor| rig.import(shared.message(), descriptor).open::<u8>(&its_stream);
    refused(import(None), ErrorKind::InvalidArgument, "Import::descriptor");
    let other = std::fs::File::open("/dev/null").unwrap();
    assert!(import(Some(other.into())).is_err());
    assert_eq!(shared.importers().unwrap(), 0);
    assert_eq!(import(sent(&shared)).unwrap().to_vec(&its_stream).unwrap(), [4; 100]);
    drop((shared.try_end().unwrap(), stream, its_stream));
    rig.assert_clean();
}

#[test]
fn memory_of_another_device_is_named_and_opened_where_it_may() {
    for (name, resource) in ways() {
        let rig = Rig::with(Rig::config().peers(true));
        let stream = rig.first.device(0).stream().unwrap();
        let [same, other] = [0, 1].map(|ordinal| rig.second.device(ordinal).stream().unwrap());
        let vector = DeviceVec::filled_in(100, 4_u8, &stream, resource(&rig.first.device(0))).unwrap();
        let shared = rig.share(vector, &stream);
        refused(
            rig.open(&shared, &other),
            ErrorKind::DeviceMismatch,
            "the memory is on gpu 0, and the stream on gpu 1",
        );
        let peer = rig.import(shared.message(), sent(&shared)).peer().open::<u8>(&other);
        let peer = if name.contains("async") {
            refused(peer, ErrorKind::Unsupported, "for its own device alone");
            None
        } else {
            let peer = peer.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(peer.to_vec(&other).unwrap(), [4; 100], "{name}");
            Some(peer)
        };
        let near = rig.open(&shared, &same).unwrap();
        assert_eq!(near.to_vec(&same).unwrap(), [4; 100], "{name}");
        drop((peer, near));
        drop((shared.try_end().unwrap(), stream, same, other));
        rig.assert_clean();
    }
    let rig = Rig::with(Rig::config().peers(false));
    let stream = rig.first.device(0).stream().unwrap();
    let other = rig.second.device(1).stream().unwrap();
    let shared = hundred(&rig, &stream);
    let peer = rig.import(shared.message(), None).peer().open::<u8>(&other);
    refused(peer, ErrorKind::DeviceMismatch, "which gpu 1 does not reach");
    // A machine of other devices.
    let elsewhere = Sim::with_config(Rig::config().seed(77));
    let its_stream = elsewhere.device(0).stream().unwrap();
    assert!(rig.open(&shared, &its_stream).is_err());
    drop((shared.try_end().unwrap(), stream, other, its_stream));
    rig.assert_clean();
}

#[test]
fn a_capture_is_left_whole_on_both_sides() {
    let rig = Rig::new();
    let (stream, its_stream) = streams(&rig);
    let resource = AnyResource::new(Cuda::new(&rig.first.device(0)));
    let vector = DeviceVec::filled_in(100, 4_u8, &stream, resource).unwrap();
    stream.synchronize().unwrap();
    rig.first.begin_capture(0, stream.raw(), CaptureMode::Global).unwrap();
    let vector = vector.share(&stream).map_err(|refused| {
        assert!(refused.error().is_capture(), "{}", refused.error());
        refused.into_value()
    });
    rig.first.end_capture(0, stream.raw()).expect("the capture is whole");
    let shared = rig.share(vector.expect_err("the stream captures"), &stream);
    rig.second.begin_capture(0, its_stream.raw(), CaptureMode::Global).unwrap();
    refused(rig.open(&shared, &its_stream), ErrorKind::Capture, "");
    rig.second.end_capture(0, its_stream.raw()).expect("the capture is whole");
    let imported = rig.open(&shared, &its_stream).unwrap();
    assert_eq!(imported.to_vec(&its_stream).unwrap(), [4; 100]);
    drop(imported);
    drop((shared.try_end().unwrap(), stream, its_stream));
    rig.assert_clean();
}

#[test]
fn a_stream_of_another_device_does_not_share() {
    let rig = Rig::new();
    let (stream, other) = (rig.first.device(0).stream().unwrap(), rig.first.device(1).stream().unwrap());
    let resource = AnyResource::new(Cuda::new(&rig.first.device(0)));
    let vector = DeviceVec::filled_in(100, 4_u8, &stream, resource).unwrap();
    let refused = vector.share(&other).unwrap_err();
    assert!(refused.error().is_device_mismatch(), "{}", refused.error());
    let vector = refused.into_value();
    assert_eq!(vector.to_vec(&stream).unwrap(), [4; 100]);
    drop((vector, stream, other));
    rig.assert_clean();
}

#[test]
fn a_lease_that_somebody_removes_keeps_the_memory() {
    let rig = Rig::new();
    let (stream, its_stream) = streams(&rig);
    let shared = hundred(&rig, &stream);
    let imported = rig.open(&shared, &its_stream).unwrap();
    for entry in std::fs::read_dir(rig.directory.room()).unwrap().flatten() {
        std::fs::remove_file(entry.path()).unwrap();
    }
    let refused = shared.end().unwrap_err();
    assert_eq!(refused.error().kind(), ErrorKind::InUse);
    let shared = refused.into_value();
    assert_eq!(imported.to_vec(&its_stream).unwrap(), [4; 100]);
    drop((imported, shared));
    assert_eq!((sweep(&rig.first.device(0)), rig.first.live().device), (0, 1), "nobody knows who has it");
    drop((stream, its_stream));
    rig.second.assert_clean();
}

#[test]
fn no_descriptor_is_left() {
    let before = descriptors();
    for _ in 0..20 {
        for (_, resource) in ways() {
            let rig = Rig::new();
            let (stream, its_stream) = streams(&rig);
            let vector = DeviceVec::filled_in(100, 4_u8, &stream, resource(&rig.first.device(0))).unwrap();
            let shared = rig.share(vector, &stream);
            drop(rig.open(&shared, &its_stream).unwrap());
            drop(shared);
        }
    }
    // Of 200 hand-overs.
    await_fewer_descriptors(before + 60);
}
