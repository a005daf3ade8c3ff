//! Where memory comes from: a resource of your own choice, generic or erased, and the current one of a device.

mod machine;

use alluvion::source::{Cuda, CudaAsync};
use alluvion::{AnyResource, DeviceAccessible, DeviceVec, Error, Layout, Resource, ResourceRef, Stream};

/// Code that is generic over where its scratch memory comes from pays nothing for it: no virtual call, no count.
fn sum_of_squares<R: DeviceAccessible>(values: &[f64], scratch: R, stream: &Stream) -> Result<f64, Error> {
    let copied = DeviceVec::from_slice_in(values, stream, scratch)?;
    Ok(copied.to_vec(stream)?.iter().map(|value| value * value).sum())
}

/// Code that need not be generic takes a handle of two words.
fn zeros(resource: ResourceRef<'_>, stream: &Stream) -> Result<Vec<u8>, Error> {
    DeviceVec::filled_in(4, 0, stream, resource)?.to_vec(stream)
}

fn main() -> Result<(), Error> {
    let machine::Chosen { device, sim: _sim } = machine::choose()?;
    let stream = device.stream()?;

    // A resource is a value. Containers borrow it, so it cannot be dropped or moved under them.
    let pool = CudaAsync::new(&device)?;
    assert_eq!(sum_of_squares(&[1.0, 2.0, 3.0], &pool, &stream)?, 14.0);
    assert_eq!(zeros(ResourceRef::erase(&pool), &stream)?, [0; 4]);

    // Sizes are checked once, when a layout is made, and refused with their numbers.
    println!("as expected: {}", Layout::array::<f64>(usize::MAX).unwrap_err());
    let enormous = DeviceVec::filled_in(1 << 50, 0_u8, &stream, &pool).unwrap_err();
    assert!(enormous.is_out_of_memory());
    println!("as expected: {enormous}");

    // What nobody names comes from the device's current resource. Setting another is safe while blocks are live: each
    // container keeps what it came from.
    let before = DeviceVec::from_slice(&[1_u8, 2, 3], &stream)?;
    let replaced = device.set_current_resource(AnyResource::new(Cuda::new(&device)))?;
    println!("containers allocated from {replaced:?}, and now from {:?}", device.current_resource()?);
    drop(before);

    println!("the device has {} free bytes", pool.memory_info()?.free_bytes);
    device.set_current_resource(replaced)?;
    Ok(())
}
