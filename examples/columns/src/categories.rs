//! `Categories<R>`: strings of which there are few.

use alluvion::host::HashMap;
use alluvion::{AnyResource, DeviceAccessible, DeviceSlice, DeviceVec, Error, OnStream, PinnedAlloc};

use crate::column::Column;
use crate::kernels::Kernels;
use crate::strings::Strings;

/// A column of strings that is encoded by a dictionary: each name once, and for each row the number of its name.
#[derive(Debug)]
pub struct Categories<R: DeviceAccessible = AnyResource> {
    codes: Column<u32, R>,
    names: Strings<R>,
}

impl<R: DeviceAccessible + Clone> Categories<R> {
    /// A copy of rows of the host, encoded: names are numbered as they come. Waits for it.
    ///
    /// # Errors
    ///
    /// As [`Column::from_host`]; `OutOfRange` if there are more names than a code can number.
    pub fn from_host<'s>(
        rows: &[Option<&str>],
        staging: &PinnedAlloc,
        stream: impl OnStream<'s>,
        resource: R,
    ) -> Result<Self, Error> {
        let stream = stream.stream_ref();
        let mut code_of = HashMap::new_in(staging.clone());
        let (mut names, mut codes) = (Vec::new(), Vec::with_capacity(rows.len()));
        for row in rows {
            let Some(name) = *row else {
                codes.push(None);
                continue;
            };
            // A map that cannot grow, to twice its size, is an error here. In `entry` it would be the end of the process.
            let wanted = 2 * (names.len() + 1) * size_of::<(&str, u32)>();
            code_of.try_reserve(1).map_err(|_| Error::out_of_memory(wanted))?;
            let next = u32::try_from(names.len()).map_err(|_| Error::out_of_range(names.len(), 1 << 32))?;
            codes.push(Some(*code_of.entry(name).or_insert_with(|| {
                names.push(name);
                next
            })));
        }
        Ok(Self {
            codes: Column::from_host(&codes, staging, stream, resource.clone())?,
            names: Strings::from_host(&names, staging, stream, resource)?,
        })
    }
}

impl<R: DeviceAccessible> Categories<R> {
    /// The number of each row's name.
    #[must_use]
    pub fn codes(&self) -> &Column<u32, R> {
        &self.codes
    }

    /// The names, each once.
    #[must_use]
    pub fn names(&self) -> &Strings<R> {
        &self.names
    }

    /// A column of the value that `table` has for each row's name. Does not wait.
    ///
    /// # Errors
    ///
    /// `LengthMismatch` unless the table has as many values as there are names; `OutOfMemory` from the resource, which need
    /// not be that of these categories; as the kernels say.
    pub fn look_up<'s, O: DeviceAccessible + Clone>(
        &self,
        table: DeviceSlice<'_, f64>,
        kernels: &impl Kernels,
        stream: impl OnStream<'s>,
        resource: O,
    ) -> Result<Column<f64, O>, Error> {
        let stream = stream.stream_ref();
        if table.len() != self.names.count() {
            return Err(Error::length_mismatch(self.names.count(), table.len()));
        }
        let mut values = DeviceVec::uninit_in(self.codes.rows(), stream, resource.clone())?;
        kernels.take(table, self.codes.values(), values.as_mut_slice(), stream)?;
        let copied = |bitmap| DeviceVec::from_device_in(bitmap, stream, resource);
        let validity = self.codes.validity().map(copied).transpose()?;
        Ok(Column { values, validity })
    }

    /// The rows, on the host. Waits for them.
    ///
    /// # Errors
    ///
    /// As the stream's device says.
    pub fn to_host<'s>(&self, stream: impl OnStream<'s>) -> Result<Vec<Option<String>>, Error> {
        let stream = stream.stream_ref();
        let (codes, names) = (self.codes.to_host(stream)?, self.names.to_host(stream)?);
        Ok(codes.into_iter().map(|code| Some(names[code? as usize].clone())).collect())
    }
}
