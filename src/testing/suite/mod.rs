//! The conformance suite: what every resource must do, one clause a function.
//!
//! [`resource_suite!`](crate::resource_suite) stamps a test for each clause, and [`pages_suite!`](crate::pages_suite) those of pages. Each can be called alone, too: it takes a
//! [`Bench`] and how to make the resource on a device, and panics if the resource breaks the contract.
//!
//! What a clause makes is erased where a macro stamps it, so that each clause is compiled once and not once for each resource. Those
//! that are about the type take the type: whether an id moves with its resource, and which method a layer forgets.
//!
//! A clause asks for what the contract of [`Resource`] promises and nothing else, so that a suballocator
//! that waits, a source that blocks and an adaptor that refuses some sizes all pass.

mod at_once;
mod capture;
mod forwarding;
mod handles;
mod limits;
mod loss;
mod order;
mod pages;
mod sizes;
mod threads;
mod upkeep;

pub use at_once::{at_once_changes_no_figure, at_once_takes_no_driver_call, blocks_at_once_are_ordered};
pub use capture::captures_elsewhere_survive;
pub use forwarding::{
    forwards_device, forwards_export, forwards_frees, forwards_host_access, forwards_max_align,
    forwards_memory_info, forwards_sleeping, forwards_synchronous_calls, forwards_trim, forwards_upstream,
};
pub use handles::{erased_handles_free_every_block, every_handle_frees_every_block, ids_say_who_frees_what};
pub use limits::{
    absurd_sizes_are_out_of_memory, exhaustion_is_not_the_end, freeing_synchronously_really_frees,
};
pub use loss::a_lost_context_fails_fast_and_silently;
pub use order::{
    allocating_synchronously_is_synchronous, every_schedule_keeps_the_order, freed_memory_is_ordered,
    freed_memory_is_reusable_on_its_stream, random_operations_agree_with_the_oracle,
    streams_of_others_are_refused,
};
pub use pages::{
    a_failed_call_of_pages_loses_nothing, a_page_moves_to_another_address, pages_hold_what_is_written,
    pages_that_cannot_be_are_refused, released_pages_can_be_had_again,
};
pub use sizes::{
    alignments_are_honoured_or_refused, blocks_are_disjoint, blocks_hold_what_is_written,
    zero_bytes_reach_nobody,
};
pub use threads::{four_threads_at_once, four_threads_keep_their_bytes, free_on_another_thread};
pub use upkeep::{
    memory_info_is_plausible, nothing_leaks, the_description_is_one_line, trimming_is_harmless,
};

use super::Bench;
use crate::device::Device;
use crate::resource::{AnyResource, Resource};

/// How a stamped clause makes the resource under test.
pub type Make<'a> = &'a dyn Fn(&Device) -> AnyResource;

/// As [`Make`], for a resource whose blocks nobody may touch.
pub type MakeUntouched<'a> = &'a dyn Fn(&Device) -> Box<dyn Resource + Send + Sync>;

