//! What a request is answered, and what bad input costs.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use calluvion::RmmError::*;
use calluvion::{rmmAlloc, rmmGetAllocationOffset, rmmGetErrorString, rmmGetInfo, rmmRealloc};

use crate::support::*;

fn inside(block: *mut c_void, bytes: usize) -> *mut c_void {
    block.cast::<u8>().wrapping_add(bytes).cast()
}

alone! {
    fn no_bytes_are_null_and_null_is_nothing_to_free(sim) {
        let calls = sim.calls(|| {
            assert_eq!(try_alloc(0), (Success, null_mut()));
            assert_eq!(unsafe { rmmAlloc(null_mut(), 0, null_mut(), null(), 0) }, Success);
            assert_eq!(unsafe { rmmAlloc(null_mut(), 4, null_mut(), null(), 0) }, InvalidArgument);
            assert_eq!(free(null_mut()), Success);
            assert_eq!(unsafe { rmmRealloc(null_mut(), 0, null_mut(), null(), 0) }, Success);
            assert_eq!(unsafe { rmmRealloc(null_mut(), 4, null_mut(), null(), 0) }, InvalidArgument);
            let mut nothing = null_mut();
            assert_eq!(realloc(&mut nothing, 0), Success);
            assert!(nothing.is_null());
        });
        assert_eq!(calls, 0, "the driver is not asked");
    }
}

alone! {
    fn what_cannot_be_had_is_too_much(sim) {
        for mode in [PLAIN, POOL, MANAGED, MANAGED_POOL] {
            assert_eq!(initialize(options(mode, MIB, false)), Success);
            for bytes in [usize::MAX, isize::MAX as usize, isize::MAX as usize - 254, 1 << 45] {
                assert_eq!(try_alloc(bytes), (OutOfMemory, null_mut()), "{bytes} of mode {mode}");
            }
            let mut block = alloc(100);
            let kept = block;
            assert_eq!(realloc(&mut block, usize::MAX), OutOfMemory);
            assert_eq!(block, kept, "no such size can be, so nothing was freed");
            assert_eq!(free(block), Success);
            assert_eq!(finalize(), Success);
            assert_eq!(sim.mistakes(), "");
        }
    }
}

alone! {
    fn other_failures_of_the_driver_are_answers(sim) {
        assert_eq!(initialize(options(PLAIN, 0, false)), Success);
        for (code, answer) in [(2, OutOfMemory), (1, CudaError), (46, CudaError), (999, CudaError)] {
            sim.fail(c"cuMemAlloc", 1, code);
            assert_eq!(try_alloc(100), (answer, null_mut()), "{code}");
            assert!(!message().is_empty());
        }
        sim.fail(c"cuMemGetInfo", 1, 46);
        let (mut free_bytes, mut total_bytes) = (7, 8);
        let info = unsafe { rmmGetInfo(&raw mut free_bytes, &raw mut total_bytes, null_mut()) };
        assert_eq!((info, free_bytes, total_bytes), (CudaError, 7, 8));
        let block = alloc(100);
        sim.fail(c"cuMemGetAddressRange", 1, 46);
        assert_eq!(offset(block), (CudaError, 77));
        assert_eq!(offset(block), (Success, 0));
        assert_eq!(free(block), Success);
    }
}

alone! {
    fn what_is_no_block_is_refused_and_nothing_is_lost(_sim) {
        for mode in [PLAIN, POOL] {
            assert_eq!(initialize(options(mode, MIB, true)), Success);
            let mut block = alloc(1000);
            let mut host = 0_u64;
            let host = (&raw mut host).cast();
            for stranger in [inside(block, 1), inside(block, 256), host, 256 as *mut c_void, usize::MAX as *mut c_void] {
                assert_eq!(free(stranger), InvalidArgument, "{stranger:?}");
                assert!(message().contains("no block begins there"), "{}", message());
                for bytes in [0, 100] {
                    let mut place = stranger;
                    assert_eq!(realloc(&mut place, bytes), InvalidArgument);
                    assert_eq!(place, stranger);
                }
            }
            assert_eq!(realloc(&mut block, 2000), Success);
            let freed = block;
            assert_eq!(free(block), Success);
            assert_eq!(free(freed), InvalidArgument, "it was freed before");
            assert_eq!(log().lines().count(), 4, "what was refused has no row");
            assert_eq!(finalize(), Success);
        }
    }
}

alone! {
    fn realloc_is_a_free_and_an_allocation(sim) {
        assert_eq!(initialize(options(PLAIN, 0, false)), Success);
        let mut block = null_mut();
        for bytes in [100, 5 * MIB, 50] {
            assert_eq!(realloc(&mut block, bytes), Success);
            assert!(!block.is_null());
            let taken = bytes.next_multiple_of(GRAIN);
            assert_eq!(info().0, DEVICE_BYTES - taken, "the one before is free");
        }
        assert_eq!(realloc(&mut block, 0), Success);
        assert!(block.is_null());
        assert_eq!(info().0, DEVICE_BYTES);
        // Nearly all of the device: both at once would not fit.
        let mut block = alloc(600 * MIB);
        assert_eq!(realloc(&mut block, 700 * MIB), Success);
        sim.fail(c"cuMemAlloc", 1, 2);
        assert_eq!(realloc(&mut block, 100), OutOfMemory);
        assert!(block.is_null(), "the old block is gone, and nobody has it");
        assert_eq!(info().0, DEVICE_BYTES);
    }
}

