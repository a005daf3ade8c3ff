//! Memory of a graph, used by two threads: on two streams of one capture, and while the session ends. A stream of the capture has a
//! block of another one only after it has followed the free; nobody else has it at all.

#![expect(unsafe_code, reason = "releases the memory of graphs that were never made")]

use std::sync::Arc;

use alluvion::suballoc::Growth;
use alluvion::{GraphMemory, PoolConfig, Stream};
use loom_tests::{Ground, Plot, Seen, Site, Work, explore, explore_bounded, spawn};

const USE: Work = Work(0);
const NEXT: Work = Work(1);

/// How often a thread is preempted where one follows and the other one frees: all schedules take more than three minutes.
const PREEMPTIONS: Option<usize> = Some(3);

/// Long enough that a request comes from the core alone, and not with others.
const LONG: usize = 64 << 10;

/// A block of a graph, and room for three more of that length. The streams take part in one capture. The device gets nothing done.
fn site() -> (Site, GraphMemory<'static, Ground>, Plot, [Stream; 2]) {
    let all = 4 * LONG;
    let site = Site::new(all, PoolConfig::default().initial(all).maximum(all).growth(Growth::Exact));
    let streams = [(); 2].map(|()| site.rig.stream());
    streams.iter().for_each(|stream| site.rig.mock.set_capture(stream.raw(), Some(1)));
    let memory = site.pool.capture_owned(&streams[0]).expect("the stream captures");
    let plot = site.take(streams[0].as_ref(), LONG).expect("there is room");
    site.rig.mock.keep_busy();
    (site, memory, plot, streams)
}

/// The capture is over, and so is the graph.
fn end(site: Site, mut memory: GraphMemory<'static, Ground>, streams: [Stream; 2], bytes: usize) {
    site.rig.mock.get_going();
    for stream in &streams {
        site.rig.mock.set_capture(stream.raw(), None);
        // What was captured stands for a launch, which has to be over.
        stream.synchronize().expect("nothing fails");
    }
    // SAFETY: no graph has come of the capture.
    assert_eq!(unsafe { memory.release() }.expect("nothing is out"), bytes);
    assert_eq!(site.pool.status().live_blocks, 0);
    drop((memory, streams));
    site.end();
}

#[test]
fn a_stream_that_follows_has_what_was_freed_before() {
    static REUSED: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(PREEMPTIONS, || {
        let (site, memory, plot, [main, side]) = site();
        let first = plot.address();
        let freeing = {
            let (site, main) = (site.clone(), main.clone());
            spawn(move || {
                site.use_on(main.as_ref(), &plot, USE);
                site.give(main.as_ref(), plot);
            })
        };
        memory.follow(&side, &main).expect("both take part");
        let next = site.take(side.as_ref(), LONG).expect("there is room");
        let is_reused = next.address() == first;
        REUSED[usize::from(is_reused)].note(true);
        site.use_on(side.as_ref(), &next, NEXT);
        site.give(side.as_ref(), next);
        freeing.join().unwrap();
        end(site, memory, [main, side], if is_reused { LONG } else { 2 * LONG });
    });
    assert!(REUSED.iter().all(|seen| seen.times() > 0), "{REUSED:?}");
}

/// A block of the graph is freed, on a stream of the capture or elsewhere, while the session ends and others allocate.
#[test]
fn nobody_else_has_what_is_freed_at_the_end() {
    for elsewhere in [false, true] {
        explore(move || {
            let (site, memory, plot, [main, side]) = site();
            let first = plot.address();
            let other = site.rig.stream();
            let freeing = {
                let site = site.clone();
                let stream = if elsewhere { other.clone() } else { main.clone() };
                spawn(move || site.give(stream.as_ref(), plot))
            };
            memory.end().expect("once");
            let taken = site.take(other.as_ref(), LONG).expect("there is room");
            assert_ne!(taken.address(), first);
            freeing.join().unwrap();
            let more = site.take(other.as_ref(), LONG).expect("there is room");
            assert_ne!(more.address(), first);
            site.give(other.as_ref(), taken);
            site.give(other.as_ref(), more);
            assert_eq!(site.pool.status().graph_bytes, LONG);
            drop(other);
            end(site, memory, [main, side], LONG);
        });
    }
}

/// A block of the pool is freed on a stream of the capture while the session ends: it is the graph's, or it comes after.
#[test]
fn a_block_of_the_pool_is_freed_once() {
    static PARKED: [Seen; 2] = [Seen::never(), Seen::never()];
    explore(|| {
        let (site, memory, plot, [main, side]) = site();
        let other = site.rig.stream();
        let before = site.take(other.as_ref(), LONG).expect("there is room");
        site.give(main.as_ref(), plot);
        let freeing = {
            let (site, main) = (site.clone(), main.clone());
            spawn(move || site.give(main.as_ref(), before))
        };
        memory.end().expect("once");
        freeing.join().unwrap();
        let parked = site.pool.status().graph_bytes - LONG;
        PARKED[usize::from(parked == LONG)].note(true);
        assert!([0, LONG].contains(&parked));
        drop(other);
        end(site, memory, [main, side], LONG + parked);
    });
    assert!(PARKED.iter().all(|seen| seen.times() > 0), "{PARKED:?}");
}

