//! Each driver call fails once: nothing panics, nothing leaks, and everything works afterwards.

#![expect(unsafe_code, reason = "frees what it allocated")]

use alluvion::driver::Code;
use alluvion::source::{Cuda, CudaAsync, CudaAsyncManaged, Managed, Null, Pinned};
use alluvion::testing::{Bench, Sweep, Swept};
use alluvion::{Device, Error, Layout, Resource, Sim};

mod every_source;

/// What a program does with a resource: two streams, an order between them, every way to allocate and free.
fn use_resource<R: Resource>(sim: &Sim, make: impl Fn(&Device) -> Result<R, Error>) -> Result<(), Error> {
    let device = sim.device(0);
    let resource = make(&device)?;
    let (first, second) = (device.stream()?, device.stream()?);
    let layout = Layout::from_bytes(3000)?;

    let crossing = resource.allocate(layout, first.as_ref())?;
    let waited = second.wait_for_stream(&first);
    let freed_on = if waited.is_ok() { &second } else { &first };
    // SAFETY: the block came from this resource with this layout; nothing has used it, and the stream comes after it.
    unsafe { resource.deallocate(crossing, layout, freed_on.as_ref()) };
    waited?;

    let block = resource.allocate(layout, second.as_ref())?;
    // SAFETY: as above.
    unsafe { resource.deallocate(block, layout, second.as_ref()) };

    let block = resource.allocate_sync(layout)?;
    // SAFETY: as above; no use of it is pending.
    unsafe { resource.deallocate_sync(block, layout) };

    second.synchronize()?;
    resource.trim(0)?;
    resource.memory_info()?;
    drop((first, second));
    drop(resource);
    device.synchronize()
}

#[track_caller]
fn assert_thorough(swept: Swept, calls: u64) {
    assert!(swept.calls >= calls, "the program hardly calls the driver: {swept}");
    assert!(swept.runs >= 3 * swept.calls - 3, "most calls were never made to fail: {swept}");
    assert!(swept.errors >= swept.runs / 3, "hardly a fault was noticed: {swept}");
}

#[test]
fn cuda() {
    assert_thorough(Sweep::new().run(|sim| use_resource(sim, |device| Ok(Cuda::new(device)))), 15);
}

#[test]
fn cuda_async() {
    assert_thorough(Sweep::new().run(|sim| use_resource(sim, CudaAsync::new)), 20);
}

#[test]
fn cuda_async_view() {
    let swept = Sweep::new().run(|sim| {
        let pool = CudaAsync::new(&sim.device(0))?;
        use_resource(sim, |_| Ok(pool.view()))
    });
    assert_thorough(swept, 20);
}

#[test]
fn cuda_async_managed() {
    assert_thorough(Sweep::new().run(|sim| use_resource(sim, CudaAsyncManaged::new)), 20);
}

#[test]
fn managed() {
    assert_thorough(Sweep::new().run(|sim| use_resource(sim, Managed::new)), 20);
}

#[test]
fn pinned() {
    assert_thorough(Sweep::new().run(|sim| use_resource(sim, Pinned::new)), 20);
}

#[cfg(target_os = "linux")]
#[test]
fn system() {
    use alluvion::driver::DeviceAttribute;
    let config = Bench::config().attribute(DeviceAttribute::PageableMemoryAccess, 1);
    assert_thorough(
        Sweep::new().config(config).run(|sim| use_resource(sim, alluvion::source::System::new)),
        10,
    );
}

#[test]
fn callback() {
    let make = |device: &Device| Ok(every_source::callback_over(device, CudaAsync::new(device)?));
    assert_thorough(Sweep::new().run(|sim| use_resource(sim, make)), 20);
}

#[test]
fn null() {
    let swept = Sweep::new().run(|sim| use_resource(sim, |device| Ok(Null::new(device))));
    assert!(swept.runs > 0, "{swept}");
}

/// Other codes that lose the context, and one that the driver returns for a handle it does not know.
#[test]
fn other_codes() {
    let codes = [Code::LAUNCH_FAILED, Code::UNKNOWN, Code::INVALID_HANDLE, Code::INVALID_VALUE];
    for code in codes {
        Sweep::new().codes(&[code]).run(|sim| use_resource(sim, CudaAsync::new));
    }
}

/// A default stack as an application gets it: the current resource of a device.
#[test]
fn current_resource() {
    let swept = Sweep::new().run(|sim| {
        let outcome = use_resource(sim, Device::current_resource);
        sim.machine().reset_current_resources();
        outcome
    });
    assert_thorough(swept, 20);
}

/// Streams and events alone.
#[test]
fn streams() {
    let swept = Sweep::new().config(Bench::config().devices(1)).run(|sim| {
        let device = sim.device(0);
        let streams = (0..3).map(|_| device.stream()).collect::<Result<Vec<_>, _>>()?;
        let event = streams[0].record()?;
        streams[1].wait_event(&event)?;
        streams[2].wait_for_stream(&streams[1])?;
        event.synchronize()?;
        let frontier = alluvion::Frontier::of(streams[2].as_ref().release());
        sim.machine().wait_quiescent(&frontier)?;
        device.default_stream().wait_for_stream(&streams[0])?;
        device.per_thread_stream()?.synchronize()
    });
    assert!(swept.calls >= 10, "{swept}");
}
