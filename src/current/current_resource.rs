//! `CurrentResource`: what is set for one device, and the initial one.

use core::cell::RefCell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::device::{Attachment, Device, Machine};
use crate::environment;
use crate::error::Error;
use crate::recipe::{Recipe, default_source};
use crate::resource::{AnyResource, WeakResource};
use crate::sync::{Condvar, Mutex, ThreadId, current_thread};

/// The variable of the environment with the recipe of every device's initial resource.
const VARIABLE: &str = "ALLUVION_RESOURCE";

/// How long a thread waits for another one to make the initial resource: longer than any driver takes for the memory of a device.
/// Code that is not the crate's runs meanwhile, a listener of `tracing` for one, and may wait for this very thread, or not return.
const PATIENCE: Duration = Duration::from_secs(60);

/// The current resource of one device. Empty until the first use.
pub(super) struct CurrentResource {
    state: Mutex<State>,
    /// Signalled when no thread makes the initial resource any more.
    made: Condvar,
    /// The recipe of the environment, read once, when the first initial resource is made.
    recipe: OnceLock<Option<Written>>,
}

/// A recipe in the environment: the line, and what it means.
struct Written {
    line: String,
    recipe: Result<Recipe, Error>,
}

#[derive(Default)]
struct State {
    set: Option<AnyResource>,
    /// The initial one, while it has handles.
    initial: Option<WeakResource>,
    /// The thread that makes the initial resource now.
    maker: Option<ThreadId>,
}

thread_local! {
    /// The resources of `with_resource` on this thread, the innermost last.
    static OVERRIDES: RefCell<Vec<(Machine, u32, AnyResource)>> = const { RefCell::new(Vec::new()) };
}

impl Default for CurrentResource {
    fn default() -> Self {
        Self { state: Mutex::default(), made: Condvar::default(), recipe: OnceLock::new() }
    }
}

impl Attachment for CurrentResource {
    fn release(&self) {
        let set = self.state.lock_unless_forked().and_then(|mut state| state.set.take());
        // Not under the lock: the resource may be the last of its kind and call the driver.
        drop(set);
    }
}

impl CurrentResource {
    pub(super) fn resource(&self, device: &Device) -> Result<AnyResource, Error> {
        match override_for(device) {
            Some(over) => Ok(over),
            None => self.of_all_threads(device),
        }
    }

    pub(super) fn set(&self, device: &Device, resource: AnyResource) -> Result<AnyResource, Error> {
        device.require(resource.device())?;
        // The initial one is made first: if that fails, nothing has changed.
        let initial = self.of_all_threads(device)?;
        let known = self.state.lock().set.replace(resource);
        Ok(known.unwrap_or(initial))
    }

    /// Sets it, and returns what was set before. The initial one is not made for that.
    pub(super) fn replace(
        &self,
        device: &Device,
        resource: AnyResource,
    ) -> Result<Option<AnyResource>, Error> {
        device.require(resource.device())?;
        self.state.require_same_process()?;
        Ok(self.state.lock().set.replace(resource))
    }

    /// Puts back what was set before `now` was, if nobody has set another one meanwhile.
    pub(super) fn put_back(&self, now: &AnyResource, before: Option<AnyResource>) {
        let gone = {
            // In a child of a fork there is nothing to put back: every use is refused.
            let Some(mut state) = self.state.lock_unless_forked() else { return };
            if !state.set.as_ref().is_some_and(|set| set.is_same(now)) {
                return;
            }
            core::mem::replace(&mut state.set, before)
        };
        // Not under the lock: the resource may be the last of its kind and call the driver.
        drop(gone);
    }

    pub(super) fn reset(&self, device: &Device) -> Result<AnyResource, Error> {
        let initial = self.known_or_initial(device, PATIENCE, |_| None)?;
        let known = self.state.lock().set.replace(initial.clone());
        Ok(known.unwrap_or(initial))
    }

    /// The resource that is set; without one, sets the initial one.
    fn of_all_threads(&self, device: &Device) -> Result<AnyResource, Error> {
        // All calls but the first few end here. A child of a fork goes on, and is refused.
        if let Some(set) = self.state.lock_unless_forked().and_then(|state| state.set.clone()) {
            return Ok(set);
        }
        let found = self.known_or_initial(device, PATIENCE, |state| state.set.clone())?;
        // If somebody has set another one meanwhile, what was found is dropped here, and not under the lock.
        let set = self.state.lock().set.get_or_insert_with(|| found.clone()).clone();
        Ok(set)
    }

