//! What the rooms above call where the feature `nvtx` is off. Nobody is told of anything, and nothing is left of the calls.

use core::ffi::CStr;

/// A piece of memory that nobody is told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece;

impl Piece {
    #[inline]
    pub(crate) fn new(_address: u64, _bytes: usize) -> Self {
        Self
    }
}

/// A range that nobody is told of.
#[must_use]
#[derive(Debug)]
pub(crate) struct Range;

/// As a range that ends.
impl Drop for Range {
    #[inline]
    fn drop(&mut self) {}
}

#[inline]
pub(crate) fn start() {}

#[inline]
pub(crate) const fn listens() -> bool {
    false
}

#[inline]
pub(crate) fn range(_name: &'static CStr, _bytes: usize) -> Range {
    Range
}

#[inline]
pub(crate) const fn hears_ranges() -> bool {
    false
}

#[inline]
pub(crate) fn begin_scope(_name: &str) {}

#[inline]
pub(crate) fn end_scopes(_scopes: usize) {}

#[inline]
pub(crate) fn mark(_name: &'static CStr, _bytes: usize) {}

#[inline]
pub(crate) const fn announces_all() -> bool {
    true
}

#[inline]
pub(crate) fn knows(_piece: Piece) -> bool {
    false
}

#[inline]
pub(crate) fn divide(_piece: Piece, _name: &str, _may_be_heap: impl FnOnce() -> bool) -> bool {
    false
}

#[inline]
pub(crate) fn unite(_piece: Piece) {}

#[inline]
pub(crate) fn enter(_piece: Piece, _tag: u32, _path: impl FnOnce() -> String) {}

#[inline]
pub(crate) fn leave(_address: u64) {}

#[inline]
pub(crate) fn vouch(_pieces: &[Piece], _stream: usize) {}
