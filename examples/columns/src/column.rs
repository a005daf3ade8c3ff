//! `Column<T, R>`: values, some of which may be missing.

use std::fmt;

use alluvion::{
    AnyResource, DeviceAccessible, DeviceCopy, DeviceSlice, DeviceVec, Error, OnStream, PinnedAlloc,
    ResourceRef,
};

use crate::kernels::{CHUNK_ROWS, Kernels};
use crate::staging;

/// Values on a device, one for each row, and a bitmap of the rows that have one.
///
/// `R` is a handle of the resource that the memory comes from, and is cloned for each buffer.
pub struct Column<T, R: DeviceAccessible = AnyResource> {
    /// Of a row without a value: anything.
    pub(crate) values: DeviceVec<T, R>,
    /// `None` if every row has a value, which saves most columns the memory.
    pub(crate) validity: Option<DeviceVec<u32, R>>,
}

impl<T: DeviceCopy + Default, R: DeviceAccessible + Clone> Column<T, R> {
    /// A copy of rows of the host. Waits for it.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` from the staging or the resource; as the stream's device says. Nothing is kept then.
    pub fn from_host<'s>(
        rows: &[Option<T>],
        staging: &PinnedAlloc,
        stream: impl OnStream<'s>,
        resource: R,
    ) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        let mut values = staging::room_for(rows.len(), staging)?;
        values.extend(rows.iter().map(|row| row.unwrap_or_default()));
        let bitmap = staging::bitmap_of(rows, staging)?;

        let mut column =
            Self { values: DeviceVec::uninit_in(rows.len(), stream, resource.clone())?, validity: None };
        if let Some(words) = &bitmap {
            column.validity = Some(DeviceVec::uninit_in(words.len(), stream, resource)?);
        }
        // The two copies are lent what they read until the scope has waited for both, once.
        stream.scope(|scope| {
            scope.upload(&mut column.values, &values)?;
            match (&mut column.validity, &bitmap) {
                (Some(validity), Some(bitmap)) => scope.upload(validity, bitmap),
                _ => Ok(()),
            }
        })?;
        Ok(column)
    }
}

impl<T: DeviceCopy, R: DeviceAccessible> Column<T, R> {
    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.values.len()
    }

    /// The values, for kernels of your own. Those of rows without a value are arbitrary.
    #[must_use]
    pub fn values(&self) -> DeviceSlice<'_, T> {
        self.values.as_slice()
    }

    /// The bitmap of the rows that have a value: bit `row % 32` of word `row / 32`. `None` if all have.
    #[must_use]
    pub fn validity(&self) -> Option<DeviceSlice<'_, u32>> {
        self.validity.as_ref().map(DeviceVec::as_slice)
    }

    /// The rows, on the host. Waits for them.
    ///
    /// # Errors
    ///
    /// As the stream's device says.
    pub fn to_host<'s>(&self, stream: impl OnStream<'s>) -> Result<Vec<Option<T>>, Error> {
        let stream = stream.stream_ref();
        let values = self.values.to_vec(stream)?;
        let Some(validity) = &self.validity else { return Ok(values.into_iter().map(Some).collect()) };
        let words = validity.to_vec(stream)?;
        let has_value = |row: usize| words[row / 32] >> (row % 32) & 1 == 1;
        Ok(values.into_iter().enumerate().map(|(row, value)| has_value(row).then_some(value)).collect())
    }
}

impl<R: DeviceAccessible> Column<f64, R> {
    /// The sum of the rows that have a value. Waits for it.
    ///
    /// Takes 8 bytes of `scratch` for each [`CHUNK_ROWS`] rows, and gives them back before it returns.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` from the scratch memory; as the kernels say. The column is as it was.
    pub fn sum<'s>(
        &self,
        kernels: &impl Kernels,
        stream: impl OnStream<'s>,
        scratch: ResourceRef<'_>,
    ) -> Result<f64, Error> {
        let stream = stream.stream_ref();
        let mut sums = DeviceVec::uninit_in(self.rows().div_ceil(CHUNK_ROWS), stream, scratch)?;
        kernels.sum(self.values(), self.validity(), sums.as_mut_slice(), stream)?;
        Ok(sums.to_vec(stream)?.into_iter().sum())
    }
}

impl<T: DeviceCopy, R: DeviceAccessible> fmt::Debug for Column<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Column").field("values", &self.values).field("validity", &self.validity).finish()
    }
}
