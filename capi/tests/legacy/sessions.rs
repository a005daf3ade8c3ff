//! How a session begins and ends, and what it is before, between and after.

use std::ptr::null_mut;

use calluvion::RmmError::*;

use crate::support::*;

alone! {
    fn before_the_first_initialize_memory_is_the_drivers(sim) {
        assert_eq!(is_initialized(), (false, options(PLAIN, 0, false)));
        sim.fail(c"cuMemAlloc", 1, 2);
        assert_eq!(try_alloc(100), (OutOfMemory, null_mut()), "each block is a call of the driver");
        let block = alloc(100);
        assert_eq!(offset(block), (Success, 0));
        assert_eq!(info(), (DEVICE_BYTES - GRAIN, DEVICE_BYTES));
        assert!(!is_initialized().0, "it still is not initialized");
        assert_eq!(free(block), Success);
        assert_eq!(info().0, DEVICE_BYTES);
    }
}

alone! {
    fn after_a_finalize_nothing_works_until_the_next_initialize(_sim) {
        assert_eq!(initialize(options(PLAIN, 5, true)), Success);
        assert!(is_initialized().0);
        let mut block = alloc(100);
        assert_eq!(finalize(), Success);
        assert_eq!(is_initialized(), (false, options(PLAIN, 5, true)));

        assert_eq!(try_alloc(100), (NotInitialized, null_mut()));
        assert!(message().contains("rmmInitialize"), "{}", message());
        assert_eq!(free(block), NotInitialized);
        let stale = block;
        assert_eq!(realloc(&mut block, 200), NotInitialized);
        assert_eq!(block, stale, "it is as it was");
        assert_eq!(offset(block), (NotInitialized, 77));
        let (mut free_bytes, mut total_bytes) = (7, 8);
        let answer = unsafe { calluvion::rmmGetInfo(&raw mut free_bytes, &raw mut total_bytes, null_mut()) };
        assert_eq!((answer, free_bytes, total_bytes), (NotInitialized, 7, 8));
        // What has nothing to do is done all the same.
        assert_eq!(try_alloc(0), (Success, null_mut()));
        assert_eq!(free(null_mut()), Success);
        assert_eq!(finalize(), Success);

        assert_eq!(initialize_again(), Success);
        assert_eq!(is_initialized(), (true, options(PLAIN, 5, true)), "the options of the last time");
        let block = alloc(100);
        assert_eq!(free(block), Success);
        assert_eq!(free(stale), InvalidArgument, "it was given back by the finalize");
    }
}

alone! {
    fn a_finalize_without_an_initialize_ends_what_was_there(sim) {
        let _left = alloc(100);
        assert_eq!(finalize(), Success);
        assert_eq!(sim.mistakes(), "");
        assert_eq!(try_alloc(100), (NotInitialized, null_mut()));
    }
}

alone! {
    fn plain_memory_is_a_call_a_block(sim) {
        assert_eq!(initialize(options(PLAIN, 0, false)), Success);
        sim.fail(c"cuMemAllocManaged", 0, 2);
        let block = alloc(100);
        sim.fail(c"cuMemAlloc", 0, 2);
        assert_eq!(try_alloc(100), (OutOfMemory, null_mut()));
        sim.clear_faults();
        assert_eq!(free(block), Success);
    }
}

alone! {
    fn a_pool_takes_what_it_was_told_and_asks_no_more(sim) {
        assert_eq!(initialize(options(POOL, 64 * MIB, false)), Success);
        assert_eq!(is_initialized(), (true, options(POOL, 64 * MIB, false)));
        sim.fail(c"cuMemAlloc", 0, 2);
        let blocks = [alloc(30 * MIB), alloc(30 * MIB)];
        assert_eq!(try_alloc(30 * MIB), (OutOfMemory, null_mut()), "it cannot grow");
        sim.clear_faults();
        let grown = alloc(30 * MIB);
        for block in blocks.into_iter().chain([grown]) {
            assert_eq!(free(block), Success);
        }
    }
}

alone! {
    fn a_pool_without_a_size_takes_half_of_the_device(sim) {
        assert_eq!(initialize(options(POOL, 0, false)), Success);
        sim.fail(c"cuMemAlloc", 0, 2);
        let half = alloc(DEVICE_BYTES / 2);
        assert_eq!(try_alloc(1), (OutOfMemory, null_mut()));
        sim.clear_faults();
        assert_eq!(free(half), Success);
    }
}

alone! {
    fn managed_memory_is_a_call_a_block(sim) {
        assert_eq!(initialize(options(MANAGED, 0, false)), Success);
        sim.fail(c"cuMemAlloc", 0, 2);
        let block = alloc(100);
        sim.fail(c"cuMemAllocManaged", 0, 2);
        assert_eq!(try_alloc(100), (OutOfMemory, null_mut()));
        sim.clear_faults();
        assert_eq!(free(block), Success);
    }
}

alone! {
    fn both_are_a_pool_of_managed_memory_that_migrates(sim) {
        let pair = || assert_eq!(free(alloc(1000)), Success);
        assert_eq!(initialize(options(POOL, 64 * MIB, false)), Success);
        pair();
        let plain = sim.calls(pair);
        sim.fail(c"cuMemAllocManaged", 1, 2);
        assert_eq!(initialize(options(MANAGED_POOL, 64 * MIB, false)), OutOfMemory);
        assert_eq!(initialize(options(MANAGED_POOL, 64 * MIB, false)), Success);
        sim.fail(c"cuMemAllocManaged", 0, 2);
        pair();
        // One asks whether the stream captures, one queues the migration.
        assert_eq!(sim.calls(pair), plain + 2);
    }
}

