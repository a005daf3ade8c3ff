//! `Handlers`: the functions that may free memory when a request fails.

use core::cell::Cell;
use core::fmt;

use super::Relief;
use crate::contain::{Inside, contain};
use crate::error::OutOfMemory;
use crate::sync::Arc;

type ReliefHandler = Arc<dyn Fn(&OutOfMemory) -> Relief + Send + Sync>;
type Witness = Arc<dyn Fn(&OutOfMemory) + Send + Sync>;

thread_local! {
    /// A handler is running on this thread. No destructor, so it can be read while the thread's other locals are being dropped.
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

/// The handlers of a layer, in the order in which they are asked.
///
/// They run on the thread whose request found no memory, with no lock held, so they may free and allocate. If an allocation that a
/// handler makes fails, no handlers are asked, of this layer or another: otherwise a handler that allocates could call itself
/// without end.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    helpers: Vec<ReliefHandler>,
    /// Told of each failed request before the handlers are asked, and also of those that no handler can help.
    witnesses: Vec<Witness>,
}

impl Handlers {
    pub(crate) fn push(&mut self, handler: impl Fn(&OutOfMemory) -> Relief + Send + Sync + 'static) {
        self.helpers.push(Arc::new(handler));
    }

    pub(crate) fn push_witness(&mut self, witness: impl Fn(&OutOfMemory) + Send + Sync + 'static) {
        self.witnesses.push(Arc::new(witness));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.helpers.is_empty() && self.witnesses.is_empty()
    }

    /// Asks one handler after the other, until one says that it has freed memory.
    ///
    /// A handler that panics counts as having freed nothing, and the next is asked: no method of a resource unwinds.
    pub(crate) fn ask(&self, report: &OutOfMemory) -> Relief {
        let Some(_asking) = Inside::enter(&IS_ASKING) else { return Relief::None };
        self.tell_witnesses(report);
        let freed = self.helpers.iter().any(|handler| contain(|| handler(report)) == Some(Relief::Freed));
        if freed { Relief::Freed } else { Relief::None }
    }

    /// Tells the witnesses of a request that no handler can help.
    pub(crate) fn tell(&self, report: &OutOfMemory) {
        let Some(_asking) = Inside::enter(&IS_ASKING) else { return };
        self.tell_witnesses(report);
    }

    fn tell_witnesses(&self, report: &OutOfMemory) {
        for witness in &self.witnesses {
            contain(|| witness(report));
        }
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} handlers", self.helpers.len() + self.witnesses.len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::resume_unwind;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn report() -> OutOfMemory {
        OutOfMemory::new("Pool", 1024)
    }

    /// Handlers that each report their number when they are asked, and return their answer.
    fn telling(answers: &[Relief]) -> (Handlers, mpsc::Receiver<usize>) {
        let (tell, told) = mpsc::channel();
        let mut handlers = Handlers::default();
        for (at, &answer) in answers.iter().enumerate() {
            let tell = tell.clone();
            handlers.push(move |_| {
                let _ = tell.send(at);
                answer
            });
        }
        (handlers, told)
    }

    #[test]
    fn handlers_are_asked_in_turn_until_one_has_freed() {
        let (handlers, told) = telling(&[Relief::None, Relief::Freed, Relief::Freed]);
        assert_eq!(handlers.ask(&report()), Relief::Freed);
        assert!(told.try_iter().eq([0, 1]));
        let (handlers, told) = telling(&[Relief::None; 3]);
        assert_eq!(handlers.ask(&report()), Relief::None);
        assert!(told.try_iter().eq([0, 1, 2]));
        assert!(Handlers::default().is_empty() && Handlers::default().ask(&report()) == Relief::None);
    }

    #[test]
    fn a_witness_is_told_of_hopeless_requests_too() {
        let (mut handlers, asked) = telling(&[Relief::None]);
        let (tell, told) = mpsc::channel();
        handlers.push_witness(move |report| {
            let _ = tell.send(report.requested_bytes);
        });
        handlers.push_witness(|_| resume_unwind(Box::new("on purpose")));
        assert_eq!((format!("{handlers:?}"), handlers.is_empty()), ("3 handlers".to_owned(), false));
        assert_eq!(handlers.ask(&report()), Relief::None);
        assert_eq!((told.try_iter().count(), asked.try_iter().count()), (1, 1));
        handlers.tell(&report());
        assert_eq!((told.try_iter().count(), asked.try_iter().count()), (1, 0));
    }

    #[test]
    fn a_handler_sees_the_report() {
        let mut handlers = Handlers::default();
        handlers.push(|report| if report.requested_bytes == 1024 { Relief::Freed } else { Relief::None });
        assert_eq!(handlers.ask(&report()), Relief::Freed);
        assert_eq!(handlers.ask(&OutOfMemory { requested_bytes: 7, ..report() }), Relief::None);
    }

    #[test]
    fn what_a_handler_asks_for_asks_nobody() {
        let (inner, told) = telling(&[Relief::Freed]);
        let mut outer = Handlers::default();
        let nested = inner.clone();
        outer.push(move |report| {
            assert_eq!(nested.ask(report), Relief::None, "this thread is asking already");
            // Another thread may ask meanwhile.
            thread::scope(|scope| scope.spawn(|| nested.ask(report)).join().expect("it does not panic"))
        });
        assert_eq!(outer.ask(&report()), Relief::Freed);
        assert_eq!(told.try_iter().count(), 1, "by the other thread");
        assert_eq!(inner.ask(&report()), Relief::Freed, "no thread is asking any more");
    }

    struct PanicsWhenDropped;

    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            resume_unwind(Box::new("again"));
        }
    }

    #[test]
    fn a_handler_that_panics_has_freed_nothing() {
        let (others, told) = telling(&[Relief::Freed]);
        let mut handlers = Handlers::default();
        handlers.push(|_| resume_unwind(Box::new("on purpose")));
        handlers.push(|_| resume_unwind(Box::new(PanicsWhenDropped)));
        assert_eq!(handlers.ask(&report()), Relief::None);
        handlers.helpers.extend(others.helpers);
        assert_eq!(
            handlers.ask(&report()),
            Relief::Freed,
            "the next one is asked, and this thread is not asking"
        );
        assert_eq!(told.try_iter().count(), 1);
    }

    #[test]
    fn a_thread_that_ends_may_ask() {
        struct AsksWhenDropped(Handlers);

        impl Drop for AsksWhenDropped {
            fn drop(&mut self) {
                self.0.ask(&report());
            }
        }

        thread_local! {
            static LAST: Cell<Option<AsksWhenDropped>> = const { Cell::new(None) };
        }

        let (handlers, told) = telling(&[Relief::Freed]);
        thread::spawn(move || LAST.set(Some(AsksWhenDropped(handlers)))).join().expect("it does not panic");
        assert_eq!(told.try_iter().count(), 1);
    }
}
