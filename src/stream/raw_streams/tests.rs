//! Which stream is a raw handle, who asks for it, and who does not?

use super::super::raw_stream_table::KEPT;
use super::*;
use crate::driver::{Call, CaptureMode, Code, Driver, StreamFlags};
use crate::error::ErrorKind;
use crate::resource::{Layout, Resource};
use crate::sim::{Fault, SimConfig};
use crate::source::Cuda;
use crate::stream::StreamId;
use crate::suballoc::{Pool, PoolConfig};
use crate::testing::Stall;
use crate::{Frontier, Sim};

/// A stream that somebody else makes.
fn made(sim: &Sim, ordinal: u32) -> RawStream {
    sim.stream_create(ordinal, StreamFlags::default()).expect("a stream can be made")
}

/// Its owner destroys it. A call with the handle after this is a hazard, which the machine reports.
fn end(sim: &Sim, ordinal: u32, raw: RawStream) {
    // SAFETY: the tests make a stream once, end it once, and drop what was found for it before.
    unsafe { sim.stream_destroy(ordinal, raw) }.expect("it is live");
}

fn found(device: &Device, raw: RawStream) -> Result<Stream, Error> {
    // SAFETY: the tests end a stream after they have dropped what was found for it.
    unsafe { device.raw_streams().stream(raw) }
}

fn entries(device: &Device) -> usize {
    device.raw_streams().created().table.entries.lock().len()
}

#[test]
fn a_known_stream_costs_two_questions() {
    let sim = Sim::new();
    let device = sim.device(0);
    let (first, second) = (made(&sim, 0), made(&sim, 0));
    let ids = [first, second].map(|raw| found(&device, raw).unwrap().id());
    assert_ne!(ids[0], ids[1]);
    // The thread's last one, another one, and a thread that has none yet.
    for (raw, id) in [(second, ids[1]), (first, ids[0]), (first, ids[0])] {
        let before = sim.calls();
        let stream = found(&device, raw).unwrap();
        assert_eq!((stream.id(), stream.raw()), (id, raw));
        drop(stream);
        let calls = sim.calls() - before;
        assert_eq!((calls[Call::StreamCaptureId], calls[Call::StreamId], calls.total()), (1, 1, 2));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(found(&device, first).unwrap().id(), ids[0]));
    });
    assert_eq!(entries(&device), 2);
    [first, second].into_iter().for_each(|raw| end(&sim, 0, raw));
    sim.assert_clean();
}

#[test]
fn special_handles_are_the_default_streams() {
    let sim = Sim::new();
    let device = sim.device(0);
    for raw in [RawStream(0), RawStream::LEGACY] {
        assert_eq!(found(&device, raw).unwrap(), device.default_stream());
    }
    let own = device.per_thread_stream().unwrap().id();
    assert_eq!(found(&device, RawStream::PER_THREAD).unwrap().id(), own);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_ne!(found(&device, RawStream::PER_THREAD).unwrap().id(), own));
    });
    assert_eq!(entries(&device), 0);
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let sim = Sim::with_config(SimConfig::default().devices(2));
    let raw = made(&sim, 1);
    let error = found(&sim.device(0), raw).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceMismatch);
    let id = found(&sim.device(1), raw).unwrap().id();
    end(&sim, 1, raw);
    // The handle comes again, on the other device.
    let again = made(&sim, 0);
    assert_eq!(again, raw, "the machine gives handles out again");
    assert_eq!(found(&sim.device(1), again).unwrap_err().kind(), ErrorKind::DeviceMismatch);
    assert_ne!(found(&sim.device(0), again).unwrap().id(), id);
    end(&sim, 0, again);
    sim.assert_clean();
}

#[test]
fn a_recycled_handle_is_another_stream_and_the_old_one_is_not_asked() {
    let sim = Sim::new();
    let device = sim.device(0);
    let other = device.stream().unwrap();
    let old = made(&sim, 0);
    let stream = found(&device, old).unwrap();
    let mut stall = Stall::on(stream.as_ref());
    let (id, block) = (stream.id(), Frontier::of(stream.release()));
    drop(stream);
    end(&sim, 0, old);
    let new = made(&sim, 0);
    assert_eq!(new, old, "the machine gives handles out again");
    let stream = found(&device, new).unwrap();
    assert!(stream.id() != id && !stream.may_reuse(&block));
    stream.wait_for(&block).unwrap();
    other.wait_for(&block).unwrap();
    assert!(stream.may_reuse(&block) && other.may_reuse(&block));
    assert!(!stream.is_idle().unwrap() && !device.machine().is_quiescent(&block).unwrap());
    drop(stream);
    end(&sim, 0, new);
    stall.let_go();
    device.machine().wait_quiescent(&block).unwrap();
    drop(other);
    sim.assert_clean();
}

/// Whether a visit with the handle comes to the stream with this number.
fn visits(device: &Device, raw: RawStream, id: StreamId) -> bool {
    // SAFETY: the tests pass streams that live, and nothing is done with them here.
    unsafe { device.raw_streams().visit(raw, |stream| stream.id() == id) }
}

