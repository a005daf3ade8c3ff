//! `Playback`: a trace step by step, with the addresses of its blocks and what is reserved after each step.
//!
//! Where the log says what was reserved, what it says is played back, at the addresses that it says. Else all that it says is
//! which blocks came and went: they are allocated from a pool, or from the stack that was asked for, on a simulated GPU, and
//! what that does is played back.

mod step;
mod watched;

pub(crate) use step::{Step, What};
pub(crate) use watched::{Sightings, Watched};

use alluvion::recipe::Recipe;
use alluvion::sim::SimConfig;
use alluvion::source::Cuda;
use alluvion::trace::{Event, EventKind, Moment, Refusal, Trace};
use alluvion::{Device, Error, Layout, PoolConfig, Resource, ResourceExt, Sim, Stream};

use crate::failure::Failure;
use crate::workload::Block;

/// A trace that can be played back, as often as one likes: it is the same each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Playback<'t> {
    trace: &'t Trace,
    by: By<'t>,
}

/// Whose addresses are played, and whose segments.
#[derive(Clone, Copy, Debug)]
enum By<'t> {
    /// The log's.
    Log,
    /// Those of a pool.
    Pool,
    /// Those of a stack that somebody wrote down.
    Stack(&'t Recipe),
}

/// Memory of the simulated device, if the trace needs no more: that of an H200. It costs nothing until it is touched, and nobody
/// touches it.
const SIMULATED_BYTES: u64 = 141 << 30;

/// And at most so much, which no simulated device takes ill.
const MOST_SIMULATED_BYTES: u64 = 1 << 45;

impl<'t> Playback<'t> {
    pub(crate) fn new(trace: &'t Trace) -> Self {
        let is_recorded = trace.moments.iter().any(|moment| moment.reserved_bytes.is_some());
        Self { trace, by: if is_recorded { By::Log } else { By::Pool } }
    }

    /// Through a stack, whatever the log says was reserved.
    pub(crate) fn through(trace: &'t Trace, stack: &'t Recipe) -> Self {
        Self { trace, by: By::Stack(stack) }
    }

    pub(crate) fn trace(&self) -> &'t Trace {
        self.trace
    }

    /// Whether the log itself says what was reserved. Its segments are not known then.
    pub(crate) fn is_recorded(&self) -> bool {
        matches!(self.by, By::Log)
    }

    /// Plays it to `each`, until that fails.
    pub(crate) fn run(&self, each: impl FnMut(Step) -> Result<(), Failure>) -> Result<(), Failure> {
        match self.by {
            By::Log => Player::new(self.trace, each).play_recorded(),
            By::Pool => self.run_over(|source| source.pool(PoolConfig::default()), each),
            By::Stack(recipe) => self.run_over(|source| recipe.over_device(source), each),
        }
    }

    /// A simulated GPU with room for the blocks of the trace.
    pub(crate) fn machine(&self) -> Sim {
        Self::machine_for(self.trace.peak_live_bytes())
    }

    /// A simulated GPU with room for blocks that have so many bytes at most at once.
    pub(crate) fn machine_for(peak_live_bytes: u64) -> Sim {
        let memory = SIMULATED_BYTES.max(peak_live_bytes.saturating_mul(2));
        let memory = usize::try_from(memory.min(MOST_SIMULATED_BYTES)).unwrap_or(usize::MAX);
        // A log says what was done, and not whether it was right.
        Sim::with_config(SimConfig::default().memory_bytes(memory).watch_blocks(false))
    }

    /// Plays to `each` what a resource of your making does with the blocks of the trace, over a source of which the segments
    /// are seen.
    pub(crate) fn run_over<R: Resource>(
        &self,
        make: impl FnOnce(Watched<Cuda>) -> Result<R, Error>,
        each: impl FnMut(Step) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let sim = self.machine();
        let device = sim.machine().device(0)?;
        let sightings = Sightings::default();
        let resource = make(Watched::new(Cuda::new(&device), &sightings))?;
        Player::new(self.trace, each).play_on(&device, &resource, &sightings)
    }
}

/// What there is so far.
struct Player<'t, F> {
    trace: &'t Trace,
    each: F,
    refusals: core::slice::Iter<'t, Refusal>,
    /// The tag that each block came with.
    tags: Vec<u32>,
    microseconds: u64,
    live_bytes: u64,
    reserved_bytes: u64,
}

impl<'t, F: FnMut(Step) -> Result<(), Failure>> Player<'t, F> {
    fn new(trace: &'t Trace, each: F) -> Self {
        Self {
            trace,
            each,
            refusals: trace.refusals.iter(),
            tags: vec![0; trace.blocks as usize],
            microseconds: 0,
            live_bytes: 0,
            reserved_bytes: 0,
        }
    }

