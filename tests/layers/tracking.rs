//! What `Tracking` knows: which blocks are out, what was freed wrongly, and what is left in the end.

#![expect(unsafe_code, reason = "frees by hand, and wrongly")]
#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::env;
use std::process::Command;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use alluvion::adaptor::{Holdings, Tracking};
use alluvion::error::freeing;
use alluvion::source::{Cuda, Null};
use alluvion::tag::with_tag;
use alluvion::testing::{Bench, Delayed, Faulty, Shadow};
use alluvion::{
    AnyResource, DevicePtr, Error, ErrorKind, Layout, MisuseKind, PoolConfig, Resource, ResourceExt,
};

use crate::adaptor_contract::guard::seen_by_the_machine;
use crate::raw_block::{Held, layout_of};

/// One that tells nobody.
fn quiet<U: Resource>(upstream: U) -> Tracking<U> {
    upstream.tracking().on_leak(|_| {})
}

#[test]
fn a_block_is_known_while_it_is_out() {
    let bench = Bench::sim();
    let (stream, tracking) = (bench.stream(), Cuda::new(&bench.device()).tracking());
    let layout = Layout::new(1000, 512).unwrap();
    assert!(tracking.allocate(layout, stream.as_ref()).is_err(), "the source has no such alignment");
    let plain = with_tag("outer", || Held::of(&tracking, 1000, stream.as_ref()));
    let (pointer, there) = thread::scope(|scope| {
        let sync = scope.spawn(|| Held::allocate_sync(&tracking, layout_of(24)).unwrap().into_parts());
        sync.join().unwrap()
    });
    let out = tracking.outstanding();
    let [first, second] = &out.blocks[..] else { panic!("{out}") };
    assert_eq!((first.address, first.bytes, first.align), (plain.pointer, 1000, layout_of(1000).align()));
    assert_eq!((first.stream, first.tag.name()), (Some(stream.id()), "outer"));
    assert_eq!((second.address, second.bytes, second.stream), (pointer, 24, None));
    assert!(first.thread != second.thread && first.at <= second.at);
    assert_eq!((out.bytes(), tracking.book().live_bytes(), tracking.book().live_blocks()), (1024, 1024, 2));
    assert_eq!(tracking.describe().to_string(), "Tracking(1 KiB in 2) > Cuda(gpu 0)");
    plain.free(stream.as_ref());
    Held::adopt(&tracking, pointer, there).free_sync();
    assert!(tracking.outstanding().is_clean());
    assert_eq!(out.blocks.len(), 2, "a copy stays what it was");
    bench.check();
}

#[test]
fn zero_bytes_are_not_entered() {
    let bench = Bench::sim();
    let (stream, tracking) = (bench.stream(), Cuda::new(&bench.device()).tracking());
    let zero = Held::of(&tracking, 0, stream.as_ref());
    assert!(tracking.outstanding().is_clean());
    let again = Held::of(&tracking, 0, stream.as_ref());
    assert_eq!(zero.pointer, again.pointer, "which would be one block that comes twice");
    zero.free(stream.as_ref());
    again.free(stream.as_ref());
    Held::allocate_sync(&tracking, layout_of(0)).unwrap().free_sync();
    assert!(tracking.outstanding().is_clean());
}

/// More than a number can hold: it is said to be the most that one can, and no call unwinds.
#[test]
fn absurd_sizes_break_no_call() {
    let bench = Bench::sim();
    let tracking = quiet(Null::new(&bench.device()));
    let largest = layout_of(isize::MAX as usize - 255);
    let held: Vec<_> =
        (0..5).map(|_| Held::allocate_sync(&tracking, largest).expect("it has any size")).collect();
    let out = tracking.outstanding();
    assert_eq!((out.blocks.len(), out.bytes(), out.by_tag()[0].bytes), (5, usize::MAX, usize::MAX));
    assert!(out.to_string().contains("in 5 blocks") && tracking.describe().to_string().contains("in 5)"));
    held.into_iter().for_each(Held::free_sync);
    assert_eq!((tracking.book().live_bytes(), tracking.outstanding().is_clean()), (0, true));
}

#[test]
fn what_is_refused_is_not_entered() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let tracking = Faulty::nth(Cuda::new(&bench.device()), 2).tracking();
    let kept = Held::of(&tracking, 64, stream.as_ref());
    assert!(tracking.allocate(layout_of(64), stream.as_ref()).unwrap_err().is_out_of_memory());
    assert_eq!(tracking.book().live_blocks(), 1);
    kept.free(stream.as_ref());
    bench.check();
}

