//! `Block`: a block under test, with the one way to allocate, touch and free it.

#![expect(unsafe_code, reason = "touches and frees the blocks of resources under test")]

use crate::device::Device;
use crate::driver::{FillValue, RawStream};
use crate::error::Error;
use crate::resource::{DeviceAccessible, DevicePtr, Export, Layout, Resource};
use crate::stream::StreamRef;

/// A live block and what it was allocated with. Freeing consumes it; what is dropped is leaked.
///
/// The tests of this room keep the rest of the contract: they order all uses of a block before its free. Where they do not
/// order two uses it is the resource that must have, and whether it did is what the test is about.
#[derive(Debug)]
#[must_use = "a block that is dropped is leaked"]
pub(super) struct Block<'r, R> {
    resource: &'r R,
    pub(super) pointer: DevicePtr,
    pub(super) layout: Layout,
}

impl<'r, R: Resource> Block<'r, R> {
    pub(super) fn allocate(resource: &'r R, layout: Layout, stream: StreamRef<'_>) -> Result<Self, Error> {
        Ok(Self { resource, pointer: resource.allocate(layout, stream)?, layout })
    }

    /// A block, if there is one at once.
    pub(super) fn allocate_at_once(resource: &'r R, layout: Layout, stream: StreamRef<'_>) -> Option<Self> {
        Some(Self { resource, pointer: resource.allocate_at_once(layout, stream)?, layout })
    }

    pub(super) fn allocate_sync(resource: &'r R, layout: Layout) -> Result<Self, Error> {
        Ok(Self { resource, pointer: resource.allocate_sync(layout)?, layout })
    }

    /// A block of `bytes`, aligned as every block is.
    #[track_caller]
    pub(super) fn of(resource: &'r R, bytes: usize, stream: StreamRef<'_>) -> Self {
        match Self::allocate(resource, layout_of(bytes), stream) {
            Ok(block) => block,
            Err(error) => panic!("{bytes} bytes: {error}"),
        }
    }

    pub(super) fn free(self, stream: StreamRef<'_>) {
        let resource = self.resource;
        self.free_through(resource, stream);
    }

    /// Frees it at once, or returns it.
    pub(super) fn free_at_once(self, stream: StreamRef<'_>) -> Result<(), Self> {
        // SAFETY: as in `free_through`; if the answer is `false` the block is live as before, and returned.
        let is_free = unsafe { self.resource.deallocate_at_once(self.pointer, self.layout, stream) };
        if is_free { Ok(()) } else { Err(self) }
    }

    /// Frees it through another handle of its resource.
    pub(super) fn free_through(self, handle: &impl Resource, stream: StreamRef<'_>) {
        assert_eq!(handle.id(), self.resource.id(), "a resource with another id cannot free the block");
        // SAFETY:
        // - the block is live and came from a resource with this id: `allocate` made it, freeing consumes it, and the ids were
        //   compared.
        // - the layout is the one that it was allocated with: nothing changes it.
        // - its uses are ordered before: the tests of this room see to it.
        unsafe { handle.deallocate(self.pointer, self.layout, stream) };
    }

    /// Frees a block whose uses are over.
    pub(super) fn free_sync(self) {
        // SAFETY:
        // - live, from this resource, with this layout: as in `free_through`.
        // - its uses are over: the tests of this room see to it.
        unsafe { self.resource.deallocate_sync(self.pointer, self.layout) };
    }

    /// What of it another process could open.
    pub(super) fn export(&self) -> Result<Export, Error> {
        // SAFETY: live, from this resource, with this layout: as in `free_through`.
        unsafe { self.resource.export(self.pointer, self.layout) }
    }

    /// The first address and the one behind the last.
    pub(super) fn range(&self) -> (u64, u64) {
        let first = self.pointer.address();
        (first, first + self.layout.bytes() as u64)
    }
}