#[test]
fn a_visit_asks_nothing_and_is_of_the_handle_that_came_last() {
    let sim = Sim::new();
    let device = sim.device(0);
    let (first, second) = (made(&sim, 0), made(&sim, 0));
    let ids = [first, second].map(|raw| found(&device, raw).unwrap().id());
    let own = device.stream().unwrap();
    let before = sim.calls().total();
    assert!(visits(&device, second, ids[1]) && !visits(&device, first, ids[0]));
    for default in [device.default_stream(), (*device.per_thread_stream().unwrap()).clone()] {
        assert!(visits(&device, default.raw(), default.id()));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(!visits(&device, second, ids[1]), "another thread has not come with it"));
    });
    assert_eq!(sim.calls().total(), before);
    // A registered stream is another one than that which its handle was before.
    // SAFETY: it lives until it is destroyed below, when the wrapper is gone.
    let wrapped = unsafe { Stream::from_raw(&device, second) }.unwrap();
    device.raw_streams().register(&wrapped);
    assert!(!visits(&device, second, ids[1]));
    device.raw_streams().register(&own);
    assert_eq!(found(&device, own.raw()).unwrap().id(), own.id());
    assert!(visits(&device, own.raw(), own.id()));
    drop(wrapped);
    // A capture is no stream to come back to.
    sim.begin_capture(0, first, CaptureMode::Relaxed).unwrap();
    let captured = found(&device, first).unwrap().id();
    assert!(captured != ids[0] && !visits(&device, first, captured));
    // SAFETY: the capture began above.
    let graph = unsafe { sim.stream_end_capture(0, first) }.unwrap();
    // SAFETY: it came from the capture, and was not launched.
    unsafe { sim.graph_destroy(0, graph) }.unwrap();
    [first, second].into_iter().for_each(|raw| end(&sim, 0, raw));
}

#[test]
fn a_visit_uses_no_handle_that_may_be_another_stream_by_now() {
    let sim = Sim::new();
    let device = sim.device(0);
    let old = made(&sim, 0);
    let id = found(&device, old).unwrap().id();
    end(&sim, 0, old);
    let new = made(&sim, 0);
    assert_eq!(new, old, "the machine gives handles out again");
    let mut kept = None;
    let visit = |stream: StreamRef<'_>| {
        assert_eq!(stream.id(), id, "the one that came last");
        assert!(stream.synchronize().is_err() && stream.is_idle().is_err() && stream.record().is_err());
        kept = Some(stream.to_stream());
        true
    };
    // SAFETY: the stream is live. What is done with it is done to show that nothing comes of it.
    assert!(unsafe { device.raw_streams().visit(new, visit) });
    // The visit's owned handle is of the stream that the raw one means now.
    let kept = kept.unwrap();
    assert!(kept.id() != id && kept.id() == found(&device, new).unwrap().id());
    let mut stall = Stall::on(&kept);
    assert!(!kept.is_idle().unwrap());
    stall.let_go();
    kept.synchronize().unwrap();
    drop(kept);
    end(&sim, 0, new);
    sim.assert_clean();
}

#[test]
fn a_stream_that_is_visited_does_not_end() {
    let sim = Sim::new();
    let device = sim.device(0);
    let visited = made(&sim, 0);
    let id = found(&device, visited).unwrap().id();
    let others: Vec<_> = (0..2 * KEPT).map(|_| made(&sim, 0)).collect();
    let come = || others.iter().for_each(|&raw| drop(found(&device, raw).unwrap()));
    let visit = |stream: StreamRef<'_>| {
        std::thread::scope(|scope| scope.spawn(come).join()).expect("each is found");
        assert_eq!(stream.id(), id);
        device.raw_streams().created().table.entries.lock().iter().any(|entry| entry.timeline.id() == id)
    };
    // SAFETY: the stream is live, and nothing is done with it.
    assert!(unsafe { device.raw_streams().visit(visited, visit) });
    come();
    assert!(!visits(&device, visited, id));
    others.into_iter().chain([visited]).for_each(|raw| end(&sim, 0, raw));
    sim.assert_clean();
}

#[test]
fn ten_thousand_streams_leave_a_constant_behind() {
    let sim = Sim::new();
    let device = sim.device(0);
    let pool = Pool::new(Cuda::new(&device), PoolConfig::default()).unwrap();
    let layout = Layout::new(4096, 256).unwrap();
    let kept = made(&sim, 0);
    let kept_id = found(&device, kept).unwrap().id();
    let mut last = None;
    for round in 0..10_000 {
        // Two at a time, so that a handle is not always that of the stream before.
        let raws = [made(&sim, 0), made(&sim, 0)];
        for raw in raws {
            let stream = found(&device, raw).unwrap();
            let block = pool.allocate(layout, stream.as_ref()).unwrap();
            // SAFETY: the block came from this pool just now, and nothing uses it.
            unsafe { pool.deallocate(block, layout, stream.as_ref()) };
            last = Some(stream.release());
        }
        raws.into_iter().for_each(|raw| end(&sim, 0, raw));
        // One that is in use is not among the oldest.
        assert_eq!(found(&device, kept).unwrap().id(), kept_id);
        assert!(entries(&device) <= KEPT + 1, "{} in round {round}", entries(&device));
    }
    end(&sim, 0, kept);
    let other = device.stream().unwrap();
    other.wait_for(&Frontier::of(last.unwrap())).unwrap();
    device.synchronize().unwrap();
    let streams = device.table().timelines().count();
    assert!(streams <= KEPT + 16, "{streams} timelines");
    assert!(sim.live().events <= 6 * KEPT, "{:?}", sim.live());
    drop((pool, other));
    sim.assert_clean();
}

