//! `Handlers`: the functions that may free memory when a request fails.

use core::cell::Cell;
use core::fmt;

use super::Relief;
use crate::contain::{Inside, contain};
use crate::error::{Error, OutOfMemory};
use crate::sync::Arc;

type ReliefHandler = Arc<dyn Fn(&OutOfMemory) -> Result<Relief, Error> + Send + Sync>;
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
        self.push_fallible(move |report| Ok(handler(report)));
    }

    /// A handler that may fail itself: then the request fails with its error.
    pub(crate) fn push_fallible(
        &mut self,
        handler: impl Fn(&OutOfMemory) -> Result<Relief, Error> + Send + Sync + 'static,
    ) {
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
    pub(crate) fn ask(&self, report: &OutOfMemory) -> Result<Relief, Error> {
        let Some(_asking) = Inside::enter(&IS_ASKING) else { return Ok(Relief::None) };
        self.tell_witnesses(report);
        for handler in &self.helpers {
            match contain(|| handler(report)) {
                Some(Ok(Relief::Freed)) => return Ok(Relief::Freed),
                Some(Ok(Relief::None)) | None => {}
                Some(Err(error)) => return Err(error),
            }
        }
        Ok(Relief::None)
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

    fn answer(handlers: &Handlers) -> Relief {
        handlers.ask(&report()).expect("no handler fails")
    }

    /// A handler that fails ends the asking, with its error.
    #[test]
    fn a_handler_that_fails_is_the_last() {
        let (others, told) = telling(&[Relief::Freed]);
        let mut handlers = Handlers::default();
        handlers.push_fallible(|_| Ok(Relief::None));
        handlers.push_fallible(|_| Err(Error::foreign("stopped")));
        handlers.helpers.extend(others.helpers);
        let error = handlers.ask(&report()).expect_err("the second handler fails");
        assert_eq!((error.to_string().as_str(), told.try_iter().count()), ("foreign error: stopped", 0));
        handlers.helpers.remove(1);
        assert_eq!((answer(&handlers), told.try_iter().count()), (Relief::Freed, 1));
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
        assert_eq!(answer(&handlers), Relief::Freed);
        assert!(told.try_iter().eq([0, 1]));
        let (handlers, told) = telling(&[Relief::None; 3]);
        assert_eq!(answer(&handlers), Relief::None);
        assert!(told.try_iter().eq([0, 1, 2]));
        assert!(Handlers::default().is_empty() && answer(&Handlers::default()) == Relief::None);
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
        assert_eq!(answer(&handlers), Relief::None);
        assert_eq!((told.try_iter().count(), asked.try_iter().count()), (1, 1));
        handlers.tell(&report());
        assert_eq!((told.try_iter().count(), asked.try_iter().count()), (1, 0));
    }

    #[test]
    fn a_handler_sees_the_report() {
        let mut handlers = Handlers::default();
        handlers.push(|report| if report.requested_bytes == 1024 { Relief::Freed } else { Relief::None });
        assert_eq!(answer(&handlers), Relief::Freed);
        let other = handlers.ask(&OutOfMemory { requested_bytes: 7, ..report() });
        assert_eq!(other.expect("it does not fail"), Relief::None);
    }

    #[test]
    fn what_a_handler_asks_for_asks_nobody() {
        let (inner, told) = telling(&[Relief::Freed]);
        let mut outer = Handlers::default();
        let nested = inner.clone();
        outer.push(move |report| {
            assert_eq!(
                nested.ask(report).expect("it does not fail"),
                Relief::None,
                "this thread is asking already"
            );
            // Another thread may ask meanwhile.
            let asked =
                thread::scope(|scope| scope.spawn(|| nested.ask(report)).join().expect("it does not panic"));
            asked.expect("it does not fail")
        });
        assert_eq!(answer(&outer), Relief::Freed);
        assert_eq!(told.try_iter().count(), 1, "by the other thread");
        assert_eq!(answer(&inner), Relief::Freed, "no thread is asking any more");
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
        assert_eq!(answer(&handlers), Relief::None);
        handlers.helpers.extend(others.helpers);
        assert_eq!(answer(&handlers), Relief::Freed, "the next one is asked, and this thread is not asking");
        assert_eq!(told.try_iter().count(), 1);
    }

    #[test]
    fn a_thread_that_ends_may_ask() {
        struct AsksWhenDropped(Handlers);

        impl Drop for AsksWhenDropped {
            fn drop(&mut self) {
                let _ = self.0.ask(&report());
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
