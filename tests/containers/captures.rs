//! Containers whose streams, or those of others, capture.

#![expect(unsafe_code, reason = "launches graphs, and wraps a stream of somebody else")]

use std::sync::Arc;

use alluvion::driver::CaptureMode;
use alluvion::{DeviceVec, Error, Stream};

use crate::container_contract::rig::{Counting, OneBlock};
use crate::machine::{check, sim_of};

#[test]
fn a_capture_is_left_whole() {
    let sim = sim_of(8);
    let device = sim.device(0);
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let (s, o) = (stream.as_ref(), other.as_ref());
    let resource = Counting::new(&device);
    let mut vector = DeviceVec::filled_in(4, 1_u32, s, resource.clone()).unwrap();
    let mut foreign = DeviceVec::filled_in(4, 2_u32, o, resource.clone()).unwrap();
    let mut used = DeviceVec::filled_in(4, 3_u32, s, resource.clone()).unwrap();
    used.fill(4, o).unwrap();
    sim.begin_capture(0, s.raw(), CaptureMode::Global).unwrap();
    let refused = [
        vector.to_vec(s).unwrap_err(),
        vector.get(0, s).unwrap_err(),
        vector.copy_from_slice(&[1; 4], s).unwrap_err(),
        vector.upload(vec![1; 4], s).unwrap_err().into(),
        vector.download(vec![1; 4], s).unwrap_err().into(),
        s.scope(|scope| scope.upload(&mut vector, &[1; 4])).unwrap_err(),
        DeviceVec::filled_in(4, 0.1_f64, s, resource.clone()).unwrap_err(),
        // Into the capture, and out of it.
        foreign.read_on(s).map(drop).unwrap_err(),
        foreign.fill(1, s).unwrap_err(),
        foreign.copy_from(vector.as_slice(), o).unwrap_err(),
        vector.to_vec(o).unwrap_err(),
        vector.set_stream(o).unwrap_err(),
        used.fill(1, s).unwrap_err(),
    ];
    assert!(refused.iter().all(Error::is_capture), "{refused:?}");
    // What is all on the stream is recorded, and what is all beside it goes on.
    vector.fill(7, s).unwrap();
    vector.set(1, 8, s).unwrap();
    assert_eq!(foreign.to_vec(o).unwrap(), [2; 4]);
    // Its home captures, so it waits for the other stream on the host.
    drop(used);
    let graph = sim.end_capture(0, s.raw()).unwrap();
    assert_eq!(vector.to_vec(s).unwrap(), [1; 4]);
    let write = vector.write_on(s).unwrap();
    // SAFETY: the stream is borrowed; the graph touches the vector, which is borrowed for this stream.
    unsafe { sim.launch_graph(0, s.raw(), &graph) }.unwrap();
    drop(write);
    assert_eq!(vector.to_vec(o).unwrap(), [7, 8, 7, 7]);
    drop((graph, vector, foreign));
    assert_eq!(resource.counts(), (4, 4));
    check(&sim, "capture");
}

/// cudarc captures such streams, and launches the graph, by safe functions.
#[test]
fn nothing_of_a_container_is_recorded_for_graphs_that_safe_code_launches() {
    let sim = sim_of(0);
    let device = sim.device(0);
    let owner = Arc::new(device.stream().unwrap());
    // SAFETY: the stream is live while its owner is, and no default stream.
    let foreign =
        unsafe { Stream::from_owner(&device, owner.as_ref().as_ref().raw(), owner.clone()) }.unwrap();
    let mine = device.per_thread_stream().unwrap();
    for stream in [&foreign, &*mine] {
        let raw = stream.as_ref().raw();
        let stream = stream.as_ref();
        let mut vector = DeviceVec::filled(4, 1_u32, stream).unwrap();
        let other = DeviceVec::filled(4, 2_u32, stream).unwrap();
        sim.begin_capture(0, raw, CaptureMode::Relaxed).unwrap();
        for refused in [
            vector.fill(3, stream),
            vector.set(0, 3, stream),
            vector.copy_from(other.as_slice(), stream),
            vector.reserve(100, stream),
            DeviceVec::<u32>::uninit(4, stream).map(drop),
        ] {
            assert!(refused.unwrap_err().is_capture());
        }
        let read = vector.read_on(stream).unwrap();
        drop(read);
        sim.end_capture(0, raw).unwrap();
        assert_eq!(vector.to_vec(stream).unwrap(), [1; 4]);
    }
    drop(mine);
    check(&sim, "captured by others");
}

#[test]
fn a_block_whose_user_captures_is_leaked() {
    let sim = sim_of(8);
    let device = sim.device(0);
    let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
    let resource = Counting::new(&device);
    let mut vector = DeviceVec::filled_in(4, 1_u32, home.as_ref(), resource.clone()).unwrap();
    vector.fill(2, other.as_ref()).unwrap();
    sim.begin_capture(0, other.as_ref().raw(), CaptureMode::Global).unwrap();
    drop(vector);
    sim.end_capture(0, other.as_ref().raw()).unwrap();
    assert_eq!(resource.counts(), (1, 0));
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
}

#[test]
fn a_capture_that_begins_in_a_scope_does_not_hold_it_up() {
    let sim = sim_of(9);
    let device = sim.device(0);
    let (stream, pinned) = (device.stream().unwrap(), OneBlock::new(&device));
    let mut vector = DeviceVec::<u32>::uninit(1000, stream.as_ref()).unwrap();
    let mut host = pinned.filled(1000, 3_u32);
    let raw = stream.as_ref().raw();
    stream
        .scope(|scope| {
            scope.upload(&mut vector, &host)?;
            sim.begin_capture(0, raw, CaptureMode::Global).unwrap();
            Ok(())
        })
        .unwrap();
    host.fill(4);
    let transfer = vector.upload(vec![0; 1000], stream.as_ref()).unwrap_err();
    assert_eq!(transfer.into_value(), Some(vec![0; 1000]));
    sim.end_capture(0, raw).unwrap();
    assert_eq!(vector.to_vec(stream.as_ref()).unwrap(), [3; 1000]);
    drop((vector, host));
    pinned.finish();
    check(&sim, "capture in a scope");
}