    fn play_recorded(mut self) -> Result<(), Failure> {
        let trace = self.trace;
        // What is reserved before the log says so for the first time is what it says then.
        let first = trace.moments.iter().find_map(|moment| moment.reserved_bytes);
        let mut said = first.unwrap_or_default();
        let mut addresses = vec![0; trace.blocks as usize];
        for (at, (event, moment)) in trace.events.iter().zip(&trace.moments).enumerate() {
            self.refuse_before(at)?;
            said = moment.reserved_bytes.unwrap_or(said);
            let (block, bytes) = (event.block, event.bytes);
            let address = &mut addresses[block as usize];
            let what = match event.kind {
                EventKind::Allocate => {
                    *address = moment.address;
                    self.live_bytes = self.live_bytes.saturating_add(rounded(bytes));
                    What::Allocated { block, address: *address, bytes }
                }
                EventKind::Free => {
                    self.live_bytes = self.live_bytes.saturating_sub(rounded(bytes));
                    What::Freed { block, address: *address, bytes }
                }
            };
            self.reserved_bytes = said;
            self.tell(what, event, moment)?;
        }
        self.refuse_before(trace.events.len())
    }

    fn play_on<R: Resource>(
        mut self,
        device: &Device,
        resource: &R,
        sightings: &Sightings,
    ) -> Result<(), Failure> {
        let trace = self.trace;
        let streams = (0..trace.streams).map(|_| device.stream()).collect::<Result<Vec<Stream>, Error>>()?;
        let mut live: Vec<Option<Block<'_, R>>> = Vec::new();
        live.resize_with(trace.blocks as usize, || None);
        for (at, (event, moment)) in trace.events.iter().zip(&trace.moments).enumerate() {
            self.refuse_before(at)?;
            let stream = streams[event.stream as usize].as_ref();
            let (block, bytes) = (event.block, event.bytes);
            let held = &mut live[block as usize];
            let what = match event.kind {
                EventKind::Allocate => match Block::take(resource, bytes as usize, stream) {
                    Ok(taken) => {
                        let address = taken.address();
                        *held = Some(taken);
                        What::Allocated { block, address, bytes }
                    }
                    // Of a machine without memory enough, or of a limit in the stack: what it is there to show.
                    Err(error) if error.is_out_of_memory() => What::Failed { bytes },
                    Err(error) => {
                        let events = trace.events.len();
                        return Err(Failure::while_doing(&format!("event {at} of {events}"), error));
                    }
                },
                EventKind::Free => match held.take() {
                    Some(block_held) => {
                        let address = block_held.address();
                        block_held.give_back(stream);
                        What::Freed { block, address, bytes }
                    }
                    // It never came.
                    None => continue,
                },
            };
            // A block comes in a segment that is there, and goes before its segment does.
            if matches!(what, What::Freed { .. }) {
                self.live_bytes -= rounded(bytes);
                self.tell(what, event, moment)?;
            }
            for seen in sightings.take() {
                match seen {
                    What::SegmentTaken { bytes, .. } => self.reserved_bytes += bytes,
                    What::SegmentGiven { bytes, .. } => self.reserved_bytes -= bytes,
                    _ => {}
                }
                self.tell(seen, event, moment)?;
            }
            if !matches!(what, What::Freed { .. }) {
                if matches!(what, What::Allocated { .. }) {
                    self.live_bytes += rounded(bytes);
                }
                self.tell(what, event, moment)?;
            }
        }
        self.refuse_before(trace.events.len())
    }

    /// Tells of the allocations that failed in the log before its event `at`.
    fn refuse_before(&mut self, at: usize) -> Result<(), Failure> {
        while let Some(refusal) = self.refusals.as_slice().first().filter(|next| next.after_events <= at) {
            self.refusals.next();
            let Refusal { stream, thread, bytes, .. } = *refusal;
            self.tell_of(What::Failed { bytes }, &refusal.moment, thread, stream, refusal.moment.tag)?;
        }
        Ok(())
    }

    fn tell(&mut self, what: What, event: &Event, moment: &Moment) -> Result<(), Failure> {
        let tag = &mut self.tags[event.block as usize];
        if event.kind == EventKind::Allocate {
            *tag = moment.tag;
        }
        let tag = *tag;
        self.tell_of(what, moment, event.thread, event.stream, tag)
    }

    fn tell_of(
        &mut self,
        what: What,
        moment: &Moment,
        thread: u32,
        stream: u32,
        tag: u32,
    ) -> Result<(), Failure> {
        // Rows of two threads may stand in another order than their times.
        self.microseconds = self.microseconds.max(moment.microseconds);
        let (microseconds, live_bytes) = (self.microseconds, self.live_bytes);
        // A log that says that less was reserved than was live, or a stack with a second source, does not know of all.
        let reserved_bytes = self.reserved_bytes.max(live_bytes);
        (self.each)(Step { what, microseconds, thread, stream, tag, live_bytes, reserved_bytes })
    }
}

