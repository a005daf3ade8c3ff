//! What every source must do, and what each does beyond that, on whichever machine.
//!
//! `sources!` makes a test of each function; the simulator and the GPU run the same ones. What a device may lack is asked
//! of its capabilities; what it lacks, a source must refuse, and say what to use instead.

#![expect(unsafe_code, reason = "gives blocks back, and copies to and from them")]

mod callbacks;
mod pools;

pub(crate) use callbacks::*;
pub(crate) use pools::*;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::driver::{
    Advice, FillValue, HandleType, Location, MemoryInfo, PoolAttribute, PoolKind, RawPool,
};
use alluvion::source::{
    BlockRange, Callback, Cuda, CudaAsync, CudaAsyncConfig, CudaAsyncManaged, CudaAsyncView, Managed, Mapped,
    Null,
};
use alluvion::{
    Device, DeviceAccessible, DevicePtr, Error, ErrorKind, HostAccessible, Layout, OnHost, Resource,
    ResourceExt, Sim, Stream, StreamRef,
};

/// Makes a test of each clause. `$machine` makes or finds a device, and hands it to the clause.
macro_rules! sources {
    ($machine:path) => {
        $crate::source_contract::sources! { $machine:
            cuda_keeps_the_contract
            cuda_async_keeps_the_contract
            a_view_keeps_the_contract
            managed_keeps_the_contract
            mapped_keeps_the_contract
            cuda_async_managed_keeps_the_contract
            a_callback_keeps_the_contract
            null_keeps_the_contract_without_memory
            a_pool_is_primed_when_it_is_made
            a_pool_is_made_as_configured
            a_pool_that_cannot_be_is_refused
            a_release_threshold_is_obeyed
            trimming_says_what_went
            high_water_marks_rise_and_are_reset
            a_pool_knows_what_can_still_be_had
            a_synchronous_free_is_over
            a_view_and_its_pool_free_each_others_blocks
            a_raw_pool_can_be_viewed
            a_null_pool_is_refused
            a_pool_waits_for_its_frees
            the_managed_pool_is_shared_and_left_alone
            managed_memory_is_the_hosts_too
            managed_memory_moves_and_keeps_its_bytes
            ranges_and_places_that_are_not_there_are_refused
            a_callback_is_told_everything_once
            a_callback_honours_the_alignment_that_it_claims
            a_callback_that_answers_nonsense_is_refused
            a_panic_of_a_callback_stays_inside
            a_callback_frees_its_own_blocks_only
        }
        #[cfg(target_os = "linux")]
        $crate::source_contract::sources! { $machine:
            system_keeps_the_contract_or_says_why_not
        }
    };
    ($machine:path: $($clause:ident)+) => {
        $(#[test] fn $clause() { $machine($crate::source_contract::$clause); })+
    };
}
pub(crate) use sources;

type Outcome = Result<(), Error>;

const MIB: usize = 1 << 20;

pub(crate) fn layout(bytes: usize) -> Layout {
    Layout::from_bytes(bytes).expect("a size that fits")
}

/// Copies and waits.
fn copy(device: &Device, to: u64, from: u64, bytes: usize) -> Outcome {
    // SAFETY: every caller names live memory that no work uses.
    unsafe { device.driver().copy(device.ordinal(), to, from, bytes) }?;
    Ok(())
}

/// Queues a fill.
fn fill(device: &Device, block: DevicePtr, value: FillValue, count: usize, stream: &Stream) -> Outcome {
    let (driver, raw) = (device.driver(), stream.as_ref().raw());
    // SAFETY: every caller names a live block, and orders its uses on the one stream.
    unsafe { driver.fill_async(device.ordinal(), block.address(), value, count, raw) }?;
    Ok(())
}

fn write(device: &Device, block: DevicePtr, bytes: &[u8]) -> Outcome {
    copy(device, block.address(), bytes.as_ptr().expose_provenance() as u64, bytes.len())
}

fn read(device: &Device, block: DevicePtr, bytes: usize) -> Result<Vec<u8>, Error> {
    let mut back = vec![0; bytes];
    copy(device, back.as_mut_ptr().expose_provenance() as u64, block.address(), bytes)?;
    Ok(back)
}

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index.wrapping_mul(31) + seed) as u8).collect()
}

fn span(block: DevicePtr, layout: Layout) -> Range<u64> {
    block.address()..block.address() + layout.bytes() as u64
}

