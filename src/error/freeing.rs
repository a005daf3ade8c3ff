//! What hears whoever frees, of a free that was refused?
//!
//! [`Resource::deallocate`](crate::Resource::deallocate) returns nothing: containers call it where nobody can answer an error. A program
//! that frees by its own books, as one in Python or in C, can: it frees within [`freeing`], and a layer that refuses a block says so by
//! [`Error::tell_who_frees`]. Both are of the calling thread alone, so that what another thread frees meanwhile is not heard.

#![expect(unsafe_code, reason = "has callers promise that a free is refused")]

use core::cell::{Cell, RefCell};
use core::mem;

use super::Error;

/// What this thread has heard in the innermost [`freeing`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ear {
    /// Nobody listens: there is none.
    Closed,
    Open,
    /// It is in `HEARD`.
    Heard,
}

thread_local! {
    /// No destructor, so a free that nobody refuses costs two moves of a byte.
    static EAR: Cell<Ear> = const { Cell::new(Ear::Closed) };
    static HEARD: RefCell<Option<Error>> = const { RefCell::new(None) };
    /// How often this thread was told, whether anybody listened or not.
    static TOLD: Cell<u64> = const { Cell::new(0) };
}

/// Frees something by `free`, and returns what a layer has [told](Error::tell_who_frees) of it on this thread: the first, if there
/// are several.
///
/// ```
/// use alluvion::error::freeing;
/// use alluvion::{Layout, MisuseKind, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().checked(true))?;
/// let layout = Layout::from_bytes(1000)?;
/// let block = pool.allocate_sync(layout)?;
/// // SAFETY: nothing uses the block.
/// freeing(|| unsafe { pool.deallocate_sync(block, layout) })?;
/// // SAFETY: the pool is checked, and refuses what is not out.
/// let again = freeing(|| unsafe { pool.deallocate_sync(block, layout) });
/// assert_eq!(again.unwrap_err().misuse().map(|misuse| misuse.what), Some(MisuseKind::DoubleFree));
/// assert_eq!(sim.hazards().len(), 1, "a simulated machine reports it, too");
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// # Errors
///
/// What a layer has told. [`Misuse`](crate::ErrorKind::Misuse): the block was wrong, and was left alone by that layer and by those
/// under it. Nobody else hears of it: a layer that frees so, and leaves the block alone because of the error, [tells it
/// on](Error::tell_who_frees).
pub fn freeing(free: impl FnOnce()) -> Result<(), Error> {
    let outer = Outer::set_aside();
    free();
    let heard = if EAR.get() == Ear::Heard { take() } else { None };
    drop(outer);
    heard.map_or(Ok(()), Err)
}

impl Error {
    /// Tells whoever frees on this thread that a free was refused, and why. Where nobody listens by [`freeing`], it does nothing.
    ///
    /// For resources of your own: they call it where `deallocate` leaves a block alone. Layers above take the block in again then.
    ///
    /// # Safety
    ///
    /// A free is under way on this thread, of a resource that calls this, and its block is as live as before.
    pub unsafe fn tell_who_frees(self) {
        self.tell_of_refusal();
    }

    /// As [`tell_who_frees`](Self::tell_who_frees), for this crate, whose layers call it where they have left a block alone.
    #[cold]
    pub(crate) fn tell_of_refusal(self) {
        TOLD.set(TOLD.get().wrapping_add(1));
        if EAR.get() != Ear::Open {
            return;
        }
        // While the thread ends there is no place for it.
        if HEARD.try_with(|heard| heard.replace(Some(self))).is_ok() {
            EAR.set(Ear::Heard);
        }
    }
}

/// Frees something by `free`. Returns `false` if a layer below has told meanwhile, on this thread, that it has refused: then the block is
/// out still, for a layer that counts.
#[inline]
pub(crate) fn is_freed_by(free: impl FnOnce()) -> bool {
    let before = TOLD.get();
    free();
    TOLD.get() == before
}

fn take() -> Option<Error> {
    HEARD.try_with(RefCell::take).ok().flatten()
}

/// What the `freeing` around this one has heard so far. It comes back when this is dropped, after a panic too.
struct Outer {
    ear: Ear,
    heard: Option<Error>,
    /// What was told within is the answer there, and no refusal of what is freed around it.
    told: u64,
}

impl Outer {
    fn set_aside() -> Self {
        let ear = EAR.replace(Ear::Open);
        Self { ear, heard: if ear == Ear::Heard { take() } else { None }, told: TOLD.get() }
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        TOLD.set(self.told);
        if EAR.replace(self.ear) == Ear::Heard || self.ear == Ear::Heard {
            let _ = HEARD.try_with(|heard| heard.replace(mem::take(&mut self.heard)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn told(what: usize) -> Error {
        Error::invalid_alignment(what)
    }

    fn said(heard: Result<(), Error>) -> Option<String> {
        heard.err().map(|error| error.to_string())
    }

    #[test]
    fn the_first_that_is_told_is_heard_once() {
        told(1).tell_of_refusal();
        assert_eq!(said(freeing(|| ())), None, "nobody listened");
        let heard = freeing(|| {
            told(3).tell_of_refusal();
            told(5).tell_of_refusal();
        });
        assert_eq!(said(heard), Some(told(3).to_string()));
        assert_eq!(said(freeing(|| ())), None);
    }

    #[test]
    fn each_of_two_that_are_nested_hears_its_own() {
        let mut inner = [None, None];
        let outer = freeing(|| {
            inner[0] = said(freeing(|| told(3).tell_of_refusal()));
            told(5).tell_of_refusal();
            inner[1] = said(freeing(|| ()));
            let _ = said(freeing(|| told(7).tell_of_refusal()));
        });
        assert_eq!(inner, [Some(told(3).to_string()), None]);
        assert_eq!(said(outer), Some(told(5).to_string()));
    }

    #[test]
    fn what_was_answered_within_is_no_refusal_around_it() {
        let answered = is_freed_by(|| assert!(freeing(|| told(3).tell_of_refusal()).is_err()));
        let told_on = is_freed_by(|| {
            let refused = freeing(|| told(3).tell_of_refusal()).expect_err("it was told");
            refused.tell_of_refusal();
        });
        assert_eq!((answered, told_on), (true, false));
        assert_eq!(
            said(freeing(|| assert!(!is_freed_by(|| told(3).tell_of_refusal())))),
            Some(told(3).to_string())
        );
    }

    #[test]
    fn a_panic_closes_the_ear_again() {
        let caught = std::panic::catch_unwind(|| {
            freeing(|| {
                told(3).tell_of_refusal();
                panic!("a layer of a user");
            })
        });
        assert!(caught.is_err());
        told(5).tell_of_refusal();
        assert_eq!(freeing(|| ()).map_err(|error| error.kind()), Ok::<(), ErrorKind>(()));
    }

    #[test]
    fn another_thread_is_not_heard() {
        let heard = freeing(|| {
            let other = std::thread::spawn(|| told(3).tell_of_refusal());
            other.join().expect("it does not panic");
        });
        assert_eq!(said(heard), None);
    }
}