alone! {
    fn a_second_initialize_ends_the_first_if_nothing_is_live(sim) {
        assert_eq!(initialize(options(POOL, 768 * MIB, false)), Success);
        let block = alloc(100);
        assert_eq!(initialize(options(PLAIN, 0, true)), InvalidArgument);
        assert!(message().contains("not freed"), "{}", message());
        assert_eq!(is_initialized(), (true, options(POOL, 768 * MIB, false)), "nothing has changed");
        sim.fail(c"cuMemAlloc", 0, 2);
        assert_eq!(free(block), Success);
        assert_eq!(free(alloc(100)), Success, "the pool is there");
        sim.clear_faults();
        // Both do not fit: the first is gone before the second is made.
        assert_eq!(initialize(options(POOL, 512 * MIB, false)), Success);
        assert_eq!(is_initialized(), (true, options(POOL, 512 * MIB, false)));
        assert_eq!(free(alloc(500 * MIB)), Success);
    }
}

alone! {
    fn blocks_from_before_the_first_initialize_stay(_sim) {
        let early = [alloc(100), alloc(200)];
        assert_eq!(initialize(options(POOL, 64 * MIB, true)), Success);
        let late = alloc(300);
        assert_eq!(free(early[0]), Success);
        assert_eq!(free(late), Success);
        assert_eq!(initialize(options(PLAIN, 0, false)), InvalidArgument, "one is live");
        let log = log();
        let live: Vec<&str> = log.lines().skip(1).map(|row| row.split(',').nth(7).expect("a column")).collect();
        assert_eq!(live, ["3", "2", "1"]);
        let mut early = early[1];
        assert_eq!(realloc(&mut early, 1000), Success);
        assert_eq!(free(early), Success);
        assert_eq!(initialize(options(PLAIN, 0, false)), Success);
        assert_eq!(free(alloc(100)), Success);
    }
}

alone! {
    fn finalize_gives_back_what_is_live(sim) {
        for mode in [PLAIN, POOL, MANAGED, MANAGED_POOL] {
            assert_eq!(initialize(options(mode, 64 * MIB, true)), Success);
            let stream = OwnStream::new(0);
            alloc(100);
            assert_eq!(try_alloc_on(100 * MIB, stream.raw()).0, Success);
            make_current(1);
            alloc(100);
            make_current(0);
            drop(stream);
            assert_eq!(finalize(), Success);
            assert_eq!(sim.mistakes(), "", "mode {mode}");
        }
    }
}

alone! {
    fn finalize_gives_back_what_is_live_from_before(sim) {
        alloc(100);
        assert_eq!(initialize(options(POOL, MIB, false)), Success);
        alloc(100);
        assert_eq!(finalize(), Success);
        assert_eq!(sim.mistakes(), "");
    }
}

alone! {
    fn bad_options_and_no_memory_are_answers(sim) {
        for mode in [4, 1 << 31, u32::MAX] {
            assert_eq!(initialize(options(mode, 0, false)), InvalidArgument);
        }
        for bytes in [DEVICE_BYTES + 1, 64 << 30] {
            assert_eq!(initialize(options(POOL, bytes, false)), OutOfMemory);
        }
        assert_ne!(initialize(options(POOL, usize::MAX, false)), Success);
        assert_eq!(is_initialized(), (false, options(PLAIN, 0, false)), "what failed has set nothing");
        assert_eq!(free(alloc(100)), Success, "it is as before the first initialize");
        for (code, answer) in [(2, OutOfMemory), (1, CudaError), (46, CudaError)] {
            sim.fail(c"cuMemAlloc", 1, code);
            assert_eq!(initialize(options(POOL, MIB, false)), answer, "{code}");
        }
        assert_eq!(sim.mistakes(), "");
        assert_eq!(initialize(options(POOL, MIB, false)), Success);
        sim.fail(c"cuMemAlloc", 1, 2);
        assert_eq!(initialize(options(POOL, 2 * MIB, false)), OutOfMemory);
        assert_eq!(is_initialized(), (false, options(POOL, MIB, false)), "the first has ended");
        assert_eq!(try_alloc(100), (NotInitialized, null_mut()));
        assert_eq!(initialize_again(), Success);
        assert_eq!(free(alloc(100)), Success);
    }
}

alone! {
    fn a_finalize_after_a_lost_context_is_one(sim) {
        assert_eq!(initialize(options(POOL, MIB, true)), Success);
        let block = alloc(100);
        sim.is_lost.set(true);
        sim.fail(c"cuMemGetInfo", 1, 700);
        let (mut free_bytes, mut total_bytes) = (0, 0);
        let answer = unsafe { calluvion::rmmGetInfo(&raw mut free_bytes, &raw mut total_bytes, null_mut()) };
        assert_eq!(answer, CudaError);
        assert_eq!(try_alloc(100 * MIB), (CudaError, null_mut()));
        // Either is right: the pool may note a block that comes back, and the driver is not asked.
        let _ = free(block);
        assert_eq!(finalize(), Success);
        assert!(!is_initialized().0);
    }
}

alone! {
    fn a_finalize_that_cannot_wait_leaks(sim) {
        assert_eq!(initialize(options(PLAIN, MIB, false)), Success);
        let leaked = alloc(100);
        sim.is_lost.set(true);
        sim.fail(c"cuCtxSynchronize", 1, 900);
        assert_eq!(finalize(), Success);
        let mistakes = sim.mistakes();
        assert!(mistakes.starts_with("leak: the allocation of 100 bytes") && mistakes.lines().count() == 1, "{mistakes}");
        assert_eq!(initialize_again(), Success);
        assert_eq!(free(leaked), InvalidArgument);
    }
}
