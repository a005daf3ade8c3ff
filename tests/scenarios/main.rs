//! What hurt real users, on the simulated machine.

#[path = "../support/plain_environment.rs"]
mod plain_environment;
#[path = "../support/raw_block.rs"]
mod raw_block;
#[path = "../support/scenario/mod.rs"]
mod scenario;

use alluvion::driver::Code;
use alluvion::sim::Kernel;
use alluvion::source::{Cuda, CudaAsync};
use alluvion::testing::Bench;
use alluvion::{DeviceVec, ErrorKind};
use scenario::{
    absurd_layers, endings_under_capture, layers_under_threads, limits, pools, pools_under_capture,
    pools_under_threads,
};

/// A bench for each of a few seeds: what hurt did so under some schedules only.
fn benches() -> impl Iterator<Item = Bench> {
    (0..8).map(|seed| Bench::sim_with(Bench::config().seed(seed)))
}

#[test]
fn scenario_02_a_recycled_handle_is_another_stream() {
    benches().for_each(|bench| scenario::a_recycled_handle_is_another_stream(&bench));
}

#[test]
fn scenario_03_memory_of_ended_streams_comes_back() {
    scenario::memory_of_ended_streams_comes_back(&Bench::sim());
}

#[test]
fn scenario_09_absurd_sizes_and_alignments_are_refused() {
    scenario::absurd_sizes_and_alignments_are_refused(&Bench::sim());
}

#[test]
fn scenario_10_the_first_allocation_may_be_beside_a_capture() {
    scenario::the_first_allocation_may_be_beside_a_capture(&Bench::sim());
}

#[test]
fn scenario_11_a_buffer_outlives_the_graph_that_used_it() {
    scenario::a_buffer_outlives_the_graph_that_used_it(&Bench::sim());
}

#[test]
fn scenario_12_a_broken_capture_leaks_nothing() {
    scenario::a_broken_capture_leaks_nothing(&Bench::sim());
}

#[test]
fn scenario_13_a_buffer_may_be_dropped_on_any_thread() {
    benches().for_each(|bench| scenario::a_buffer_may_be_dropped_on_any_thread(&bench));
}

#[test]
fn scenario_14_a_pinned_vector_may_go_at_once() {
    benches().for_each(|bench| scenario::a_pinned_vector_may_go_at_once(&bench));
}

#[test]
fn scenario_17_trimming_spares_queued_copies() {
    benches().for_each(|bench| scenario::trimming_spares_queued_copies(&bench));
}

#[test]
fn scenario_18_default_streams_of_threads_are_apart() {
    benches().for_each(|bench| scenario::default_streams_of_threads_are_apart(&bench));
}

#[test]
fn scenario_01_three_streams_and_a_merge() {
    for bench in benches() {
        for merge in pools::MERGES {
            pools::three_streams_and_a_merge(&bench, merge, pools::write_behind_a_stall(&bench));
        }
    }
}

#[test]
fn scenario_02_a_recycled_handle_is_another_stream_of_a_pool() {
    benches().take(3).for_each(|bench| pools::a_recycled_handle_is_another_stream(&bench));
}

#[test]
fn scenario_03_memory_of_ended_streams_comes_back_to_a_pool() {
    benches().take(3).for_each(|bench| pools::memory_of_ended_streams_comes_back(&bench));
}

#[test]
fn scenario_04_an_empty_pool_serves_its_maximum() {
    pools::an_empty_pool_serves_its_maximum(&Bench::sim());
}

#[test]
fn scenario_05_cached_memory_makes_room() {
    benches().take(3).for_each(|bench| pools::cached_memory_makes_room(&bench));
}

#[test]
fn scenario_06_a_pending_block_is_waited_for() {
    benches().take(3).for_each(|bench| pools::a_pending_block_is_waited_for(&bench));
}

#[test]
fn scenario_07_handlers_end_and_help() {
    pools_under_threads::handlers_end_and_help(&Bench::sim());
}

#[test]
fn scenario_05_cached_memory_makes_room_within_a_limit() {
    benches().take(3).for_each(|bench| limits::cached_memory_makes_room_within_a_limit(&bench));
}

#[test]
fn scenario_07_a_handler_that_frees_nothing_ends() {
    limits::a_handler_that_frees_nothing_ends(&Bench::sim());
}

