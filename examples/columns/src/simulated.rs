//! `Simulated`: the kernels as closures, for machines without a GPU.

#![expect(unsafe_code, reason = "launches kernels, whose arguments nobody can check")]

use std::sync::Arc;

use alluvion::sim::{DeviceMemory, Kernel, SimDriver};
use alluvion::{DeviceSlice, DeviceSliceMut, Error, GuardedPtr, Machine, Sim, StreamRef};

use crate::kernels::{CHUNK_ROWS, Kernels};

/// The kernels on a simulated machine, which holds each to the bytes that it says it touches.
#[derive(Clone, Debug)]
pub struct Simulated {
    machine: Machine,
    driver: Arc<SimDriver>,
}

impl Simulated {
    /// The kernels on this machine.
    #[must_use]
    pub fn new(sim: &Sim) -> Self {
        Self { machine: sim.machine().clone(), driver: Arc::clone(sim.sim_driver()) }
    }

    /// Queues a kernel, and does not wait.
    ///
    /// # Safety
    ///
    /// The kernel touches nothing but elements for which guards are open on this stream, and writes under `WriteGuard`s only.
    unsafe fn launch(&self, kernel: Kernel, stream: StreamRef<'_>) -> Result<(), Error> {
        // The handle of another machine's stream would name another one here, or none.
        let ordinal = stream.device().ordinal();
        stream.device().require(&self.machine.device(ordinal)?)?;
        // SAFETY: the preconditions of `SimDriver::launch`, in its order:
        // - the stream is live and belongs to this device: it is borrowed, and its device was compared above.
        // - all that the kernel touches is live until it has run, and no unordered work conflicts: what guards are for.
        // - the host does not use the memory meanwhile: it reaches the elements of a container by methods, which keep the order.
        unsafe { self.driver.launch(ordinal, stream.raw(), kernel) }
            .map_err(|error| Error::of_driver(error, 0))
    }
}

impl Kernels for Simulated {
    fn take(
        &self,
        table: DeviceSlice<'_, f64>,
        codes: DeviceSlice<'_, u32>,
        out: DeviceSliceMut<'_, f64>,
        stream: StreamRef<'_>,
    ) -> Result<(), Error> {
        same_length(out.len(), codes.len())?;
        let (table, codes, out) = (table.read_on(stream)?, codes.read_on(stream)?, out.write_on(stream)?);
        let (table_len, rows) = (table.len(), codes.len());
        let [from, at, to] = [table.as_device_ptr(), codes.as_device_ptr(), out.as_device_ptr()].map(number);
        let kernel = Kernel::new("take").reads(from, 8 * table_len).reads(at, 4 * rows).writes(to, 8 * rows);
        let kernel = kernel.run(move |memory| {
            let (table, codes) = (read::<8>(memory, from, table_len), read::<4>(memory, at, rows));
            let value =
                |code: &[u8; 4]| table.get(u32::from_ne_bytes(*code) as usize).copied().unwrap_or_default();
            memory.write(to, codes.iter().map(value).collect::<Vec<_>>().as_flattened());
        });
        // SAFETY: the kernel reads `table` and `codes` and writes `out`, each as long as its guard on this stream.
        unsafe { self.launch(kernel, stream) }
    }

    fn sum(
        &self,
        values: DeviceSlice<'_, f64>,
        validity: Option<DeviceSlice<'_, u32>>,
        sums: DeviceSliceMut<'_, f64>,
        stream: StreamRef<'_>,
    ) -> Result<(), Error> {
        let (rows, chunks, words) = (values.len(), sums.len(), values.len().div_ceil(32));
        same_length(rows.div_ceil(CHUNK_ROWS), chunks)?;
        same_length(words, validity.map_or(words, |bits| bits.len()))?;
        let (values, sums) = (values.read_on(stream)?, sums.write_on(stream)?);
        let validity = validity.map(|bits| bits.read_on(stream)).transpose()?;
        let [from, to] = [values.as_device_ptr(), sums.as_device_ptr()].map(number);
        let bits = validity.as_ref().map(|bits| number(bits.as_device_ptr()));

        let kernel = Kernel::new("sum").reads(from, 8 * rows).writes(to, 8 * chunks);
        let kernel = if let Some(bits) = bits { kernel.reads(bits, 4 * words) } else { kernel };
        let kernel = kernel.run(move |memory| {
            let values = read::<8>(memory, from, rows);
            let words = bits.map(|bits| read::<4>(memory, bits, words));
            let has_value = |row: usize| match &words {
                Some(words) => u32::from_ne_bytes(words[row / 32]) >> (row % 32) & 1 == 1,
                None => true,
            };
            for (chunk, start) in (0..rows).step_by(CHUNK_ROWS).enumerate() {
                let rows = (start..rows.min(start + CHUNK_ROWS)).filter(|row| has_value(*row));
                let sum: f64 = rows.map(|row| f64::from_ne_bytes(values[row])).sum();
                memory.write(to + 8 * chunk as u64, &sum.to_ne_bytes());
            }
        });
        // SAFETY: the kernel reads `values` and `validity` and writes `sums`, each as long as its guard on this stream:
        // `same_length` has compared `words` and `chunks` with them.
        unsafe { self.launch(kernel, stream) }
    }
}

fn same_length(wanted: usize, given: usize) -> Result<(), Error> {
    if wanted == given { Ok(()) } else { Err(Error::length_mismatch(wanted, given)) }
}

/// The address as closures have it. The guards are there until the kernel is queued.
fn number(address: GuardedPtr<'_>) -> u64 {
    address.unguarded().address()
}

/// `len` elements of `N` bytes.
fn read<const N: usize>(memory: &mut DeviceMemory<'_>, address: u64, len: usize) -> Vec<[u8; N]> {
    let mut elements = vec![[0; N]; len];
    memory.read(address, elements.as_flattened_mut());
    elements
}
