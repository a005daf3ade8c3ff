//! Captures that somebody else begins and ends, at any moment, on a stream that this crate has been lent. cudarc does both by safe
//! functions, and launches the graph by a third: so nothing of a container may be in it.

#![allow(clippy::disallowed_types, reason = "no model is run here")]
#![expect(unsafe_code, reason = "wraps a stream that the tests keep, and launches graphs")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use alluvion::adaptor::GuardConfig;
use alluvion::driver::{Call, CaptureMode, Code, RawStream};
use alluvion::relief::Relief;
use alluvion::sim::{HazardKind, SimDriver, SimGraph};
use alluvion::source::{Cuda, CudaAsync};
use alluvion::{
    DeviceVec, Error, HostBuffer, Layout, Machine, PoolConfig, Resource, ResourceExt, Sim, Stream, StreamRef,
};

use crate::meddling::Meddler;

/// Elements: more than a page of them, so that a copy is a copy.
const COUNT: usize = 3000;

type Vector = DeviceVec<u32, Arc<Cuda>>;

/// A machine with a stream that somebody else has as well.
struct Site {
    sim: Sim,
    meddler: Arc<Meddler>,
    lent: Stream,
    raw: RawStream,
    own: Stream,
    cuda: Arc<Cuda>,
}

impl Site {
    fn new() -> Self {
        let sim = Sim::new();
        let meddler = Meddler::over(sim.sim_driver());
        let machine = Machine::new(meddler.clone()).expect("there are devices");
        let device = machine.device(0).expect("there is one");
        let theirs = Arc::new(device.stream().expect("there are streams"));
        let raw = theirs.as_ref().as_ref().raw();
        // SAFETY: the stream is live while its owner is, and no default stream.
        let lent = unsafe { Stream::from_owner(&device, raw, theirs) }.expect("there are numbers left");
        let own = device.stream().expect("there are streams");
        // The courier of the stream is there.
        DeviceVec::from_slice(&[1_u32], lent.as_ref()).expect("nothing meddles");
        Self { cuda: Arc::new(Cuda::new(&device)), sim, meddler, lent, raw, own }
    }

    fn vector(&self, word: u32) -> Vector {
        DeviceVec::filled_in(COUNT, word, self.lent.as_ref(), self.cuda.clone()).expect("there is room")
    }

    fn check(&self, what: &str) {
        let mut hazards = self.sim.take_hazards();
        // What a capture forbids is refused, and may have broken it.
        hazards.retain(|hazard| hazard.kind() != HazardKind::IllegalDuringCapture);
        assert!(hazards.is_empty(), "{what}: {}", hazards[0]);
    }
}

/// Runs a program with a capture from before any of its driver calls to before any later one, or open at its end.
fn at_every_moment(
    mut program: impl FnMut(&Site, &mut Vector) -> Result<(), Error>,
    mut judge: impl FnMut(&Site, Vector, Result<(), Error>, Option<Result<SimGraph, Code>>, bool, &str),
) {
    let site = Site::new();
    let mut vector = site.vector(1);
    site.meddler.meddle(site.raw, u64::MAX, u64::MAX);
    program(&site, &mut vector).expect("nothing meddles");
    let (calls, ..) = site.meddler.let_be();
    drop(vector);
    assert!(calls > 1, "there is something to meddle with");
    for begin in 0..calls {
        for end in begin + 1..=calls {
            let site = Site::new();
            let mut vector = site.vector(1);
            // An end that never comes, because the program ends before, is an end behind it.
            site.meddler.meddle(site.raw, begin, if end == calls { u64::MAX } else { end });
            let outcome = program(&site, &mut vector);
            let (_, graph, was_open) = site.meddler.let_be();
            let when = format!("captured from call {begin} to {end} of {calls}");
            judge(&site, vector, outcome, graph, was_open, &when);
            site.check(&when);
        }
    }
}

/// Whatever others do with the stream meanwhile, a copy with memory of the host has run when that memory is let go, or was never
/// begun: it is in no graph. What succeeded has done what it says.
fn is_never_recorded(
    name: &str,
    program: impl FnMut(&Site, &mut Vector) -> Result<(), Error>,
    expected: u32,
) {
    let (mut refused, mut done) = (0, 0);
    at_every_moment(program, |site, vector, outcome, graph, _, when| {
        match graph {
            Some(Ok(graph)) => assert_eq!(graph.node_count(), 0, "{name}, {when}: it is in a graph"),
            Some(Err(code)) => assert!(code.is_capture(), "{name}, {when}: {code}"),
            // The program was refused before that call.
            None => {}
        }
        match &outcome {
            Ok(()) => done += 1,
            Err(error) => {
                assert!(error.is_capture(), "{name}, {when}: {error}");
                refused += 1;
            }
        }
        // The order is whole, and the stream is as good as before.
        let is_done = outcome.is_ok();
        for stream in [&site.own, &site.lent] {
            let now =
                vector.to_vec(stream.as_ref()).unwrap_or_else(|error| panic!("{name}, {when}: {error}"));
            // A part of it, where one of several copies was refused.
            assert!(now.iter().all(|word| [1, expected].contains(word)), "{name}, {when}: strange words");
            assert!(!is_done || now == [expected; COUNT], "{name}, {when}: it has not run");
        }
    });
    assert!(refused > 0 && done > 0, "{name}: {refused} were refused, {done} done");
}

