//! What the pools of `CudaAsync` and its views do.

use super::*;
use alluvion::ResourceExt;

pub(crate) fn a_pool_is_primed_when_it_is_made(device: &Device) -> Outcome {
    let bytes = 8 * MIB;
    let resource = CudaAsync::with_config(device, CudaAsyncConfig::default().initial_bytes(bytes))?;
    let reserved = resource.reserved_bytes()?;
    assert!(reserved >= bytes, "{reserved}");
    assert_eq!(resource.used_bytes()?, 0);
    let block = resource.allocate_sync(layout(bytes))?;
    assert_eq!(resource.reserved_bytes()?, reserved, "the block came out of what was there");
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { resource.deallocate_sync(block, layout(bytes)) };
    assert_eq!(CudaAsync::new(device)?.reserved_bytes()?, 0);
    Ok(())
}

fn attribute(resource: &CudaAsync, attribute: PoolAttribute) -> Result<u64, Error> {
    let device = resource.device();
    // SAFETY: the pool is live: `resource` owns it.
    Ok(unsafe { device.driver().pool_attribute(device.ordinal(), resource.raw_pool(), attribute) }?)
}

pub(crate) fn a_pool_is_made_as_configured(device: &Device) -> Outcome {
    use PoolAttribute as P;
    let reuse =
        [P::ReuseFollowEventDependencies, P::ReuseAllowOpportunistic, P::ReuseAllowInternalDependencies];
    for allow in [false, true] {
        let config = CudaAsyncConfig::default()
            .release_threshold_bytes(3 << 20)
            .reuse_follow_event_dependencies(allow)
            .reuse_allow_opportunistic(allow)
            .reuse_allow_internal_dependencies(allow);
        let resource = CudaAsync::with_config(device, config)?;
        assert_eq!(attribute(&resource, P::ReleaseThreshold)?, 3 << 20);
        for which in reuse {
            assert_eq!(attribute(&resource, which)?, u64::from(allow), "{which:?}");
        }
    }
    let resource = CudaAsync::new(device)?;
    assert_eq!(attribute(&resource, P::ReleaseThreshold)?, u64::MAX);

    // Fabric handles need a service beside the driver, whatever the device says; file descriptors need nothing.
    let file = HandleType::POSIX_FILE_DESCRIPTOR;
    let config = CudaAsyncConfig::default().handle_types(file);
    if !device.capabilities()?.pool_handle_types.contains(file) {
        is_unsupported(&CudaAsync::with_config(device, config).unwrap_err());
        return Ok(());
    }
    let exported = CudaAsync::with_config(device, config)?;
    let block = exported.allocate_sync(layout(1000))?;
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { exported.deallocate_sync(block, layout(1000)) };
    Ok(())
}

