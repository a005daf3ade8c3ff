//! What hurt real users, on the GPU of this computer, by the same code as on the simulated machine.

#![cfg(unix)]

use std::time::Duration;

use alluvion::driver::{HandleType, Location, MapAccess};
use alluvion::source::{Cuda, CudaAsync};
use alluvion::testing::{Bench, stall};
use alluvion::{Device, DeviceVec, Machine, Stream};

use crate::child;
use crate::child::in_child;
use crate::gpu_kernels::Kernels;
use crate::scenario;
use crate::scenario::{
    absurd_layers, endings_under_capture, layers_under_threads, limits, pools, pools_under_capture,
    pools_under_threads,
};

#[test]
fn scenario_02_a_recycled_handle_is_another_stream() {
    scenario::a_recycled_handle_is_another_stream(&Bench::gpu());
}

#[test]
fn scenario_03_memory_of_ended_streams_comes_back() {
    scenario::memory_of_ended_streams_comes_back(&Bench::gpu());
}

#[test]
fn scenario_09_absurd_sizes_and_alignments_are_refused() {
    scenario::absurd_sizes_and_alignments_are_refused(&Bench::gpu());
}

#[test]
fn scenario_10_the_first_allocation_may_be_beside_a_capture() {
    scenario::the_first_allocation_may_be_beside_a_capture(&Bench::gpu());
}

#[test]
fn scenario_11_a_buffer_outlives_the_graph_that_used_it() {
    scenario::a_buffer_outlives_the_graph_that_used_it(&Bench::gpu());
}

#[test]
fn scenario_12_a_broken_capture_leaks_nothing() {
    scenario::a_broken_capture_leaks_nothing(&Bench::gpu());
}

#[test]
fn scenario_13_a_buffer_may_be_dropped_on_any_thread() {
    scenario::a_buffer_may_be_dropped_on_any_thread(&Bench::gpu());
}

#[test]
fn scenario_14_a_pinned_vector_may_go_at_once() {
    scenario::a_pinned_vector_may_go_at_once(&Bench::gpu());
}

#[test]
fn scenario_17_trimming_spares_queued_copies() {
    scenario::trimming_spares_queued_copies(&Bench::gpu());
}

#[test]
fn scenario_18_default_streams_of_threads_are_apart() {
    scenario::default_streams_of_threads_are_apart(&Bench::gpu());
}

/// Once behind a function of the host that sleeps, and once behind a kernel that runs long.
#[test]
fn scenario_01_three_streams_and_a_merge() {
    let bench = Bench::gpu();
    for merge in pools::MERGES {
        pools::three_streams_and_a_merge(&bench, merge, pools::write_behind_a_stall(&bench));
    }
    let kernels = Kernels::load();
    for merge in pools::MERGES {
        pools::three_streams_and_a_merge(&bench, merge, |stream, block, word| {
            let words = block.layout.bytes() / 4;
            kernels.write_late(stream.as_ref(), block.pointer, words, word, Duration::from_millis(50));
        });
    }
}

#[test]
fn scenario_02_a_recycled_handle_is_another_stream_of_a_pool() {
    pools::a_recycled_handle_is_another_stream(&Bench::gpu());
}

#[test]
fn scenario_03_memory_of_ended_streams_comes_back_to_a_pool() {
    pools::memory_of_ended_streams_comes_back(&Bench::gpu());
}

#[test]
fn scenario_04_an_empty_pool_serves_its_maximum() {
    pools::an_empty_pool_serves_its_maximum(&Bench::gpu());
}

#[test]
fn scenario_05_cached_memory_makes_room() {
    pools::cached_memory_makes_room(&Bench::gpu());
}

#[test]
fn scenario_06_a_pending_block_is_waited_for() {
    pools::a_pending_block_is_waited_for(&Bench::gpu());
}

#[test]
fn scenario_07_handlers_end_and_help() {
    pools_under_threads::handlers_end_and_help(&Bench::gpu());
}

#[test]
fn scenario_05_cached_memory_makes_room_within_a_limit() {
    limits::cached_memory_makes_room_within_a_limit(&Bench::gpu());
}

#[test]
fn scenario_07_a_handler_that_frees_nothing_ends() {
    limits::a_handler_that_frees_nothing_ends(&Bench::gpu());
}

#[test]
fn scenario_07_a_handler_that_allocates_does_not_lock_up() {
    limits::a_handler_that_allocates_does_not_lock_up(&Bench::gpu());
}

#[test]
fn scenario_07_a_handler_that_frees_half_helps() {
    limits::a_handler_that_frees_half_helps(&Bench::gpu());
}