/// What every source does, whether or not there is memory behind its addresses.
fn keeps_the_contract_of_addresses<R: Resource>(resource: &R, stream: &Stream) -> Outcome {
    let sizes = [1, 255, 256, 257, 4097, 100_000, MIB];
    let mut live: Vec<(DevicePtr, Layout)> = Vec::new();
    for round in 0..2 {
        for bytes in sizes {
            let layout = layout(bytes);
            let block = match round {
                0 => resource.allocate(layout, stream.as_ref())?,
                _ => resource.allocate_sync(layout)?,
            };
            assert!(block.is_aligned_to(layout.block_align()), "{block} for {bytes} bytes");
            for (other, of) in &live {
                let (mine, its) = (span(block, layout), span(*other, *of));
                assert!(mine.end <= its.start || its.end <= mine.start, "{block} overlaps {other}");
            }
            live.push((block, layout));
        }
    }
    for (index, (block, layout)) in live.into_iter().enumerate() {
        if index % 2 == 0 {
            // SAFETY: the block came from this resource with this layout, and nothing uses it.
            unsafe { resource.deallocate(block, layout, stream.as_ref()) };
        } else {
            stream.synchronize()?;
            // SAFETY: as above, and the stream that it was allocated on has been waited for.
            unsafe { resource.deallocate_sync(block, layout) };
        }
    }

    // Zero bytes are nobody's.
    for align in [1, 256, resource.max_align()] {
        let nothing = Layout::new(0, align)?;
        for block in [resource.allocate(nothing, stream.as_ref())?, resource.allocate_sync(nothing)?] {
            assert_eq!(block, nothing.dangling());
            // SAFETY: the block came from this resource with this layout.
            unsafe { resource.deallocate(block, nothing, stream.as_ref()) };
            // SAFETY: zero bytes may be given back any number of times: they are no block.
            unsafe { resource.deallocate_sync(block, nothing) };
        }
    }

    // The largest alignment is honoured, a larger one refused, even for zero bytes.
    let largest = Layout::new(1000, resource.max_align())?;
    let block = resource.allocate_sync(largest)?;
    assert!(block.is_aligned_to(largest.align()), "{block} for {largest:?}");
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { resource.deallocate_sync(block, largest) };
    let max_align = resource.max_align();
    for bytes in [0, 1000] {
        let layout = Layout::new(bytes, max_align * 2)?;
        for error in [
            resource.allocate(layout, stream.as_ref()).unwrap_err(),
            resource.allocate_sync(layout).unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.limit()), (ErrorKind::UnsupportedAlignment, Some(max_align)));
        }
    }

    // A stream of another machine is refused before anything else is looked at.
    let elsewhere = Sim::new();
    let foreign = elsewhere.device(0).stream()?;
    for layout in [layout(0), layout(1000), Layout::new(0, max_align * 2)?] {
        let error = resource.allocate(layout, foreign.as_ref()).unwrap_err();
        assert!(error.is_device_mismatch(), "{error}");
    }

    assert_eq!(resource.id(), Resource::id(&resource));
    let name = resource.describe().to_string();
    assert!(name.ends_with(&format!("({})", resource.device())) && !name.contains('\n'), "{name}");
    assert!(resource.upstream().is_none());
    Ok(())
}

/// What every source of memory does that the device can use.
fn keeps_the_contract<R: DeviceAccessible + Sync>(resource: &R, stream: &Stream) -> Outcome {
    let device = resource.device();
    keeps_the_contract_of_addresses(resource, stream)?;

    // Bytes stay what they are while other blocks come and go, on another thread too.
    let kept: Vec<_> = [1, 4096, 70_000]
        .into_iter()
        .map(|bytes| {
            let layout = layout(bytes);
            let block = resource.allocate(layout, stream.as_ref())?;
            stream.synchronize()?;
            write(device, block, &pattern(bytes, bytes))?;
            Ok((block, layout))
        })
        .collect::<Result<_, Error>>()?;
    std::thread::scope(|scope| {
        let churn = scope.spawn(|| -> Outcome {
            let stream = device.stream()?;
            for bytes in [4096, 1, 70_000, 4096] {
                let layout = layout(bytes);
                let block = resource.allocate(layout, stream.as_ref())?;
                stream.synchronize()?;
                write(device, block, &vec![0xAA; bytes])?;
                // SAFETY: the block came from this resource with this layout, and the copy is over.
                unsafe { resource.deallocate(block, layout, stream.as_ref()) };
            }
            stream.synchronize()
        });
        churn.join().expect("no clause fails")
    })?;
    for (block, layout) in kept {
        assert_eq!(read(device, block, layout.bytes())?, pattern(layout.bytes(), layout.bytes()));
        // SAFETY: the block came from this resource with this layout, and the copies are over.
        unsafe { resource.deallocate(block, layout, stream.as_ref()) };
    }
    stream.synchronize()?;

    // More than there is, is refused, and the resource still works.
    let too_much = layout(1 << 50);
    let error = resource.allocate(too_much, stream.as_ref()).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    assert_eq!(error.requested_bytes(), Some(1 << 50));
    let block = resource.allocate_sync(layout(512))?;
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { resource.deallocate_sync(block, layout(512)) };

    let MemoryInfo { free_bytes, total_bytes } = resource.memory_info()?;
    assert!(free_bytes > 0 && free_bytes <= total_bytes, "{free_bytes} of {total_bytes}");
    Ok(())
}

