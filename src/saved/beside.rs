//! `beside`: what is done to buffers, in turn, by a thread of its own.

use std::collections::VecDeque;
use std::io;
// Not of `crate::sync`: a buffer is one thread's at a time, and all that threads share is the channels.
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Buffers that are on their way through what is done to them, each with how many of its bytes it is about.
pub(super) struct Lane<'l, B> {
    hand: Hand<'l, B>,
    under_way: usize,
}

/// A buffer that is back, and what came of it.
type Done<B> = (B, usize, io::Result<()>);

enum Hand<'l, B> {
    Thread {
        to: Sender<(B, usize)>,
        back: Receiver<Done<B>>,
    },
    /// No thread could be started: it is done where it is asked for.
    Here {
        work: &'l mut dyn FnMut(&mut B, usize) -> io::Result<()>,
        done: VecDeque<Done<B>>,
        failed: bool,
    },
}

impl<'l, B> Lane<'l, B> {
    fn here(work: &'l mut dyn FnMut(&mut B, usize) -> io::Result<()>) -> Self {
        Self { hand: Hand::Here { work, done: VecDeque::new(), failed: false }, under_way: 0 }
    }

    /// How many buffers are on their way.
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Sends a buffer. It comes back behind those before it; one that is sent behind an error never does.
    pub(super) fn send(&mut self, mut buffer: B, bytes: usize) {
        match &mut self.hand {
            Hand::Thread { to, .. } => {
                // A thread that has ended has told why, and `receive` answers with an error from then on.
                let _ = to.send((buffer, bytes));
            }
            Hand::Here { failed: true, .. } => {}
            Hand::Here { work, done, failed } => {
                let outcome = work(&mut buffer, bytes);
                *failed = outcome.is_err();
                done.push_back((buffer, bytes, outcome));
            }
        }
        self.under_way += 1;
    }

    /// The next buffer that comes back; waits for it. Nothing comes after an error.
    pub(super) fn receive(&mut self) -> io::Result<(B, usize)> {
        let done = match &mut self.hand {
            _ if self.under_way == 0 => None,
            Hand::Thread { back, .. } => back.recv().ok(),
            Hand::Here { done, .. } => done.pop_front(),
        };
        let (buffer, bytes, outcome) = done.ok_or_else(|| io::Error::other("nothing follows an error"))?;
        self.under_way -= 1;
        outcome.map(|()| (buffer, bytes))
    }
}

/// The bytes that a thread is started for. It takes 30 µs to start one, and as long to read or write 256 KiB.
const WORTH_A_THREAD: u64 = 1 << 20;

/// Calls `with`, and does `work` to each buffer that it sends, of so many bytes in all: on another thread that ends before this returns, if
/// there are enough of them.
pub(super) fn beside<'l, B: Send + 'l, T>(
    bytes: u64,
    work: &'l mut (impl FnMut(&mut B, usize) -> io::Result<()> + Send),
    with: impl FnOnce(Lane<'l, B>) -> T,
) -> T {
    if bytes < WORTH_A_THREAD {
        return with(Lane::here(work));
    }
    let lent = &mut *work;
    let answered = thread::scope(move |scope| {
        let (to, given) = channel::<(B, usize)>();
        let (tell, back) = channel();
        let until_it_fails = move || {
            for (mut buffer, bytes) in given {
                let outcome = lent(&mut buffer, bytes);
                let failed = outcome.is_err();
                if tell.send((buffer, bytes, outcome)).is_err() || failed {
                    return;
                }
            }
        };
        match thread::Builder::new().name("alluvion-file".to_owned()).spawn_scoped(scope, until_it_fails) {
            // The sender goes with the lane, and the thread ends behind what was sent.
            Ok(_) => Ok(with(Lane { hand: Hand::Thread { to, back }, under_way: 0 })),
            Err(_) => Err(with),
        }
    });
    match answered {
        Ok(answer) => answer,
        // The process may start no more threads.
        Err(with) => with(Lane::here(work)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Doubles what it gets, and fails at 13.
    fn double(number: &mut usize, _: usize) -> io::Result<()> {
        if *number == 13 {
            return Err(io::Error::other("unlucky"));
        }
        *number *= 2;
        Ok(())
    }

    #[test]
    fn what_is_sent_comes_back_in_its_order() {
        let all = |mut lane: Lane<'_, usize>| {
            (0..10).for_each(|number| lane.send(number, number + 1));
            assert_eq!(lane.under_way(), 10);
            let back: Vec<_> = (0..10).map(|_| lane.receive().expect("none is 13")).collect();
            assert_eq!(lane.under_way(), 0);
            back
        };
        let expected: Vec<_> = (0..10).map(|number| (2 * number, number + 1)).collect();
        assert_eq!(beside(WORTH_A_THREAD, &mut double, all), expected);
        assert_eq!(beside(WORTH_A_THREAD - 1, &mut double, all), expected);
    }

    /// Of three, the second one fails.
    fn some(mut lane: Lane<'_, usize>) -> Lane<'_, usize> {
        for number in [1, 13, 2] {
            lane.send(number, 0);
        }
        assert_eq!(lane.receive().expect("it is not 13").0, 2);
        assert_eq!(lane.receive().expect_err("it is 13").to_string(), "unlucky");
        lane
    }

    #[test]
    fn an_error_comes_in_its_turn_and_nothing_after_it() {
        let no_more = |mut lane: Lane<'_, usize>| {
            assert!(lane.receive().is_err());
            lane.send(3, 0);
            assert!(lane.receive().is_err() && lane.under_way() > 0, "what came of it is never known");
        };
        beside(WORTH_A_THREAD, &mut double, |lane| no_more(some(lane)));
        no_more(some(Lane::here(&mut double)));
    }
}
