//! `Sweep`: fails every driver call that a program makes, one after the other.

use core::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Bench;
use crate::device::Sim;
use crate::driver::{Call, Code};
use crate::error::Error;
use crate::sim::{Fault, Live, SimConfig};

/// Runs a program on simulated machines, and each time another one of its driver calls fails.
///
/// The program makes what it needs on the machine, uses it, and lets go of it. First it runs untouched, which must succeed;
/// then once for each call that it made and each code. Each time:
///
/// - it does not panic, and makes no mistake that the machine sees;
/// - unless the code loses the context: it leaves nothing behind, and the machine works afterwards as if nothing had been.
///
/// A call that itself gives something back leaks that when it fails, and nothing can be done about it: then only the leak is
/// permitted. The program may return the error, or hide it.
///
/// # Examples
///
/// ```
/// use alluvion::driver::{Call, Code};
/// use alluvion::source::Cuda;
/// use alluvion::testing::Sweep;
/// use alluvion::{Layout, Resource};
///
/// let swept = Sweep::new().codes(&[Code::OUT_OF_MEMORY]).run(|sim| {
///     let device = sim.device(0);
///     let (resource, stream) = (Cuda::new(&device), device.stream()?);
///     let layout = Layout::from_bytes(1000)?;
///     let block = resource.allocate(layout, stream.as_ref())?;
///     // SAFETY: the block came from this resource with this layout, and nothing uses it.
///     unsafe { resource.deallocate(block, layout, stream.as_ref()) };
///     Ok(())
/// });
/// assert!(swept.calls >= 3, "a stream, an allocation, a free: {swept}");
/// ```
#[derive(Clone, Debug)]
pub struct Sweep {
    config: SimConfig,
    codes: Vec<Code>,
    may_leak: Vec<Call>,
}

/// How much a sweep tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Driver calls that the program makes when nothing fails.
    pub calls: u64,
    /// Runs with a fault that struck.
    pub runs: u64,
    /// Those of them in which the program returned an error; in the others it got over it.
    pub errors: u64,
}

/// Calls that give something back, or that must come before that: when one fails, that is lost.
const GIVING_BACK: [Call; 13] = [
    Call::StreamDestroy,
    Call::EventDestroy,
    Call::FreeDevice,
    Call::FreePinned,
    Call::FreeAsync,
    Call::UnregisterHost,
    Call::PoolDestroy,
    Call::PoolAttribute,
    Call::VirtualFree,
    Call::MemoryRelease,
    Call::MemoryUnmap,
    Call::PoolTrim,
    Call::GraphDestroy,
];

impl Default for Sweep {
    fn default() -> Self {
        Self::new()
    }
}

impl Sweep {
    /// Out of memory, not supported, and an illegal address that loses the context, on a machine as
    /// [`Bench::config`] has it.
    #[must_use]
    pub fn new() -> Self {
        let codes = vec![Code::OUT_OF_MEMORY, Code::NOT_SUPPORTED, Code::ILLEGAL_ADDRESS];
        Self { config: Bench::config(), codes, may_leak: GIVING_BACK.to_vec() }
    }

    /// On a machine of your making.
    #[must_use]
    pub fn config(mut self, config: SimConfig) -> Self {
        self.config = config;
        self
    }

    /// With these codes.
    #[must_use]
    pub fn codes(mut self, codes: &[Code]) -> Self {
        self.codes = codes.to_vec();
        self
    }

    /// Permits a leak when a call of this kind fails: for one that the program cannot give anything back without.
    #[must_use]
    pub fn may_leak(mut self, call: Call) -> Self {
        self.may_leak.push(call);
        self
    }