pub(crate) fn a_pool_that_cannot_be_is_refused(device: &Device) -> Outcome {
    let make = |config: CudaAsyncConfig| CudaAsync::with_config(device, config).map(drop);
    // The bit of a Windows handle and one that no header knows: no machine offers both.
    for handle_types in [HandleType::WIN32.with(HandleType::POSIX_FILE_DESCRIPTOR), HandleType(1 << 20)] {
        is_unsupported(&make(CudaAsyncConfig::default().handle_types(handle_types)).unwrap_err());
    }
    let config = CudaAsyncConfig::default().initial_bytes(2 * MIB).release_threshold_bytes(MIB as u64);
    assert_eq!(make(config).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let error = make(CudaAsyncConfig::default().initial_bytes(1 << 50)).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    let error = make(CudaAsyncConfig::default().initial_bytes(usize::MAX)).unwrap_err();
    assert!(error.is_size_overflow(), "{error}");
    Ok(())
}

pub(crate) fn a_release_threshold_is_obeyed(device: &Device) -> Outcome {
    let keeps_nothing =
        CudaAsync::with_config(device, CudaAsyncConfig::default().release_threshold_bytes(0))?;
    let keeps_all = CudaAsync::new(device)?;
    let stream = device.stream()?;
    for resource in [&keeps_nothing, &keeps_all] {
        let block = resource.allocate(layout(4 * MIB), stream.as_ref())?;
        // SAFETY: the block came from this resource with this layout, and nothing uses it.
        unsafe { resource.deallocate(block, layout(4 * MIB), stream.as_ref()) };
    }
    stream.synchronize()?;
    assert_eq!(keeps_nothing.reserved_bytes()?, 0);
    assert!(keeps_all.reserved_bytes()? >= 4 * MIB);
    Ok(())
}

pub(crate) fn trimming_says_what_went(device: &Device) -> Outcome {
    let resource = CudaAsync::with_config(device, CudaAsyncConfig::default().initial_bytes(256 * MIB / 4))?;
    let before = resource.reserved_bytes()?;
    assert_eq!(resource.trim(before)?, 0, "it may keep all it has");
    let block = resource.allocate_sync(layout(1000))?;
    let went = resource.trim(0)?;
    assert_eq!(before - resource.reserved_bytes()?, went);
    assert!(resource.reserved_bytes()? >= 1000, "what is out stays");
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { resource.deallocate_sync(block, layout(1000)) };
    assert_eq!(resource.trim(0)? + went, before);
    assert_eq!((resource.reserved_bytes()?, resource.trim(0)?), (0, 0));
    Ok(())
}

pub(crate) fn high_water_marks_rise_and_are_reset(device: &Device) -> Outcome {
    let resource = CudaAsync::new(device)?;
    let block = resource.allocate_sync(layout(4 * MIB))?;
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { resource.deallocate_sync(block, layout(4 * MIB)) };
    assert!(resource.used_high_bytes()? >= 4 * MIB);
    assert!(resource.reserved_high_bytes()? >= 4 * MIB);
    resource.trim(0)?;
    resource.reset_high_water_marks()?;
    assert_eq!((resource.used_high_bytes()?, resource.reserved_high_bytes()?), (0, 0));
    Ok(())
}

pub(crate) fn a_pool_knows_what_can_still_be_had(device: &Device) -> Outcome {
    let resource = CudaAsync::with_config(device, CudaAsyncConfig::default().initial_bytes(32 * MIB))?;
    let of_device = device.memory_info()?;
    let of_pool = resource.memory_info()?;
    assert_eq!(of_pool.total_bytes, of_device.total_bytes);
    // Other tests allocate meanwhile, so that only the pool's own part is sure.
    assert!(of_pool.free_bytes >= 32 * MIB);
    Ok(())
}

pub(crate) fn a_synchronous_free_is_over(device: &Device) -> Outcome {
    let resource = CudaAsync::with_config(device, CudaAsyncConfig::default().release_threshold_bytes(0))?;
    let block = resource.allocate_sync(layout(4 * MIB))?;
    write(device, block, &pattern(1, 4 * MIB))?;
    // SAFETY: the block came from this resource with this layout, and the copy is over.
    unsafe { resource.deallocate_sync(block, layout(4 * MIB)) };
    assert_eq!((resource.used_bytes()?, resource.reserved_bytes()?), (0, 0));
    Ok(())
}

pub(crate) fn a_view_and_its_pool_free_each_others_blocks(device: &Device) -> Outcome {
    let owner = CudaAsync::new(device)?;
    let view = owner.view();
    assert_eq!((view.id(), view.raw_pool()), (owner.id(), owner.raw_pool()));
    assert_ne!(view.id(), CudaAsync::new(device)?.id());
    let (first, second) = (owner.allocate_sync(layout(1000))?, view.clone().allocate_sync(layout(1000))?);
    assert_eq!(view.used_bytes()?, owner.used_bytes()?);
    assert!(view.used_bytes()? >= 2000 && view.reserved_bytes()? == owner.reserved_bytes()?);
    // SAFETY: the block came from a resource with this id with this layout, and nothing uses it.
    unsafe { view.deallocate_sync(first, layout(1000)) };
    // SAFETY: as above.
    unsafe { owner.deallocate_sync(second, layout(1000)) };
    assert_eq!(owner.used_bytes()?, 0);
    assert!(view.trim(0)? > 0);
    Ok(())
}

pub(crate) fn a_raw_pool_can_be_viewed(device: &Device) -> Outcome {
    let raw = device.driver().pool_default(device.ordinal(), PoolKind::Device)?;
    // SAFETY: a default pool is its device's, and lives as long as the process.
    let view = unsafe { CudaAsyncView::from_raw(device, raw) }?;
    assert!(view.find::<CudaAsync>().is_none());
    let block = view.allocate_sync(layout(1000))?;
    write(device, block, &pattern(9, 1000))?;
    assert_eq!(read(device, block, 1000)?, pattern(9, 1000));
    // SAFETY: a default pool is its device's, and lives as long as the process.
    let again = unsafe { CudaAsyncView::from_raw(device, raw) }?;
    assert_eq!(again.id(), view.id());
    // SAFETY: the block came from a resource with this id with this layout, and the copies are over.
    unsafe { again.deallocate_sync(block, layout(1000)) };
    Ok(())
}

pub(crate) fn a_null_pool_is_refused(device: &Device) -> Outcome {
    // SAFETY: null is allowed.
    let error = unsafe { CudaAsyncView::from_raw(device, RawPool(0)) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("it is null"), "{error}");
    Ok(())
}

pub(crate) fn a_pool_waits_for_its_frees(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let busy = CudaAsync::new(device)?;
    let (large, small) = (layout(64 * MIB), layout(MIB));
    let work = busy.allocate(large, stream.as_ref())?;
    // The driver crashes when a pool goes before its frees have run: within 200 rounds. A retired pool keeps 32 MiB for as
    // long, which bounds the rounds on a small device.
    let rounds = (device.memory_info()?.free_bytes / (64 * MIB)).min(200);
    for _ in 0..rounds {
        let resource = CudaAsync::new(device)?;
        let block = resource.allocate(small, stream.as_ref())?;
        for value in 0..16 {
            fill(device, work, FillValue::U8(value), large.bytes(), &stream)?;
        }
        // SAFETY: the block came from this resource with this layout, and nothing uses it.
        unsafe { resource.deallocate(block, small, stream.as_ref()) };
        drop(resource);
    }
    // SAFETY: the block came from this resource with this layout, and its uses are on this stream.
    unsafe { busy.deallocate(work, large, stream.as_ref()) };
    stream.synchronize()
}

/// Not among the clauses: the pool is leaked, so it is tested beside them on each machine.
pub(crate) fn a_pool_with_blocks_out_is_kept(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let resource = CudaAsync::new(device)?;
    let block = resource.allocate_sync(layout(MIB))?;
    write(device, block, &pattern(5, MIB))?;
    drop(resource);
    let (driver, ordinal) = (device.driver(), device.ordinal());
    assert_eq!(read(device, block, MIB)?, pattern(5, MIB));
    // SAFETY: the block is live, and the copy is over.
    unsafe { driver.free_async(ordinal, block.address(), stream.as_ref().raw()) }?;
    stream.synchronize()?;
    // Others are not disturbed.
    let other = CudaAsync::new(device)?;
    let block = other.allocate_sync(layout(MIB))?;
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { other.deallocate_sync(block, layout(MIB)) };
    Ok(())
}
