//! Copies to and from the host that go on after the call.

use super::*;

pub(crate) fn scenario_14_pinned_memory_dropped_after_an_asynchronous_upload(device: &Device) -> Outcome {
    let (stream, pinned) = (device.stream()?, OneBlock::new(device));
    let s = stream.as_ref();
    for len in [16, LARGE] {
        let mut vector = DeviceVec::<u32>::uninit(len, s)?;
        stall(&stream);
        let transfer = vector.upload(pinned.filled(len, 7_u32), s)?;
        drop(transfer);
        // The same memory, because it is the only block: whoever had let go too early would upload this.
        let next = pinned.filled(len, 0xdead_u32);
        assert!(all_equal(&vector, 7, &stream)?);
        drop(next);
        pinned.finish();
    }
    Ok(())
}

pub(crate) fn a_transfer_owns_its_buffer(device: &Device) -> Outcome {
    let (stream, other) = two_streams(device)?;
    let (s, pinned) = (stream.as_ref(), OneBlock::new(device));
    let mut vector = DeviceVec::<u32>::uninit(LARGE, s)?;
    stall(&other);
    let upload = vector.upload(pinned.filled(LARGE, 5_u32), other.as_ref())?;
    let download = vector.download(vec![0; LARGE].into_boxed_slice(), s)?;
    drop(vector);
    if let Some(event) = upload.event() {
        stream.wait_event(event)?;
    }
    let upload = thread::spawn(move || upload.wait()).join().expect("waiting does not panic")?;
    assert!(upload.iter().all(|&element| element == 5));
    let download = download.wait()?;
    assert!(download.iter().all(|&element| element == 5));
    drop(upload);
    pinned.finish();
    let mut part = DeviceVec::from_slice(&[1_u8, 2, 3, 4], s)?;
    let upload = part.slice_mut(1..3)?.upload(vec![8, 9], s)?;
    while !upload.is_done()? {
        thread::yield_now();
    }
    let mut boxed = allocator_api2::vec::Vec::new();
    boxed.extend_from_slice(&[0_u8; 4]);
    assert_eq!(part.download(boxed.into_boxed_slice(), s)?.wait()?[..], [1, 8, 9, 4]);
    Ok(())
}

pub(crate) fn a_transfer_that_is_not_begun_loses_nothing(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let s = stream.as_ref();
    let mut vector = DeviceVec::from_slice(&[1, 2, 3], s)?;
    let rejected = vector.upload(vec![5; 4], s).expect_err("one too many");
    assert!(rejected.error().is_length_mismatch());
    assert_eq!(rejected.into_value(), Some(vec![5; 4]));
    assert_eq!(vector.download(vec![5; 2], s).expect_err("one too few").into_value(), Some(vec![5; 2]));
    assert_eq!(vector.to_vec(s)?, [1, 2, 3]);
    Ok(())
}

pub(crate) fn a_forgotten_transfer_leaks_its_buffer(device: &Device) -> Outcome {
    let (stream, pinned) = (device.stream()?, OneBlock::new(device));
    let s = stream.as_ref();
    let mut vector = DeviceVec::<u32>::uninit(LARGE, s)?;
    stall(&stream);
    let host = pinned.filled(LARGE, 6_u32);
    let address = std::ptr::NonNull::from(&host[0]).cast();
    mem::forget(vector.upload(host, s)?);
    // The block is not spare: this is another one.
    let other = pinned.filled(LARGE, 0_u32);
    assert!(all_equal(&vector, 6, &stream)?);
    drop(other);
    pinned.finish();
    // SAFETY: the copy is over, because the stream was synchronised, and the vector that owned the block is forgotten.
    unsafe { device.driver().free_pinned(device.ordinal(), address) }?;
    Ok(())
}

pub(crate) fn a_scope_borrows_until_it_has_waited(device: &Device) -> Outcome {
    let (stream, other) = two_streams(device)?;
    let (s, pinned) = (stream.as_ref(), OneBlock::new(device));
    let mut first = DeviceVec::<u32>::uninit(LARGE, other.as_ref())?;
    let mut second = DeviceBuffer::uninit(4, s)?;
    let (mut back, mut bytes) = (vec![0; LARGE], [0; 4]);
    let mut host = pinned.filled(LARGE, 4_u32);
    let sum = stream.scope(|scope| {
        stall(&stream);
        scope.upload(&mut first, &host)?;
        scope.upload(&mut second, b"word")?;
        scope.download(first.slice(..)?, &mut back)?;
        scope.download(&second, &mut bytes)?;
        assert_eq!(scope.stream(), s);
        Ok(1 + 1)
    })?;
    host.fill(0);
    assert_eq!((sum, bytes), (2, *b"word"));
    assert!(back.iter().all(|&element| element == 4));
    drop(host);
    pinned.finish();
    Ok(())
}

pub(crate) fn a_scope_waits_when_it_panics(device: &Device) -> Outcome {
    let (stream, pinned) = (device.stream()?, OneBlock::new(device));
    let mut vector = DeviceVec::<u32>::uninit(LARGE, stream.as_ref())?;
    let mut host = pinned.filled(LARGE, 4_u32);
    stall(&stream);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.scope(|scope| -> Result<(), Error> {
            scope.upload(&mut vector, &host)?;
            std::panic::panic_any("on purpose");
        })
    }));
    assert!(panicked.is_err());
    host.fill(0);
    assert!(all_equal(&vector, 4, &stream)?);
    let failed = stream.scope(|scope| {
        scope.upload(&mut vector, &host)?;
        Err::<(), _>(Error::out_of_memory(1))
    });
    assert!(failed.unwrap_err().is_out_of_memory());
    host.fill(9);
    assert!(all_equal(&vector, 0, &stream)?);
    drop(host);
    pinned.finish();
    Ok(())
}