/// A block that was left to the graph is freed while the graph's memory is released: it is the graph's, or freed like any other. Either way
/// all of the memory is had again.
#[test]
fn a_block_that_was_left_is_freed_while_its_graph_goes() {
    static WENT_WITH_IT: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(PREEMPTIONS, || {
        let (site, mut memory, plot, streams) = site();
        let other = site.rig.stream();
        let left = site.take(other.as_ref(), LONG).expect("there is room");
        site.give(streams[0].as_ref(), plot);
        assert!(site.leave_to_graph(streams[0].as_ref(), &left), "the stream captures");
        site.rig.mock.get_going();
        streams.iter().for_each(|stream| site.rig.mock.set_capture(stream.raw(), None));
        memory.end().expect("once");
        let freeing = {
            let (site, other) = (site.clone(), other.clone());
            spawn(move || site.give(other.as_ref(), left))
        };
        // SAFETY: no graph has come of the capture.
        let bytes = unsafe { memory.release() }.expect("nothing of it is out");
        freeing.join().unwrap();
        WENT_WITH_IT[usize::from(bytes == 2 * LONG)].note(true);
        assert!([LONG, 2 * LONG].contains(&bytes));
        other.synchronize().expect("nothing fails");
        let all = [(); 4].map(|()| site.take(other.as_ref(), LONG).expect("nothing is lost"));
        all.into_iter().for_each(|plot| site.give(other.as_ref(), plot));
        drop((memory, other, streams));
        site.end();
    });
    assert!(WENT_WITH_IT.iter().all(|seen| seen.times() > 0), "{WENT_WITH_IT:?}");
}

/// A block that was left to two graphs is freed while the memory of both is released: it is the second one's, or freed like any other. Either
/// way all of the memory is had again.
#[test]
fn a_block_that_two_graphs_have_is_freed_while_both_go() {
    static WENT_WITH_IT: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(PREEMPTIONS, || {
        let site = Site::new(LONG, PoolConfig::default().initial(LONG).maximum(LONG).growth(Growth::Exact));
        let [first, second, other] = [(); 3].map(|()| site.rig.stream());
        let left = site.take(other.as_ref(), LONG).expect("there is room");
        let mut memories = [(&first, 1), (&second, 2)].map(|(stream, capture)| {
            site.rig.mock.set_capture(stream.raw(), Some(capture));
            let memory = site.pool.capture_owned(stream).expect("the stream captures");
            assert!(site.leave_to_graph(stream.as_ref(), &left), "the stream captures");
            memory
        });
        for (memory, stream) in memories.iter_mut().zip([&first, &second]) {
            site.rig.mock.set_capture(stream.raw(), None);
            memory.end().expect("once");
        }
        let freeing = {
            let (site, other) = (site.clone(), other.clone());
            spawn(move || site.give(other.as_ref(), left))
        };
        // SAFETY: no graph has come of the captures.
        let bytes =
            memories.each_mut().map(|memory| unsafe { memory.release() }.expect("nothing of it is out"));
        freeing.join().unwrap();
        assert_eq!(bytes[0], 0, "the other one has it, unless it is not free yet");
        WENT_WITH_IT[usize::from(bytes[1] == LONG)].note(true);
        assert!([0, LONG].contains(&bytes[1]));
        other.synchronize().expect("nothing fails");
        let again = site.take(other.as_ref(), LONG).expect("nothing is lost");
        site.give(other.as_ref(), again);
        drop((memories, first, second, other));
        site.end();
    });
    assert!(WENT_WITH_IT.iter().all(|seen| seen.times() > 0), "{WENT_WITH_IT:?}");
}

/// A block is left to the graph while another thread puts it to sleep: it is one or the other, for a free of what sleeps looks for no graph.
#[test]
fn a_block_is_left_or_falls_asleep() {
    static LEFT: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(PREEMPTIONS, || {
        let site = Site::in_pages(2 * LONG, LONG, PoolConfig::default().growth(Growth::Exact));
        let main = site.rig.stream();
        let plot = Arc::new(site.take(main.as_ref(), LONG).expect("there is room"));
        site.rig.mock.set_capture(main.raw(), Some(1));
        let mut memory = site.pool.capture_owned(&main).expect("the stream captures");
        let leaving = {
            let (site, main, plot) = (site.clone(), main.clone(), Arc::clone(&plot));
            spawn(move || site.leave_to_graph(main.as_ref(), &plot))
        };
        site.note_asleep(&plot);
        let asleep = site.sleep(&plot);
        let is_left = leaving.join().unwrap();
        LEFT[usize::from(is_left)].note(true);
        assert_ne!(is_left, asleep.is_ok(), "{asleep:?}");
        site.rig.mock.set_capture(main.raw(), None);
        memory.end().expect("once");
        asleep.iter().for_each(|sleeper| sleeper.wake().expect("there is memory"));
        drop(asleep);
        site.note_awake(&plot);
        site.give(main.as_ref(), Arc::into_inner(plot).expect("the thread has ended"));
        // SAFETY: no graph has come of the capture.
        let bytes = unsafe { memory.release() }.expect("nothing of it is out");
        assert_eq!(bytes, if is_left { LONG } else { 0 });
        drop((memory, main));
        site.end();
    });
    assert!(LEFT.iter().all(|seen| seen.times() > 0), "{LEFT:?}");
}
