//! What streams, events and frontiers promise, on simulated machines; and what only these can show: hazards, captures, failures,
//! and how many calls are made.

#![expect(
    unsafe_code,
    reason = "queues functions and kernels, and wraps streams that it makes beside the crate"
)]

use std::cell::RefCell;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use alluvion::driver::{Call, CaptureMode, CaptureStatus, Code, Driver, StreamFlags};
use alluvion::sim::{CallCounts, Fault, Kernel, SimConfig};
use alluvion::testing::Stall;
use alluvion::{Device, Error, ErrorKind, Frontier, Sim, Stream, StreamRef};

use crate::stream_contract;
use crate::stream_contract::{freed, may_reuse};

fn sim_of(seed: u64) -> Sim {
    Sim::with_config(SimConfig::default().devices(2).seed(seed))
}

/// The clauses hold whatever the machine leaves to chance, and none of them is a hazard.
fn on_sim(clause: fn(&Device) -> Result<(), Error>) {
    for seed in 0..3 {
        let sim = sim_of(seed);
        clause(&sim.device(0)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(sim.hazards().is_empty(), "seed {seed}: {:#?}", sim.hazards());
    }
}

stream_contract::clauses!(on_sim);

/// Writes to the block that all streams of a test share.
fn use_block(sim: &Sim, stream: StreamRef<'_>, address: u64) {
    let kernel = Kernel::new("use").writes(address, 64);
    // SAFETY: the stream is borrowed; the block lives as long as the machine; what conflicts is reported.
    unsafe { sim.launch(stream.device().ordinal(), stream.raw(), kernel) }.expect("a kernel can be launched");
}

fn block_of(sim: &Sim) -> u64 {
    sim.allocate_device(0, 64).expect("there is room")
}

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// The calls that `body` makes, by name.
fn calls_of(sim: &Sim, body: impl FnOnce()) -> Vec<(Call, u64)> {
    let before = sim.calls();
    body();
    let made: CallCounts = sim.calls() - before;
    made.iter().collect()
}

#[test]
fn the_fast_path_calls_nobody() {
    let sim = sim_of(0);
    let (home, other) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
    let calls = calls_of(&sim, || {
        let mut block = freed(&home);
        assert!(may_reuse(&home, &block) && !may_reuse(&other, &block));
        block.join(&freed(&other));
        sim.machine().forget_done(&mut block);
        assert_eq!(block.len(), 2);
        home.wait_for_stream(&home.clone()).unwrap();
        home.as_ref().wait_for(&freed(&home)).unwrap();
    });
    assert_eq!(calls, []);
}

#[test]
fn a_wait_costs_what_it_says() {
    let sim = sim_of(0);
    let (home, other) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
    let third = sim.device(0).stream().unwrap();
    // More events than the stream holds, so that there are spare ones, and making one is not counted.
    (0..6).for_each(|_| drop(home.record().unwrap()));
    let block = freed(&home);
    let wait = |stream: &Stream| calls_of(&sim, || stream.as_ref().wait_for(&block).unwrap());
    let both = [(Call::StreamWaitEvent, 1), (Call::StreamCaptureStatus, 2), (Call::EventRecord, 1)];
    assert_eq!(wait(&other), both, "covered anew");
    assert_eq!(wait(&other), [], "waited for");
    assert_eq!(wait(&third), [(Call::StreamWaitEvent, 1), (Call::StreamCaptureStatus, 1)], "covered");
    // All that was freed on the stream comes with one wait.
    let blocks: Vec<Frontier> = (0..100).map(|_| freed(&home)).collect();
    let all = calls_of(&sim, || blocks.iter().for_each(|block| other.as_ref().wait_for(block).unwrap()));
    assert_eq!(all, both);
    // Asking costs no record twice.
    sim.machine().wait_quiescent(&blocks[99]).unwrap();
    assert_eq!(calls_of(&sim, || assert!(sim.machine().is_quiescent(&blocks[0]).unwrap())), []);
}

#[test]
fn a_foreign_stream_is_covered_at_each_free() {
    let sim = sim_of(0);
    let device = sim.device(0);
    let raw = sim.stream_create(0, StreamFlags::default()).unwrap();
    // SAFETY: it is never destroyed.
    let stream = unsafe { Stream::from_raw(&device, raw) }.unwrap();
    for _ in 0..10 {
        let calls = calls_of(&sim, || drop(freed(&stream)));
        assert!(calls.contains(&(Call::EventRecord, 1)) && calls.contains(&(Call::StreamCaptureStatus, 2)));
    }
    // Five at once are the most that it holds: four covers, and the one that is being recorded.
    assert!(sim.live().events <= 5, "{}", sim.live());
}

#[test]
fn the_handle_of_the_stream_that_is_gone_is_handed_out_next() {
    let sim = sim_of(0);
    let device = sim.device(0);
    let block = block_of(&sim);
    for _ in 0..100 {
        let home = device.stream().unwrap();
        let raw = home.as_ref().raw();
        use_block(&sim, home.as_ref(), block);
        let free = freed(&home);
        drop(home);
        let newcomer = device.stream().unwrap();
        assert_eq!(newcomer.as_ref().raw(), raw, "the simulator hands it out last in, first out");
        if !may_reuse(&newcomer, &free) {
            newcomer.as_ref().wait_for(&free).unwrap();
        }
        use_block(&sim, newcomer.as_ref(), block);
        newcomer.synchronize().unwrap();
    }
    assert_eq!(sim.hazards(), []);
}

#[test]
fn devices_of_one_machine_wait_for_each_other() {
    let sim = sim_of(0);
    let (home, other) = (sim.device(0).stream().unwrap(), sim.device(1).stream().unwrap());
    let mut stall = Stall::on(home.as_ref());
    let free = freed(&home);
    assert!(!may_reuse(&other, &free));
    other.as_ref().wait_for(&free).unwrap();
    other.wait_event(&home.record().unwrap()).unwrap();
    assert!(may_reuse(&other, &free) && !other.is_idle().unwrap());
    stall.let_go();
    other.synchronize().unwrap();
    assert!(stall.is_over() && sim.machine().is_quiescent(&free).unwrap());
    assert_eq!(sim.hazards(), []);
}

#[test]
fn machines_know_nothing_of_each_other() {
    let (sim, elsewhere) = (sim_of(0), sim_of(0));
    let (here, there) = (sim.device(0).stream().unwrap(), elsewhere.device(0).stream().unwrap());
    assert_ne!(here.id(), there.id());
    let mut free = freed(&there);
    let mismatch = Some(ErrorKind::DeviceMismatch);
    assert!(!may_reuse(&here, &free));
    assert_eq!(kind(here.as_ref().wait_for(&free)), mismatch);
    assert_eq!(kind(here.wait_for_stream(&there)), mismatch);
    assert_eq!(kind(here.wait_event(&there.record().unwrap())), mismatch);
    assert_eq!(kind(sim.machine().is_quiescent(&free)), mismatch);
    assert_eq!(kind(sim.machine().wait_quiescent(&free)), mismatch);
    there.synchronize().unwrap();
    sim.machine().forget_done(&mut free);
    assert_eq!(free.len(), 1, "nor what is over there");
    assert!(!may_reuse(&here, &free));
}

#[test]
fn a_capture_is_refused_and_not_broken() {
    let sim = sim_of(0);
    let device = sim.device(0);
    let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
    let raw = sim.stream_create(0, StreamFlags::default()).unwrap();
    // SAFETY: it is never destroyed.
    let foreign = unsafe { Stream::from_raw(&device, raw) }.unwrap();
    let of_other = freed(&other);
    for stream in [&home, &foreign] {
        let before = stream.record().unwrap();
        let handle = stream.as_ref().raw();
        sim.begin_capture(0, handle, CaptureMode::Global).unwrap();
        assert!(stream.as_ref().is_capturing().unwrap());
        let free = freed(stream);
        let capture = Some(ErrorKind::Capture);
        assert_eq!(kind(stream.record()), capture);
        assert_eq!(kind(other.as_ref().wait_for(&free)), capture);
        assert_eq!(kind(other.wait_for_stream(stream)), capture);
        assert_eq!(kind(stream.as_ref().wait_for(&of_other)), capture);
        assert_eq!(kind(stream.wait_for_stream(&other)), capture);
        assert_eq!(kind(sim.machine().wait_quiescent(&free)), capture);
        assert!(!sim.machine().is_quiescent(&free).unwrap(), "nobody knows");
        assert!(!may_reuse(&other, &free) && !may_reuse(stream, &of_other));
        // What has nothing to do with the capture goes on.
        before.synchronize().unwrap();
        assert!(before.is_complete().unwrap());
        drop(device.stream().unwrap());
        // SAFETY: the stream is live.
        assert_eq!(unsafe { sim.stream_capture_status(0, handle) }, Ok(CaptureStatus::Active));
        sim.end_capture(0, handle).unwrap();
        other.as_ref().wait_for(&free).unwrap();
        stream.as_ref().wait_for(&of_other).unwrap();
        assert!(may_reuse(&other, &free) && may_reuse(stream, &of_other));
    }
    // The last handle goes while the stream captures: what was covered stays so, the rest is never over.
    let early = freed(&foreign);
    sim.begin_capture(0, raw, CaptureMode::Global).unwrap();
    let late = freed(&foreign);
    drop(foreign);
    // SAFETY: the stream is live.
    assert_eq!(unsafe { sim.stream_capture_status(0, raw) }, Ok(CaptureStatus::Active));
    sim.end_capture(0, raw).unwrap();
    other.as_ref().wait_for(&early).unwrap();
    assert_eq!(kind(other.as_ref().wait_for(&late)), Some(ErrorKind::Unsupported));
    (0..10).for_each(|_| drop(device.stream().unwrap()));
    assert!(!may_reuse(&other, &late));
    assert_eq!(sim.hazards(), []);
}

/// Every call fails in turn: what is said to be reusable is.
#[test]
fn a_failure_anywhere_makes_nothing_reusable_too_early() {
    for seed in 0..4 {
        for nth in 1..60 {
            let sim = sim_of(seed);
            let device = sim.device(0);
            let block = block_of(&sim);
            let raw = sim.stream_create(0, StreamFlags::default()).unwrap();
            sim.inject(Fault::nth_call(nth, Code::OUT_OF_MEMORY));
            let mut free = Frontier::quiescent();
            for round in 0..4 {
                let made = match round % 3 {
                    // SAFETY: it is never destroyed.
                    0 => unsafe { Stream::from_raw(&device, raw) },
                    1 => device.stream(),
                    _ => Ok(device.default_stream()),
                };
                let Ok(stream) = made else { continue };
                if may_reuse(&stream, &free) || stream.as_ref().wait_for(&free).is_ok() {
                    assert!(may_reuse(&stream, &free), "a wait that succeeds is one");
                    use_block(&sim, stream.as_ref(), block);
                    free = freed(&stream);
                }
                let quiescent = sim.machine().is_quiescent(&free).unwrap_or(false);
                assert!(!quiescent || may_reuse(&device.default_stream(), &free));
                let _ = stream.is_idle();
            }
            assert_eq!(sim.hazards(), [], "seed {seed}, call {nth}");
        }
    }
}

#[test]
fn a_stream_that_could_not_be_covered_is_never_over() {
    let sim = sim_of(0);
    let device = sim.device(0);
    let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
    let (early, event) = (freed(&home), home.record().unwrap());
    let late = freed(&home);
    sim.inject(Fault::nth(Call::EventRecord, 1, Code::OUT_OF_MEMORY));
    sim.inject(Fault::nth(Call::StreamSynchronize, 1, Code::OUT_OF_MEMORY));
    drop(home);
    assert_eq!(sim.faults_left(), 0);
    event.synchronize().unwrap();
    (0..10).for_each(|_| drop(device.stream().unwrap()));
    assert!(may_reuse(&other, &early) && !may_reuse(&other, &late));
    assert_eq!(kind(other.as_ref().wait_for(&late)), Some(ErrorKind::Unsupported));
    assert_eq!(kind(sim.machine().is_quiescent(&late)), Some(ErrorKind::Unsupported));
    assert!(!may_reuse(&other, &late));
}

#[test]
fn a_foreign_stream_whose_free_could_not_be_covered_is_covered_later() {
    let sim = sim_of(0);
    let device = sim.device(0);
    let (other, block) = (device.stream().unwrap(), block_of(&sim));
    let raw = sim.stream_create(0, StreamFlags::default()).unwrap();
    // SAFETY: it is destroyed below, when the wrapping is gone.
    let foreign = unsafe { Stream::from_raw(&device, raw) }.unwrap();
    use_block(&sim, foreign.as_ref(), block);
    sim.inject(Fault::every(Call::EventRecord, Code::OUT_OF_MEMORY));
    let free = freed(&foreign);
    assert!(!may_reuse(&other, &free) && other.as_ref().wait_for(&free).is_err());
    sim.clear_faults();
    drop(foreign);
    // SAFETY: it was made above, and nobody uses it any more.
    unsafe { sim.stream_destroy(0, raw) }.unwrap();
    other.as_ref().wait_for(&free).unwrap();
    use_block(&sim, other.as_ref(), block);
    assert_eq!(sim.hazards(), []);
}

#[test]
fn a_lost_context_is_an_error_and_nothing_worse() {
    let sim = sim_of(0);
    let device = sim.device(0);
    let (home, other) = (device.stream().unwrap(), device.stream().unwrap());
    let (free, event) = (freed(&home), home.record().unwrap());
    let after = freed(&home);
    sim.poison(0, Code::ILLEGAL_ADDRESS);
    let lost = Some(ErrorKind::ContextLost);
    assert_eq!(kind(home.synchronize()), lost);
    assert_eq!(kind(home.is_idle()), lost);
    assert_eq!(kind(home.record()), lost);
    assert_eq!(kind(event.is_complete()), lost);
    assert_eq!(kind(other.as_ref().wait_for(&after)), lost);
    assert_eq!(kind(sim.machine().is_quiescent(&free)), lost);
    assert_eq!(kind(device.stream()), lost);
    assert!(!may_reuse(&other, &free) && !may_reuse(&other, &after));
    drop((home, event));
    assert!(!may_reuse(&other, &free) && !may_reuse(&other, &after));
    // That is known of the stream, which is gone; any call of the driver says that the context is lost.
    assert_eq!(kind(other.as_ref().wait_for(&after)), Some(ErrorKind::Unsupported));
    assert_eq!(kind(other.synchronize()), lost);
}

/// What the destructor of a thread-local does with the thread's stream: the stream may have been let go of before.
struct Late {
    sim: std::sync::Arc<Sim>,
    stream: Stream,
    block: u64,
    freed: Sender<(Frontier, bool)>,
}

impl Drop for Late {
    fn drop(&mut self) {
        use_block(&self.sim, self.stream.as_ref(), self.block);
        let refused = kind(self.sim.device(0).per_thread_stream()) == Some(ErrorKind::Unsupported);
        let _ = self.freed.send((freed(&self.stream), refused));
    }
}

thread_local! {
    static EARLIER: RefCell<Option<Late>> = const { RefCell::new(None) };
    static LATER: RefCell<Option<Late>> = const { RefCell::new(None) };
}

#[test]
fn the_destructors_of_a_thread_submit_behind_no_cover() {
    for seed in 0..8 {
        let sim = std::sync::Arc::new(sim_of(seed));
        let blocks = [block_of(&sim), block_of(&sim)];
        let (sender, frees) = channel();
        let machine = std::sync::Arc::clone(&sim);
        thread::spawn(move || {
            // One is destroyed before the crate's own thread-local, and one after it, whichever way round they go.
            EARLIER.with_borrow(|nothing| assert!(nothing.is_none()));
            let here = machine.device(0).per_thread_stream().unwrap();
            let late = |block: u64| {
                let (sim, stream) = (std::sync::Arc::clone(&machine), here.as_ref().to_stream());
                use_block(&sim, stream.as_ref(), block);
                Some(Late { sim, stream, block, freed: sender.clone() })
            };
            LATER.with_borrow_mut(|slot| *slot = late(blocks[0]));
            EARLIER.with_borrow_mut(|slot| *slot = late(blocks[1]));
        })
        .join()
        .unwrap();
        let frees: Vec<(Frontier, bool)> = frees.try_iter().collect();
        assert_eq!(frees.len(), 2);
        assert!(frees.iter().any(|(_, refused)| *refused), "one was destroyed after the crate's own");
        let other = sim.device(0).stream().unwrap();
        for (free, _) in &frees {
            if !may_reuse(&other, free) {
                other.as_ref().wait_for(free).unwrap();
            }
        }
        blocks.iter().for_each(|block| use_block(&sim, other.as_ref(), *block));
        assert_eq!(sim.hazards(), [], "seed {seed}");
    }
}

#[test]
fn threads_that_come_and_go_cost_nothing_for_ever() {
    let sim = std::sync::Arc::new(sim_of(0));
    let mut numbers = std::collections::HashSet::new();
    for _ in 0..300 {
        let machine = std::sync::Arc::clone(&sim);
        let id = thread::spawn(move || machine.device(0).per_thread_stream().unwrap().id()).join().unwrap();
        assert!(numbers.insert(id), "a number is never used twice");
        sim.device(0).synchronize().unwrap();
    }
    assert!(sim.live().events < 10, "{}", sim.live());
}

/// The legacy stream stands in for that of a thread which is gone, and must come after what the thread has submitted, whatever
/// the driver thinks of such streams.
#[test]
fn the_legacy_stream_has_waited_for_a_thread_that_is_gone() {
    let sim = Sim::new();
    let device = sim.device(0);
    let (legacy, other) = (device.default_stream(), device.stream().expect("a stream"));
    let freed = thread::scope(|scope| {
        let of_thread = || device.per_thread_stream().map(|stream| Frontier::of(stream.as_ref().release()));
        scope.spawn(of_thread).join().expect("it does not panic")
    })
    .expect("a stream");
    let before = sim.calls();
    assert!(legacy.as_ref().may_reuse(&freed));
    assert_eq!((sim.calls() - before).total(), 0, "it is known without asking");
    assert!(!other.as_ref().may_reuse(&freed), "and not because the work were over");
}