/// The upstream hands an address to another thread while a free still dawdles: its entry must not be the one that goes.
#[test]
fn an_address_that_comes_again_at_once_keeps_its_entry() {
    const THREADS: usize = 4;
    let bench = Bench::sim();
    let device = bench.device();
    let pool = Null::new(&device).pool(PoolConfig::default().maximum(4 << 10).initial(4 << 10)).unwrap();
    let tracking = quiet(Delayed::new(pool, Duration::from_micros(20)));
    let home = device.stream().unwrap();
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..500 {
                    // All on one stream, in a pool of four blocks: an address has a new owner as soon as it is free.
                    let block = Held::of(&tracking, 1000, home.as_ref());
                    assert!(tracking.outstanding().blocks.iter().any(|known| known.address == block.pointer));
                    block.free(home.as_ref());
                }
            });
        }
    });
    let left = tracking.outstanding();
    assert!(left.is_clean(), "{left}");
    assert_eq!(tracking.book().live_bytes(), 0);
}

#[test]
fn a_wrong_free_is_not_passed_on() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let tracking = quiet(Shadow::new(Cuda::new(&bench.device())));
    let block = Held::of(&tracking, 1000, stream.as_ref());
    let inside = DevicePtr::new(block.pointer.address() + 256).unwrap();
    let foreign = DevicePtr::new(block.pointer.address() ^ (1 << 50)).unwrap();
    let gone = {
        let gone = Held::of(&tracking, 300, stream.as_ref());
        let pointer = gone.pointer;
        gone.free(stream.as_ref());
        pointer
    };
    let wrong = [
        (block.pointer, 999, MisuseKind::WrongSize { allocated_bytes: 1000 }),
        (inside, 100, MisuseKind::InteriorPointer { block: block.pointer }),
        (foreign, 1000, MisuseKind::ForeignPointer),
        (gone, 300, MisuseKind::DoubleFree),
    ];
    for (pointer, bytes, what) in wrong {
        // SAFETY: none of them reaches the upstream, which is what is tested.
        let error =
            unsafe { tracking.try_deallocate(pointer, layout_of(bytes), stream.as_ref()) }.unwrap_err();
        assert_eq!((error.kind(), error.misuse().map(|misuse| misuse.what)), (ErrorKind::Misuse, Some(what)));
        let heard = |told: Result<(), Error>| told.unwrap_err().misuse().map(|misuse| misuse.what);
        // SAFETY: as above.
        let told = freeing(|| unsafe { tracking.deallocate(pointer, layout_of(bytes), stream.as_ref()) });
        assert_eq!(heard(told), Some(what), "whoever frees is told");
        // SAFETY: as above.
        let told = freeing(|| unsafe { tracking.deallocate_sync(pointer, layout_of(bytes)) });
        assert_eq!(heard(told), Some(what), "whoever frees is told");
    }
    let out = tracking.outstanding();
    assert_eq!((out.misuse_count, out.misuses.len(), out.blocks.len()), (12, 12, 1), "{out}");
    assert!(out.misuses.iter().map(|misuse| misuse.what).eq(wrong.iter().flat_map(|wrong| [wrong.2; 3])));
    seen_by_the_machine(&bench, 8);
    // The right one still goes.
    block.free(stream.as_ref());
    tracking.upstream().assert_clean();
    bench.check();
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let bench = Bench::sim();
    let (stream, tracking) = (bench.stream(), Cuda::new(&bench.device()).tracking());
    let elsewhere = bench.second_device().unwrap().stream().unwrap();
    assert!(tracking.allocate(layout_of(64), elsewhere.as_ref()).unwrap_err().is_device_mismatch());
    let (pointer, layout) = Held::of(&tracking, 64, stream.as_ref()).into_parts();
    // SAFETY: it is refused.
    let error = unsafe { tracking.try_deallocate(pointer, layout, elsewhere.as_ref()) }.unwrap_err();
    assert!(error.is_device_mismatch());
    // SAFETY: nothing uses the block, and it was not freed.
    unsafe { tracking.try_deallocate(pointer, layout, stream.as_ref()) }.unwrap();
    assert!(tracking.outstanding().is_clean());
    bench.check();
}

