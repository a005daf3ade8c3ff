//! What streams, events and frontiers promise on every machine, clause by clause.
//!
//! Each clause takes a device and uses nothing of any one driver. Work that takes a while is a function of the host that
//! waits to be let go of.

#![expect(unsafe_code, reason = "queues functions, and wraps streams that it makes beside the crate")]

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use alluvion::driver::RawStream;
use alluvion::stream::{StreamFlags, StreamKind};
use alluvion::testing::Stall;
use alluvion::{Device, Error, ErrorKind, Frontier, Stream, StreamPool};

/// Stamps a test for each clause: each is run by `$run`.
macro_rules! clauses {
    ($run:ident) => {
        $crate::stream_contract::clauses! { $run:
            a_block_is_reusable_at_once_where_it_was_freed
            a_wait_brings_what_was_freed_before_it_and_no_more
            waits_are_transitive
            joined_blocks_keep_every_dependency
            a_host_that_waited_needs_no_other_wait
            a_host_that_waited_for_the_device_needs_no_other_wait
            a_stream_that_is_idle_says_so
            events_are_points
            an_event_outlives_its_stream
            nothing_is_over_while_a_stream_is_stalled
            a_stalled_stream_ends_and_its_blocks_stay_safe
            scenario_2_a_recycled_handle_is_another_stream
            scenario_3_streams_that_are_gone_leave_their_blocks
            scenario_18_threads_have_streams_of_their_own
            a_thread_that_ends_covers_its_stream
            the_legacy_stream_stands_in_for_that_of_another_thread
            waiting_for_a_stand_in_waits_for_the_thread
            a_foreign_stream_may_end_after_its_last_handle
            an_owner_is_kept_as_long_as_its_stream
            a_bare_handle_is_one_stream_while_its_stream_lives
            a_bare_handle_that_comes_again_is_another_stream
            a_stream_pool_goes_round
            streams_have_kinds_and_priorities
        }
    };
    ($run:ident: $($clause:ident)+) => {
        $(#[test]
        fn $clause() {
            $run($crate::stream_contract::$clause);
        })+
    };
}
pub(crate) use clauses;

pub(crate) type Outcome = Result<(), Error>;

/// The frontier of a block that is freed on `stream` now.
pub(crate) fn freed(stream: &Stream) -> Frontier {
    Frontier::of(stream.as_ref().release())
}

pub(crate) fn may_reuse(stream: &Stream, frontier: &Frontier) -> bool {
    stream.as_ref().may_reuse(frontier)
}

fn two(device: &Device) -> Result<(Stream, Stream), Error> {
    Ok((device.stream()?, device.stream()?))
}

pub(crate) fn a_block_is_reusable_at_once_where_it_was_freed(device: &Device) -> Outcome {
    let (home, other) = two(device)?;
    for stream in [&home, &device.default_stream()] {
        let block = freed(stream);
        assert!(may_reuse(stream, &block) && may_reuse(&stream.clone(), &block));
        assert!(!may_reuse(&other, &block));
    }
    let fresh = Frontier::quiescent();
    assert!(may_reuse(&home, &fresh) && device.machine().is_quiescent(&fresh)?);
    Ok(())
}

pub(crate) fn a_wait_brings_what_was_freed_before_it_and_no_more(device: &Device) -> Outcome {
    let (home, other) = two(device)?;
    let (early, late) = (freed(&home), freed(&home));
    other.as_ref().wait_for(&early)?;
    assert!(may_reuse(&other, &early) && may_reuse(&other, &late), "one event covers both");
    let after = freed(&home);
    assert!(!may_reuse(&other, &after));
    other.wait_for_stream(&home)?;
    assert!(may_reuse(&other, &after));
    // Of itself a stream need not be told.
    home.wait_for_stream(&home.clone())?;
    assert!(!may_reuse(&home, &freed(&other)), "waiting has a direction");
    Ok(())
}

pub(crate) fn waits_are_transitive(device: &Device) -> Outcome {
    let (first, second) = two(device)?;
    let third = device.stream()?;
    let block = freed(&first);
    second.wait_for_stream(&first)?;
    let later = freed(&first);
    third.wait_for_stream(&second)?;
    assert!(may_reuse(&third, &block), "it waited for a stream that had waited");
    assert!(!may_reuse(&third, &later));
    Ok(())
}