/// As long as a block of so many bytes is at least.
fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(Layout::MIN_ALIGN as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(heading: &str, rows: &[&str]) -> Trace {
        let log = format!("Thread,Time,Action,Pointer,Size,Stream{heading}\n{}\n", rows.join("\n"));
        Trace::from_rmm_csv(log.as_bytes()).expect("the log is well formed")
    }

    fn steps(playback: Playback<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        playback
            .run(|step| {
                steps.push(step);
                Ok(())
            })
            .expect("it plays to the end");
        steps
    }

    #[test]
    fn what_is_recorded_is_played_back_as_it_is() {
        let trace = trace(
            ",Tag,Reserved",
            &[
                "7,00:00:00.000001,allocate,0x300,300,0,join,4096",
                "7,00:00:00.000002,allocate failure,(nil),9999,0,,4096",
                "7,00:00:00.000003,free,0x300,300,0x9,other,",
            ],
        );
        let playback = Playback::new(&trace);
        assert!(playback.is_recorded());
        let steps = steps(playback);
        let what: Vec<_> = steps.iter().map(|step| step.what).collect();
        assert_eq!(
            what,
            [
                What::Allocated { block: 0, address: 0x300, bytes: 300 },
                What::Failed { bytes: 9999 },
                What::Freed { block: 0, address: 0x300, bytes: 300 },
            ]
        );
        assert_eq!(steps.iter().map(|step| step.reserved_bytes).collect::<Vec<_>>(), [4096; 3]);
        assert_eq!(steps.iter().map(|step| step.live_bytes).collect::<Vec<_>>(), [512, 512, 0]);
        assert_eq!(steps.iter().map(|step| step.tag).collect::<Vec<_>>(), [1, 0, 1], "of the block");
        assert_eq!((steps[0].stream, steps[2].stream, steps[0].cached_bytes()), (0, 1, 4096 - 512));
    }

    #[test]
    fn what_is_not_recorded_is_what_a_pool_does() {
        let trace = trace(
            "",
            &[
                "7,00:00:00.000001,allocate,0x300,300,0",
                "7,00:00:00.000002,free,0x300,300,0",
                "7,00:00:00.000003,allocate,0x300,200,0",
            ],
        );
        let steps = steps(Playback::new(&trace));
        let What::SegmentTaken { address, bytes } = steps[0].what else { panic!("{:?}", steps[0]) };
        assert_eq!((steps[0].reserved_bytes, steps[0].live_bytes), (bytes, 0));
        assert_eq!(steps.len(), 4);
        for (step, live) in steps[1..].iter().zip([512, 0, 256]) {
            assert_eq!((step.reserved_bytes, step.live_bytes), (bytes, live));
            let (What::Allocated { address: at, .. } | What::Freed { address: at, .. }) = step.what else {
                panic!("{step:?}")
            };
            assert!((address..address + bytes).contains(&at));
        }
    }

    #[test]
    fn a_block_goes_before_its_segment_does() {
        let trace =
            trace("", &["7,00:00:00.000001,allocate,0x300,300,0", "7,00:00:00.000002,free,0x300,300,0"]);
        let mut steps = Vec::new();
        let played = Playback::new(&trace).run_over(Ok, |step| {
            steps.push((step.what, step.reserved_bytes));
            Ok(())
        });
        assert!(played.is_ok());
        let What::SegmentTaken { address, .. } = steps[0].0 else { panic!("{steps:?}") };
        let [block, bytes] = [0, 300];
        assert_eq!(
            steps,
            [
                (What::SegmentTaken { address, bytes: 512 }, 512),
                (What::Allocated { block: 0, address, bytes }, 512),
                (What::Freed { block: 0, address, bytes }, 512),
                (What::SegmentGiven { address, bytes: 512 }, block),
            ]
        );
    }

    #[test]
    fn what_no_device_has_fails_and_the_rest_goes_on() {
        let trace = trace(
            "",
            &[
                "7,00:00:00.000001,allocate,0x300,9000000000000000000,0",
                "7,00:00:00.000002,allocate,0x400,300,0",
                "7,00:00:00.000003,free,0x300,300,0",
            ],
        );
        let steps = steps(Playback::new(&trace));
        assert_eq!(steps[0].what, What::Failed { bytes: 9_000_000_000_000_000_000 });
        assert!(matches!(steps.last().unwrap().what, What::Allocated { block: 1, .. }), "{steps:?}");
    }

    #[test]
    fn whoever_has_enough_ends_it() {
        let trace =
            trace("", &["7,00:00:00.000001,allocate,0x300,300,0", "7,00:00:00.000002,free,0x300,300,0"]);
        let mut count = 0;
        let ended = Playback::new(&trace).run(|_| {
            count += 1;
            Err(Failure::Unread)
        });
        assert!(matches!(ended, Err(Failure::Unread)) && count == 1);
    }
}