/// What every source does whose memory is the host's, too.
fn keeps_the_contract_of_the_host<R: HostAccessible + DeviceAccessible>(resource: &R) -> Outcome {
    let layout = layout(10_000);
    let block = resource.allocate_sync(layout)?;
    let host = core::ptr::with_exposed_provenance_mut::<u8>(block.address() as usize);
    let data = pattern(3, layout.bytes());
    // SAFETY: the block is the host's and as long as `data`, and no work uses it.
    unsafe { host.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
    assert_eq!(read(resource.device(), block, layout.bytes())?, data);
    let other = pattern(4, layout.bytes());
    write(resource.device(), block, &other)?;
    let mut seen = vec![0; layout.bytes()];
    // SAFETY: as above.
    unsafe { seen.as_mut_ptr().copy_from_nonoverlapping(host, seen.len()) };
    assert_eq!(seen, other);
    // SAFETY: the block came from this resource with this layout, and the copies are over.
    unsafe { resource.deallocate_sync(block, layout) };

    // Collections of the host live there, and the device finds in them what the host put in.
    let mut vector = allocator_api2::vec::Vec::new_in(OnHost::new(resource));
    vector.extend(0..5000_u32);
    let found = DevicePtr::new(vector.as_ptr().expose_provenance() as u64).expect("a vector is somewhere");
    let bytes = read(resource.device(), found, size_of_val(&vector[..]))?;
    assert!(bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().expect("four"))).eq(0..5000));
    Ok(())
}

/// Asserts that an error says what cannot be had, why, and what to use.
fn is_unsupported(error: &Error) {
    assert!(error.is_unsupported(), "{error}");
    let detail = error.unsupported_detail().expect("our own refusals have a detail");
    assert!(!detail.what.is_empty() && !detail.why.is_empty() && !detail.instead.is_empty(), "{error}");
}

pub(crate) fn cuda_keeps_the_contract(device: &Device) -> Outcome {
    let resource = Cuda::new(device);
    assert_eq!(format!("{resource:?}"), resource.describe().to_string());
    assert_eq!(resource.id(), Cuda::new(device).id());
    keeps_the_contract(&resource, &device.stream()?)
}

pub(crate) fn cuda_async_keeps_the_contract(device: &Device) -> Outcome {
    let resource = CudaAsync::new(device)?;
    assert_eq!(format!("{resource:?}"), format!("CudaAsync({device})"));
    assert!(resource.find::<CudaAsync>().is_some());
    keeps_the_contract(&resource, &device.stream()?)
}

pub(crate) fn a_view_keeps_the_contract(device: &Device) -> Outcome {
    let owner = CudaAsync::new(device)?;
    let view = CudaAsyncView::from(&owner);
    assert_eq!(format!("{view:?}"), format!("CudaAsyncView({device})"));
    let found = view.find::<CudaAsync>().expect("a view leads to its owner");
    assert!(core::ptr::eq(found, &owner));
    keeps_the_contract(&view, &device.stream()?)
}

pub(crate) fn managed_keeps_the_contract(device: &Device) -> Outcome {
    match Managed::new(device) {
        Ok(resource) => {
            assert_eq!(resource.id(), resource.clone().id());
            keeps_the_contract(&resource, &device.stream()?)
        }
        Err(error) => {
            assert!(!device.capabilities()?.concurrent_managed_access, "{error}");
            is_unsupported(&error);
            Ok(())
        }
    }
}