pub(crate) fn joined_blocks_keep_every_dependency(device: &Device) -> Outcome {
    let streams: Vec<Stream> = (0..5).map(|_| device.stream()).collect::<Result<_, _>>()?;
    let mut joined = freed(&streams[0]);
    for stream in &streams[1..4] {
        joined.join(&freed(stream));
        joined.join(&freed(stream));
    }
    assert_eq!(joined.len(), 4);
    let taker = &streams[4];
    for stream in &streams[..4] {
        assert!(!may_reuse(taker, &joined));
        taker.wait_for_stream(stream)?;
    }
    assert!(may_reuse(taker, &joined));
    assert!(!may_reuse(&streams[0], &joined), "it has waited for none of the others");
    Ok(())
}

pub(crate) fn a_host_that_waited_needs_no_other_wait(device: &Device) -> Outcome {
    let (home, other) = two(device)?;
    let third = device.stream()?;
    let mut block = freed(&third);
    home.wait_for_stream(&third)?;
    block.join(&freed(&home));
    home.synchronize()?;
    assert!(may_reuse(&other, &block), "also what the stream had waited for is over");
    device.machine().forget_done(&mut block);
    assert!(block.is_empty());
    let after = freed(&home);
    assert!(!may_reuse(&other, &after), "what came later is not");
    device.machine().wait_quiescent(&after)?;
    assert!(may_reuse(&other, &after));
    Ok(())
}

pub(crate) fn a_host_that_waited_for_the_device_needs_no_other_wait(device: &Device) -> Outcome {
    let (home, other) = two(device)?;
    let mut block = freed(&home);
    block.join(&freed(&device.default_stream()));
    let here = device.per_thread_stream()?;
    block.join(&freed(&here));
    block.join(&freed(&device.stream()?));
    device.synchronize()?;
    assert!(may_reuse(&other, &block));
    assert!(!may_reuse(&other, &freed(&home)), "what came later is not over");
    Ok(())
}

pub(crate) fn a_stream_that_is_idle_says_so(device: &Device) -> Outcome {
    let (home, other) = two(device)?;
    let mut stall = Stall::on(home.as_ref());
    let block = freed(&home);
    assert!(!home.is_idle()? && !may_reuse(&other, &block));
    stall.let_go();
    while !home.is_idle()? {
        thread::yield_now();
    }
    assert!(stall.is_over() && may_reuse(&other, &block));
    Ok(())
}

pub(crate) fn events_are_points(device: &Device) -> Outcome {
    let (home, other) = two(device)?;
    let block = freed(&home);
    let event = home.record()?;
    let after = freed(&home);
    assert_eq!((event.device(), event.stamp().stream()), (device, home.id()));
    assert!(event.stamp() < after.iter().next().expect("it has one point"));
    other.wait_event(&event.clone())?;
    assert!(may_reuse(&other, &block) && may_reuse(&other, &event.frontier()));
    assert!(!may_reuse(&other, &after));
    // Dropped and recorded again and again, events of the pool are what they are for.
    for _ in 0..20 {
        let block = freed(&home);
        let event = home.record()?;
        drop(home.record()?);
        event.synchronize()?;
        assert!(event.is_complete()? && may_reuse(&device.default_stream(), &block));
    }
    Ok(())
}

pub(crate) fn an_event_outlives_its_stream(device: &Device) -> Outcome {
    let (home, other) = two(device)?;
    let mut stall = Stall::on(home.as_ref());
    let block = freed(&home);
    let event = home.record()?;
    drop(home);
    assert!(!event.is_complete()?);
    other.wait_event(&event)?;
    assert!(may_reuse(&other, &block) && !stall.is_over());
    stall.let_go_soon();
    event.synchronize()?;
    assert!(stall.is_over() && device.machine().is_quiescent(&block)?);
    Ok(())
}

pub(crate) fn nothing_is_over_while_a_stream_is_stalled(device: &Device) -> Outcome {
    let (home, other) = two(device)?;
    let mut stall = Stall::on(home.as_ref());
    let block = freed(&home);
    let machine = device.machine();
    for _ in 0..3 {
        assert!(!machine.is_quiescent(&block)?);
    }
    assert!(!home.record()?.is_complete()? && !may_reuse(&other, &block));
    other.as_ref().wait_for(&block)?;
    assert!(may_reuse(&other, &block), "the device waits");
    assert!(!other.is_idle()? && !machine.is_quiescent(&block)?, "and it still does");
    assert!(!stall.is_over());
    stall.let_go_soon();
    machine.wait_quiescent(&block)?;
    assert!(stall.is_over() && machine.is_quiescent(&block)?);
    Ok(())
}

