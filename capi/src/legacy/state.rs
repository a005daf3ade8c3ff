//! Which session is it now?

#![expect(unsafe_code, reason = "shares one place a process")]

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use alluvion::Error;

use super::answer::Refusal;
use super::options::Options;
use super::session::Session;
use crate::origin;

/// Which session it is, and the options that were set last.
#[derive(Debug)]
struct State {
    options: Options,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Nothing was called yet.
    New,
    /// Blocks were allocated before the first initialize, as programs of the first versions do.
    Early(Arc<Session>),
    /// After an initialize.
    Begun(Arc<Session>),
    /// After a finalize.
    Ended,
}

/// The state of one process.
struct Place {
    /// The number of forks between the first process and this one.
    process: u32,
    state: RwLock<State>,
}

static PLACE: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());

/// The place of this process. That of a parent is left alone: another thread may have held its lock at the fork, and its blocks and
/// streams belong to the parent.
fn place() -> &'static Place {
    let process = origin::forks();
    // Acquire: pairs with the exchange below, after which the place is not changed but under its lock.
    let found = PLACE.load(Ordering::Acquire);
    // SAFETY: null, or from `Box::into_raw` below, and never freed.
    match unsafe { found.as_ref() } {
        Some(place) if place.process == process => place,
        parent => make_place(found, parent, process),
    }
}

#[cold]
fn make_place(found: *mut Place, parent: Option<&Place>, process: u32) -> &'static Place {
    let state = match parent.map(|parent| parent.state.try_read()) {
        None => State { options: Options::DEFAULT, phase: Phase::New },
        Some(Ok(of_parent)) => State {
            options: of_parent.options,
            phase: if matches!(of_parent.phase, Phase::New | Phase::Early(_)) {
                Phase::New
            } else {
                Phase::Ended
            },
        },
        // Another thread of the parent was changing it.
        Some(Err(_)) => State { options: Options::DEFAULT, phase: Phase::Ended },
    };
    let made = Box::into_raw(Box::new(Place { process, state: RwLock::new(state) }));
    // AcqRel: releases the new place, and acquires one that another thread has put there.
    let place = match PLACE.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made,
        Err(theirs) => {
            // SAFETY: from `Box::into_raw` above, and nobody has seen it.
            drop(unsafe { Box::from_raw(made) });
            theirs
        }
    };
    // SAFETY: from `Box::into_raw`, here or in another thread, and never freed.
    unsafe { &*place }
}

impl Place {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session that there is, or else the early one. A context is current on the calling thread then, as after every call of the
/// first RMM.
pub(super) fn session() -> Result<Arc<Session>, Refusal> {
    let session = present_or_early()?;
    session.ensure_context();
    Ok(session)
}

fn present_or_early() -> Result<Arc<Session>, Refusal> {
    let place = place();
    match &place.read().phase {
        Phase::Begun(session) | Phase::Early(session) => return Ok(Arc::clone(session)),
        Phase::Ended => return Err(Refusal::not_initialized()),
        Phase::New => {}
    }
    // Not under the lock: it asks the driver. It takes no memory, so that of two threads one may drop what it has made.
    let made = Arc::new(Session::begin(Options::DEFAULT)?);
    let mut state = place.write();
    match &state.phase {
        Phase::New => state.phase = Phase::Early(Arc::clone(&made)),
        Phase::Begun(session) | Phase::Early(session) => return Ok(Arc::clone(session)),
        Phase::Ended => return Err(Refusal::not_initialized()),
    }
    drop(state);
    Ok(made)
}

/// The session that there is; none is begun.
pub(super) fn present() -> Option<Arc<Session>> {
    match &place().read().phase {
        Phase::Begun(session) | Phase::Early(session) => Some(Arc::clone(session)),
        Phase::New | Phase::Ended => None,
    }
}

/// Whether an initialize was not followed by a finalize, and the options in force.
pub(super) fn is_initialized() -> (bool, Options) {
    let state = place().read();
    match &state.phase {
        Phase::Begun(session) => (true, session.options()),
        Phase::New | Phase::Early(_) | Phase::Ended => (false, state.options),
    }
}

impl State {
    /// Takes the session out that an initialize has begun, if none of its blocks is out.
    fn take_begun(&mut self) -> Result<Option<Arc<Session>>, Error> {
        let Phase::Begun(session) = &self.phase else { return Ok(None) };
        if !session.retire(false) {
            let (what, why) = ("a second rmmInitialize", "blocks of the first are not freed");
            return Err(Error::invalid_argument(what, why, "free them, or call rmmFinalize first"));
        }
        match mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Begun(session) => Ok(Some(session)),
            _ => Ok(None),
        }
    }
}

/// Begins a session, in the place of the one before. No options mean those that were set last.
pub(super) fn initialize(options: Option<Options>) -> Result<(), Error> {
    let place = place();
    // Ended before the new one is made: both may want half of a device.
    let before = place.write().take_begun()?;
    end(before);
    let options = options.unwrap_or_else(|| place.read().options);
    let mut made = Session::begin(options)?;
    made.ensure_context();
    let displaced = {
        let mut state = place.write();
        // Another thread may have been faster.
        let displaced = state.take_begun()?;
        if let Phase::Early(early) = &state.phase {
            made.take_over(Arc::clone(early));
        }
        state.options = options;
        state.phase = Phase::Begun(Arc::new(made));
        displaced
    };
    end(displaced);
    Ok(())
}

/// Ends the session that there is.
pub(super) fn finalize() {
    let before = {
        let mut state = place().write();
        match mem::replace(&mut state.phase, Phase::Ended) {
            Phase::Begun(session) | Phase::Early(session) => {
                session.retire(true);
                Some(session)
            }
            Phase::New | Phase::Ended => None,
        }
    };
    end(before);
}

/// Under no lock: it gives blocks back, and may drop pools.
fn end(session: Option<Arc<Session>>) {
    if let Some(session) = session {
        session.end();
    }
}