    /// Runs the program, again and again.
    ///
    /// # Panics
    ///
    /// If it breaks a rule, with the call that failed.
    #[track_caller]
    pub fn run(&self, program: impl Fn(&Sim) -> Result<(), Error>) -> Swept {
        let sim = Sim::with_config(self.config.clone());
        let before = sim.calls();
        if let Err(error) = program(&sim) {
            panic!("the program fails although nothing was made to fail: {error}");
        }
        let made = sim.calls() - before;
        assert_no_hazards(&sim, &"no fault");
        let clean = out(&sim);
        let mut swept = Swept { calls: made.total(), ..Swept::default() };
        for &code in &self.codes {
            for (call, count) in made.iter() {
                for n in 1..=count {
                    self.fail(Victim { call, n, code }, clean, &program, &mut swept);
                }
            }
        }
        swept
    }

    #[track_caller]
    fn fail(
        &self,
        victim: Victim,
        clean: Live,
        program: &impl Fn(&Sim) -> Result<(), Error>,
        swept: &mut Swept,
    ) {
        let Victim { call, n, code } = victim;
        let sim = Sim::with_config(self.config.clone());
        sim.inject(Fault::nth(call, n, code));
        let outcome = catch_unwind(AssertUnwindSafe(|| program(&sim)));
        let Ok(outcome) = outcome else { panic!("{victim}: the program panicked") };
        if sim.faults_left() > 0 {
            // The program makes fewer calls of this kind when it runs on its own, as one with threads may.
            return;
        }
        swept.runs += 1;
        swept.errors += u64::from(outcome.is_err());
        assert_no_hazards(&sim, &victim);
        let Ok(again) = catch_unwind(AssertUnwindSafe(|| program(&sim))) else {
            panic!("{victim}: the program panicked when it ran again")
        };
        assert_no_hazards(&sim, &victim);
        if code.is_sticky() {
            return;
        }
        if let Err(error) = again {
            panic!("{victim}: the machine does not work afterwards: {error}");
        }
        let left = out(&sim);
        if !self.may_leak.contains(&call) {
            assert_eq!(left, clean, "{victim}: what is out is not what is out when nothing fails");
        }
    }
}

/// What is out, but for events and streams of the machine's own: how many it keeps depends on what was tried.
fn out(sim: &Sim) -> Live {
    Live { events: 0, ..sim.live() }
}

#[track_caller]
fn assert_no_hazards(sim: &Sim, when: &dyn fmt::Display) {
    if let Some(first) = sim.hazards().first() {
        panic!("{when}: {first}");
    }
}

/// Which call fails, and how.
#[derive(Clone, Copy)]
struct Victim {
    call: Call,
    n: u64,
    code: Code,
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} no. {} failing with {}", self.call.symbol(), self.n, self.code)
    }
}

impl fmt::Display for Swept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} calls, {} runs with a fault, {} of them with an error",
            self.calls, self.runs, self.errors
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::CudaAsync;
    use core::mem::ManuallyDrop;

    fn caught(program: impl Fn(&Sim) -> Result<(), Error>) -> String {
        let sweep = Sweep::new();
        let panic = catch_unwind(AssertUnwindSafe(|| sweep.run(program))).expect_err("the sweep finds it");
        *panic.downcast::<String>().expect("with words")
    }

    #[test]
    fn a_leak_on_an_error_path_is_found() {
        let words = caught(|sim| {
            let pool = ManuallyDrop::new(CudaAsync::new(&sim.device(0))?);
            sim.device(0).stream()?;
            drop(ManuallyDrop::into_inner(pool));
            Ok(())
        });
        assert!(words.contains("cuStreamCreateWithPriority no. 1 failing with out of memory (2)"), "{words}");
    }

    #[test]
    fn a_panic_on_an_error_path_is_found() {
        let words = caught(|sim| {
            sim.device(0).stream().expect("a stream can always be had");
            Ok(())
        });
        assert!(words.contains("the program panicked"), "{words}");
    }

    #[test]
    fn a_program_that_fails_untouched_is_no_program() {
        assert!(caught(|_| Err(Error::out_of_memory(1))).contains("nothing was made to fail"));
    }
}
