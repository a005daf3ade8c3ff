//! `Apart`: data in cache lines of its own.

use core::ops::{Deref, DerefMut};

/// Data in cache lines that hold nothing else, so that a write to it does not slow accesses to its neighbours. Two lines at least,
/// because processors fetch them in pairs.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> Deref for Apart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Apart<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

static_assertions::assert_eq_size!(Apart<u8>, [u8; 128]);
static_assertions::assert_eq_size!(Apart<[u8; 129]>, [u8; 256]);
static_assertions::const_assert!(align_of::<Apart<u8>>() == 128);
