//! `Layout`: the only description of memory that a resource accepts.

use core::ffi::c_void;

use crate::error::Error;
use crate::resource::DevicePtr;
use crate::size::GRAIN;

/// Size and alignment of a block, checked once.
///
/// The alignment is a power of two, and the size, rounded up to the alignment or to [`Layout::MIN_ALIGN`], whichever is larger, is
/// at most `isize::MAX`. So rounding up in a resource never overflows, and needs no check.
///
/// `core::alloc::Layout` converts into it, and differs by that rounding alone.
///
/// ```
/// use alluvion::Layout;
///
/// let layout = Layout::array::<f32>(1000)?;
/// assert_eq!((layout.bytes(), layout.align(), layout.rounded_bytes()), (4000, 4, 4096));
/// assert!(Layout::new(usize::MAX - 3, 1).unwrap_err().is_size_overflow());
/// assert!(Layout::new(1, 3).unwrap_err().is_alignment());
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    bytes: usize,
    align: usize,
}

impl Layout {
    /// Every block is aligned to this at least: the alignment that the CUDA driver promises, and RMM's unit.
    pub const MIN_ALIGN: usize = GRAIN;

    /// `bytes` bytes at a multiple of `align`.
    ///
    /// # Errors
    ///
    /// `InvalidAlignment` unless `align` is a power of two; `SizeOverflow` above `isize::MAX` bytes, rounded up.
    #[inline]
    pub const fn new(bytes: usize, align: usize) -> Result<Self, Error> {
        if !align.is_power_of_two() {
            return Err(Error::invalid_alignment(align));
        }
        let unit = if align > Self::MIN_ALIGN { align } else { Self::MIN_ALIGN };
        // `unit` is at most 2^63, so the right side does not wrap.
        if bytes > (isize::MAX as usize + 1) - unit {
            return Err(Error::size_overflow(bytes, 1));
        }
        Ok(Self { bytes, align })
    }

    /// `bytes` bytes, aligned as every block is.
    ///
    /// # Errors
    ///
    /// `SizeOverflow` above `isize::MAX` bytes, rounded up.
    #[inline]
    pub const fn from_bytes(bytes: usize) -> Result<Self, Error> {
        Self::new(bytes, Self::MIN_ALIGN)
    }

    /// `count` elements of `T`.
    ///
    /// # Errors
    ///
    /// `SizeOverflow` if they are more than `isize::MAX` bytes, rounded up.
    pub const fn array<T>(count: usize) -> Result<Self, Error> {
        match count.checked_mul(size_of::<T>()) {
            Some(bytes) if bytes <= isize::MAX as usize + 1 - Self::MIN_ALIGN => {
                Self::new(bytes, align_of::<T>())
            }
            _ => Err(Error::size_overflow(count, size_of::<T>())),
        }
    }

    /// The layout of a request in another language. Alignments up to 256 are one, and 0 means that one.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    #[doc(hidden)]
    #[inline]
    pub fn of_request(bytes: usize, align: usize) -> Result<Self, Error> {
        let layout = Self::new(bytes, if align == 0 { Self::MIN_ALIGN } else { align })?;
        Ok(Self { align: layout.block_align(), ..layout })
    }

    /// A block that comes back from another language, with the layout of its request; `None` if there is nothing to free.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); `InvalidArgument` for a block of no bytes.
    #[doc(hidden)]
    #[inline]
    pub fn of_freed(
        block: *mut c_void,
        bytes: usize,
        align: usize,
    ) -> Result<Option<(DevicePtr, Self)>, Error> {
        let Some(block) = DevicePtr::new(block.expose_provenance() as u64) else { return Ok(None) };
        let layout = Self::of_request(bytes, align)?;
        if layout.is_empty() {
            return Err(Error::invalid_argument("bytes", "no block has 0", "pass the bytes of the request"));
        }
        Ok(Some((block, layout)))
    }

