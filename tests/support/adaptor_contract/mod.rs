//! What the layers promise that shape or guard blocks, clause by clause, on any machine.
//!
//! `clauses!` makes a test of each; the simulator and the GPU run the same functions.

#![allow(dead_code, reason = "each machine's tests use this module on their own")]
#![expect(unsafe_code, reason = "forwards the contract of resources")]

pub(crate) mod aligned;
pub(crate) mod guard;
pub(crate) mod prefetch;

use alluvion::{DeviceAccessible, DevicePtr, Error, Layout, Resource, StreamRef};

/// Makes a test of each clause, on the bench that the expression makes.
#[allow(unused_macros, reason = "who takes a part of this module makes no tests of it")]
macro_rules! clauses {
    ($bench:expr) => {
        $crate::adaptor_contract::clauses! { $bench, aligned:
            blocks_of_every_size_are_aligned
            the_threshold_is_a_boundary
            a_moved_block_is_given_back_from_where_it_began
        }
        $crate::adaptor_contract::clauses! { $bench, guard:
            an_overrun_is_found
            an_underrun_is_found
            a_write_after_the_free_is_found
            the_check_is_behind_the_work
            fresh_and_freed_blocks_are_full_of_poison
            what_the_host_writes_is_found_too
            the_quarantine_has_an_end
            a_sound_program_is_left_in_peace
        }
        $crate::adaptor_contract::clauses! { $bench, prefetch:
            managed_blocks_migrate_and_hold_what_is_written
            memory_that_stays_is_left_alone
            the_driver_is_asked_about_what_is_not_known
        }
    };
    ($bench:expr, $module:ident: $($clause:ident)+) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $clause() {
                    $crate::adaptor_contract::$module::$clause(&$bench);
                }
            )+
        }
    };
}
#[allow(unused_imports, reason = "as above")]
pub(crate) use clauses;

/// A resource that honours no more than every one must; and, if it is unknown, does not say what is under it.
pub(crate) struct Plain<U> {
    pub(crate) upstream: U,
    is_known: bool,
}

impl<U> Plain<U> {
    pub(crate) fn over(upstream: U) -> Self {
        Self { upstream, is_known: true }
    }

    pub(crate) fn unknown(upstream: U) -> Self {
        Self { upstream, is_known: false }
    }
}

// SAFETY: everything but `max_align` is forwarded, and larger alignments are refused.
unsafe impl<U: Resource> Resource for Plain<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        layout.require_align(self.max_align())?;
        self.upstream.allocate(layout, stream)
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        layout.require_align(self.max_align())?;
        self.upstream.allocate_sync(layout)
    }

    fn max_align(&self) -> usize {
        Layout::MIN_ALIGN
    }

    fn upstream(&self) -> Option<&dyn Resource> {
        self.is_known.then_some(&self.upstream as &dyn Resource)
    }

    alluvion::forward_resource!(upstream, except allocate, max_align, trim, memory_info, upstream);
}

// SAFETY: its blocks are the upstream's.
unsafe impl<U: DeviceAccessible> DeviceAccessible for Plain<U> {}
