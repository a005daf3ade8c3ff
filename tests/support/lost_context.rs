//! What the host has when a context is lost: its memory, and typed errors.

#![expect(unsafe_code, reason = "has the device write to memory of the host")]

use allocator_api2::vec::Vec;
use alluvion::driver::FillValue;
use alluvion::source::{CudaAsyncManaged, Managed, Pinned};
use alluvion::{Device, HostAccessible, OnHost, PoolConfig, ResourceExt, Stream};

/// Several blocks of pages, so that the driver does not serve them from memory that it has at hand.
const BYTES: usize = 4 << 20;
const OF_THE_HOST: u8 = 7;
const OF_THE_DEVICE: u8 = 9;

/// A vector in memory that both the host and the device may use, whichever resource it is of.
trait Shared {
    fn bytes(&mut self) -> &mut [u8];

    /// Whether it can be made longer.
    fn grows(&mut self) -> bool;
}

impl<R: HostAccessible> Shared for Vec<u8, OnHost<R>> {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }

    fn grows(&mut self) -> bool {
        self.try_reserve(BYTES).is_ok()
    }
}

/// A vector whose first half the host has written last, and whose second half the device.
fn written_by_both<R: HostAccessible + 'static>(resource: R, stream: &Stream) -> Box<dyn Shared> {
    let mut vector = Vec::new_in(OnHost::new(resource));
    vector.resize(BYTES, OF_THE_HOST);
    let half = vector[BYTES / 2..].as_mut_ptr().expose_provenance() as u64;
    let (device, value) = (stream.device(), FillValue::U8(OF_THE_DEVICE));
    // SAFETY: the half is live, and nobody looks at it before the stream has been waited for.
    let filled = unsafe {
        device.driver().fill_async(device.ordinal(), half, value, BYTES / 2, stream.as_ref().raw())
    };
    filled.expect("the device may write to it");
    stream.synchronize().expect("the device is well");
    Box::new(vector)
}

/// Memory that the host may touch is the host's until it is freed, also when the device's context is lost: safe code that has it goes
/// on with what is there, and gets no more. `lose` returns when the loss is known.
pub(crate) fn memory_of_the_host_stays(device: &Device, lose: impl FnOnce(&Device)) {
    let stream = device.stream().expect("a stream can be made");
    let mut vectors = vec![
        written_by_both(Managed::new(device).unwrap(), &stream),
        written_by_both(Managed::new(device).unwrap().pool(PoolConfig::default()).unwrap(), &stream),
        written_by_both(Pinned::new(device).unwrap(), &stream),
        written_by_both(Pinned::new(device).unwrap().pool(PoolConfig::default()).unwrap(), &stream),
    ];
    if device.capabilities().unwrap().managed_pools {
        vectors.push(written_by_both(CudaAsyncManaged::new(device).unwrap(), &stream));
    }
    lose(device);
    assert!(stream.synchronize().is_err_and(|error| error.is_context_lost()));
    for (number, vector) in vectors.iter_mut().enumerate() {
        let (first, second) = vector.bytes().split_at_mut(BYTES / 2);
        assert!(first.iter().all(|byte| *byte == OF_THE_HOST), "vector {number}: the host's half");
        assert!(second.iter().all(|byte| *byte == OF_THE_DEVICE), "vector {number}: the device's half");
        first.fill(1);
        second.fill(2);
    }
    // Calls that fail take nothing of it away.
    for vector in &mut vectors {
        let _ = vector.grows();
    }
    assert!(Managed::new(device).is_err() || device.stream().is_err());
    drop(stream);
    let mut last = vectors.pop();
    drop(vectors);
    let (first, second) = last.as_mut().expect("there are several").bytes().split_at(BYTES / 2);
    assert!(first.iter().all(|byte| *byte == 1) && second.iter().all(|byte| *byte == 2));
}
