//! `Mapping` on systems without `mmap`: it cannot be made.

use core::convert::Infallible;
use core::ptr::NonNull;

/// A mapping that cannot be made, so that every block comes from the driver.
#[derive(Debug)]
pub(super) struct Mapping(Infallible);

impl Mapping {
    pub(super) fn new(_: usize, _: usize) -> Option<Self> {
        None
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        match self.0 {}
    }

    pub(super) fn bytes(&self) -> usize {
        match self.0 {}
    }

    pub(super) fn prefer_huge_pages(&self) {
        match self.0 {}
    }

    pub(super) fn prefer_node(&self, _: u32) {
        match self.0 {}
    }

    pub(super) fn populate(&self, _: usize) -> bool {
        match self.0 {}
    }

    pub(super) fn unmap(self) {
        match self.0 {}
    }
}
