//! `Kernels`: what columns ask of a device besides copies and fills.

use alluvion::{DeviceSlice, DeviceSliceMut, Error, StreamRef};

/// How many rows are added up to one partial sum: few enough that many threads share a column, and so many that the partial sums
/// are 1/1024 of it.
pub const CHUNK_ROWS: usize = 1024;

/// The kernels of this crate, whoever launches them: [`Simulated`](crate::Simulated), or a module of PTX on a GPU, for which
/// `examples/04_kernel.rs` of alluvion is the model.
///
/// The slices say what a kernel reads and writes, and the stream when. An implementation opens a guard for each slice on that
/// stream, launches with the addresses of the guards, and does not wait. It is safe to call, so it checks lengths.
pub trait Kernels {
    /// Sets each of `out` to what `table` has at the code of the same row, or to 0 if it has no such place.
    ///
    /// # Errors
    ///
    /// `LengthMismatch` unless there are as many codes as values; as the guards and the launch say.
    fn take(
        &self,
        table: DeviceSlice<'_, f64>,
        codes: DeviceSlice<'_, u32>,
        out: DeviceSliceMut<'_, f64>,
        stream: StreamRef<'_>,
    ) -> Result<(), Error>;

    /// Sets each of `sums` to the sum of [`CHUNK_ROWS`] values, or of what is left, without those whose bit in `validity` is 0.
    ///
    /// # Errors
    ///
    /// `LengthMismatch` unless there is one sum for each chunk and one bit for each value; as the guards and the launch say.
    fn sum(
        &self,
        values: DeviceSlice<'_, f64>,
        validity: Option<DeviceSlice<'_, u32>>,
        sums: DeviceSliceMut<'_, f64>,
        stream: StreamRef<'_>,
    ) -> Result<(), Error>;
}