#[test]
fn the_first_wrong_frees_are_remembered() {
    let bench = Bench::sim();
    let tracking = quiet(Null::new(&bench.device()));
    for at in 1..=100_u64 {
        let pointer = DevicePtr::new(at << 20).unwrap();
        // SAFETY: it does not reach the upstream.
        unsafe { tracking.deallocate_sync(pointer, layout_of(8)) };
    }
    let out = tracking.outstanding();
    assert_eq!((out.misuse_count, out.misuses.len(), tracking.book().misuse_count()), (100, 64, 100));
    assert_eq!(out.misuses[0].block.address(), 1 << 20);
    seen_by_the_machine(&bench, 100);
}

#[test]
fn the_report_says_who_holds_what() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let tracking = quiet(Null::new(&bench.device()));
    with_tag("load", || {
        (0..12).for_each(|at| drop(Held::of(&tracking, 1024 + at, stream.as_ref())));
        with_tag("decode", || drop(Held::of(&tracking, 3 << 20, stream.as_ref())));
    });
    drop(Held::of(&tracking, 100, stream.as_ref()));
    // SAFETY: it does not reach the upstream.
    unsafe { tracking.deallocate_sync(DevicePtr::new(1 << 20).unwrap(), layout_of(8)) };
    seen_by_the_machine(&bench, 1);
    let out = tracking.outstanding();
    let by_tag: Vec<_> =
        out.by_tag().into_iter().map(|share| (share.label, share.bytes, share.blocks)).collect();
    let share = |label: &str, bytes, blocks| (label.to_owned(), bytes, blocks);
    assert_eq!(
        by_tag,
        [share("load;decode", 3 << 20, 1), share("load", 12 * 1024 + 66, 12), share("", 100, 1)]
    );
    assert_eq!(out.largest(2).iter().map(|block| block.bytes).collect::<Vec<_>>(), [3 << 20, 1035]);
    let [none] = &out.by_call_site()[..] else { panic!("no stack was captured") };
    assert_eq!((none.label.as_str(), none.blocks), ("", 14));
    let report = out.to_string();
    let lines: Vec<_> = report.lines().collect();
    assert_eq!(lines[..2], ["3.0 MiB outstanding in 14 blocks", "by tag:"]);
    assert_eq!(lines[2], "       3 MiB in 1 block      load;decode");
    assert_eq!(lines[3], "    12.1 KiB in 12 blocks    load");
    assert_eq!(lines[4], "       100 B in 1 block      (none)");
    assert_eq!(lines[5], "largest:");
    assert_eq!(lines[16], "  and 4 more");
    assert_eq!(lines[17], "1 wrong free, first:");
    assert_eq!(lines.len(), 19, "{report}");
}

/// What a layer has told when it was dropped.
fn told_by(run: impl FnOnce(Tracking<Null>)) -> Option<Holdings> {
    // Wrong frees are among it.
    let bench = Bench::sim_with(Bench::config().panic_on_unseen_hazards(false));
    let told = Arc::new(Mutex::new(Vec::new()));
    let teller = Arc::clone(&told);
    run(Null::new(&bench.device()).tracking().on_leak(move |left| teller.lock().unwrap().push(left.clone())));
    let mut told = told.lock().unwrap();
    assert!(told.len() <= 1, "it tells once");
    told.pop()
}

#[test]
fn what_is_left_is_reported() {
    let left = told_by(|tracking| {
        let stream = tracking.device().stream().unwrap();
        with_tag("forgotten", || drop(Held::of(&tracking, 100, stream.as_ref())));
    });
    let left = left.expect("a block is left");
    assert_eq!((left.bytes(), left.blocks[0].tag.name()), (100, "forgotten"));
    assert!(told_by(|tracking| Held::allocate_sync(&tracking, layout_of(8)).unwrap().free_sync()).is_none());
    let wrong = told_by(|tracking| {
        // SAFETY: it does not reach the upstream.
        unsafe { tracking.deallocate_sync(DevicePtr::new(1 << 20).unwrap(), layout_of(8)) };
    });
    assert_eq!(wrong.map(|left| (left.blocks.len(), left.misuse_count)), Some((0, 1)));
}

