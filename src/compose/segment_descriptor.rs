//! A descriptor of a segment, of a stack whose type is forgotten.

#![expect(unsafe_code, reason = "exports memory whose life the caller promises")]

use std::os::fd::OwnedFd;

use crate::driver::ExportedMemory;
use crate::error::Error;
use crate::resource::{AnyResource, DevicePtr, ExportForm, Layout, Resource};
use crate::suballoc::SuballocBook;

impl AnyResource {
    /// A descriptor of a segment of the outermost suballocator, by which another process maps the same memory: a block of it is lent by
    /// [`Shared`](crate::share::Shared), and this is for libraries that share memory by themselves. It is imported by
    /// `cuMemImportFromShareableHandle`, and keeps the memory, also when the segment is given back, until the last copy of it and the last
    /// mapping are gone.
    ///
    /// The segment is one of [`SuballocBook::segments`], of pages that have such a handle: `pool(registered=64MiB) | mapped(handles=fd)`.
    ///
    /// ```
    /// use alluvion::suballoc::SuballocBook;
    /// use alluvion::{Recipe, ResourceExt, Sim};
    ///
    /// let recipe: Recipe = "stats | pool(registered=8MiB,initial=8MiB) | mapped(handles=fd)".parse()?;
    /// let stack = recipe.build(&Sim::new().device(0))?;
    /// let segment = stack.find::<SuballocBook>().expect("there is a pool").segments()[0];
    /// // SAFETY: nobody gives memory of the stack back meanwhile.
    /// let descriptor = unsafe { stack.export_segment(segment.address) }?;
    /// # drop(descriptor);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if no segment begins there; `Unsupported` for a stack without a suballocator, for memory that no one descriptor
    /// stands for, as that of `cuda` and that of a pool whose pages move, and for a stack that sleeps; `Unwritable` if the process has no
    /// descriptor left; as the driver says.
    ///
    /// # Safety
    ///
    /// The segment is there until this returns: a block on it is live and awake, or no thread trims the stack, has it grow or ends it
    /// meanwhile.
    pub unsafe fn export_segment(&self, segment: DevicePtr) -> Result<OwnedFd, Error> {
        self.device().machine().require_same_process()?;
        let (suballocator, book) = suballocator_of(self).ok_or_else(|| {
            Error::unsupported(
                "a descriptor of a segment of this stack",
                "it has no suballocator, and so no segments",
                "name `pool` in the recipe, over `mapped(handles=fd)`",
            )
        })?;
        let known = book.segments().into_iter().find(|known| known.address == segment).ok_or_else(|| {
            Error::invalid_argument(
                "a segment to export",
                "none of the suballocator begins there",
                "pass the address of one of `SuballocBook::segments`",
            )
        })?;
        // SAFETY: the segment is live memory of the suballocator, so long, until this returns: the caller's promise.
        let export = unsafe { suballocator.export(segment, Layout::from_bytes(known.bytes)?) }?;
        match &export.form {
            ExportForm::Pages(memory) if export.offset == 0 && export.segment_bytes == known.bytes => {
                match &**memory {
                    ExportedMemory::FileDescriptor(descriptor) => descriptor
                        .try_clone()
                        .map_err(|error| Error::unwritable("a descriptor of a segment", &error)),
                    ExportedMemory::Fabric(_) => Err(no_descriptor()),
                }
            }
            _ => Err(no_descriptor()),
        }
    }
}

#[cold]
fn no_descriptor() -> Error {
    Error::unsupported(
        "a descriptor of a segment",
        "no one descriptor stands for its memory, and for no more than that",
        "make the stack with `pool(registered=64MiB) | mapped(handles=fd)`",
    )
}

/// The outermost suballocator of a stack, past the layers that watch, and its book.
fn suballocator_of(stack: &dyn Resource) -> Option<(&dyn Resource, &SuballocBook)> {
    let mut at = Some(stack);
    while let Some(resource) = at {
        if let Some(book) = resource.layer().and_then(|layer| layer.downcast::<SuballocBook>()) {
            return Some((resource, book));
        }
        at = resource.upstream();
    }
    None
}
