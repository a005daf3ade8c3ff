//! What has a guard found?

#![expect(unsafe_code, reason = "exports functions, and calls functions of C")]

use std::ffi::{CString, c_char, c_int, c_void};

use alluvion::adaptor::{Guard, GuardBook, Trespass, TrespassKind};
use alluvion::{Error, ResourceExt as _};

use crate::allocate::pointer;
use crate::boundary::{self, null};
use crate::handle::by_contract::lend;
use crate::resource::ResourceHandle;
use crate::source::User;
use crate::status::Status;

/// Bytes before the block were written.
pub const ALV_VIOLATION_BEFORE: u32 = 1;
/// Bytes behind the block were written.
pub const ALV_VIOLATION_BEHIND: u32 = 2;
/// Bytes of the block were written after it was freed.
pub const ALV_VIOLATION_AFTER_FREE: u32 = 3;
/// It was freed and is no block that is out. The free was not done.
pub const ALV_VIOLATION_NOT_LIVE: u32 = 4;
/// It was freed with another size or alignment. The free was done, with the right one.
pub const ALV_VIOLATION_WRONG_LAYOUT: u32 = 5;

/// What a layer `guard` has found.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Violation {
    /// `sizeof(alv_violation)` of the library: a program that is older knows fewer fields.
    pub struct_size: usize,
    /// The block that it happened to.
    pub address: *mut c_void,
    /// Its bytes; for one that is not out, the bytes of the free.
    pub bytes: usize,
    /// One of `ALV_VIOLATION_BEFORE` and those after it; a later library may have others.
    pub kind: u32,
    /// For the first three kinds, the value that the first wrong byte has, and the one that it should have.
    pub found: u8,
    /// See `found`.
    pub expected: u8,
    /// 0.
    pub reserved: u16,
    /// Where the first wrong byte is, from the beginning of the block: −1 is the byte before it.
    pub offset: isize,
    /// How many bytes are wrong, as far as the guard has looked.
    pub wrong_bytes: usize,
    /// The tag of the block, with semicolons between the scopes: valid during the call.
    pub tag: *const c_char,
    /// All of it on a line, for people: valid during the call.
    pub text: *const c_char,
}

/// A function of the caller's that gets a violation.
type Each = unsafe extern "C" fn(user: *mut c_void, violation: *const Violation) -> c_int;

/// Calls a function of the caller's with a violation.
///
/// # Safety
///
/// `each` is a function that may be called with `user` now.
unsafe fn tell(each: Each, user: *mut c_void, found: &Trespass) -> c_int {
    let (kind, damage) = match found.kind {
        TrespassKind::Before(damage) => (ALV_VIOLATION_BEFORE, Some(damage)),
        TrespassKind::Behind(damage) => (ALV_VIOLATION_BEHIND, Some(damage)),
        TrespassKind::AfterFree(damage) => (ALV_VIOLATION_AFTER_FREE, Some(damage)),
        TrespassKind::NotLive => (ALV_VIOLATION_NOT_LIVE, None),
        TrespassKind::WrongLayout { .. } => (ALV_VIOLATION_WRONG_LAYOUT, None),
        _ => (0, None),
    };
    let tag = CString::new(found.tag.to_string()).unwrap_or_default();
    let text = CString::new(found.to_string()).unwrap_or_default();
    let violation = Violation {
        struct_size: size_of::<Violation>(),
        address: pointer(found.block),
        bytes: found.bytes,
        kind,
        found: damage.map_or(0, |damage| damage.found),
        expected: damage.map_or(0, |damage| damage.expected),
        reserved: 0,
        offset: damage.map_or(0, |damage| damage.offset),
        wrong_bytes: damage.map_or(0, |damage| damage.wrong_bytes),
        tag: tag.as_ptr(),
        text: text.as_ptr(),
    };
    // SAFETY: the caller's promise; the violation lives beyond the call.
    unsafe { each(user, &raw const violation) }
}

/// # Safety
///
/// The contract of pointers.
unsafe fn book<'a>(resource: *const ResourceHandle) -> Result<&'a GuardBook, Error> {
    lend!(resource).get().find::<Guard>().ok_or_else(|| {
        Error::unsupported("a guard", "the stack has no such layer", "name `guard` in the recipe")
    })
}

/// Calls `each` with what the outermost layer `guard` has found, the first first and at most 1024, until it answers another number than 0.
/// Waits for the work before all that was freed, and looks at it first. No lock is held while `each` runs: it may free. It must not throw.
/// `ALV_UNSUPPORTED` without such a layer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_violations(
    resource: *const ResourceHandle,
    each: Option<unsafe extern "C" fn(user: *mut c_void, violation: *const Violation) -> c_int>,
    user: *mut c_void,
) -> Status {
    boundary::call(|| {
        let each = each.ok_or_else(|| null("each"))?;
        // SAFETY: the contract of pointers.
        let book = unsafe { book(resource) }?;
        book.check()?;
        for found in &book.violations() {
            // SAFETY: the caller's function and what it is called with.
            if unsafe { tell(each, user, found) } != 0 {
                break;
            }
        }
        Ok(())
    })
}

/// Has the outermost layer `guard` call `each` with what it finds from now on: on the thread that finds it, which is one that allocates,
/// frees or asks, with no lock held. It may call the library, and must not throw; its answer is not looked at. Without any such function a
/// finding is a line on the standard error stream. `drop`, which may be null, is called once when the layer goes, on any thread; not if the
/// call fails. `ALV_UNSUPPORTED` without such a layer.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_on_violation(
    resource: *const ResourceHandle,
    each: Option<unsafe extern "C" fn(user: *mut c_void, violation: *const Violation) -> c_int>,
    drop: Option<unsafe extern "C" fn(user: *mut c_void)>,
    user: *mut c_void,
) -> Status {
    boundary::call(|| {
        let each = each.ok_or_else(|| null("each"))?;
        // SAFETY: the contract of pointers.
        let book = unsafe { book(resource) }?;
        let user = User::new(user, drop);
        book.on_violation(move |found| {
            // SAFETY: the caller's function, called as its documentation says, and what it is called with.
            let _ = unsafe { tell(each, user.get(), found) };
        });
        Ok(())
    })
}