pub(crate) fn mapped_keeps_the_contract(device: &Device) -> Outcome {
    let resource = match Mapped::new(device) {
        Ok(resource) => resource,
        Err(error) => {
            assert!(!device.capabilities()?.virtual_memory, "{error}");
            is_unsupported(&error);
            return Ok(());
        }
    };
    assert_eq!(format!("{resource:?}"), format!("Mapped({device})"));
    assert_eq!(resource.id(), resource.clone().id());
    assert_ne!(resource.id(), Mapped::new(device)?.id(), "two sources do not know each other's blocks");
    assert!(resource.find::<Mapped>().is_some());
    let pages = resource.pages().expect("a source of pages");
    assert_eq!(resource.max_align(), pages.page_bytes());
    let stream = device.stream()?;
    keeps_the_contract(&resource, &stream)?;
    // A clone frees a block, behind work that is still queued.
    let block = resource.allocate(layout(MIB), stream.as_ref())?;
    for value in 0..50 {
        fill(device, block, FillValue::U8(value), MIB, &stream)?;
    }
    // SAFETY: the block came from a resource with this id with this layout, and its uses are on the stream.
    unsafe { resource.clone().deallocate(block, layout(MIB), stream.as_ref()) };
    stream.synchronize()
}

pub(crate) fn cuda_async_managed_keeps_the_contract(device: &Device) -> Outcome {
    match CudaAsyncManaged::new(device) {
        Ok(resource) => keeps_the_contract(&resource, &device.stream()?),
        Err(error) => {
            assert!(!device.capabilities()?.managed_pools, "{error}");
            is_unsupported(&error);
            Ok(())
        }
    }
}

pub(crate) fn null_keeps_the_contract_without_memory(device: &Device) -> Outcome {
    keeps_the_contract_of_addresses(&Null::new(device), &device.stream()?)
}

/// What a callback over a pool does with a block. For blocks of that pool only.
fn give_back(pool: &CudaAsync, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
    // SAFETY: a callback is given the blocks that it has handed out, those of the pool, once each.
    unsafe { pool.deallocate(block, layout, stream) };
}

/// A callback over a pool.
fn over(pool: &CudaAsync) -> impl DeviceAccessible + Sync + '_ {
    // SAFETY: the closures hand out the blocks of a pool, and give them back to it.
    unsafe {
        Callback::new(
            pool.device(),
            |layout, stream| Ok(pool.allocate(layout, stream)?.address()),
            |block, layout, stream| give_back(pool, block, layout, stream),
        )
    }
}

pub(crate) fn a_callback_keeps_the_contract(device: &Device) -> Outcome {
    let pool = CudaAsync::new(device)?;
    let resource = over(&pool);
    keeps_the_contract(&resource, &device.stream()?)?;
    device.synchronize()?;
    assert_eq!(pool.used_bytes()?, 0);
    Ok(())
}

pub(crate) fn the_managed_pool_is_shared_and_left_alone(device: &Device) -> Outcome {
    if !device.capabilities()?.managed_pools {
        is_unsupported(&CudaAsyncManaged::new(device).unwrap_err());
        return Ok(());
    }
    let raw = device.driver().pool_default(device.ordinal(), PoolKind::Managed)?;
    let threshold = || {
        let driver = device.driver();
        // SAFETY: a default pool lives as long as the process.
        unsafe { driver.pool_attribute(device.ordinal(), raw, PoolAttribute::ReleaseThreshold) }
    };
    let before = threshold()?;
    let (first, second) = (CudaAsyncManaged::new(device)?, CudaAsyncManaged::new(device)?);
    assert_eq!((first.raw_pool(), first.id()), (raw, second.id()));
    let block = first.allocate_sync(layout(1000))?;
    assert!(second.used_bytes()? >= 1000 && second.reserved_bytes()? >= 1000);
    // SAFETY: the block came from a resource with this id with this layout, and nothing uses it.
    unsafe { second.deallocate_sync(block, layout(1000)) };
    drop((first, second));
    assert_eq!(threshold()?, before);
    let again = CudaAsyncManaged::new(device)?;
    keeps_the_contract_of_the_host(&again)?;

    let stream = device.stream()?;
    let block = again.allocate_sync(layout(MIB))?;
    write(device, block, &pattern(6, MIB))?;
    let range = BlockRange::whole(block, layout(MIB));
    // SAFETY: the block is live, and freed below on the stream.
    unsafe { again.migrate(range, Location::Host, stream.as_ref()) }?;
    stream.synchronize()?;
    assert_eq!(read(device, block, MIB)?, pattern(6, MIB));
    // SAFETY: the block came from this resource with this layout, and the copies are over.
    unsafe { again.deallocate(block, layout(MIB), stream.as_ref()) };
    stream.synchronize()
}

pub(crate) fn managed_memory_is_the_hosts_too(device: &Device) -> Outcome {
    match Managed::new(device) {
        Ok(resource) => keeps_the_contract_of_the_host(&resource),
        Err(error) => {
            is_unsupported(&error);
            Ok(())
        }
    }
}