impl<R: DeviceAccessible> Block<'_, R> {
    /// Queues writing the whole block: the word repeated, and in the last one to three bytes its lowest byte.
    #[track_caller]
    pub(super) fn fill(&self, word: u32, stream: StreamRef<'_>) {
        self.fill_raw(word, stream.raw());
    }

    #[track_caller]
    pub(super) fn fill_raw(&self, word: u32, stream: RawStream) {
        let device = self.resource.device();
        let words = self.layout.bytes() / 4;
        let rest = self.layout.bytes() % 4;
        let tail = self.pointer.offset(4 * words).address();
        let low = FillValue::U8(word as u8);
        let driver = device.driver();
        if words > 0 {
            let value = FillValue::U32(word);
            // SAFETY: the range is inside of the block, which is accessible to the device and live until a free that is
            // ordered behind the fill; whether other uses conflict is what the tests find out.
            let filled =
                unsafe { driver.fill_async(device.ordinal(), self.pointer.address(), value, words, stream) };
            filled.expect("a live block can be filled");
        }
        if rest > 0 {
            // SAFETY: as above.
            let filled = unsafe { driver.fill_async(device.ordinal(), tail, low, rest, stream) };
            filled.expect("the end of a live block can be filled");
        }
    }

    /// Queues a copy of the whole block to the host.
    #[track_caller]
    pub(super) fn copy_out(&self, stream: StreamRef<'_>) -> Copied {
        let mut bytes = vec![0_u8; self.layout.bytes()];
        let device = self.resource.device();
        // SAFETY:
        // - both ranges stay live until the copy has run: the block is freed behind it, and `Copied` does not let go of its
        //   bytes before it is over.
        // - nobody else has the host's bytes; what else touches the block is what the tests find out.
        let copied = unsafe {
            device.driver().copy_async(
                device.ordinal(),
                bytes.as_mut_ptr().expose_provenance() as u64,
                self.pointer.address(),
                bytes.len(),
                stream.raw(),
            )
        };
        copied.expect("a live block can be copied");
        Copied { bytes, device: device.clone(), block: self.pointer }
    }

    /// Waits for the stream and asserts that the whole block holds what [`fill`](Self::fill) wrote.
    #[track_caller]
    pub(super) fn check(&self, word: u32, stream: StreamRef<'_>) {
        self.copy_out(stream).check(word, stream);
    }
}

/// Bytes of the host that a copy is on its way to.
#[derive(Debug)]
pub(super) struct Copied {
    bytes: Vec<u8>,
    device: Device,
    block: DevicePtr,
}

impl Copied {
    /// Waits for the stream that the copy is on, and asserts that the bytes are what [`fill`](Block::fill) writes.
    #[track_caller]
    pub(super) fn check(self, word: u32, stream: StreamRef<'_>) {
        let block = self.block;
        let bytes = self.wait(stream);
        if let Some(at) = first_difference(&bytes, word) {
            let (found, expected, length) = (bytes[at], byte_of(word, at, bytes.len()), bytes.len());
            panic!(
                "byte {at} of the {length} bytes at {block} is {found:#04x} and should be {expected:#04x}: {word:#x} was filled in, \
                 over and over, and read on {stream:?}"
            );
        }
    }

    /// The bytes. The caller has waited for the whole device.
    pub(super) fn take_after_device(mut self) -> Vec<u8> {
        core::mem::take(&mut self.bytes)
    }

    /// Waits for the stream that the copy is on.
    #[track_caller]
    fn wait(mut self, stream: StreamRef<'_>) -> Vec<u8> {
        stream.synchronize().expect("the stream's work succeeds");
        core::mem::take(&mut self.bytes)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // Nobody has waited: a test is failing. The copy must not find its bytes gone.
        if !self.bytes.is_empty() && self.device.synchronize().is_err() {
            core::mem::forget(core::mem::take(&mut self.bytes));
        }
    }
}

/// The first byte that is not what [`Block::fill`] writes.
pub(super) fn first_difference(bytes: &[u8], word: u32) -> Option<usize> {
    let (words, rest) = bytes.as_chunks();
    let differs = |chunk: &[u8; 4]| *chunk != word.to_ne_bytes();
    match words.iter().position(differs) {
        Some(at) => (4 * at..4 * at + 4).find(|&at| bytes[at] != word.to_ne_bytes()[at % 4]),
        None => rest.iter().position(|&byte| byte != word as u8).map(|at| 4 * words.len() + at),
    }
}

/// The byte that [`Block::fill`] writes at `at` of a block of `bytes`.
pub(super) fn byte_of(word: u32, at: usize, bytes: usize) -> u8 {
    if at < bytes / 4 * 4 { word.to_ne_bytes()[at % 4] } else { word as u8 }
}

/// `bytes` bytes, aligned as every block is.
#[track_caller]
pub(super) fn layout_of(bytes: usize) -> Layout {
    Layout::from_bytes(bytes).expect("the size of a test is no overflow")
}

#[cfg(test)]
mod tests {
    use super::{byte_of, first_difference};

    #[test]
    fn a_difference_is_found_wherever_it_is() {
        let word = 0x0403_0201_u32;
        let mut bytes = [word.to_ne_bytes(), word.to_ne_bytes()].concat();
        bytes.extend([word as u8; 3]);
        assert_eq!(first_difference(&bytes, word), None);
        for at in 0..bytes.len() {
            bytes[at] ^= 0x80;
            assert_eq!(first_difference(&bytes, word), Some(at));
            bytes[at] ^= 0x80;
            assert_eq!(byte_of(word, at, bytes.len()), bytes[at]);
        }
    }
}