/// Whom the report is given to may use the memory that is left: the upstream is there still.
#[test]
fn the_report_comes_before_the_memory_goes() {
    let bench = Bench::sim();
    let upstream = Arc::new(Cuda::new(&bench.device()));
    let mine = Arc::clone(&upstream);
    let tracking = upstream.tracking().on_leak(move |left| {
        for block in &left.blocks {
            // SAFETY: the block came from there through the layer, which is gone; nothing uses it.
            unsafe { mine.deallocate_sync(block.address, layout_of(block.bytes)) };
        }
    });
    drop(Held::allocate_sync(&tracking, layout_of(1000)).unwrap());
    drop(tracking);
    bench.check();
}

#[test]
fn who_is_told_may_panic() {
    let bench = Bench::sim();
    let tracking =
        Null::new(&bench.device()).tracking().on_leak(|_| std::panic::resume_unwind(Box::new("on purpose")));
    tracking.allocate_sync(layout_of(8)).unwrap();
    drop(tracking);
}

/// Where nobody is named, the report goes to the standard error stream. This program again, as a child, has one to look at.
#[test]
fn by_default_a_leak_is_said_to_the_error_stream() {
    const CHILD: &str = "ALLUVION_TEST_LEAKS";
    let leak = |bytes: usize| {
        let bench = Bench::sim();
        let tracking = Null::new(&bench.device()).tracking();
        drop(with_tag("lost", || Held::allocate_sync(&tracking, layout_of(bytes)).unwrap()));
    };
    if let Some(bytes) = env::var(CHILD).ok().and_then(|bytes| bytes.parse().ok()) {
        return leak(bytes);
    }
    for (bytes, said) in [("4096", true), ("0", false)] {
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "tracking::by_default_a_leak_is_said_to_the_error_stream", "--nocapture"])
            .env(CHILD, bytes)
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{words}");
        let report = "alluvion: a resource was dropped with 4 KiB outstanding in 1 block\nby tag:";
        assert_eq!(words.contains(report), said, "{words}");
        assert_eq!(words.contains("lost"), said, "{words}");
    }
}

#[test]
fn the_register_is_found_through_an_erased_handle() {
    let bench = Bench::sim();
    let resource = AnyResource::new(Delayed::new(Cuda::new(&bench.device()).tracking(), Duration::ZERO));
    let block = Held::allocate_sync(&resource, layout_of(100)).unwrap();
    let register = resource.find::<Tracking>().expect("it is in the stack");
    assert_eq!(register.live_bytes(), 100);
    block.free_sync();
    assert!(register.outstanding().is_clean());
}

#[cfg(feature = "backtrace")]
mod call_stacks {
    use alluvion::adaptor::CallStacks;

    use super::*;

    #[inline(never)]
    fn loads_a_table<U: Resource>(tracking: &Tracking<U>) {
        drop(Held::allocate_sync(tracking, layout_of(1000)).unwrap());
    }

    #[test]
    fn a_call_site_is_the_programs_own() {
        let bench = Bench::sim();
        let tracking = quiet(Null::new(&bench.device())).call_stacks(CallStacks::All);
        loads_a_table(&tracking);
        loads_a_table(&tracking);
        let out = tracking.outstanding();
        // `Held` is of this program too. Its name may be without its type: debug information of lines has no more.
        let site = out.blocks[0].call_site().expect("a stack was captured");
        assert!(site.function.contains("allocate_sync"), "{site}");
        assert!(site.file.as_deref().is_some_and(|file| file.ends_with("raw_block.rs")), "{site}");
        let calls = out.blocks[0].call_stack();
        let here = calls.iter().position(|call| call.function.contains("loads_a_table")).expect("it called");
        assert!(here > 0 && calls[here].file.as_deref().is_some_and(|file| file.ends_with("tracking.rs")));
        let [site] = &out.by_call_site()[..] else { panic!("both are from one place: {out}") };
        assert_eq!((site.bytes, site.blocks), (2000, 2));
        assert!(out.to_string().contains("by call site:\n"), "{out}");
    }

    #[test]
    fn samples_are_a_part() {
        let bench = Bench::sim();
        let tracking = quiet(Null::new(&bench.device())).call_stacks(CallStacks::EveryNth(10));
        (0..100).for_each(|_| loads_a_table(&tracking));
        let sampled =
            tracking.outstanding().blocks.iter().filter(|block| block.call_site().is_some()).count();
        assert_eq!(sampled, 10);
    }

    #[test]
    fn none_are_captured_unless_asked_for() {
        let bench = Bench::sim();
        let tracking = quiet(Null::new(&bench.device()));
        loads_a_table(&tracking);
        assert!(tracking.outstanding().blocks[0].call_site().is_none());
    }
}