#[test]
fn a_copy_to_the_host_is_in_no_graph() {
    is_never_recorded(
        "to_vec",
        |site, vector| vector.to_vec(site.lent.as_ref()).map(|got| assert_eq!(got, [1; COUNT])),
        1,
    );
    is_never_recorded(
        "get",
        |site, vector| vector.get(7, site.lent.as_ref()).map(|got| assert_eq!(got, 1)),
        1,
    );
    let mut room = vec![0; COUNT];
    is_never_recorded(
        "copy_to_slice",
        move |site, vector| {
            room.fill(0);
            vector.copy_to_slice(&mut room, site.lent.as_ref())?;
            assert_eq!(room, [1; COUNT]);
            Ok(())
        },
        1,
    );
    is_never_recorded(
        "download",
        |site, vector| {
            let got = vector.download(vec![0; COUNT], site.lent.as_ref())?.wait()?;
            assert_eq!(got, [1; COUNT]);
            Ok(())
        },
        1,
    );
    is_never_recorded(
        "a scope",
        |site, vector| {
            let mut room = vec![0; COUNT];
            site.lent.scope(|scope| scope.download(&*vector, &mut room))?;
            assert_eq!(room, [1; COUNT]);
            Ok(())
        },
        1,
    );
}

#[test]
fn a_copy_from_the_host_is_in_no_graph() {
    let twos = || vec![2; COUNT];
    is_never_recorded(
        "copy_from_slice",
        |site, vector| vector.copy_from_slice(&twos(), site.lent.as_ref()),
        2,
    );
    is_never_recorded(
        "upload",
        |site, vector| {
            let twos = vector.upload(twos(), site.lent.as_ref())?.wait()?;
            assert_eq!(twos.len(), COUNT);
            Ok(())
        },
        2,
    );
    is_never_recorded(
        "an upload that is dropped",
        |site, vector| {
            drop(vector.upload(twos(), site.lent.as_ref())?);
            Ok(())
        },
        2,
    );
    is_never_recorded(
        "a scope",
        |site, vector| {
            let (here, there) = vector.as_mut_slice().split_at_mut(COUNT / 2)?;
            let twos = twos();
            site.lent.scope(|scope| {
                scope.upload(there, &twos[COUNT / 2..])?;
                scope.upload(here, &twos[..COUNT / 2])
            })
        },
        2,
    );
    is_never_recorded(
        "another stream's vector",
        |site, vector| {
            let home = site.own.as_ref();
            let mut other = DeviceVec::filled_in(COUNT, 1_u32, home, site.cuda.clone())?;
            other.copy_from_slice(&twos(), site.lent.as_ref())?;
            vector.copy_from(other.as_slice(), home)
        },
        2,
    );
}

/// What the device does alone is on the stream itself. If it is in a graph that is still being recorded, that is an error, and
/// the memory stays for ever.
#[test]
fn work_that_was_recorded_is_found() {
    type Program = fn(&Site, &mut Vector) -> Result<(), Error>;
    let programs: [(&str, Program); 4] = [
        ("fill", |site, vector| vector.fill(2, site.lent.as_ref())),
        ("set", |site, vector| vector.set(5, 2, site.lent.as_ref())),
        ("copy_from", |site, vector| {
            let (low, mut high) = vector.as_mut_slice().split_at_mut(COUNT / 2)?;
            high.copy_from(low.as_slice(), site.lent.as_ref())
        }),
        ("reserve", |site, vector| vector.reserve(COUNT, site.lent.as_ref())),
    ];
    for (name, program) in programs {
        let mut found = 0;
        at_every_moment(program, |site, vector, outcome, graph, was_open, when| {
            let is_recorded =
                graph.as_ref().is_some_and(|graph| graph.as_ref().is_ok_and(|graph| graph.node_count() > 0));
            if let Err(error) = &outcome {
                assert!(error.is_capture(), "{name}, {when}: {error}");
            }
            if is_recorded && was_open {
                found += 1;
                assert!(outcome.is_err(), "{name}, {when}: it is in a graph");
                let before = site.sim.live().device;
                drop(vector);
                let after = site.sim.live().device;
                assert_eq!(after, before, "{name}, {when}: the memory is given back");
            }
        });
        assert!(found > 0, "{name}: nothing was recorded");
    }
}