pub(crate) fn a_stalled_stream_ends_and_its_blocks_stay_safe(device: &Device) -> Outcome {
    let (home, other) = two(device)?;
    let mut stall = Stall::on(home.as_ref());
    let block = freed(&home);
    drop(home);
    // Making streams looks whether it can be forgotten. It cannot.
    let newcomers: Vec<Stream> = (0..8).map(|_| device.stream()).collect::<Result<_, _>>()?;
    assert!(!stall.is_over() && !device.machine().is_quiescent(&block)?);
    for newcomer in &newcomers {
        assert!(!may_reuse(newcomer, &block));
    }
    other.as_ref().wait_for(&block)?;
    assert!(may_reuse(&other, &block) && !other.is_idle()?);
    stall.let_go_soon();
    device.machine().wait_quiescent(&block)?;
    assert!(stall.is_over() && newcomers.iter().all(|newcomer| may_reuse(newcomer, &block)));
    Ok(())
}

pub(crate) fn scenario_2_a_recycled_handle_is_another_stream(device: &Device) -> Outcome {
    let home = device.stream()?;
    let (raw, id) = (home.as_ref().raw(), home.id());
    let mut stall = Stall::on(home.as_ref());
    let block = freed(&home);
    drop(home);
    // Whichever of these got the handle, none is the stream that is gone.
    let newcomers: Vec<Stream> = (0..8).map(|_| device.stream()).collect::<Result<_, _>>()?;
    if let Some(same) = newcomers.iter().find(|newcomer| newcomer.as_ref().raw() == raw) {
        assert!(!may_reuse(same, &block));
    }
    for newcomer in &newcomers {
        assert!(newcomer.id() != id && !may_reuse(newcomer, &block));
        newcomer.as_ref().wait_for(&block)?;
        assert!(may_reuse(newcomer, &block) && !newcomer.is_idle()? && !stall.is_over());
    }
    stall.let_go();
    device.machine().wait_quiescent(&block)
}

pub(crate) fn scenario_3_streams_that_are_gone_leave_their_blocks(device: &Device) -> Outcome {
    let default = device.default_stream();
    let mut block = Frontier::quiescent();
    for _ in 0..100 {
        block.join(&freed(&device.stream()?));
    }
    default.as_ref().wait_for(&block)?;
    assert!(may_reuse(&default, &block));
    device.machine().wait_quiescent(&block)?;
    device.machine().forget_done(&mut block);
    assert!(block.is_empty());
    Ok(())
}

pub(crate) fn scenario_18_threads_have_streams_of_their_own(device: &Device) -> Outcome {
    let here = device.per_thread_stream()?;
    let block = freed(&here);
    assert_eq!((here.id(), here.kind()), (device.per_thread_stream()?.id(), StreamKind::PerThread));
    assert_ne!(here.id(), device.default_stream().id());
    thread::scope(|scope| {
        let there = scope.spawn(|| {
            let there = device.per_thread_stream()?;
            assert_eq!(there.as_ref().raw(), RawStream::PER_THREAD, "one handle");
            assert!(!may_reuse(&there, &block), "and yet another stream");
            there.as_ref().wait_for(&block)?;
            assert!(may_reuse(&there, &block));
            Ok::<_, Error>((there.id(), freed(&there)))
        });
        let (id, of_there) = there.join().expect("nothing panics")?;
        assert_ne!(here.id(), id);
        assert!(!may_reuse(&here, &of_there));
        here.as_ref().wait_for(&of_there)?;
        assert!(may_reuse(&here, &of_there));
        Ok(())
    })
}

pub(crate) fn a_thread_that_ends_covers_its_stream(device: &Device) -> Outcome {
    let other = device.stream()?;
    let (mut stall, block) = thread::scope(|scope| {
        let there = scope.spawn(|| {
            let stream = device.per_thread_stream()?;
            Ok::<_, Error>((Stall::on(stream.as_ref()), freed(&stream)))
        });
        there.join().expect("nothing panics")
    })?;
    assert!(!may_reuse(&other, &block) && !device.machine().is_quiescent(&block)?);
    other.as_ref().wait_for(&block)?;
    assert!(may_reuse(&other, &block) && !other.is_idle()? && !stall.is_over());
    stall.let_go_soon();
    device.machine().wait_quiescent(&block)?;
    assert!(stall.is_over());
    Ok(())
}