/// A clause of the contract, for any resource.
pub type Clause = fn(&Bench, Make<'_>);

/// The clauses that [`resource_suite!`](crate::resource_suite) stamps on a simulated machine where nothing is said about the resource,
/// each with its name.
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::testing::{Bench, suite};
/// use alluvion::{AnyResource, ResourceExt};
///
/// for (name, clause) in suite::clauses().take(3) {
///     println!("{name}");
///     clause(&Bench::sim(), &|device| AnyResource::new(Cuda::new(device).stats()));
/// }
/// ```
pub fn clauses() -> impl Iterator<Item = (&'static str, Clause)> {
    const GROUPS: &[&[(&str, Clause)]] = &[
        crate::resource_suite!(@any @table),
        crate::resource_suite!(@trim @table),
        crate::resource_suite!(@sim @table),
        crate::resource_suite!(@memory @table),
        crate::resource_suite!(@schedules @table),
        crate::resource_suite!(@limit @table),
        crate::resource_suite!(@typed @table),
    ];
    GROUPS.iter().copied().flatten().copied()
}

/// Stamps a module of tests, one for each clause of the contract of [`Resource`](crate::Resource).
///
/// ```
/// use alluvion::source::{Cuda, Null};
/// use alluvion::testing::Bench;
///
/// # fn main() {}
/// alluvion::resource_suite!(cuda, |device| Cuda::new(device));
/// // Nobody may touch its blocks: only the clauses that do not.
/// alluvion::resource_suite!(null, no_memory, |device| Null::new(device));
/// // On a machine of your making.
/// alluvion::resource_suite!(old_driver on sim(Bench::sim_with(Bench::config().version(12_000))), |device| Cuda::new(device));
/// ```
///
/// The first word names the module. Then come, in this order:
///
/// - `on sim(bench)` for a simulated machine of your making, or `on gpu(bench)` for the GPU; without either it is
///   [`Bench::sim`](crate::testing::Bench::sim). The clauses that break the machine on purpose are stamped on a simulated one
///   alone.
/// - `no_memory` for a resource whose blocks nobody may touch, so that it is not
///   [`DeviceAccessible`](crate::DeviceAccessible); `no_limit` for one that does not run out before the computer does;
///   `no_trim` for one over an allocator that keeps memory and cannot be told to give it back.
/// - a closure from a `&Device` to the resource, which is `Send`, `Sync` and `'static`. It is called once or more for each clause.
///
/// # Adaptors
///
/// For a layer that passes each request on to its upstream, `adaptor` and a closure from an
/// [`Upstream`](crate::testing::Upstream) to the layer stamp all clauses, and those that name a method that the layer forgot to
/// forward:
///
/// ```
/// # fn main() {}
/// alluvion::resource_suite!(aligned, adaptor |upstream| alluvion::ResourceExt::aligned(upstream, 4096).unwrap());
/// // It hands out its upstream's blocks, all of them and as they are: so they can sleep, be shared, and be touched by the host.
/// alluvion::resource_suite!(stats, unchanged adaptor |upstream| alluvion::ResourceExt::stats(upstream));
/// ```
///
/// Where a resource serves no block larger than some size, tell the bench:
/// [`Bench::largest_bytes`](crate::testing::Bench::largest_bytes).
#[macro_export]
macro_rules! resource_suite {
    // The clauses, in groups, each handed to the rule that is named behind the group.
    (@any $($to:tt)*) => {
        $crate::resource_suite! { $($to)* [
            zero_bytes_reach_nobody
            alignments_are_honoured_or_refused
            blocks_are_disjoint
            streams_of_others_are_refused
            free_on_another_thread
            four_threads_at_once
            every_handle_frees_every_block
            the_description_is_one_line
            memory_info_is_plausible
            nothing_leaks
            at_once_takes_no_driver_call
            at_once_changes_no_figure
        ] }
    };
    (@trim $($to:tt)*) => { $crate::resource_suite! { $($to)* [trimming_is_harmless] } };
    (@sim $($to:tt)*) => {
        $crate::resource_suite! { $($to)* [captures_elsewhere_survive a_lost_context_fails_fast_and_silently] }
    };
    (@memory $($to:tt)*) => {
        $crate::resource_suite! { $($to)* [
            blocks_hold_what_is_written
            absurd_sizes_are_out_of_memory
            freed_memory_is_reusable_on_its_stream
            freed_memory_is_ordered
            allocating_synchronously_is_synchronous
            random_operations_agree_with_the_oracle
            four_threads_keep_their_bytes
            erased_handles_free_every_block
            blocks_at_once_are_ordered
        ] }
    };
    (@schedules $($to:tt)*) => { $crate::resource_suite! { $($to)* [every_schedule_keeps_the_order] } };
    (@limit $($to:tt)*) => {
        $crate::resource_suite! { $($to)* [exhaustion_is_not_the_end freeing_synchronously_really_frees] }
    };
    // An id that depends on where its resource lies does not move in a handle that is erased.
    (@typed $($to:tt)*) => { $crate::resource_suite! { $($to)* [ids_say_who_frees_what] } };
    (@forwarding $($to:tt)*) => {
        $crate::resource_suite! { $($to)* [
            forwards_max_align
            forwards_trim
            forwards_memory_info
            forwards_upstream
            forwards_device
            forwards_synchronous_calls
            forwards_frees
        ] }
    };
    (@unchanged $($to:tt)*) => {
        $crate::resource_suite! { $($to)* [forwards_host_access forwards_sleeping forwards_export] }
    };
    (@pages $($to:tt)*) => {
        $crate::resource_suite! { $($to)* [
            pages_hold_what_is_written
            a_page_moves_to_another_address
            pages_that_cannot_be_are_refused
            released_pages_can_be_had_again
        ] }
    };
    (@page_faults $($to:tt)*) => { $crate::resource_suite! { $($to)* [a_failed_call_of_pages_loses_nothing] } };

    // What is made of them.
    (@table [$($clause:ident)*]) => {
        &[$( (stringify!($clause), |bench, make| $crate::testing::suite::$clause(bench, make)) ),*]
    };
    (@stamp $bench:expr, $make:expr, [$($clause:ident)*]) => {
        $(
            #[test]
            fn $clause() {
                $crate::testing::suite::$clause(&$bench, $make);
            }
        )*
    };
    (@module $name:ident, $bench:expr, $make_as:ident of |$device:ident| $made:expr, [$($group:ident)*] $($typed:tt)*) => {
        mod $name {
            #[allow(unused_imports, reason = "what the expressions name, if they name it without a path")]
            use super::*;
            const MAKE: $crate::testing::suite::$make_as<'static> = &|$device: &$crate::device::Device| $made;
            $( $crate::resource_suite! { @$group @stamp $bench, MAKE, } )*
            $( $crate::resource_suite! $typed )*
        }
    };
    (@erased $name:ident, $bench:expr, |$device:ident| $make:expr, $groups:tt $($typed:tt)*) => {
        $crate::resource_suite! {
            @module $name, $bench, Make of |$device| $crate::resource::AnyResource::new($make), $groups
            { @typed @stamp $bench, |$device: &$crate::device::Device| $make, } $($typed)*
        }
    };
    (@adaptor $name:ident, $bench:expr, |$upstream:ident| $wrap:expr, $($typed:tt)*) => {
        $crate::resource_suite! {
            @erased $name, $bench, |device| {
                let $upstream = $crate::testing::Upstream::new(device);
                $wrap
            }, [any trim sim memory schedules limit]
            { @forwarding @stamp $bench, |$upstream: $crate::testing::Upstream| $wrap, } $($typed)*
        }
    };
    (@untouched $name:ident, $bench:expr, |$device:ident| $make:expr, $groups:tt) => {
        $crate::resource_suite! {
            @module $name, $bench, MakeUntouched of |$device| Box::new($make), $groups
            { @typed @stamp $bench, |$device: &$crate::device::Device| $make, }
        }
    };

    ($name:ident on sim($bench:expr), adaptor |$upstream:ident| $wrap:expr) => {
        $crate::resource_suite! { @adaptor $name, $bench, |$upstream| $wrap, }
    };
    ($name:ident on sim($bench:expr), unchanged adaptor |$upstream:ident| $wrap:expr) => {
        $crate::resource_suite! {
            @adaptor $name, $bench, |$upstream| $wrap,
            { @unchanged @stamp $bench, |$upstream: $crate::testing::Upstream| $wrap, }
        }
    };
    ($name:ident on sim($bench:expr), no_memory, |$device:ident| $make:expr) => {
        $crate::resource_suite! { @untouched $name, $bench, |$device| $make, [any trim sim] }
    };
    ($name:ident on sim($bench:expr), no_limit, |$device:ident| $make:expr) => {
        $crate::resource_suite! { @erased $name, $bench, |$device| $make, [any trim sim memory schedules] }
    };
    ($name:ident on sim($bench:expr), no_trim, |$device:ident| $make:expr) => {
        $crate::resource_suite! { @erased $name, $bench, |$device| $make, [any sim memory schedules limit] }
    };
    ($name:ident on sim($bench:expr), |$device:ident| $make:expr) => {
        $crate::resource_suite! { @erased $name, $bench, |$device| $make, [any trim sim memory schedules limit] }
    };
    ($name:ident on gpu($bench:expr), no_memory, |$device:ident| $make:expr) => {
        $crate::resource_suite! { @untouched $name, $bench, |$device| $make, [any trim] }
    };
    ($name:ident on gpu($bench:expr), no_limit, |$device:ident| $make:expr) => {
        $crate::resource_suite! { @erased $name, $bench, |$device| $make, [any trim memory] }
    };
    ($name:ident on gpu($bench:expr), no_trim, |$device:ident| $make:expr) => {
        $crate::resource_suite! { @erased $name, $bench, |$device| $make, [any memory limit] }
    };
    ($name:ident on gpu($bench:expr), |$device:ident| $make:expr) => {
        $crate::resource_suite! { @erased $name, $bench, |$device| $make, [any trim memory limit] }
    };
    ($name:ident, $($rest:tt)*) => {
        $crate::resource_suite!($name on sim($crate::testing::Bench::sim()), $($rest)*);
    };
}
