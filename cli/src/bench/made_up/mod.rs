//! What a program might do to its memory, made up.

mod graphs;
mod heap;
mod random;
mod serving;
mod sizes;
mod tables;
mod tape;
mod training;

use std::fmt;

use alluvion::trace::Trace;

use random::Random;
use tape::Tape;

/// What kind of program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Trains a network: what a layer keeps in the forward pass goes in the backward pass, in reverse; weights stay. In some
    /// the batches differ in size from step to step, some evaluate in between.
    Training,
    /// Answers requests to a language model: what it remembers of a request grows with each word, and goes with it.
    Serving,
    /// Works on tables in columns: few blocks, and huge ones among them, whose sizes depend on the data.
    Tables,
    /// Trains a network on parts of a graph that are drawn anew in each step, and differ in size by a factor of two and more.
    Graphs,
    /// Of no kind: sizes from one distribution or two, other ones in each phase, with lifetimes from a few calls to the
    /// whole run.
    Heap,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Training => "training",
            Self::Serving => "serving",
            Self::Tables => "tables",
            Self::Graphs => "graphs",
            Self::Heap => "heap",
        })
    }
}

/// A program that is made up from a seed: phases, sizes, lifetimes, and one to eight streams.
///
/// One seed means one program, on every platform. The numbers of a kind (how deep the network is, how much its batches
/// differ, how many requests there are at once) are drawn from the seed too, so that a hundred seeds are a hundred
/// programs. At most 56 GiB are live at once, so that a device of 80 GB can run it.
#[derive(Clone, Copy, Debug)]
pub(super) struct MadeUp {
    seed: u64,
    kind: Kind,
    most_events: usize,
}

impl MadeUp {
    /// The program of that seed, of a kind that the seed says.
    pub(super) fn new(seed: u64) -> Self {
        // Heaps are rarer than programs with a plan.
        let kinds = [Kind::Training, Kind::Serving, Kind::Tables, Kind::Graphs, Kind::Heap];
        let kind = kinds[Random::new(seed).weighted(&[6, 4, 4, 3, 3])];
        Self { seed, kind, most_events: 8000 }
    }

    /// It ends after so many events; 8,000 unless this says otherwise. What is live then stays so.
    pub(super) fn most_events(self, most_events: usize) -> Self {
        Self { most_events, ..self }
    }

    /// What it does.
    pub(super) fn trace(&self) -> Trace {
        // Apart from the numbers that chose the kind.
        let mut random = Random::new(self.seed.wrapping_add(1 << 63));
        let streams = [1, 2, 3, 4, 6, 8][random.weighted(&[40, 15, 10, 15, 10, 10])];
        // Half of the programs with several streams free each block where they used it.
        let strays_percent = random.pick(&[0, 0, 5, 25]);
        // One thread with all streams, or several with a share of them each.
        let threads = if streams > 1 && random.chance(50) { random.between(2, streams) } else { 1 };
        let mut tapes = Vec::new();
        for thread in 0..threads {
            let own = (0..streams as u32).filter(|stream| u64::from(*stream) % threads == thread);
            let mut tape = Tape::new(own.collect(), strays_percent);
            let share = self.most_events.div_ceil(threads as usize);
            let run = match self.kind {
                Kind::Training => training::run,
                Kind::Serving => serving::run,
                Kind::Tables => tables::run,
                Kind::Graphs => graphs::run,
                Kind::Heap => heap::run,
            };
            // Threads of one program do the same to other data: a new seed for each, but for training, where they are alike.
            let seed = if self.kind == Kind::Training { random.clone().next() } else { random.next() };
            run(&mut tape, &mut Random::new(seed), share);
            tapes.push(tape);
        }
        tape::interleave(&tapes, &self.to_string(), self.most_events, &mut random)
    }
}

impl fmt::Display for MadeUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of seed {}", self.kind, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_program_that_a_device_has_room_for() {
        for seed in 0..20 {
            let trace = MadeUp::new(seed).most_events(500).trace();
            assert_eq!((trace.events.len(), trace.moments.len()), (500, 500), "{seed}");
            assert!((1..=8).contains(&trace.streams) && trace.peak_live_bytes() <= 56 << 30, "{seed}");
            assert_eq!(trace, MadeUp::new(seed).most_events(500).trace());
        }
    }

    #[test]
    fn seeds_are_of_every_kind() {
        let kinds: Vec<String> = (0..40).map(|seed| MadeUp::new(seed).to_string()).collect();
        for kind in ["training", "serving", "tables", "graphs", "heap"] {
            assert!(kinds.iter().any(|name| name.starts_with(kind)), "{kind} is in none of {kinds:?}");
        }
    }
}
