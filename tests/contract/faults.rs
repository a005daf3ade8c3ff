//! Each driver call fails once: nothing panics, nothing leaks, and everything works afterwards.

#![expect(unsafe_code, reason = "frees what it allocated")]

use alluvion::driver::{Call, Code};
use alluvion::source::{Cuda, CudaAsync, CudaAsyncManaged, Managed, Mapped, Null, Pinned};
use alluvion::testing::{Bench, Shadow, Sweep, Swept};
use alluvion::{Device, DeviceScalar, DeviceVec, Error, Layout, PinnedAlloc, Resource, Sim};

use crate::every_source;

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
fn mapped() {
    // A wait that fails leaves the end of the work unknown: what is mapped then stays mapped.
    let sweep = Sweep::new().may_leak(Call::StreamSynchronize).may_leak(Call::StreamCaptureStatus);
    assert_thorough(sweep.run(|sim| use_resource(sim, Mapped::new)), 20);
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

/// Containers, on two streams, growing, shrinking and copied: an error of any call leaves a container that drops, and loses
/// no block.
#[test]
fn containers() {
    let swept = Sweep::new().run(|sim| {
        let device = sim.device(0);
        let resource = Shadow::new(CudaAsync::new(&device)?);
        let (first, second) = (device.stream()?, device.stream()?);
        let outcome = (|| {
            let mut vector = DeviceVec::from_slice_in(&[1_u32; 1000], first.as_ref(), &resource)?;
            vector.extend_from_slice(&[2; 500], second.as_ref())?;
            vector.resize(4000, 3, first.as_ref())?;
            let copy = vector.try_clone(second.as_ref())?;
            vector.fill(4, second.as_ref())?;
            vector.truncate(10);
            vector.shrink_to_fit(first.as_ref())?;
            let scalar = DeviceScalar::new_in(7_u8, second.as_ref(), &resource)?;
            let sum = copy.to_vec(first.as_ref())?.into_iter().sum::<u32>();
            assert_eq!((sum, scalar.value(first.as_ref())?), (1000 + 2 * 500 + 3 * 2500, 7));
            assert_eq!(vector.to_vec(second.as_ref())?, [4; 10]);
            Ok(())
        })();
        drop((first, second));
        resource.assert_clean();
        outcome
    });
    assert_thorough(swept, 30);
}

/// Transfers that own their buffer, from and to the heap and pinned memory: whatever fails, the device is done with the bytes
/// before they go.
#[test]
fn transfers() {
    let swept = Sweep::new().run(|sim| {
        let device = sim.device(0);
        let stream = device.stream()?;
        let mut vector = DeviceVec::<u32>::uninit(2000, stream.as_ref())?;
        let sent = vector.upload(vec![5; 2000], stream.as_ref())?;
        let received = vector.download(vec![0; 2000], stream.as_ref())?;
        assert_eq!(received.wait()?, [5; 2000]);
        assert_eq!(sent.wait()?, [5; 2000]);

        let mut pinned = allocator_api2::vec::Vec::new_in(PinnedAlloc::new(&device)?);
        if pinned.try_reserve_exact(2000).is_err() {
            return Err(Error::out_of_memory(8000));
        }
        pinned.resize(2000, 6_u32);
        drop(vector.upload(pinned, stream.as_ref())?);
        let back = vector.to_vec(stream.as_ref())?;
        assert_eq!(back, [6; 2000]);
        drop((vector, stream));
        sim.machine().reset_current_resources();
        device.synchronize()
    });
    assert_thorough(swept, 20);
}

/// A scope that lends the host's memory to the device, and collections in pinned memory.
#[test]
fn borrowed_memory_of_the_host() {
    let swept = Sweep::new().run(|sim| {
        let device = sim.device(0);
        let stream = device.stream()?;
        let mut vector = DeviceVec::<u32>::zeroed(500, stream.as_ref())?;
        let (sent, mut received) = ([9_u32; 500], [0_u32; 500]);
        stream.scope(|scope| {
            scope.upload(&mut vector, &sent)?;
            scope.download(&vector, &mut received)
        })?;
        assert_eq!(received, sent);

        let mut map = hashbrown::HashMap::new_in(PinnedAlloc::new(&device)?);
        if map.try_reserve(100).is_err() {
            return Err(Error::out_of_memory(100));
        }
        map.extend((0..50).map(|key| (key, key * key)));
        assert_eq!(map[&7], 49);
        drop((map, vector, stream));
        sim.machine().reset_current_resources();
        device.synchronize()
    });
    assert_thorough(swept, 20);
}