/// Runs `body` on this thread with the stalled per-thread stream of another one, which lives meanwhile.
fn with_a_stalled_thread(device: &Device, body: impl FnOnce(Stream, Stall, Frontier) -> Outcome) -> Outcome {
    thread::scope(|scope| {
        let (made, make) = channel();
        let (done, is_done) = channel::<()>();
        let there = scope.spawn(move || {
            let stream = device.per_thread_stream()?;
            let stall = Stall::on(stream.as_ref());
            let block = freed(&stream);
            made.send((stream.as_ref().to_stream(), stall, block)).expect("it is waited for");
            let _ = is_done.recv();
            Ok(())
        });
        let (stream, stall, block) = make.recv().expect("it is sent");
        let outcome = body(stream, stall, block);
        drop(done);
        outcome.and(there.join().expect("nothing panics"))
    })
}

pub(crate) fn the_legacy_stream_stands_in_for_that_of_another_thread(device: &Device) -> Outcome {
    with_a_stalled_thread(device, |theirs, mut stall, block| {
        let (default, other) = (device.default_stream(), device.stream()?);
        assert_eq!((theirs.id(), theirs.as_ref().raw()), (default.id(), RawStream::LEGACY));
        assert!(!may_reuse(&theirs, &block), "by number they are two streams");
        // What is freed here comes after what was freed there.
        let here = freed(&theirs);
        assert!(!device.machine().is_quiescent(&here)? && !theirs.record()?.is_complete()?);
        other.as_ref().wait_for(&here)?;
        assert!(!other.is_idle()? && !stall.is_over());
        stall.let_go_soon();
        device.machine().wait_quiescent(&here)?;
        assert!(stall.is_over() && device.machine().is_quiescent(&block)?);
        Ok(())
    })
}

pub(crate) fn waiting_for_a_stand_in_waits_for_the_thread(device: &Device) -> Outcome {
    with_a_stalled_thread(device, |theirs, mut stall, block| {
        assert!(!theirs.is_idle()? && !stall.is_over());
        stall.let_go_soon();
        theirs.synchronize()?;
        assert!(stall.is_over() && theirs.is_idle()?);
        device.machine().wait_quiescent(&block)
    })
}

/// A stream that somebody else made.
fn foreign(device: &Device) -> Result<RawStream, Error> {
    Ok(device.driver().stream_create(device.ordinal(), StreamFlags::default())?)
}

fn end(device: &Device, raw: RawStream) -> Outcome {
    // SAFETY: `foreign` made it, and each test ends it when the last handle is gone.
    Ok(unsafe { device.driver().stream_destroy(device.ordinal(), raw) }?)
}

pub(crate) fn a_foreign_stream_may_end_after_its_last_handle(device: &Device) -> Outcome {
    let other = device.stream()?;
    let raw = foreign(device)?;
    // SAFETY: it is destroyed below, when the wrapping and its clone are gone.
    let wrapped = unsafe { Stream::from_raw(device, raw) }?;
    // SAFETY: as above.
    let again = unsafe { Stream::from_raw(device, raw) }?;
    assert_eq!((wrapped.kind(), wrapped.as_ref().raw()), (StreamKind::Foreign, raw));
    let mut stall = Stall::on(wrapped.as_ref());
    let (early, clone) = (freed(&wrapped), wrapped.clone());
    assert!(may_reuse(&clone, &early) && !may_reuse(&again, &early), "each wrapping is a stream by itself");
    let late = freed(&clone);
    drop((wrapped, again, clone));
    end(device, raw)?;
    for block in [&early, &late] {
        assert!(!may_reuse(&other, block) && !device.machine().is_quiescent(block)?);
    }
    other.as_ref().wait_for(&late)?;
    assert!(may_reuse(&other, &early) && may_reuse(&other, &late));
    assert!(!other.is_idle()? && !stall.is_over());
    stall.let_go();
    device.machine().wait_quiescent(&late)
}

/// The stream of a bare handle.
fn found(device: &Device, raw: RawStream) -> Result<Stream, Error> {
    // SAFETY: each test ends a stream when it has dropped what it found for it.
    unsafe { device.raw_streams().stream(raw) }
}

