//! `Strings<R>`: text on a device.

use alluvion::{AnyResource, DeviceAccessible, DeviceVec, Error, OnStream, PinnedAlloc};

use crate::staging;

/// Strings on a device, one behind the other, and the offset of each.
#[derive(Debug)]
pub struct Strings<R: DeviceAccessible = AnyResource> {
    /// Where each string begins in `bytes`, and where the last one ends: one more than there are strings.
    offsets: DeviceVec<u64, R>,
    bytes: DeviceVec<u8, R>,
}

impl<R: DeviceAccessible> Strings<R> {
    /// A copy of strings of the host. Waits for it.
    ///
    /// # Errors
    ///
    /// As [`Column::from_host`](crate::Column::from_host).
    pub fn from_host<'s>(
        strings: &[&str],
        staging: &PinnedAlloc,
        stream: impl OnStream<'s>,
        resource: R,
    ) -> Result<Self, Error>
    where
        R: Clone,
    {
        let stream = stream.stream_ref();
        let mut offsets = staging::room_for(strings.len() + 1, staging)?;
        let mut bytes = staging::room_for(strings.iter().map(|string| string.len()).sum(), staging)?;
        offsets.push(0);
        for string in strings {
            bytes.extend_from_slice(string.as_bytes());
            offsets.push(bytes.len() as u64);
        }
        let mut made = Self {
            offsets: DeviceVec::uninit_in(offsets.len(), stream, resource.clone())?,
            bytes: DeviceVec::uninit_in(bytes.len(), stream, resource)?,
        };
        stream.scope(|scope| {
            scope.upload(&mut made.offsets, &offsets)?;
            scope.upload(&mut made.bytes, &bytes)
        })?;
        Ok(made)
    }

    /// How many strings there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The strings, on the host. Waits for them.
    ///
    /// # Errors
    ///
    /// As the stream's device says.
    pub fn to_host<'s>(&self, stream: impl OnStream<'s>) -> Result<Vec<String>, Error> {
        let stream = stream.stream_ref();
        let (offsets, bytes) = (self.offsets.to_vec(stream)?, self.bytes.to_vec(stream)?);
        let text =
            |ends: &[u64]| String::from_utf8_lossy(&bytes[ends[0] as usize..ends[1] as usize]).into_owned();
        Ok(offsets.windows(2).map(text).collect())
    }
}
