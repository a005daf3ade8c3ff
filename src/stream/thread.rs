//! `PerThreadStream`: the default stream of a thread.

use core::cell::RefCell;
use core::fmt;
use core::ops::Deref;

use super::stream::{Stream, StreamKind};
use crate::device::{Device, WeakMachine};
use crate::driver::RawStream;
use crate::error::Error;
use crate::order::{Ending, Timeline, Underlying};
use crate::sync::{Arc, ThreadToken};

/// Makes the type that contains it neither `Send` nor `Sync`. The compiler's error names `Advice`, so its name says what to do
/// instead.
///
/// An empty array and not `PhantomData`, so that the errors of the compiler quote this crate alone: the expected output of the
/// compile-fail tests is then the same whether or not the sources of the standard library are installed.
pub(crate) struct ThreadBound<Advice>([*const Advice; 0]);

impl<Advice> ThreadBound<Advice> {
    pub(crate) const fn new() -> Self {
        Self([])
    }
}

impl<Advice> Clone for ThreadBound<Advice> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Advice> Copy for ThreadBound<Advice> {}

/// A [`StreamRef`](super::StreamRef) names a place in the order of work that one thread submits.
pub(crate) struct SendTheStreamOrAReferenceToItInstead;

/// A [`PerThreadStream`] is another stream on each thread.
pub(crate) struct AskTheDeviceForTheStreamOnThatThreadInstead;

/// The per-thread default streams that this thread has used, one for each device.
#[derive(Default)]
struct StreamsOfThread {
    streams: Vec<(WeakMachine, u32, Arc<Timeline>)>,
}

impl Drop for StreamsOfThread {
    fn drop(&mut self) {
        // The thread is ending: cover what it submitted while the handle still means its stream.
        for (.., timeline) in &self.streams {
            timeline.retire();
        }
        // Other thread-locals that are dropped after this must not submit work behind the last cover. For them the streams belong
        // to another thread, and the legacy stream replaces them.
        ThreadToken::renew();
        for (machine, ordinal, timeline) in self.streams.drain(..) {
            let Some(machine) = machine.upgrade() else { continue };
            if let Ok(device) = machine.device(ordinal) {
                // CUDA documents that the legacy stream waits for the per-thread ones, but not for those of ended threads. This
                // wait makes sure. If it is refused, because a blocking stream captures, the documented order has to do.
                let _ = device.default_stream().as_ref().wait_up_to(timeline.latest());
            }
            machine.table().note_ended(timeline.id());
        }
    }
}

thread_local! {
    static MINE: RefCell<StreamsOfThread> = RefCell::default();
}

/// The calling thread's default stream of one device, `CU_STREAM_PER_THREAD`.
///
/// One handle value names a different stream on each thread, so the type does not leave its thread. Each thread's stream has an id
/// of its own, too: memory freed on the default stream of one thread is not reused on that of another without a wait.
///
/// A container that is allocated on it may leave the thread. Its later operations go to the legacy default stream, which
/// waits for every per-thread stream of the device and they for it: slower, in the same order.
///
/// ```
/// use alluvion::Sim;
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// let here = device.per_thread_stream()?.id();
/// assert_eq!(here, device.per_thread_stream()?.id());
/// let there = std::thread::scope(|scope| {
///     scope.spawn(|| device.per_thread_stream().map(|stream| stream.id())).join().unwrap()
/// })?;
/// assert_ne!(here, there);
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct PerThreadStream {
    stream: Stream,
    _thread_bound: ThreadBound<AskTheDeviceForTheStreamOnThatThreadInstead>,
}

static_assertions::assert_not_impl_any!(PerThreadStream: Send, Sync);

impl PerThreadStream {
    pub(crate) fn of(device: &Device) -> Result<Self, Error> {
        let stream = Stream::with_timeline(device, Self::timeline(device)?, StreamKind::PerThread);
        Ok(Self { stream, _thread_bound: ThreadBound::new() })
    }

    /// The timeline of the calling thread's stream.
    pub(super) fn timeline(device: &Device) -> Result<Arc<Timeline>, Error> {
        let known = MINE.try_with(|mine| {
            let mine = mine.borrow();
            mine.streams
                .iter()
                .find(|(machine, ordinal, _)| *ordinal == device.ordinal() && machine.is(device.machine()))
                .map(|(_, _, timeline)| Arc::clone(timeline))
        });
        match known {
            Ok(Some(timeline)) => Ok(timeline),
            Ok(None) => Self::enter(device),
            Err(_) => Err(Error::unsupported(
                "a per-thread stream",
                "the thread is ending, and has let go of its streams",
                "use the default stream in destructors of thread-locals",
            )),
        }
    }

    /// Enters the thread's stream into the machine's table, and into the list of streams that the thread releases at its end.
    fn enter(device: &Device) -> Result<Arc<Timeline>, Error> {
        let timeline = device.enter_timeline(Underlying {
            owner: Some(ThreadToken::current()),
            ..Underlying::of(RawStream::PER_THREAD, Ending::Leave(None))
        })?;
        let of_machines_gone: Vec<_> = MINE.with_borrow_mut(|mine| {
            mine.streams.push((device.machine().downgrade(), device.ordinal(), Arc::clone(&timeline)));
            mine.streams.extract_if(.., |(machine, ..)| machine.is_gone()).collect()
        });
        // Dropping the last of them drops their driver, which may be foreign code: not while the list is borrowed.
        drop(of_machines_gone);
        Ok(timeline)
    }
}

impl Deref for PerThreadStream {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

impl fmt::Debug for PerThreadStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.fmt(f)
    }
}
