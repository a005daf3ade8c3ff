//! Do the header and the library belong together?

#![expect(unsafe_code, reason = "exports functions")]

use alluvion::Error;

use crate::boundary;
use crate::status::Status;

const fn number(text: &str) -> u32 {
    let (bytes, mut at, mut value) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        value = value * 10 + (bytes[at] - b'0') as u32;
        at += 1;
    }
    value
}

/// Before 1.0 another minor version may be another interface.
pub const ALV_VERSION_MAJOR: u32 = 0;
/// Grows when functions are added.
pub const ALV_VERSION_MINOR: u32 = 1;
/// Grows when functions are mended.
pub const ALV_VERSION_PATCH: u32 = 0;

// Numbers, because the header has them; they are those of the package.
const _: () = assert!(number(env!("CARGO_PKG_VERSION_MAJOR")) == ALV_VERSION_MAJOR);
const _: () = assert!(number(env!("CARGO_PKG_VERSION_MINOR")) == ALV_VERSION_MINOR);
const _: () = assert!(number(env!("CARGO_PKG_VERSION_PATCH")) == ALV_VERSION_PATCH);

const fn packed(major: u32, minor: u32, patch: u32) -> u32 {
    (major << 24) | (minor << 12) | patch
}

/// The version of the library: the major version times 2^24, the minor times 2^12, and the patch. `ALV_VERSION` is that of the
/// header.
#[unsafe(no_mangle)]
pub extern "C" fn alv_version() -> u32 {
    packed(ALV_VERSION_MAJOR, ALV_VERSION_MINOR, ALV_VERSION_PATCH)
}

/// Whether a program that was compiled with a header of that version, `ALV_VERSION`, may use this library. `ALV_UNSUPPORTED` if
/// the two have different major versions (minor versions before 1.0), or if the library is the older one.
#[unsafe(no_mangle)]
pub extern "C" fn alv_check_version(header: u32) -> Status {
    boundary::call(|| {
        if fits(header, alv_version()) {
            return Ok(());
        }
        Err(Error::unsupported(
            "the version of the header",
            "the library has another one that does not fit it (alv_version)",
            "compile with the header that was installed with the library",
        ))
    })
}

fn fits(header: u32, library: u32) -> bool {
    let major = |version: u32| version >> 24;
    let minor = |version: u32| (version >> 12) & 0xFFF;
    let same = major(header) == major(library) && (major(library) > 0 || minor(header) == minor(library));
    same && header <= library
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_serves_headers_of_its_kind_that_are_not_younger() {
        let v = packed;
        for (header, library, fit) in [
            (v(0, 1, 0), v(0, 1, 0), true),
            (v(0, 1, 0), v(0, 1, 3), true),
            (v(0, 1, 3), v(0, 1, 0), false),
            (v(0, 1, 0), v(0, 2, 0), false),
            (v(0, 2, 0), v(0, 1, 0), false),
            (v(1, 2, 0), v(1, 4, 0), true),
            (v(1, 4, 0), v(1, 2, 9), false),
            (v(1, 0, 0), v(2, 0, 0), false),
            (v(2, 0, 0), v(1, 0, 0), false),
        ] {
            assert_eq!(fits(header, library), fit, "{header:#x} over {library:#x}");
        }
        assert_eq!(number("120"), 120);
    }
}