pub(crate) fn managed_memory_moves_and_keeps_its_bytes(device: &Device) -> Outcome {
    if !device.capabilities()?.concurrent_managed_access {
        is_unsupported(&Managed::new(device).unwrap_err());
        return Ok(());
    }
    let (resource, stream) = (Managed::new(device)?, device.stream()?);
    let home = Location::Device(device.ordinal());
    let block = resource.allocate(layout(MIB), stream.as_ref())?;
    write(device, block, &pattern(7, MIB))?;
    let whole = BlockRange::whole(block, layout(MIB));
    let middle = BlockRange::new(block, layout(MIB), 1000..900_000)?;
    let nothing = BlockRange::new(block, layout(MIB), 5..5)?;
    for (range, to) in [(whole, home), (middle, Location::Host), (nothing, home), (middle, home)] {
        // SAFETY: the block is live, and freed below on the stream.
        unsafe { resource.migrate(range, to, stream.as_ref()) }?;
    }
    for advice in [
        Advice::ReadMostly(true),
        Advice::ReadMostly(false),
        Advice::PreferredLocation(Some(home)),
        Advice::PreferredLocation(Some(Location::Host)),
        Advice::PreferredLocation(None),
        Advice::AccessedBy(home, true),
        Advice::AccessedBy(home, false),
    ] {
        for range in [whole, middle, nothing] {
            // SAFETY: the block is live.
            unsafe { resource.advise(range, advice) }?;
        }
    }
    stream.synchronize()?;
    assert_eq!(read(device, block, MIB)?, pattern(7, MIB));
    // SAFETY: the block came from this resource with this layout, and the copies are over.
    unsafe { resource.deallocate(block, layout(MIB), stream.as_ref()) };
    Ok(())
}

pub(crate) fn ranges_and_places_that_are_not_there_are_refused(device: &Device) -> Outcome {
    if !device.capabilities()?.concurrent_managed_access {
        is_unsupported(&Managed::new(device).unwrap_err());
        return Ok(());
    }
    let (resource, stream) = (Managed::new(device)?, device.stream()?);
    let block = resource.allocate(layout(4096), stream.as_ref())?;
    assert!(BlockRange::new(block, layout(4096), 1..4098).unwrap_err().is_out_of_range());
    let range = BlockRange::whole(block, layout(4096));
    let nowhere = Location::Device(1000);
    let elsewhere = Sim::new();
    let foreign = elsewhere.device(0).stream()?;
    // SAFETY: the block is live until it is freed below.
    let moved = unsafe { resource.migrate(range, nowhere, stream.as_ref()) };
    // SAFETY: as above.
    let preferred = unsafe { resource.advise(range, Advice::PreferredLocation(Some(nowhere))) };
    // SAFETY: as above.
    let accessed = unsafe { resource.advise(range, Advice::AccessedBy(nowhere, true)) };
    for error in [moved, preferred, accessed].map(Result::unwrap_err) {
        // Refused here, not by the driver, which need not look at a range that holds nothing.
        assert_eq!((error.kind(), error.code()), (ErrorKind::NoDevice, None), "{error}");
    }
    // SAFETY: as above.
    let error = unsafe { resource.migrate(range, Location::Host, foreign.as_ref()) }.unwrap_err();
    assert!(error.is_device_mismatch(), "{error}");
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { resource.deallocate(block, layout(4096), stream.as_ref()) };
    Ok(())
}

#[cfg(target_os = "linux")]
pub(crate) fn system_keeps_the_contract_or_says_why_not(device: &Device) -> Outcome {
    use alluvion::source::{System, SystemConfig};

    let supported = device.capabilities()?.pageable_memory_access;
    for config in [
        SystemConfig::default(),
        SystemConfig::default().headroom_bytes(0),
        SystemConfig::default().headroom_bytes(usize::MAX),
        SystemConfig::default().headroom_bytes(device.memory_info()?.free_bytes.saturating_sub(64 << 10)),
    ] {
        let resource = match System::with_config(device, config) {
            Ok(resource) => resource,
            Err(error) => {
                assert!(!supported, "{error}");
                is_unsupported(&error);
                continue;
            }
        };
        assert!(supported);
        assert_eq!(resource.id(), System::new(device)?.id());
        assert_eq!(resource.max_align(), 2 << 20);
        keeps_the_contract(&resource, &device.stream()?)?;
        keeps_the_contract_of_the_host(&resource)?;
    }
    Ok(())
}
