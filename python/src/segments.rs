//! Who hears of the segments of a stack, and who else uses them?

#![expect(unsafe_code, reason = "lends memory that a program has the addresses of")]

use std::os::fd::OwnedFd;

use alluvion::suballoc::{SegmentHooks, SegmentView, SuballocBook};
use alluvion::{AnyResource, DevicePtr, Error, ResourceExt as _};
use pyo3::prelude::*;

use crate::attached::attach;
use crate::error::{keep_raised, raised_by};

/// A function of Python, which lives as long as the pool that it hears of: blocks may outlive the object of their stack.
struct Hook {
    /// `None` in the destructor alone.
    function: Option<Py<PyAny>>,
    device: u32,
}

impl Hook {
    /// Tells the function of a segment that has come. One that raises has refused, and the request has its exception.
    fn tell_added(&self, segment: SegmentView) -> Result<(), Error> {
        self.tell(segment, |raised, _| keep_raised(raised))
    }

    /// Tells the function of a segment that is to go. One that raises has refused, and no request fails for it: the exception goes to
    /// `sys.unraisablehook`.
    fn tell_dropped(&self, segment: SegmentView) -> Result<(), Error> {
        self.tell(segment, |raised, function| raised.write_unraisable(function.py(), Some(function)))
    }

    fn tell(
        &self,
        segment: SegmentView,
        hand_over: impl FnOnce(PyErr, &Bound<'_, PyAny>),
    ) -> Result<(), Error> {
        let told = attach(|py| {
            let Some(function) = &self.function else { return Ok(()) };
            let (function, arguments) =
                (function.bind(py), (segment.address.address(), segment.bytes, self.device));
            function.call1(arguments).map(drop).map_err(|raised| {
                hand_over(raised, function);
                raised_by("a function that hears of segments")
            })
        });
        // Without an interpreter nobody has anything registered any more.
        told.unwrap_or(Ok(()))
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        let function = self.function.take();
        // Without an interpreter it is leaked.
        if let Some(function) = function {
            let mut function = Some(function);
            let dropped = attach(|_| drop(function.take()));
            if dropped.is_none() {
                std::mem::forget(function);
            }
        }
    }
}

/// Has the outermost suballocator tell two functions of its segments, and the first one of those that are there. `None` without one. Not
/// attached.
pub(crate) fn set_hooks(
    stack: &AnyResource,
    added: Option<Py<PyAny>>,
    dropped: Option<Py<PyAny>>,
) -> Result<Option<()>, Error> {
    let Some(book) = stack.find::<SuballocBook>() else { return Ok(None) };
    let device = stack.device().ordinal();
    let hook = |function| Hook { function, device };
    let (added, dropped) = (hook(added), hook(dropped));
    let hooks = SegmentHooks::default()
        .on_added(move |segment| added.tell_added(segment))
        .on_dropped(move |segment| dropped.tell_dropped(segment));
    // The last error: what the function has raised last is the cause.
    book.introduce_segment_hooks(&hooks).map(Some)
}

/// The segments of the outermost suballocator: the address and the bytes of each. `None` without one.
pub(crate) fn list(stack: &AnyResource) -> Option<Vec<(u64, usize)>> {
    let book = stack.find::<SuballocBook>()?;
    Some(book.segments().iter().map(|segment| (segment.address.address(), segment.bytes)).collect())
}

/// A descriptor of the segment of the outermost suballocator that begins at an address.
pub(crate) fn export(stack: &AnyResource, address: u64) -> Result<OwnedFd, Error> {
    let segment = DevicePtr::new(address).ok_or_else(no_address)?;
    // SAFETY: who calls it in Python promises that the segment stays meanwhile, by the method's text.
    unsafe { stack.export_segment(segment) }
}

/// A descriptor of a dma-buf of memory of the device of a stack.
pub(crate) fn dma_buf(stack: &AnyResource, address: u64, bytes: usize) -> Result<OwnedFd, Error> {
    if address == 0 {
        return Err(no_address());
    }
    // SAFETY: who calls it in Python promises that the memory is there meanwhile, by the method's text.
    unsafe { stack.device().dma_buf(address, bytes) }
}

#[cold]
fn no_address() -> Error {
    Error::invalid_argument(
        "address",
        "no memory lies at 0",
        "pass the address of a segment, as `segments` lists them",
    )
}

/// Freezes the outermost suballocator. `None` without one.
pub(crate) fn freeze(stack: &AnyResource) -> Option<()> {
    stack.find::<SuballocBook>().map(SuballocBook::freeze)
}
