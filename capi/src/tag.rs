//! What is an allocation for?

#![expect(unsafe_code, reason = "exports functions")]

use std::cell::RefCell;
use std::ffi::c_char;

use alluvion::Error;
use alluvion::tag::Tag;

use crate::boundary;
use crate::status::Status;
use crate::text;

thread_local! {
    /// The tags around the scopes that this thread has pushed.
    static AROUND: RefCell<Vec<Tag>> = const { RefCell::new(Vec::new()) };
}

/// Begins a scope on the calling thread, within the scopes that are there: allocations are counted under its name until
/// `alv_tag_pop`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_tag_push(name: *const c_char) -> Status {
    boundary::call(|| {
        // SAFETY: the contract of pointers.
        let name = unsafe { text::borrow(name, "name") }?;
        let around = Tag::current();
        let pushed = AROUND.try_with(|tags| tags.borrow_mut().push(around));
        if pushed.is_err() {
            let why = "the thread is ending, and has no scopes any more";
            return Err(Error::unsupported(
                "a scope of tags",
                why,
                "push before the thread's destructors run",
            ));
        }
        around.within(name).make_current();
        Ok(())
    })
}

/// Ends the innermost scope of the calling thread. Without one there is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn alv_tag_pop() {
    boundary::contained((), || {
        let around = AROUND.try_with(|tags| tags.borrow_mut().pop()).ok().flatten();
        if let Some(around) = around {
            around.make_current();
        }
    });
}
