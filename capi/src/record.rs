//! How do structs grow without breaking programs?
//!
//! A struct that may grow begins with its own size, as the caller was compiled. The library reads and writes as many bytes as both
//! know; a struct only grows at its end.

#![expect(unsafe_code, reason = "reads and writes structs of C by their sizes")]

use std::ptr;

use alluvion::Error;

use crate::boundary::null;

/// A struct of C that begins with `size_t struct_size` and is plain data.
///
/// # Safety
///
/// The type is `repr(C)`, its first field is a `usize` that holds the size, every pattern of bits that C may write is a value,
/// and all bits zero are one.
pub(crate) unsafe trait Record: Copy {
    /// The name of the parameter, for errors.
    const NAME: &'static str;
}

fn size_of_callers(record: &'static str, size: usize) -> Result<usize, Error> {
    if size < size_of::<usize>() {
        return Err(Error::invalid_argument(record, "its struct_size is not set", "begin it with ALV_INIT"));
    }
    Ok(size)
}

/// Writes what the caller's struct has room for, and leaves its `struct_size` as it is.
///
/// # Safety
///
/// `out` is null, or points to a struct of which `struct_size` bytes are writable.
pub(crate) unsafe fn write<T: Record>(out: *mut T, value: &T) -> Result<(), Error> {
    // SAFETY: `out` is not null, so it points to a struct that begins with its size.
    let size = unsafe { size_at(out) }?;
    let first = size_of::<usize>();
    let bytes = size.min(size_of::<T>()).saturating_sub(first);
    let from = ptr::from_ref(value).cast::<u8>();
    // SAFETY:
    // - `first + bytes` is at most the size of `T`, and at most what the caller says is writable;
    // - padding is copied as bytes without being looked at; the two do not overlap, since `value` is the library's own.
    unsafe {
        ptr::copy_nonoverlapping(from.wrapping_add(first), out.cast::<u8>().wrapping_add(first), bytes);
    };
    Ok(())
}

/// Reads what the caller's struct has; what it has not is zero.
///
/// # Safety
///
/// `given` is null, or points to a struct of which `struct_size` bytes are readable.
pub(crate) unsafe fn read<T: Record>(given: *const T) -> Result<T, Error> {
    // SAFETY: as above.
    let size = unsafe { size_at(given) }?;
    // SAFETY: all bits zero are a value, by the contract of `Record`.
    let mut value: T = unsafe { std::mem::zeroed() };
    let bytes = size.min(size_of::<T>());
    // SAFETY: `bytes` is at most the size of either.
    unsafe { ptr::copy_nonoverlapping(given.cast::<u8>(), ptr::from_mut(&mut value).cast::<u8>(), bytes) };
    Ok(value)
}

/// # Safety
///
/// `record` is null or points to a struct that begins with its size.
unsafe fn size_at<T: Record>(record: *const T) -> Result<usize, Error> {
    if record.is_null() {
        return Err(null(T::NAME));
    }
    // SAFETY: it is not null, and begins with its size.
    size_of_callers(T::NAME, unsafe { record.cast::<usize>().read() })
}

/// A text in an array of fixed length, ended by 0, and cut if it is longer.
pub(crate) fn fixed<const N: usize>(text: &str) -> [std::ffi::c_char; N] {
    let mut array = [0; N];
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in array.iter_mut().zip(&text.as_bytes()[..end]) {
        *to = *from as std::ffi::c_char;
    }
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Grown {
        struct_size: usize,
        old: u64,
        new: u64,
    }

    // SAFETY: repr(C), a size first, and numbers.
    unsafe impl Record for Grown {
        const NAME: &'static str = "grown";
    }

    #[test]
    fn an_older_program_gets_what_it_knows_and_no_byte_more() {
        let value = Grown { struct_size: 0, old: 1, new: 2 };
        let mut whole = Grown { struct_size: size_of::<Grown>(), old: 8, new: 9 };
        // SAFETY: a whole struct.
        unsafe { write(&raw mut whole, &value) }.expect("it has its size");
        assert_eq!((whole.struct_size, whole.old, whole.new), (24, 1, 2));
        for (size, old, new) in [(8, 8, 9), (16, 1, 9), (12, 1, 9), (4096, 1, 2)] {
            let mut older = Grown { struct_size: size, old: 8, new: 9 };
            // SAFETY: a whole struct, of which no more than its size is written.
            unsafe { write(&raw mut older, &value) }.expect("it has a size");
            assert_eq!((older.struct_size, older.old, older.new), (size, old, new));
        }
    }

    #[test]
    fn what_an_older_program_does_not_say_is_zero() {
        for (size, old, new) in [(8, 0, 0), (16, 8, 0), (24, 8, 9), (4096, 8, 9)] {
            let given = Grown { struct_size: size, old: 8, new: 9 };
            // SAFETY: no more than the size of the type is read.
            let read = unsafe { read(&raw const given) }.expect("it has a size");
            assert_eq!((read.old, read.new), (old, new));
        }
    }

    #[test]
    fn a_size_that_was_forgotten_is_an_error() {
        let mut forgotten = Grown { struct_size: 0, old: 8, new: 9 };
        let copy = forgotten;
        // SAFETY: a whole struct.
        assert!(unsafe { read(&raw const forgotten) }.is_err());
        // SAFETY: a whole struct.
        assert!(unsafe { write(&raw mut forgotten, &copy) }.is_err());
        // SAFETY: null.
        assert!(unsafe { read::<Grown>(ptr::null()) }.is_err());
        // SAFETY: null.
        assert!(unsafe { write(ptr::null_mut(), &copy) }.is_err());
    }

    #[test]
    fn a_text_is_cut_between_letters() {
        let text = |array: &[std::ffi::c_char]| -> String {
            array.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8 as char).collect()
        };
        assert_eq!(text(&fixed::<8>("Pool")), "Pool");
        assert_eq!(text(&fixed::<4>("Pool")), "Poo");
        // Of two bytes, of which one would fit.
        assert_eq!(fixed::<3>("a\u{e9}")[1], 0);
    }
}
