//! `Tape`: what one program did, and how the tapes of several become one trace.

use super::random::Random;
use alluvion::trace::{Event, EventKind, Moment, Trace};

/// A block on a [`Tape`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    block: u32,
    bytes: u64,
}

impl Held {
    pub(super) fn bytes(self) -> u64 {
        self.bytes
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    kind: EventKind,
    block: u32,
    stream: u32,
    bytes: u64,
}

/// The calls of one thread of a program.
#[derive(Debug, Default)]
pub(super) struct Tape {
    steps: Vec<Step>,
    blocks: u32,
    /// Blocks are freed on another stream than that of their use so many times out of a hundred.
    strays_percent: u64,
    streams: Vec<u32>,
}

impl Tape {
    /// A tape of these streams, at least one.
    pub(super) fn new(streams: Vec<u32>, strays_percent: u64) -> Self {
        Self { streams, strays_percent, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// The stream in that place, counted round.
    pub(super) fn stream(&self, place: usize) -> u32 {
        self.streams[place % self.streams.len()]
    }

    /// How many streams it has.
    pub(super) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// A block of that size, at least one byte.
    pub(super) fn allocate(&mut self, bytes: u64, stream: u32) -> Held {
        let held = Held { block: self.blocks, bytes: bytes.max(1) };
        self.blocks += 1;
        self.steps.push(Step { kind: EventKind::Allocate, block: held.block, stream, bytes: held.bytes });
        held
    }

    pub(super) fn free(&mut self, held: Held, stream: u32) {
        self.steps.push(Step { kind: EventKind::Free, block: held.block, stream, bytes: held.bytes });
    }

    /// Frees on that stream, and now and then on another one.
    pub(super) fn free_about(&mut self, random: &mut Random, held: Held, stream: u32) {
        let stream = if self.streams.len() > 1 && random.chance(self.strays_percent) {
            random.pick(&self.streams)
        } else {
            stream
        };
        self.free(held, stream);
    }

    /// A block that is freed at once: the scratch memory of one operation.
    pub(super) fn scratch(&mut self, bytes: u64, stream: u32) {
        let held = self.allocate(bytes, stream);
        self.free(held, stream);
    }
}

/// The most that may be live at once: what a device of 80 GB has room for beside the pool's own spare.
const MOST_LIVE: u64 = 56 << 30;

/// Smaller blocks keep their size where a program is scaled down.
const SMALL: u64 = 64 << 10;

/// The longest run of one thread between two others.
const LONGEST_RUN: u64 = 48;

/// One trace of all tapes, a thread each: the threads take turns of random lengths. Ends after `most_events`.
pub(super) fn interleave(tapes: &[Tape], tag: &str, most_events: usize, random: &mut Random) -> Trace {
    let mut trace = Trace { tags: vec![String::new(), tag.to_owned()], ..Trace::default() };
    let mut numbers: Vec<Vec<u32>> = tapes.iter().map(|tape| vec![0; tape.blocks as usize]).collect();
    let (mut at, mut addresses, mut end) = (vec![0; tapes.len()], Vec::new(), FIRST_ADDRESS);
    let mut streams: Vec<u32> = Vec::new();
    let mut threads: Vec<usize> = Vec::new();
    loop {
        let waiting: Vec<usize> = (0..tapes.len()).filter(|&t| at[t] < tapes[t].len()).collect();
        if waiting.is_empty() || trace.events.len() >= most_events {
            break;
        }
        let turn = random.pick(&waiting);
        let run = (random.between(1, LONGEST_RUN) as usize).min(most_events - trace.events.len());
        for step in tapes[turn].steps[at[turn]..].iter().take(run) {
            at[turn] += 1;
            let block = match step.kind {
                EventKind::Allocate => {
                    numbers[turn][step.block as usize] = trace.blocks;
                    trace.blocks += 1;
                    addresses.push(end);
                    end += step.bytes.next_multiple_of(512);
                    trace.blocks - 1
                }
                EventKind::Free => numbers[turn][step.block as usize],
            };
            let stream = place(&mut streams, step.stream);
            let thread = place(&mut threads, turn);
            trace.events.push(Event { kind: step.kind, block, stream, thread, bytes: step.bytes });
            trace.moments.push(Moment {
                microseconds: trace.events.len() as u64 * 10,
                address: addresses[block as usize],
                reserved_bytes: None,
                tag: 1,
            });
        }
    }
    (trace.streams, trace.threads) = (streams.len() as u32, threads.len() as u32);
    trace.stream_handles = streams.iter().map(|&stream| 0x5000 + 0x100 * u64::from(stream)).collect();
    trace.thread_numbers = threads.iter().map(|&thread| 1000 + thread as u64).collect();
    while trace.peak_live_bytes() > MOST_LIVE {
        for event in &mut trace.events {
            event.bytes = (event.bytes / 2).max(event.bytes.min(SMALL));
        }
    }
    trace
}

/// Where the addresses of a trace begin. No two blocks share one, so that a reader of logs matches each free.
const FIRST_ADDRESS: u64 = 0x7f_0000_0000;

/// The place of a name in a list of them, which gets longer by a new one.
fn place<N: PartialEq>(known: &mut Vec<N>, name: N) -> u32 {
    let at = known.iter().position(|other| *other == name).unwrap_or_else(|| {
        known.push(name);
        known.len() - 1
    });
    at as u32
}
