//! What `Callback` does with its closures.

use super::*;

pub(crate) fn a_callback_is_told_everything_once(device: &Device) -> Outcome {
    let pool = CudaAsync::new(device)?;
    let stream = device.stream()?;
    let (taken, given) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let told = |layout: Layout, at: StreamRef<'_>| {
        assert_eq!((layout.bytes(), layout.align()), (3000, 128));
        assert_eq!(at.id(), stream.id());
    };
    // SAFETY: the closures hand out the blocks of a pool, and give them back to it.
    let resource = unsafe {
        Callback::new(
            device,
            |layout, at| {
                told(layout, at);
                taken.fetch_add(1, Ordering::Relaxed);
                Ok(pool.allocate(layout, at)?.address())
            },
            |block, layout, at| {
                told(layout, at);
                given.fetch_add(1, Ordering::Relaxed);
                give_back(&pool, block, layout, at);
            },
        )
    };
    let counts = || (taken.load(Ordering::Relaxed), given.load(Ordering::Relaxed));
    let layout = Layout::new(3000, 128)?;
    let block = resource.allocate(layout, stream.as_ref())?;
    assert_eq!(counts(), (1, 0));
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { resource.deallocate(block, layout, stream.as_ref()) };
    assert_eq!(counts(), (1, 1));
    // Neither zero bytes nor an alignment that is too large reach the closures, which would panic.
    let nothing = resource.allocate(Layout::new(0, 1)?, stream.as_ref())?;
    // SAFETY: the block came from this resource with this layout.
    unsafe { resource.deallocate(nothing, Layout::new(0, 1)?, stream.as_ref()) };
    assert!(resource.allocate(Layout::new(8, 512)?, stream.as_ref()).unwrap_err().is_alignment());
    assert_eq!(counts(), (1, 1));
    for bad in [0, 3, 128, 300] {
        // SAFETY: these closures hand out nothing.
        let other = unsafe { Callback::new(device, |_, _| Ok(0), |_, _, _| {}) };
        assert_eq!(other.with_max_align(bad).unwrap_err().kind(), ErrorKind::InvalidAlignment);
    }
    stream.synchronize()
}

pub(crate) fn a_callback_honours_the_alignment_that_it_claims(device: &Device) -> Outcome {
    const ALIGN: usize = 64 << 10;
    let source = Cuda::new(device);
    let slab = Layout::from_bytes(32 * MIB)?;
    let start = source.allocate_sync(slab)?;
    let end = start.address() as usize + slab.bytes();
    let next = AtomicUsize::new(start.address() as usize);
    // SAFETY: the closure hands out parts of one block that never overlap, because `next` only goes up.
    let resource = unsafe {
        Callback::new(
            device,
            |layout, _| {
                let place = |from: usize| from.next_multiple_of(layout.block_align());
                let taken = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |from| {
                    Some(place(from) + layout.bytes()).filter(|&to| to <= end)
                });
                Ok(taken.map_or(0, |from| place(from) as u64))
            },
            |_, _, _| {},
        )
    }
    .with_max_align(ALIGN)?;
    assert_eq!(resource.max_align(), ALIGN);
    keeps_the_contract(&resource, &device.stream()?)?;
    // SAFETY: the block came from this resource with this layout, and the copies are over.
    unsafe { source.deallocate_sync(start, slab) };
    Ok(())
}

pub(crate) fn a_callback_that_answers_nonsense_is_refused(device: &Device) -> Outcome {
    let pool = CudaAsync::new(device)?;
    let stream = device.stream()?;
    // SAFETY: the closure hands out nothing.
    let null = unsafe { Callback::new(device, |_, _| Ok(0), |_, _, _| unreachable!()) };
    let error = null.allocate(layout(100), stream.as_ref()).unwrap_err();
    assert_eq!((error.is_out_of_memory(), error.requested_bytes()), (true, Some(100)));

    // SAFETY: the closure hands out nothing.
    let failing =
        unsafe { Callback::new(device, |_, _| Err(Error::over_limit(7, 5)), |_, _, _| unreachable!()) };
    assert_eq!(failing.allocate(layout(100), stream.as_ref()).unwrap_err().limit(), Some(5));

    let given = AtomicUsize::new(0);
    // SAFETY: the closures hand out the second half of each block of a pool, and give the whole back.
    let crooked = unsafe {
        Callback::new(
            device,
            |asked, at| Ok(pool.allocate(layout(asked.bytes() + 256), at)?.offset(8).address()),
            |block, asked, at| {
                given.fetch_add(1, Ordering::Relaxed);
                let whole = DevicePtr::new(block.address() - 8).expect("it was not null before");
                give_back(&pool, whole, layout(asked.bytes() + 256), at);
            },
        )
    };
    let error = crooked.allocate(layout(1000), stream.as_ref()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(given.load(Ordering::Relaxed), 1);
    assert!(crooked.allocate_sync(layout(1000)).is_err());
    device.synchronize()?;
    assert_eq!(pool.used_bytes()?, 0, "what was refused was given back");
    Ok(())
}

pub(crate) fn a_panic_of_a_callback_stays_inside(device: &Device) -> Outcome {
    let pool = CudaAsync::new(device)?;
    let stream = device.stream()?;
    // SAFETY: the closures hand out the blocks of a pool, or panic; giving back panics when it is done.
    let resource = unsafe {
        Callback::new(
            device,
            |layout, at| {
                assert!(layout.bytes() != 13, "thirteen");
                Ok(pool.allocate(layout, at)?.address())
            },
            |block, layout, at| {
                give_back(&pool, block, layout, at);
                panic!("done");
            },
        )
    };
    let error = resource.allocate(layout(13), stream.as_ref()).unwrap_err();
    assert!(error.to_string().contains("it panicked"), "{error}");
    let block = resource.allocate(layout(14), stream.as_ref())?;
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { resource.deallocate(block, layout(14), stream.as_ref()) };
    stream.synchronize()?;
    assert_eq!(pool.used_bytes()?, 0);
    Ok(())
}

pub(crate) fn a_callback_frees_its_own_blocks_only(device: &Device) -> Outcome {
    let pool = CudaAsync::new(device)?;
    let (first, second) = (over(&pool), over(&pool));
    assert_ne!(first.id(), second.id());
    assert_eq!(first.id(), Resource::id(&&first));
    assert_ne!(first.id(), pool.id());
    Ok(())
}