pub(crate) fn a_bare_handle_is_one_stream_while_its_stream_lives(device: &Device) -> Outcome {
    let (first, second) = (foreign(device)?, foreign(device)?);
    let ids = [found(device, first)?.id(), found(device, second)?.id()];
    assert_ne!(ids[0], ids[1]);
    let block = freed(&found(device, first)?);
    thread::scope(|scope| -> Outcome {
        let there = scope.spawn(|| Ok::<_, Error>(found(device, first)?.id()));
        assert_eq!(there.join().expect("it does not panic")?, ids[0]);
        Ok(())
    })?;
    assert_eq!([found(device, first)?.id(), found(device, second)?.id()], ids);
    // Whether the second may have it is the hardware's word: the stream has no work, and may be known to be done.
    assert!(may_reuse(&found(device, first)?, &block));
    for raw in [RawStream(0), RawStream::LEGACY] {
        assert_eq!(found(device, raw)?, device.default_stream());
    }
    assert_eq!(found(device, RawStream::PER_THREAD)?.id(), device.per_thread_stream()?.id());
    end(device, first)?;
    end(device, second)
}

pub(crate) fn a_bare_handle_that_comes_again_is_another_stream(device: &Device) -> Outcome {
    let other = device.stream()?;
    let (mut stalls, mut blocks, mut recycled) = (Vec::new(), Vec::new(), 0);
    let mut last = None;
    for _ in 0..8 {
        let raw = foreign(device)?;
        recycled += u32::from(last == Some(raw));
        last = Some(raw);
        let stream = found(device, raw)?;
        assert!(blocks.iter().all(|block| !may_reuse(&stream, block)));
        stalls.push(Stall::on(stream.as_ref()));
        blocks.push(freed(&stream));
        drop(stream);
        // Its work has not run yet.
        end(device, raw)?;
    }
    println!("{recycled} of 7 handles came again at once");
    for block in &blocks {
        assert!(!device.machine().is_quiescent(block)?);
        other.as_ref().wait_for(block)?;
        assert!(may_reuse(&other, block));
    }
    assert!(!other.is_idle()?);
    stalls.iter_mut().for_each(Stall::let_go);
    blocks.iter().try_for_each(|block| device.machine().wait_quiescent(block))
}

pub(crate) fn an_owner_is_kept_as_long_as_its_stream(device: &Device) -> Outcome {
    struct Owner(Device, RawStream);
    impl Drop for Owner {
        fn drop(&mut self) {
            end(&self.0, self.1).expect("it is ended once");
        }
    }
    let other = device.stream()?;
    let owner = Arc::new(Owner(device.clone(), foreign(device)?));
    let kept = Arc::downgrade(&owner);
    let raw = owner.1;
    // SAFETY: the owner ends the stream, and not before it is dropped.
    let stream = unsafe { Stream::from_owner(device, raw, owner) }?;
    let mut stall = Stall::on(stream.as_ref());
    let block = freed(&stream);
    assert!(kept.upgrade().is_some());
    drop(stream);
    assert!(kept.upgrade().is_none());
    assert!(!device.machine().is_quiescent(&block)? && !may_reuse(&other, &block));
    other.as_ref().wait_for(&block)?;
    stall.let_go();
    device.machine().wait_quiescent(&block)
}

pub(crate) fn a_stream_pool_goes_round(device: &Device) -> Outcome {
    let refused = StreamPool::new(device, 0).map(|pool| pool.len());
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::InvalidArgument));
    let pool = StreamPool::new(device, 3)?;
    let round: Vec<_> = (0..6).map(|_| pool.next().id()).collect();
    assert_eq!((pool.len(), &round[..3]), (3, &round[3..]));
    assert!(round[0] != round[1] && round[1] != round[2] && round[2] != round[0]);
    assert_eq!(pool.stream(1), pool.stream(usize::MAX - (usize::MAX - 1) % 3));
    assert!(pool.stream(0).may_reuse(&Frontier::of(pool.stream(3).release())));
    assert!(!pool.stream(0).may_reuse(&Frontier::of(pool.stream(1).release())));
    Ok(())
}

pub(crate) fn streams_have_kinds_and_priorities(device: &Device) -> Outcome {
    let (least, greatest) = device.stream_priority_range()?;
    assert!(greatest <= least, "the greatest is the lower number");
    for priority in [least, greatest, greatest - 100, least + 100] {
        let stream = device.stream_with(StreamFlags { blocking: priority == least, priority })?;
        assert_eq!((stream.kind(), stream.device()), (StreamKind::Owned, device));
        assert!(!stream.as_ref().is_capturing()?);
        stream.synchronize()?;
    }
    let default = device.default_stream();
    assert_eq!((default.kind(), default.id()), (StreamKind::Legacy, device.default_stream().id()));
    default.synchronize()?;
    assert!(default.is_idle()?);
    Ok(())
}
