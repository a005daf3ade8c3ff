//! The lock of one word: one holder at a time, and what it did is seen by the next.
//!
//! It is a type of the crate's own, so its file is included here, with the facade that it is written against.

use std::sync::Arc;

use crate::sync::Token;
use loom::thread;
use loom_tests::{Seen, explore};

/// Two words, so that a torn or a stale view of them shows.
type Data = [u32; 2];

fn count(data: &mut Data) {
    assert_eq!(data[0], data[1]);
    data[0] += 1;
    thread::yield_now();
    data[1] += 1;
}

#[test]
fn the_second_holder_sees_what_the_first_did() {
    explore(|| {
        let token = Arc::new(Token::<Data>::default());
        let other = thread::spawn({
            let token = Arc::clone(&token);
            move || count(&mut token.lock())
        });
        count(&mut token.lock());
        other.join().expect("it does not panic");
        assert_eq!(*token.lock(), [2; 2]);
    });
}

#[test]
fn who_tries_has_it_or_does_without() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    explore(|| {
        let token = Arc::new(Token::<Data>::default());
        let try_once = |token: &Token<Data>| match token.try_lock() {
            Some(mut data) => {
                count(&mut data);
                1
            }
            None => 0,
        };
        let other = thread::spawn({
            let token = Arc::clone(&token);
            move || try_once(&token)
        });
        let had = try_once(&token) + other.join().expect("it does not panic");
        assert_eq!(*token.try_lock().expect("everybody gave it back"), [had; 2]);
        SEEN[0].note(had == 1);
        SEEN[1].note(had == 2);
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

#[test]
fn who_takes_from_one_may_try_another() {
    // As caches do: each thread holds its own and tries that of the other. Neither waits, so there is no circle.
    explore(|| {
        let tokens = Arc::new(<[Token<Data>; 2]>::default());
        let visit = |tokens: &[Token<Data>; 2], mine: usize| {
            let mut own = tokens[mine].lock();
            if let Some(mut foreign) = tokens[1 - mine].try_lock() {
                count(&mut foreign);
            }
            count(&mut own);
        };
        let other = thread::spawn({
            let tokens = Arc::clone(&tokens);
            move || visit(&tokens, 1)
        });
        visit(&tokens, 0);
        other.join().expect("it does not panic");
        let counts: u32 = tokens.iter().map(|token| token.lock()[0]).sum();
        assert!((2..=4).contains(&counts), "{counts}");
    });
}