    /// What is known; else the initial one, which is made if nobody has it any more. One thread makes it: a second one might not
    /// get as much memory, or would empty the log that the first has begun. The others wait, without a lock and not for ever,
    /// because it calls the driver, and tells of it. Who is called by the maker would wait for itself, and is refused.
    fn known_or_initial(
        &self,
        device: &Device,
        patience: Duration,
        known: impl Fn(&State) -> Option<AnyResource>,
    ) -> Result<AnyResource, Error> {
        self.state.require_same_process()?;
        let (this, until) = (current_thread(), Instant::now() + patience);
        {
            let mut state = self.state.lock();
            loop {
                let initial = || state.initial.as_ref().and_then(WeakResource::upgrade);
                if let Some(resource) = known(&state).or_else(initial) {
                    return Ok(resource);
                }
                let Some(maker) = state.maker else { break };
                if maker == this {
                    return Err(being_made("it is made on this thread, by a call that this one comes from"));
                }
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(being_made("another thread has been making it for a minute"));
                }
                state = self.made.wait_timeout(state, left);
            }
            state.maker = Some(this);
        }
        let _making = Making(self);
        let initial = self.initial(device)?;
        self.state.lock().initial = Some(WeakResource::of(&initial));
        Ok(initial)
    }

    /// The initial resource: from the recipe in the environment, if there is one.
    fn initial(&self, device: &Device) -> Result<AnyResource, Error> {
        match self.recipe.get_or_init(from_environment) {
            None => default_source(device),
            Some(Written { line, recipe }) => {
                let built = recipe.as_ref().map_err(Error::clone).and_then(|recipe| recipe.build(device));
                // Whoever made a container has not seen the recipe.
                built.map_err(|error| error.found_in(VARIABLE, line))
            }
        }
    }
}

/// Lets the next thread try, however making the initial resource ends.
struct Making<'c>(&'c CurrentResource);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.state.lock().maker = None;
        self.0.made.notify_all();
    }
}

#[cold]
fn being_made(why: &'static str) -> Error {
    Error::unsupported(
        "the current resource of a device, while it is made",
        why,
        "name a resource in each call",
    )
}

/// The recipe in the environment. An empty one is none.
fn from_environment() -> Option<Written> {
    let line = environment::variable(VARIABLE)?;
    if let Err(error) = str::from_utf8(line.as_encoded_bytes()) {
        // What is no text is shown as one character, also where any may stand, as in quotes.
        let start = error.valid_up_to();
        let place = start..start + char::REPLACEMENT_CHARACTER.len_utf8();
        let line = line.to_string_lossy().into_owned();
        let recipe = Err(Error::pointing(&line, place, "it is no text".into(), None));
        return Some(Written { line, recipe });
    }
    let line = line.to_string_lossy().into_owned();
    (!line.trim().is_empty()).then(|| Written { recipe: line.parse(), line })
}

fn override_for(device: &Device) -> Option<AnyResource> {
    // `try_with`: a container may be made while the thread's locals are being dropped; nothing is overridden then.
    let found = OVERRIDES.try_with(|overrides| {
        let overrides = overrides.borrow();
        let mut matching = overrides
            .iter()
            .rev()
            .filter(|(machine, ordinal, _)| *ordinal == device.ordinal() && machine == device.machine());
        matching.next().map(|(_, _, resource)| resource.clone())
    });
    found.ok().flatten()
}

pub(super) fn with_resource<T>(
    device: &Device,
    resource: AnyResource,
    body: impl FnOnce() -> T,
) -> Result<T, Error> {
    /// Takes the override off again, however `body` ends.
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            // Dropped after the borrow ends: the resource may be the last of its kind and call the driver.
            drop(OVERRIDES.try_with(|overrides| overrides.borrow_mut().pop()));
        }
    }
    device.require(resource.device())?;
    let over = (device.machine().clone(), device.ordinal(), resource);
    if OVERRIDES.try_with(|overrides| overrides.borrow_mut().push(over)).is_err() {
        return Err(Error::unsupported(
            "another current resource for a while",
            "the thread is ending, and has let go of what it kept",
            "name the resource in each call",
        ));
    }
    let _restore = Restore;
    Ok(body())
}

#[cfg(all(test, feature = "sim", not(loom)))]
mod tests {
    use super::*;
    use crate::source::Cuda;
    use crate::{ErrorKind, Sim};

    fn ask(current: &CurrentResource, device: &Device) -> Result<AnyResource, Error> {
        current.known_or_initial(device, Duration::ZERO, |state| state.set.clone())
    }

    /// The maker may be in code that never returns.
    #[test]
    fn nobody_waits_for_ever_for_another_thread() {
        let device = Sim::new().device(0);
        let current = CurrentResource::default();
        let maker = std::thread::spawn(current_thread).join().expect("it does not panic");
        current.state.lock().maker = Some(maker);
        let error = ask(&current, &device).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("another thread"), "{error}");
        // What is there already is found.
        let cuda = AnyResource::new(Cuda::new(&device));
        current.state.lock().set = Some(cuda.clone());
        assert_eq!(ask(&current, &device).expect("it is set"), cuda);
        assert_eq!(current.state.lock().maker, Some(maker));
    }

    #[test]
    fn who_waits_gets_what_another_thread_has_made() {
        let device = Sim::new().device(0);
        let current = CurrentResource::default();
        let made = AnyResource::new(Cuda::new(&device));
        let maker = std::thread::spawn(current_thread).join().expect("it does not panic");
        current.state.lock().maker = Some(maker);
        std::thread::scope(|scope| {
            let waiting: Vec<_> =
                (0..4).map(|_| scope.spawn(|| current.resource(&device).expect("it is made"))).collect();
            current.state.lock().initial = Some(WeakResource::of(&made));
            drop(Making(&current));
            for waiting in waiting {
                assert_eq!(waiting.join().expect("it does not panic"), made);
            }
        });
        assert_eq!(current.state.lock().maker, None);
    }
}