alone! {
    fn a_stream_of_another_device_frees_and_allocates_nothing(_sim) {
        let (here, there) = (OwnStream::new(0), OwnStream::new(1));
        for mode in [PLAIN, POOL] {
            assert_eq!(initialize(options(mode, MIB, false)), Success);
            assert_eq!(try_alloc_on(100, there.raw()), (InvalidArgument, null_mut()));
            let (answer, mut block) = try_alloc_on(100, here.raw());
            assert_eq!(answer, Success);
            assert_eq!(free_on(block, there.raw()), InvalidArgument);
            let kept = block;
            for bytes in [0, 200] {
                let refused = unsafe { rmmRealloc(&raw mut block, bytes, there.raw(), null(), 0) };
                assert_eq!((refused, block), (InvalidArgument, kept));
            }
            // The new block would belong to the device that is current, the stream does not.
            make_current(1);
            assert_eq!(unsafe { rmmRealloc(&raw mut block, 200, here.raw(), null(), 0) }, InvalidArgument);
            assert_eq!(block, kept);
            make_current(0);
            assert_eq!(free_on(block, here.raw()), Success, "it is still there");
            assert_eq!(finalize(), Success);
        }
    }
}

alone! {
    fn a_block_belongs_to_the_device_that_is_current(sim) {
        assert_eq!(initialize(options(POOL, 64 * MIB, true)), Success);
        let there = OwnStream::new(1);
        let on_0 = alloc(100);
        make_current(1);
        let before = info();
        assert_eq!(before.1, DEVICE_BYTES);
        let (answer, on_1) = try_alloc_on(100, there.raw());
        assert_eq!(answer, Success);
        assert!(info().0 < before.0, "of this device");
        // Whichever is current at the free.
        assert_eq!(free(on_0), Success);
        make_current(0);
        assert_eq!(free_on(on_1, there.raw()), Success);
        let mut moved = alloc(100);
        make_current(1);
        assert_eq!(realloc(&mut moved, 200), Success);
        make_current(0);
        drop(there);
        assert_eq!(free(moved), Success);
        let log = log();
        let devices: Vec<&str> = log.lines().skip(1).map(|row| row.split(',').nth(1).expect("a column")).collect();
        assert_eq!(devices, ["0", "1", "0", "1", "0", "1", "1"]);
        assert_eq!(finalize(), Success);
        assert_eq!(sim.mistakes(), "");
    }
}

alone! {
    fn offsets_count_from_the_allocation_of_the_driver(_sim) {
        assert_eq!(initialize(options(POOL, 64 * MIB, false)), Success);
        let blocks = [alloc(1000), alloc(1000), alloc(1000)];
        let base = blocks[0].addr() as i64 - offset(blocks[0]).1;
        for block in blocks {
            for bytes in [0, 1, 999] {
                let address = inside(block, bytes);
                assert_eq!(offset(address), (Success, address.addr() as i64 - base));
            }
            assert_eq!(free(block), Success);
        }
        let mut host = 0_u64;
        for stranger in [(&raw mut host).cast(), null_mut()] {
            assert_eq!(offset(stranger), (InvalidArgument, 77));
        }
        let answer = unsafe { rmmGetAllocationOffset(null_mut(), blocks[0], null_mut()) };
        assert_eq!(answer, InvalidArgument);
    }
}

alone! {
    fn what_a_pool_has_free_counts_as_free(_sim) {
        assert_eq!(info(), (DEVICE_BYTES, DEVICE_BYTES));
        assert_eq!(initialize(options(POOL, 512 * MIB, false)), Success);
        assert_eq!(info(), (DEVICE_BYTES, DEVICE_BYTES));
        let block = alloc(100 * MIB);
        assert_eq!(info(), (DEVICE_BYTES - 100 * MIB, DEVICE_BYTES));
        assert_eq!(free(block), Success);
        let mut bytes = 7_usize;
        let bytes: *mut usize = &raw mut bytes;
        for (free_bytes, total_bytes) in [(null_mut(), null_mut()), (bytes, null_mut()), (null_mut(), bytes)] {
            assert_eq!(unsafe { rmmGetInfo(free_bytes, total_bytes, null_mut()) }, InvalidArgument);
            assert_eq!(unsafe { bytes.read() }, 7);
        }
    }
}

alone! {
    fn a_block_is_freed_behind_the_work_of_its_stream(_sim) {
        // A machine that sees an access to memory that was given out again too early says so when the test ends.
        assert_eq!(initialize(options(POOL, 4 * MIB, false)), Success);
        let streams = [OwnStream::new(0), OwnStream::new(0)];
        let mut resource = null_mut();
        unsafe { assert_eq!(calluvion::alv_resource_from_recipe(c"cuda".as_ptr(), 0, &raw mut resource), 0) };
        for round in 0..40 {
            let stream = streams[round % 2].raw();
            let (answer, block) = try_alloc_on(3 * MIB, stream);
            assert_eq!(answer, Success);
            assert_eq!(unsafe { calluvion::alv_fill_raw(resource, block, 1, 3 * MIB, stream) }, 0);
            assert_eq!(free_on(block, stream), Success);
        }
        unsafe { calluvion::alv_resource_release(resource) };
    }
}

alone! {
    fn every_answer_has_a_name(_sim) {
        let name = |number| unsafe { CStr::from_ptr(rmmGetErrorString(number)) }.to_str().expect("ASCII");
        let names = [
            "RMM_SUCCESS",
            "RMM_ERROR_CUDA_ERROR",
            "RMM_ERROR_INVALID_ARGUMENT",
            "RMM_ERROR_NOT_INITIALIZED",
            "RMM_ERROR_OUT_OF_MEMORY",
            "RMM_ERROR_UNKNOWN",
            "RMM_ERROR_IO",
        ];
        for (number, expected) in names.into_iter().enumerate() {
            assert_eq!(name(number as u32), expected);
        }
        for number in [7, 8, u32::MAX] {
            assert!(name(number).contains("unknown"), "{number}");
        }
        assert_eq!([Success as u32, Io as u32], [0, 6]);
    }
}
