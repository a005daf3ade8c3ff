//! What a child of a fork may do.

use std::ptr::null_mut;

use calluvion::RmmError::*;

use crate::support::*;

/// Runs `body` in a child of a fork, which must end by itself and with no failure.
fn forked(body: impl FnOnce()) {
    // SAFETY: the child has this thread alone, runs the body and ends without the destructors of the parent.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        unsafe { libc::_exit(i32::from(ended.is_err())) };
    }
    let mut status = -1;
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child has failed");
}

alone! {
    fn a_child_has_no_session_of_its_parent(_sim) {
        assert_eq!(initialize(options(POOL, MIB, true)), Success);
        let mut block = alloc(1000);
        forked(|| {
            assert_eq!(is_initialized(), (false, options(POOL, MIB, true)));
            assert_eq!(try_alloc(1000), (NotInitialized, null_mut()));
            assert_eq!(free(block), NotInitialized);
            assert_eq!(realloc(&mut block, 2000), NotInitialized);
            assert_eq!(log().lines().count(), 1);
            assert_eq!(finalize(), Success);
        });
        assert_eq!(free(block), Success, "the parent has it still");
        assert_eq!(log().lines().count(), 3);
    }
}

alone! {
    fn a_child_may_begin_a_session_of_its_own(_sim) {
        assert_eq!(initialize(options(POOL, MIB, true)), Success);
        let block = alloc(1000);
        forked(|| {
            let sim = Sim::new();
            assert_eq!(initialize_again(), Success);
            assert_eq!(free(block), InvalidArgument, "it is the parent's");
            assert_eq!(free(alloc(1000)), Success);
            assert_eq!(log().lines().count(), 3);
            forked(|| assert_eq!(try_alloc(1000), (NotInitialized, null_mut())));
            assert_eq!(finalize(), Success);
            sim.end();
        });
        assert_eq!(free(block), Success);
    }
}

alone! {
    fn a_child_is_as_lenient_as_its_parent_was(_sim) {
        let block = alloc(1000);
        forked(|| {
            let sim = Sim::new();
            assert_eq!(free(alloc(1000)), Success);
            assert_eq!(finalize(), Success);
            sim.end();
        });
        assert_eq!(free(block), Success);
    }
}

alone! {
    fn a_child_waits_for_no_thread_of_its_parent(_sim) {
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        assert_eq!(initialize(options(PLAIN, 0, true)), Success);
                        assert_eq!(finalize(), Success);
                    }
                });
            }
            for _ in 0..50 {
                forked(|| {
                    let (answer, block) = try_alloc(1000);
                    // Before the first initialize of the parent, the child asks the parent's machine.
                    assert!(matches!(answer, NotInitialized | CudaError), "{answer:?}");
                    assert!(block.is_null());
                });
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