#[test]
fn what_a_free_could_not_cover_the_end_of_the_call_covers() {
    let sim = Sim::new();
    let device = sim.device(0);
    let other = device.stream().unwrap();
    let raw = made(&sim, 0);
    let stream = found(&device, raw).unwrap();
    let mut stall = Stall::on(stream.as_ref());
    sim.inject(Fault::nth(Call::EventRecord, 1, Code::OUT_OF_MEMORY));
    let block = Frontier::of(stream.release());
    assert_eq!(sim.faults_left(), 0, "the free could not record its event");
    let clone = stream.clone();
    drop(stream);
    let before = sim.calls();
    drop(clone);
    assert_eq!((sim.calls() - before)[Call::EventRecord], 1);
    end(&sim, 0, raw);
    other.wait_for(&block).unwrap();
    assert!(!other.is_idle().unwrap());
    stall.let_go();
    device.machine().wait_quiescent(&block).unwrap();
    drop(other);
    sim.assert_clean();
}

#[test]
fn a_stream_that_rests_without_an_event_is_no_lost_context() {
    let sim = Sim::new();
    let device = sim.device(0);
    let machine = device.machine();
    let raw = made(&sim, 0);
    let stream = found(&device, raw).unwrap();
    let other = device.stream().unwrap();
    sim.begin_capture(0, raw, CaptureMode::Relaxed).unwrap();
    let freed = stream.release();
    drop(stream);
    let refused = other.as_ref().wait_up_to(freed).unwrap_err();
    assert!(!machine.is_quiescent(&Frontier::of(freed)).unwrap());
    sim.end_capture(0, raw).unwrap();
    // The stream has come again since. The error of before still says that it rested.
    let stream = found(&device, raw).unwrap();
    assert_eq!(stream.id(), freed.stream());
    assert!(refused.is_no_last_event() && refused.is_unsupported() && !refused.is_final(), "{refused}");
    assert!(refused.to_string().contains("rests until its owner brings its handle again"), "{refused}");
    assert!(other.as_ref().wait_up_to(freed).unwrap().needed, "and now it can be covered");
    drop((stream, other));
    end(&sim, 0, raw);
    device.synchronize().unwrap();
    sim.assert_clean();
}

#[test]
fn a_capture_stays_whole_and_is_a_stream_of_its_own() {
    let sim = Sim::new();
    let device = sim.device(0);
    let raw = made(&sim, 0);
    let before = found(&device, raw).unwrap().id();
    sim.begin_capture(0, raw, CaptureMode::Global).unwrap();
    let during = found(&device, raw).unwrap();
    let freed = Frontier::of(during.release());
    assert!(during.id() != before && found(&device, raw).unwrap().id() == during.id());
    drop(during);
    // SAFETY: the stream is live.
    let graph = unsafe { sim.stream_end_capture(0, raw) }.expect("nothing broke the capture");
    // SAFETY: it came from the capture, and was not launched.
    unsafe { sim.graph_destroy(0, graph) }.unwrap();
    assert_eq!(found(&device, raw).unwrap().id(), before);
    end(&sim, 0, raw);
    // The point was freed where no event can be recorded, and its stream is gone: only a wait for the device comes after it.
    let other = device.stream().unwrap();
    assert!(other.wait_for(&freed).is_err());
    device.synchronize().unwrap();
    assert!(other.may_reuse(&freed));
    drop(other);
    sim.assert_clean();
}

#[test]
fn threads_share_what_they_find() {
    let sim = Sim::new();
    let device = sim.device(0);
    let raws: Vec<RawStream> = (0..4).map(|_| made(&sim, 0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (device, raws) = (&device, &raws);
            scope.spawn(move || {
                for turn in 0..200 {
                    let stream = found(device, raws[(turn * (thread + 1)) % 4]).unwrap();
                    let freed = Frontier::of(stream.release());
                    let other = found(device, raws[(turn + thread) % 4]).unwrap();
                    drop(stream);
                    other.wait_for(&freed).unwrap();
                    assert!(other.may_reuse(&freed));
                }
            });
        }
    });
    raws.into_iter().for_each(|raw| end(&sim, 0, raw));
    device.synchronize().unwrap();
    sim.assert_clean();
}
