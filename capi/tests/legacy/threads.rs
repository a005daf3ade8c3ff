//! What threads may do at once.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use calluvion::RmmError::*;

use crate::support::*;

alone! {
    fn a_block_goes_back_once_however_many_free_it(_sim) {
        assert_eq!(initialize(options(POOL, MIB, true)), Success);
        for _ in 0..100 {
            let block = alloc(1000).addr();
            let freed = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| match free(block as *mut _) {
                        Success => _ = freed.fetch_add(1, Ordering::Relaxed),
                        other => assert_eq!(other, InvalidArgument),
                    });
                }
            });
            assert_eq!(freed.into_inner(), 1);
        }
        let log = log();
        assert_eq!(log.lines().count(), 201, "a free that was refused has no row");
        assert!(log.lines().last().expect("there are rows").contains(",0,0,0,"), "and counts no block");
    }
}

alone! {
    fn sessions_change_while_threads_allocate(sim) {
        let is_over = AtomicBool::new(false);
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let (answer, block) = try_alloc(1000);
                        match answer {
                            Success => assert!(!block.is_null()),
                            NotInitialized => assert_eq!(block, null_mut()),
                            other => panic!("{other:?}: {}", message()),
                        }
                        if !block.is_null() {
                            // A finalize may have been faster, and another thread may have the address now: then it is that one's
                            // block that is freed, as two threads that free one address may.
                            let freed = free(block);
                            assert!(matches!(freed, Success | NotInitialized | InvalidArgument), "{freed:?}");
                        }
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for round in 0..60 {
                let answer = initialize(options([POOL, PLAIN][round % 2], MIB, round % 3 == 0));
                // With a block of another thread live, the second of two is refused.
                assert!(matches!(answer, Success | InvalidArgument), "{answer:?}: {}", message());
                let before = done.load(Ordering::Relaxed);
                while done.load(Ordering::Relaxed) == before {
                    std::thread::yield_now();
                }
                if round % 4 != 0 {
                    assert_eq!(finalize(), Success);
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(finalize(), Success);
        assert_eq!(sim.mistakes(), "", "every block went back once");
    }
}

alone! {
    fn of_threads_that_initialize_at_once_one_wins(sim) {
        for _ in 0..50 {
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    scope.spawn(move || {
                        let answer = initialize(options(POOL, MIB, thread == 0));
                        assert_eq!(answer, Success, "no block is live: {}", message());
                        let _ = log();
                    });
                }
            });
            assert!(is_initialized().0);
            assert_eq!(free(alloc(1000)), Success);
            assert_eq!(finalize(), Success);
            assert_eq!(sim.mistakes(), "");
        }
    }
}

alone! {
    fn a_thread_may_free_while_it_ends(_sim) {
        struct Late(usize);
        impl Drop for Late {
            fn drop(&mut self) {
                // Aborts if it is not so.
                assert_eq!(free(self.0 as *mut _), Success);
                assert_eq!(free(alloc(1000)), Success);
            }
        }
        thread_local!(static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) });
        assert_eq!(initialize(options(POOL, MIB, true)), Success);
        let thread = std::thread::spawn(|| {
            // Before the library makes a thread-local of its own, so it goes after those.
            LATE.with_borrow_mut(|late| *late = Some(Late(0)));
            let (answer, block) = try_alloc_on(1000, 2 as *mut _);
            assert_eq!(answer, Success);
            LATE.with_borrow_mut(|late| late.as_mut().expect("it was put there").0 = block.addr());
        });
        thread.join().expect("nothing has failed");
        assert_eq!(log().lines().count(), 5);
    }
}