#[test]
fn scenario_07_a_handler_that_allocates_does_not_lock_up() {
    limits::a_handler_that_allocates_does_not_lock_up(&Bench::sim());
}

#[test]
fn scenario_07_a_handler_that_frees_half_helps() {
    limits::a_handler_that_frees_half_helps(&Bench::sim());
}

#[test]
fn scenario_08_the_books_of_four_threads_are_exact() {
    pools_under_threads::the_books_of_four_threads_are_exact(&Bench::sim());
}

#[test]
fn scenario_08_the_books_of_layers_are_exact() {
    layers_under_threads::the_books_of_layers_are_exact(&Bench::sim());
}

#[test]
fn scenario_09_absurd_sizes_and_alignments_over_pools() {
    pools::absurd_sizes_and_alignments_over_pools(&Bench::sim());
}

#[test]
fn scenario_09_absurd_sizes_and_alignments_through_layers() {
    absurd_layers::absurd_sizes_and_alignments_through_layers(&Bench::sim());
}

#[test]
fn scenario_10_nothing_that_ends_breaks_a_capture() {
    let room = Bench::config().memory_bytes(1 << 30).pinned_bytes(256 << 20);
    endings_under_capture::nothing_that_ends_breaks_a_capture(&Bench::sim_with(room));
}

#[test]
fn scenario_10_a_pool_with_a_block_out_gives_everything_back() {
    endings_under_capture::a_pool_with_a_block_out_gives_everything_back(&Bench::sim());
}

#[test]
fn scenario_10_a_pool_may_begin_beside_a_capture() {
    pools_under_capture::a_pool_may_begin_beside_a_capture(&Bench::sim());
}

#[test]
fn scenario_12_a_capturing_stream_may_use_a_pool() {
    pools_under_capture::a_capturing_stream_may_use_a_pool(&Bench::sim());
}

#[test]
fn scenario_12_a_broken_capture_loses_no_block() {
    pools_under_capture::a_broken_capture_loses_no_block(&Bench::sim());
}

#[test]
fn scenario_17_trimming_a_pool_spares_queued_copies() {
    benches().for_each(|bench| pools_under_threads::trimming_a_pool_spares_queued_copies(&bench));
}

#[test]
fn scenario_18_default_streams_of_threads_are_apart_in_a_pool() {
    benches().for_each(|bench| pools_under_threads::default_streams_of_threads_are_apart(&bench));
}

#[test]
fn scenario_18_defragmenting_spares_default_streams() {
    benches().for_each(|bench| pools_under_threads::defragmenting_spares_default_streams(&bench));
}

/// A kernel goes wild: the error surfaced again in every drop, or as another one in every call (scenario 19).
#[test]
#[expect(unsafe_code, reason = "launches a kernel that touches what is not there")]
fn scenario_19_a_lost_context_is_silent_and_says_why() {
    let bench = Bench::sim();
    let sim = bench.simulated().unwrap();
    let (device, stream) = (bench.device(), bench.stream());
    let pool = CudaAsync::new(&device).unwrap();
    let cuda = Cuda::new(&device);
    let first = DeviceVec::filled_in(100, 1_u32, stream.as_ref(), &pool).unwrap();
    let second = DeviceVec::filled_in(100, 1_u32, stream.as_ref(), cuda.clone()).unwrap();
    let wild = 0x0001_F000_0000_0000;
    let kernel = Kernel::new("wild").writes(wild, 4).run(move |memory| memory.write_u32(wild, 1));
    // SAFETY: the stream is live. That the kernel touches what is not there is the scenario, and hurts a simulated machine alone.
    unsafe { sim.launch(device.ordinal(), stream.as_ref().raw(), kernel) }.unwrap();
    let error = stream.synchronize().unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::ContextLost, Some(Code::ILLEGAL_ADDRESS)));
    assert!(!sim.take_hazards().is_empty(), "the machine saw the wild kernel");
    scenario::use_a_lost_context(&pool, first, &stream);
    scenario::use_a_lost_context(cuda, second, &stream);
    drop(pool);
    bench.check_hazards();
    // The other device works on.
    let elsewhere = bench.second_device().unwrap();
    let there = elsewhere.stream().unwrap();
    assert_eq!(DeviceVec::filled(3, 4_u8, there.as_ref()).unwrap().to_vec(there.as_ref()).unwrap(), [4; 3]);
}
