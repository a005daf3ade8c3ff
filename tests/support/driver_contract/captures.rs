//! What a capture records.

use super::*;
use alluvion::driver::{DriverResult, RawGraph};

fn begin(driver: &dyn Driver, stream: &TestStream<'_>) {
    // SAFETY: the stream is live.
    let begun = unsafe { driver.stream_begin_capture(GPU, stream.raw, CaptureMode::ThreadLocal) };
    assert_eq!(begun, Ok(()));
    assert_eq!(stream.capture_status(), Ok(CaptureStatus::Active));
}

fn end(driver: &dyn Driver, stream: &TestStream<'_>) -> DriverResult<RawGraph> {
    // SAFETY: the stream is live.
    let ended = unsafe { driver.stream_end_capture(GPU, stream.raw) };
    assert_eq!(stream.capture_status(), Ok(CaptureStatus::None), "it is over, whatever came of it");
    ended
}

fn destroy(driver: &dyn Driver, graph: RawGraph) {
    // SAFETY: the graph is live, and nobody uses it again.
    assert_eq!(unsafe { driver.graph_destroy(GPU, graph) }, Ok(()));
}

pub(crate) fn what_a_stream_captures_does_not_run(driver: &dyn Driver) {
    let (stream, memory) = (TestStream::new(driver), Memory::new(driver, 256));
    write(driver, memory.address, &[1; 256]);
    begin(driver, &stream);
    stream.fill(memory.address, FillValue::U8(2), 256).expect("it can be recorded");
    let graph = end(driver, &stream).expect("nothing has broken it");
    stream.synchronize().expect("there is no work");
    assert_eq!(read(driver, memory.address, 256), [1; 256]);
    destroy(driver, graph);
}

pub(crate) fn a_capture_that_is_broken_ends_all_the_same(driver: &dyn Driver) {
    let stream = TestStream::new(driver);
    begin(driver, &stream);
    assert!(stream.synchronize().is_err());
    assert_eq!(stream.capture_status(), Ok(CaptureStatus::Invalidated));
    assert_eq!(code(end(driver, &stream)), Err(Code::CAPTURE_INVALIDATED));

    // SAFETY: the default stream is always live.
    let refused = unsafe { driver.stream_begin_capture(GPU, RawStream::LEGACY, CaptureMode::ThreadLocal) };
    assert!(refused.is_err());
}

pub(crate) fn a_capture_may_allocate(driver: &dyn Driver) {
    if !has(driver, DeviceAttribute::MemoryPools) {
        return;
    }
    let (pool, stream) = (TestPool::new(driver, PoolProperties::default()), TestStream::new(driver));
    begin(driver, &stream);
    let block = pool.allocate(1 << 20, &stream).expect("it can be recorded");
    stream.fill(block, FillValue::U8(7), 1 << 20).expect("it can be recorded");
    pool.free(block, &stream);
    let graph = end(driver, &stream).expect("nothing has broken it");
    destroy(driver, graph);
}

/// A stream that joins a capture has its number; the graph is the one that the end returns; the next capture has another number.
pub(crate) fn a_capture_has_a_number_and_a_graph(driver: &dyn Driver) {
    let (stream, joined, beside) =
        (TestStream::new(driver), TestStream::new(driver), TestStream::new(driver));
    let (fork, join) = (TestEvent::new(driver), TestEvent::new(driver));
    assert_eq!(stream.capture_id(), Ok(None));
    begin(driver, &stream);
    let first = stream.capture_id().expect("it can be asked for").expect("it captures");
    fork.record(&stream);
    joined.wait(&fork).expect("it joins");
    assert_eq!(joined.capture_id(), Ok(Some(first)));
    assert_eq!(beside.capture_id(), Ok(None));
    join.record(&joined);
    stream.wait(&join).expect("it is joined");
    let graph = end(driver, &stream).expect("nothing has broken it");
    assert_eq!(graph, first.graph);
    assert_eq!((stream.capture_id(), joined.capture_id()), (Ok(None), Ok(None)));
    begin(driver, &stream);
    let second = stream.capture_id().expect("it can be asked for").expect("it captures");
    assert_ne!(second.number, first.number);
    let other = end(driver, &stream).expect("nothing has broken it");
    destroy(driver, graph);
    destroy(driver, other);
}

/// An event that was recorded in a capture draws nobody into it once the capture is over, and cannot be waited for; it can be recorded
/// anew.
pub(crate) fn an_event_of_a_capture_that_is_over_draws_nobody_in(driver: &dyn Driver) {
    let (stream, other, event) = (TestStream::new(driver), TestStream::new(driver), TestEvent::new(driver));
    let memory = Memory::new(driver, 256);
    begin(driver, &stream);
    stream.fill(memory.address, FillValue::U8(2), 256).expect("it can be recorded");
    event.record(&stream);
    let graph = end(driver, &stream).expect("nothing has broken it");
    assert_eq!(code(other.wait(&event)), Err(Code::INVALID_VALUE));
    assert_eq!(other.capture_status(), Ok(CaptureStatus::None));
    event.record(&stream);
    other.wait(&event).expect("it is an event like any other");
    other.synchronize().expect("there is no work");
    destroy(driver, graph);
}