/// A stream that others cannot capture costs what it did, and one that they can six calls more.
#[test]
fn a_courier_has_its_price() {
    let sim = Sim::new();
    let device = sim.device(0);
    let own = device.stream().unwrap();
    let owner = Arc::new(own.clone());
    // SAFETY: the stream is live while its owner is, and no default stream.
    let lent = unsafe { Stream::from_owner(&device, own.as_ref().raw(), owner) }.unwrap();
    let calls = |stream: &Stream, work: &dyn Fn(StreamRef<'_>, &mut DeviceVec<u32>)| {
        let mut vector = DeviceVec::filled(COUNT, 1_u32, stream.as_ref()).unwrap();
        // As many events as each of the two streams keeps are made.
        (0..8).for_each(|_| work(stream.as_ref(), &mut vector));
        let before = sim.calls();
        work(stream.as_ref(), &mut vector);
        let made = sim.calls() - before;
        (made.total() - made[Call::CaptureMode], made[Call::CopyAsync])
    };
    let read = |stream: StreamRef<'_>, vector: &mut DeviceVec<u32>| drop(vector.to_vec(stream).unwrap());
    let write = |stream: StreamRef<'_>, vector: &mut DeviceVec<u32>| {
        vector.copy_from_slice(&[2; COUNT], stream).unwrap();
    };
    let upload = |stream: StreamRef<'_>, vector: &mut DeviceVec<u32>| {
        drop(vector.upload(vec![2; COUNT], stream).unwrap());
    };
    assert_eq!([calls(&own, &read), calls(&own, &write), calls(&own, &upload)], [(4, 1), (4, 1), (5, 1)]);
    assert_eq!(
        [calls(&lent, &read), calls(&lent, &write), calls(&lent, &upload)],
        [(10, 1), (10, 1), (13, 1)]
    );
}

/// A handler of "out of memory" that begins a capture of the stream, in the middle of an allocation.
struct Handler {
    sim: Arc<SimDriver>,
    raw: RawStream,
    held: Mutex<Option<DeviceVec<u8, Arc<alluvion::adaptor::Limiting<CudaAsync>>>>>,
    runs: AtomicUsize,
}

impl Handler {
    fn run(&self) -> Relief {
        drop(self.held.lock().unwrap().take());
        if self.runs.fetch_add(1, Ordering::Relaxed) == 0 {
            self.sim.begin_capture(0, self.raw, CaptureMode::Relaxed).expect("it does not capture");
        }
        Relief::Freed
    }
}

/// A container is made of memory that is there for as long as the container is, whatever the resource's handlers do.
#[test]
fn no_container_is_made_of_a_graphs_memory() {
    const MIB: usize = 1 << 20;
    for guarded in [false, true] {
        let sim = Sim::new();
        let device = sim.device(0);
        let (own, theirs) = (device.stream().unwrap(), device.stream().unwrap());
        let raw = theirs.as_ref().raw();
        // SAFETY: the stream is live while its owner is, and no default stream.
        let lent = unsafe { Stream::from_owner(&device, raw, Arc::new(theirs)) }.unwrap();
        let base = Arc::new(CudaAsync::new(&device).unwrap().limiting(MIB + 8192));
        let held = DeviceVec::<u8, _>::zeroed_in(MIB, own.as_ref(), base.clone()).unwrap();
        let handler = Arc::new(Handler {
            sim: sim.sim_driver().clone(),
            raw,
            held: Mutex::new(Some(held)),
            runs: AtomicUsize::new(0),
        });
        let asked = handler.clone();
        let resource = base.clone().failure_callback(move |_| asked.run());
        let refused = if guarded {
            let resource = Arc::new(resource.guard(GuardConfig::default()).unwrap());
            DeviceVec::<u8, _>::uninit_in(MIB, lent.as_ref(), resource.clone()).map(drop)
        } else {
            DeviceVec::<u8, _>::uninit_in(MIB, lent.as_ref(), Arc::new(resource)).map(drop)
        };
        assert!(refused.unwrap_err().is_capture());
        assert_eq!(handler.runs.load(Ordering::Relaxed), 1);
        // The graph allocates and frees, and nothing else.
        let graph = sim.end_capture(0, raw).unwrap();
        assert_eq!(graph.node_count(), 2, "guarded: {guarded}");
        // SAFETY: it touches no memory.
        unsafe { sim.launch_graph(0, raw, &graph) }.unwrap();
        lent.synchronize().unwrap();
        drop(graph);
        // All of the room is there again, for the same request.
        let made = DeviceVec::<u8, _>::filled_in(MIB, 3, lent.as_ref(), base.clone()).unwrap();
        assert_eq!(made.to_vec(lent.as_ref()).unwrap(), vec![3; MIB]);
        drop((made, base));
        assert!(sim.hazards().is_empty(), "guarded: {guarded}: {}", sim.hazards()[0]);
    }
}

