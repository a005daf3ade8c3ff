//! One job on ever smaller devices, until it fails, with each of four stacks: how much more memory than its own the job needs.
//!
//! This example always runs on the simulator: a GPU has as much memory as it has. `alluvion replay --smallest` asks the same for
//! the log of a program of your own.

use std::collections::VecDeque;

use alluvion::recipe::Recipe;
use alluvion::sim::SimConfig;
use alluvion::source::Cuda;
use alluvion::{AnyResource, DeviceVec, Error, ResourceExt, Sim, Stream};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Physical memory comes in pages, so the answer is a number of these.
const PAGE: usize = 2 * MIB;

/// The temporary vectors of the job have as much together.
const WORKING: usize = 192 * MIB;

/// A phase is so many steps. Each makes a temporary vector, and a result that stays to the end.
const STEPS: u8 = 50;

/// The two lengths that the temporary vectors of a phase have, in MiB.
const PHASES: [[usize; 2]; 4] = [[12, 9], [20, 15], [37, 5], [16, 27]];

/// The job: four phases, each with temporary vectors of other lengths. The results of a phase lie between its vectors, and stay
/// when those go: where nothing moves, the holes are too short for the longer vectors of the next phase.
fn job(resource: &AnyResource, stream: &Stream) -> Result<(), Error> {
    let mut random = Random(9);
    let mut results = Vec::new();
    for lengths in PHASES {
        let mut working = VecDeque::new();
        let mut working_bytes = 0;
        for step in 0..STEPS {
            let bytes = lengths[random.below(2)] * MIB;
            while working_bytes + bytes > WORKING {
                // Not the oldest each time: otherwise the next one would always fit where the last one was.
                let goes: DeviceVec<u8> =
                    working.swap_remove_front(random.below(working.len())).expect("is in it");
                working_bytes -= goes.len();
            }
            working_bytes += bytes;
            working.push_back(DeviceVec::uninit_in(bytes, stream, resource.clone())?);
            let result = DeviceVec::filled_in((4 + random.below(60)) * KIB, step, stream, resource.clone())?;
            results.push((result, step));
        }
        // The end of a phase, where a program reads what came out. The driver's own pool gives memory back then.
        drop(working);
        stream.synchronize()?;
    }
    for (result, step) in results {
        assert_eq!(result.front(stream)?, step, "whatever the stack did, a result is what was written");
    }
    Ok(())
}

/// The same numbers in each run, so that each stack gets the same requests: Xorshift, by Marsaglia.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % end
    }
}

/// The most that is live at once: what the job itself needs.
fn live_peak() -> Result<usize, Error> {
    let sim = Sim::with_config(SimConfig::default().memory_bytes(4 * WORKING));
    let device = sim.device(0);
    let counted = AnyResource::new(Cuda::new(&device).stats());
    job(&counted, &device.stream()?)?;
    let counts =
        counted.find::<alluvion::adaptor::Stats>().expect("there are counters in the stack").counts();
    Ok(usize::try_from(counts.bytes.peak).expect("no less than nothing is live"))
}

/// Whether the job runs to its end, on a new device with so much memory.
fn runs(recipe: &Recipe, memory_bytes: usize) -> Result<bool, Error> {
    let sim = Sim::with_config(SimConfig::default().memory_bytes(memory_bytes));
    let device = sim.device(0);
    let outcome = device.stream().and_then(|stream| job(&recipe.build(&device)?, &stream));
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.is_out_of_memory() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Halves what lies between a device that is too small and one that is large enough, until a page is left.
fn smallest_device(recipe: &Recipe, peak: usize) -> Result<usize, Error> {
    // In pages; the first is less than what is live at once.
    let (mut too_small, mut enough) = (peak / PAGE - 1, 3 * peak / PAGE);
    assert!(runs(recipe, enough * PAGE)?, "{recipe}: three times the live peak is enough");
    while enough - too_small > 1 {
        let pages = usize::midpoint(too_small, enough);
        *(if runs(recipe, pages * PAGE)? { &mut enough } else { &mut too_small }) = pages;
    }
    Ok(enough * PAGE)
}

fn main() -> Result<(), Error> {
    let peak = live_peak()?;
    println!("the live peak of the job is {:.1} MiB\n", peak as f64 / MIB as f64);
    println!("{:<28} {:>12} {:>10}", "stack", "device (MiB)", "over peak");

    // A budget keeps a pool from growing on a device that has memory left. Here none is left, so pages move without one, too.
    let mut found = Vec::new();
    for stack in ["pool | cuda", "cuda-async", "pool | mapped", "pool(budget=1.05) | mapped"] {
        let smallest = smallest_device(&stack.parse()?, peak)?;
        println!("{stack:<28} {:>12} {:>10.2}", smallest / MIB, smallest as f64 / peak as f64);
        found.push((stack, smallest));
    }
    let of = |wanted| found.iter().find(|(stack, _)| *stack == wanted).map(|&(_, smallest)| smallest);
    assert!(of("pool | mapped") <= of("pool | cuda"), "a pool of pages runs wherever one of segments does");
    Ok(())
}