    /// The bytes asked for.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// The alignment asked for.
    #[must_use]
    pub const fn align(self) -> usize {
        self.align
    }

    /// The alignment that a block gets: the one asked for, at least 256.
    #[must_use]
    pub const fn block_align(self) -> usize {
        if self.align > Self::MIN_ALIGN { self.align } else { Self::MIN_ALIGN }
    }

    /// The bytes rounded up to whole units of 256.
    #[must_use]
    pub const fn rounded_bytes(self) -> usize {
        (self.bytes + (Self::MIN_ALIGN - 1)) & !(Self::MIN_ALIGN - 1)
    }

    /// Returns `true` for zero bytes, which never reach a resource's upstream.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.bytes == 0
    }

    /// The address for zero bytes: not null, aligned, without memory. Freeing it does nothing.
    #[must_use]
    pub const fn dangling(self) -> DevicePtr {
        match DevicePtr::new(self.block_align() as u64) {
            Some(pointer) => pointer,
            // The alignment is at least 256.
            None => unreachable!(),
        }
    }

    /// Succeeds if the alignment is at most `max_align`.
    ///
    /// # Errors
    ///
    /// `UnsupportedAlignment` if it is more.
    pub const fn require_align(self, max_align: usize) -> Result<(), Error> {
        if self.align <= max_align {
            Ok(())
        } else {
            Err(Error::unsupported_alignment(self.align, max_align))
        }
    }
}

impl TryFrom<core::alloc::Layout> for Layout {
    type Error = Error;

    fn try_from(layout: core::alloc::Layout) -> Result<Self, Error> {
        Self::new(layout.size(), layout.align())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_end_where_rounding_would_overflow() {
        let largest = isize::MAX as usize - 255;
        assert_eq!(Layout::from_bytes(largest).map(Layout::rounded_bytes).ok(), Some(largest));
        for bytes in [largest + 1, isize::MAX as usize, isize::MAX as usize + 1, usize::MAX - 3, usize::MAX] {
            assert!(Layout::from_bytes(bytes).is_err_and(|error| error.is_size_overflow()), "{bytes}");
        }
        assert!(Layout::new(1, 1 << 63).is_err_and(|error| error.is_size_overflow()));
        assert!(Layout::new(0, 1 << 63).is_ok());
    }

    #[test]
    fn alignments_are_powers_of_two() {
        for align in [0, 3, 255, 768] {
            assert!(Layout::new(8, align).is_err_and(|error| error.is_alignment()), "{align}");
        }
        for align in [1, 2, 256, 512, 2 << 20] {
            let layout = Layout::new(8, align).unwrap();
            assert_eq!((layout.align(), layout.block_align()), (align, align.max(256)));
            assert_eq!(layout.dangling().address() % align as u64, 0);
        }
    }

    #[test]
    fn other_languages_have_alignments_of_256_and_more() {
        for (align, gets) in [(0, 256), (1, 256), (256, 256), (512, 512)] {
            assert_eq!(Layout::of_request(8, align).ok(), Layout::new(8, gets).ok(), "{align}");
        }
        assert!(Layout::of_request(8, 3).is_err_and(|error| error.is_alignment()));
        let block = core::ptr::without_provenance_mut(4096);
        let freed = Layout::of_freed(block, 8, 1).ok().flatten();
        assert_eq!(freed, DevicePtr::new(4096).zip(Layout::from_bytes(8).ok()));
        assert_eq!(Layout::of_freed(core::ptr::null_mut(), 0, 3).ok(), Some(None));
        assert!(Layout::of_freed(block, 0, 1).is_err());
    }

    #[test]
    fn arrays_overflow_with_their_own_numbers() {
        let error = Layout::array::<u64>(1 << 61).unwrap_err();
        assert!(error.to_string().contains("2305843009213693952 elements of 8 bytes"), "{error}");
        assert_eq!(Layout::array::<()>(usize::MAX).unwrap().bytes(), 0);
    }
}
