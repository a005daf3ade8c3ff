//! A block that a test holds in its hand: allocated, written, read back and freed without a container.

#![allow(dead_code, reason = "some tests need a part of it")]
#![expect(unsafe_code, reason = "allocates and frees by hand")]

use alluvion::driver::FillValue;
use alluvion::{DeviceAccessible, DevicePtr, Error, Layout, Resource, StreamRef};

/// `bytes` bytes, aligned as every block is.
#[track_caller]
pub(crate) fn layout_of(bytes: usize) -> Layout {
    Layout::from_bytes(bytes).expect("the size of a test is no overflow")
}

/// A live block. Freeing consumes it; what is dropped is leaked.
///
/// The test orders its uses before its free. Where it does not order two uses of one address, the resource must have.
#[must_use = "a block that is dropped is leaked"]
pub(crate) struct Held<'r, R> {
    resource: &'r R,
    pub(crate) pointer: DevicePtr,
    pub(crate) layout: Layout,
}

impl<'r, R: Resource> Held<'r, R> {
    pub(crate) fn allocate(resource: &'r R, layout: Layout, stream: StreamRef<'_>) -> Result<Self, Error> {
        Ok(Self { resource, pointer: resource.allocate(layout, stream)?, layout })
    }

    pub(crate) fn allocate_sync(resource: &'r R, layout: Layout) -> Result<Self, Error> {
        Ok(Self { resource, pointer: resource.allocate_sync(layout)?, layout })
    }

    /// A block of `bytes`, which the resource must have.
    #[track_caller]
    pub(crate) fn of(resource: &'r R, bytes: usize, stream: StreamRef<'_>) -> Self {
        match Self::allocate(resource, layout_of(bytes), stream) {
            Ok(block) => block,
            Err(error) => panic!("{bytes} bytes: {error}"),
        }
    }

    /// What was allocated by other means.
    pub(crate) fn adopt(resource: &'r R, pointer: DevicePtr, layout: Layout) -> Self {
        Self { resource, pointer, layout }
    }

    /// Hands it to whoever frees it by other means.
    pub(crate) fn into_parts(self) -> (DevicePtr, Layout) {
        (self.pointer, self.layout)
    }

    pub(crate) fn free(self, stream: StreamRef<'_>) {
        // SAFETY: the block is live, and came from the resource with this layout; the test has ordered its uses before.
        unsafe { self.resource.deallocate(self.pointer, self.layout, stream) };
    }

    pub(crate) fn free_sync(self) {
        // SAFETY: as for `free`; the test has waited for its uses.
        unsafe { self.resource.deallocate_sync(self.pointer, self.layout) };
    }

    /// The first address and the one behind the last.
    pub(crate) fn range(&self) -> (u64, u64) {
        let first = self.pointer.address();
        (first, first + self.layout.bytes() as u64)
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.range().0 < other.range().1 && other.range().0 < self.range().1
    }
}

impl<R: DeviceAccessible> Held<'_, R> {
    /// Queues writing the block: the word, over all its whole words.
    #[track_caller]
    pub(crate) fn fill(&self, word: u32, stream: StreamRef<'_>) {
        self.try_fill(word, stream).expect("a live block can be filled");
    }

    /// As [`fill`](Self::fill), where the driver may refuse.
    pub(crate) fn try_fill(&self, word: u32, stream: StreamRef<'_>) -> Result<(), Error> {
        self.fill_some(self.layout.bytes() / 4, word, stream)
    }

    /// Queues writing the first 4 KiB: enough for an order to be seen, and cheap where the block is large.
    pub(crate) fn touch(&self, word: u32, stream: StreamRef<'_>) -> Result<(), Error> {
        self.fill_some(self.layout.bytes().min(4096) / 4, word, stream)
    }

    fn fill_some(&self, words: usize, word: u32, stream: StreamRef<'_>) -> Result<(), Error> {
        let device = self.resource.device();
        let value = FillValue::U32(word);
        // SAFETY: the block is live until a free that is ordered behind; whether other uses conflict is what is tested.
        let filled = unsafe {
            device.driver().fill_async(device.ordinal(), self.pointer.address(), value, words, stream.raw())
        };
        filled.map_err(Error::from)
    }

    /// Waits for the stream and asserts that the block holds what [`fill`](Self::fill) wrote.
    #[track_caller]
    pub(crate) fn check(&self, word: u32, stream: StreamRef<'_>) {
        let words = self.words(stream);
        if let Some(at) = words.iter().position(|found| *found != word) {
            panic!("word {at} of {} is {:#x} where {word:#x} was written", words.len(), words[at]);
        }
    }

    /// Waits for the stream, and reads the block.
    #[track_caller]
    pub(crate) fn words(&self, stream: StreamRef<'_>) -> Vec<u32> {
        let device = self.resource.device();
        let mut words = vec![0xDEAD_DEAD; self.layout.bytes() / 4];
        let to = words.as_mut_ptr().expose_provenance() as u64;
        let (from, bytes) = (self.pointer.address(), 4 * words.len());
        // SAFETY: the block is live, and so are the words until the stream has been waited for, below.
        let copied = unsafe { device.driver().copy_async(device.ordinal(), to, from, bytes, stream.raw()) };
        let waited = stream.synchronize();
        copied.expect("a live block can be copied");
        waited.expect("the stream's work succeeds");
        words
    }
}