#[test]
fn scenario_08_the_books_of_four_threads_are_exact() {
    pools_under_threads::the_books_of_four_threads_are_exact(&Bench::gpu());
}

#[test]
fn scenario_08_the_books_of_layers_are_exact() {
    layers_under_threads::the_books_of_layers_are_exact(&Bench::gpu());
}

#[test]
fn scenario_09_absurd_sizes_and_alignments_over_pools() {
    pools::absurd_sizes_and_alignments_over_pools(&Bench::gpu());
}

#[test]
fn scenario_09_absurd_sizes_and_alignments_through_layers() {
    absurd_layers::absurd_sizes_and_alignments_through_layers(&Bench::gpu());
}

#[test]
fn scenario_10_nothing_that_ends_breaks_a_capture() {
    endings_under_capture::nothing_that_ends_breaks_a_capture(&Bench::gpu());
}

#[test]
fn scenario_10_a_pool_with_a_block_out_gives_everything_back() {
    endings_under_capture::a_pool_with_a_block_out_gives_everything_back(&Bench::gpu());
}

#[test]
fn scenario_10_a_pool_may_begin_beside_a_capture() {
    pools_under_capture::a_pool_may_begin_beside_a_capture(&Bench::gpu());
}

#[test]
fn scenario_12_a_capturing_stream_may_use_a_pool() {
    pools_under_capture::a_capturing_stream_may_use_a_pool(&Bench::gpu());
}

#[test]
fn scenario_12_a_broken_capture_loses_no_block() {
    pools_under_capture::a_broken_capture_loses_no_block(&Bench::gpu());
}

#[test]
fn scenario_17_trimming_a_pool_spares_queued_copies() {
    pools_under_threads::trimming_a_pool_spares_queued_copies(&Bench::gpu());
}

#[test]
fn scenario_18_default_streams_of_threads_are_apart_in_a_pool() {
    pools_under_threads::default_streams_of_threads_are_apart(&Bench::gpu());
}

#[test]
fn scenario_18_defragmenting_spares_default_streams() {
    pools_under_threads::defragmenting_spares_default_streams(&Bench::gpu());
}

fn cuda() -> Machine {
    Machine::of_environment().expect("these tests need a GPU")
}

/// A lost context stays lost, so it is a child's.
#[test]
fn scenario_19_a_lost_context_is_silent_and_says_why() {
    in_child("scenarios::scenario_19_a_lost_context_is_silent_and_says_why", 1, || {
        let device = cuda().device(0).unwrap();
        let stream = device.stream().unwrap();
        let pool = CudaAsync::new(&device).unwrap();
        let cuda = Cuda::new(&device);
        let first = DeviceVec::filled_in(100, 1_u32, stream.as_ref(), &pool).unwrap();
        let second = DeviceVec::filled_in(100, 1_u32, stream.as_ref(), cuda.clone()).unwrap();
        lose_context(&device, &stream);
        scenario::use_a_lost_context(&pool, first, &stream);
        scenario::use_a_lost_context(cuda, second, &stream);
        drop(pool);
        drop(stream);
        child::done();
    });
}

/// Takes memory away under a write that is queued.
#[expect(unsafe_code, reason = "breaks the rule that an unmapped range has no work left")]
fn lose_context(device: &Device, stream: &Stream) {
    let (driver, ordinal) = (device.driver(), device.ordinal());
    let bytes = driver.virtual_granularity(ordinal).unwrap();
    let address = driver.virtual_reserve(ordinal, bytes, 0).unwrap();
    let memory = driver.memory_create(ordinal, bytes, HandleType::NONE).unwrap();
    // SAFETY: the memory is live and of this size.
    unsafe { driver.memory_map(ordinal, address, bytes, memory) }.unwrap();
    let accessor = Location::Device(ordinal);
    // SAFETY: no work needs an access that this takes away.
    unsafe { driver.memory_set_access(ordinal, address, bytes, accessor, MapAccess::ReadWrite) }.unwrap();
    stall(stream.as_ref(), Duration::from_millis(50));
    let fill = alluvion::driver::FillValue::U8(1);
    // SAFETY: not kept, on purpose: the range goes before the fill has run. It hurts this process's context and nothing else.
    unsafe { driver.fill_async(ordinal, address, fill, bytes, stream.as_ref().raw()) }.unwrap();
    // SAFETY: not kept, as above.
    unsafe { driver.memory_unmap(ordinal, address, bytes) }.unwrap();
    let error = stream.synchronize().unwrap_err();
    assert!(error.is_context_lost(), "{error}");
}
