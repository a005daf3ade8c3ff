//! Every source keeps every clause of the contract, on the GPU of this computer, by the same code as on the simulated one.

use std::time::Duration;

use alluvion::source::{Cuda, CudaAsync, CudaAsyncManaged, Managed, Mapped, Null, Pinned};
use alluvion::testing::{Bench, Delayed, Faulty, Shadow};

// Memory of the host is not used up: the computer would be.
every_source!(gpu(Bench::gpu()), [no_limit,]);

alluvion::resource_suite!(mapped on gpu(Bench::gpu()), |device| Mapped::new(device).unwrap());
alluvion::pages_suite!(mapped_pages on gpu(Bench::gpu()), |device| Mapped::new(device).unwrap());

/// Whether a GPU reads ordinary memory of the host depends on its driver. It is held to the clauses if it does, and to a
/// typed refusal if it does not.
#[cfg(target_os = "linux")]
#[test]
fn system() {
    use alluvion::source::System;
    use alluvion::testing::suite;

    let bench = Bench::gpu();
    if !bench.device().capabilities().unwrap().pageable_memory_access {
        assert!(System::new(&bench.device()).unwrap_err().is_unsupported());
        return;
    }
    let make = |device: &alluvion::Device| System::new(device).unwrap();
    suite::zero_bytes_reach_nobody(&bench, make);
    suite::alignments_are_honoured_or_refused(&bench, make);
    suite::blocks_are_disjoint(&bench, make);
    suite::blocks_hold_what_is_written(&bench, make);
    suite::absurd_sizes_are_out_of_memory(&bench, make);
    suite::streams_of_others_are_refused(&bench, make);
    suite::freed_memory_is_reusable_on_its_stream(&bench, make);
    suite::freed_memory_is_ordered(&bench, make);
    suite::allocating_synchronously_is_synchronous(&bench, make);
    suite::random_operations_agree_with_the_oracle(&bench, make);
    suite::free_on_another_thread(&bench, make);
    suite::four_threads_keep_their_bytes(&bench, make);
    suite::every_handle_frees_every_block(&bench, make);
    suite::ids_say_who_frees_what(&bench, make);
}