/// A buffer of the host whose address is asked for by its own code.
struct Meddling {
    elements: Vec<u32>,
    sim: Arc<SimDriver>,
    raw: RawStream,
}

// SAFETY: the elements are those of a vector, which nothing moves.
unsafe impl HostBuffer for Meddling {
    type Item = u32;

    fn len(&self) -> usize {
        self.elements.len()
    }

    fn as_ptr(&self) -> *const u32 {
        self.elements.as_ptr()
    }

    fn as_mut_ptr(&mut self) -> *mut u32 {
        self.sim.begin_capture(0, self.raw, CaptureMode::Relaxed).expect("it does not capture");
        self.elements.as_mut_ptr()
    }
}

/// On the default stream of a thread, which nobody else can capture, it is enough that the buffer has had its say before.
#[test]
fn a_buffer_that_begins_a_capture_is_in_no_graph() {
    let sim = Sim::new();
    let device = sim.device(0);
    let mine = device.per_thread_stream().unwrap();
    let own = device.stream().unwrap();
    for stream in [mine.as_ref(), own.as_ref()] {
        let mut vector = DeviceVec::filled(3, 1_u32, stream).unwrap();
        let buffer = || Meddling { elements: vec![2; 3], sim: sim.sim_driver().clone(), raw: stream.raw() };
        let up = vector.upload(buffer(), stream).map(drop).unwrap_err();
        assert!(up.error().is_capture() && up.into_value().is_some());
        assert_eq!(sim.end_capture(0, stream.raw()).unwrap().node_count(), 0);
        let down = vector.download(buffer(), stream).map(drop).unwrap_err();
        assert!(down.error().is_capture() && down.into_value().is_some());
        assert_eq!(sim.end_capture(0, stream.raw()).unwrap().node_count(), 0);
        assert_eq!(vector.to_vec(stream).unwrap(), [1; 3]);
    }
    assert!(sim.hazards().is_empty(), "{}", sim.hazards()[0]);
}

/// Whoever takes a block that was freed on a wrapped stream has an event recorded there that covers the free, on any thread. Where a capture
/// of the stream has begun between the question for one and the record, nothing waits for that event: a stream outside would join the capture.
#[test]
fn who_takes_what_was_freed_joins_no_capture_of_a_wrapped_stream() {
    let layout = Layout::from_bytes(4000).expect("it is short");
    let mut refused = 0;
    for begin in 0..20 {
        // One that begins and ends within one call is not seen: a question for its event is refused then.
        for end in (begin + 2..30).chain([u64::MAX]) {
            let Site { sim, meddler, lent, raw, own, cuda } = Site::new();
            // SAFETY: the stream is live until its owner goes, which `lent` keeps.
            let wrapped = unsafe { Stream::from_raw(lent.device(), raw) }.expect("there are numbers left");
            let pool =
                cuda.clone().pool(PoolConfig::default().initial(8192).maximum(8192)).expect("it is right");
            let pair = || {
                let block = pool.allocate(layout, wrapped.as_ref()).expect("there is room");
                // SAFETY: the block came from there with this layout, and nothing uses it.
                unsafe { pool.deallocate(block, layout, wrapped.as_ref()) };
            };
            // Those behind the first 256 are covered by nothing.
            (0..260).for_each(|_| pair());
            meddler.meddle(raw, begin, end);
            let taken: Vec<_> = (0..2).map(|_| pool.allocate(layout, own.as_ref())).collect();
            assert!(!own.is_capturing().expect("it can be asked"), "captured from call {begin} to {end}");
            meddler.let_be();
            refused += taken.iter().filter(|taken| taken.is_err()).count();
            for block in taken.into_iter().flatten() {
                // SAFETY: the block came from there with this layout, and nothing uses it.
                unsafe { pool.deallocate(block, layout, own.as_ref()) };
            }
            drop((wrapped, pool));
            let hazards = sim.take_hazards();
            assert!(hazards.is_empty(), "captured from call {begin} to {end}: {}", hazards[0]);
        }
    }
    assert!(refused > 0);
}
