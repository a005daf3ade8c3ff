//! A tool is foreign code: it may refuse, lack functions, or call back, and no call of a program is worse for it.

#![expect(unsafe_code, reason = "frees by hand, sets variables, and forks")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::adaptor::GuardConfig;
use alluvion::driver::Driver;
use alluvion::sim::SimConfig;
use alluvion::source::Cuda;
use alluvion::tag::with_tag;
use alluvion::{DevicePtr, Error, Layout, Pool, PoolConfig, Resource, ResourceExt, Sim, Stream};

use crate::raw_block::Held;
use crate::{announced_sim, log_of, note, told};

/// Frees a block that may be none.
pub(crate) fn try_free(
    pool: &Pool<Cuda>,
    block: DevicePtr,
    layout: Layout,
    stream: &Stream,
) -> Result<(), Error> {
    // SAFETY: nothing uses the block.
    unsafe { pool.try_deallocate(block, layout, stream) }
}

/// A few blocks of a pool.
fn use_a_pool() {
    let sim = announced_sim();
    let stream = sim.device(0).stream().unwrap();
    let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
    for bytes in [1000, 70_000, 3 << 20] {
        let block = with_tag("some", || Held::of(&pool, bytes, stream.as_ref()));
        block.free(stream.as_ref());
    }
}

#[test]
fn a_tool_that_refuses_hears_nothing() {
    let picture = told("foreign::a_tool_that_refuses_hears_nothing", "refuses", || {
        use_a_pool();
        let heard = alluvion::nvtx::start();
        assert!(!heard.ranges() && !heard.memory());
    });
    let Some(picture) = picture else { return };
    assert!(picture.told.is_empty() && picture.heaps_seen.is_empty());
}

/// A tool that has begun may have threads and handlers: it stays loaded, also if it wants to hear nothing of what it could be told.
#[test]
fn a_tool_is_unloaded_unless_it_has_begun() {
    const TEST: &str = "foreign::a_tool_is_unloaded_unless_it_has_begun";
    for (kind, lines) in [
        ("refuses, says when it ends", ["ended", "the program ends"]),
        ("memory_only, heaps_only, says when it ends", ["the program ends", "ended"]),
    ] {
        let log = log_of(TEST, kind, || {
            use_a_pool();
            let heard = alluvion::nvtx::start();
            assert!(!heard.ranges() && !heard.memory());
            note("the program ends");
        });
        let Some(log) = log else { return };
        let ends: Vec<&str> = log.lines().filter(|line| lines.contains(line)).collect();
        assert_eq!(ends, lines, "{kind}:\n{log}");
    }
}

#[test]
fn a_tool_that_takes_no_heap_hears_of_no_region() {
    let picture = told("foreign::a_tool_that_takes_no_heap_hears_of_no_region", "no_heaps", use_a_pool);
    let Some(picture) = picture else { return };
    assert!(!picture.heaps_seen.is_empty() && picture.registers == 0);
}

#[test]
fn a_profiler_hears_ranges_alone() {
    let picture = told("foreign::a_profiler_hears_ranges_alone", "ranges_only", || {
        use_a_pool();
        assert!(alluvion::nvtx::start().ranges() && !alluvion::nvtx::start().memory());
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
    assert!(picture.heaps_seen.is_empty() && picture.told.contains(&"grow".to_owned()));
}

#[test]
fn a_checker_without_ranges_and_names_hears_memory_alone() {
    let test = "foreign::a_checker_without_ranges_and_names_hears_memory_alone";
    let picture = told(test, "memory_only nameless", use_a_pool);
    let Some(picture) = picture else { return };
    picture.assert_empty();
    assert!(picture.registers == 3 && picture.told.is_empty());
}

/// The pool that the tool calls, how often it did, and how deep it is in that.
static POOL: OnceLock<Pool<Cuda>> = OnceLock::new();
static CALLS: AtomicUsize = AtomicUsize::new(0);
static DEPTH: AtomicUsize = AtomicUsize::new(0);

/// Called by the tool from within its functions: no lock of the library is held, so each of these calls returns.
extern "C" fn call_back() {
    // Relaxed: one thread.
    CALLS.fetch_add(1, Ordering::Relaxed);
    let _ = alluvion::nvtx::start();
    if DEPTH.fetch_add(1, Ordering::Relaxed) == 0
        && let Some(pool) = POOL.get()
    {
        let _ = (pool.status(), pool.snapshot(), pool.trim(0));
        if let Ok(block) = Held::allocate_sync(pool, crate::raw_block::layout_of(3000)) {
            block.free_sync();
        }
    }
    DEPTH.fetch_sub(1, Ordering::Relaxed);
}

#[test]
fn a_tool_may_call_back() {
    let picture = told("foreign::a_tool_may_call_back", "", || {
        // SAFETY: this process has one thread that reads its environment: this one.
        unsafe { std::env::set_var("TOOL_CALLS", format!("{:x}", call_back as *const () as usize)) };
        let sim = announced_sim();
        let stream = sim.device(0).stream().unwrap();
        let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
        let pool = POOL.get_or_init(|| pool);
        for bytes in [1000, 70_000, 3 << 20, 9 << 20] {
            with_tag("some", || Held::of(pool, bytes, stream.as_ref())).free(stream.as_ref());
        }
        stream.synchronize().unwrap();
        pool.trim(0).unwrap();
        assert!(CALLS.load(Ordering::Relaxed) > 10);
    });
    let Some(picture) = picture else { return };
    assert!(picture.registers > 4 && picture.registers == picture.unregisters);
}

/// Called by a thread of the tool's, while it begins.
extern "C" fn use_another_pool() {
    assert!(!alluvion::nvtx::start().memory(), "it has not begun");
    use_a_pool();
    note("mark 0 the thread was served");
}

/// A tool may wait for a thread of its own while it begins. The thread is served, and only what it has allocated is not announced.
#[test]
fn a_tool_may_wait_for_a_thread_that_allocates_while_it_begins() {
    let test = "foreign::a_tool_may_wait_for_a_thread_that_allocates_while_it_begins";
    let picture = told(test, "waits for a thread", || {
        let address = format!("{:x}", use_another_pool as *const () as usize);
        // SAFETY: this process has one thread that reads its environment: this one.
        unsafe { std::env::set_var("TOOL_CALLS", &address) };
        alluvion::nvtx::start();
        // SAFETY: as above; the tool's thread has ended.
        unsafe { std::env::remove_var("TOOL_CALLS") };
        use_a_pool();
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
    assert_eq!(
        (picture.told.first().map(String::as_str), picture.registers),
        (Some("the thread was served"), 3)
    );
}

/// Called by a thread of the tool's, while it begins because that pool grows.
extern "C" fn use_the_pool_that_grows() {
    // Relaxed: one thread at a time. When it has begun the tool calls this from its other functions, too.
    if CALLS.fetch_add(1, Ordering::Relaxed) > 0 {
        return;
    }
    let pool = POOL.get().expect("it was made before");
    for bytes in [1000, 70_000, 40 << 20] {
        Held::allocate_sync(pool, crate::raw_block::layout_of(bytes)).expect("there is memory").free_sync();
    }
    note("mark 0 the thread was served");
}

/// Also where what it allocates is of the very pool that is growing meanwhile.
#[test]
fn a_tool_may_wait_for_a_thread_that_allocates_of_the_pool_that_grows() {
    let test = "foreign::a_tool_may_wait_for_a_thread_that_allocates_of_the_pool_that_grows";
    let picture = told(test, "waits for a thread", || {
        let address = format!("{:x}", use_the_pool_that_grows as *const () as usize);
        // SAFETY: this process has one thread that reads its environment: this one.
        unsafe { std::env::set_var("TOOL_CALLS", &address) };
        let sim = announced_sim();
        let stream = sim.device(0).stream().unwrap();
        let pool = POOL.get_or_init(|| Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap());
        let block = Held::of(pool, 1000, stream.as_ref());
        // SAFETY: as above; the tool's thread has ended.
        unsafe { std::env::remove_var("TOOL_CALLS") };
        block.free(stream.as_ref());
        stream.synchronize().unwrap();
        pool.trim(0).unwrap();
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
    assert_eq!(
        (picture.told.first().map(String::as_str), picture.registers),
        (Some("the thread was served"), 1)
    );
}

/// Threads that come at once all find the tool begun: nothing of theirs is left out.
#[test]
fn threads_that_come_first_at_once_are_all_heard() {
    const THREADS: usize = 8;
    let test = "foreign::threads_that_come_first_at_once_are_all_heard";
    let picture = told(test, "", || {
        let gate = std::sync::Barrier::new(THREADS);
        let sim = announced_sim();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
                    let stream = sim.device(0).stream().unwrap();
                    gate.wait();
                    Held::of(&pool, 1000, stream.as_ref()).free(stream.as_ref());
                });
            }
        });
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
    assert_eq!((picture.heaps_seen.len(), picture.registers), (THREADS, THREADS));
}

/// The machine whose current device the tool asks for.
static MACHINE: OnceLock<Sim> = OnceLock::new();

extern "C" fn ask_what_is_current() {
    if let Some(sim) = MACHINE.get() {
        note(&format!("mark 0 {:?}", sim.context_device()));
    }
}

/// `compute-sanitizer` refuses heaps and marks of writes on a thread without a current device. This crate needs none, so a thread may
/// have none, or another one; and that is so again when the tool has been told.
#[test]
fn a_tool_finds_the_device_current() {
    let test = "foreign::a_tool_finds_the_device_current";
    let log = log_of(test, "", || {
        let sim = MACHINE.get_or_init(|| Sim::with_config(SimConfig::default().devices(2).announced(true)));
        for current in [None, Some(0), Some(1)] {
            current.map_or(Ok(()), |ordinal| sim.set_context(ordinal)).unwrap();
            let device = sim.device(1);
            let stream = device.stream().unwrap();
            let address = format!("{:x}", ask_what_is_current as *const () as usize);
            // SAFETY: this process has one thread that reads its environment: this one.
            unsafe { std::env::set_var("TOOL_CALLS", address) };
            let guard = Cuda::new(&device).guard(GuardConfig::default().quarantine(0)).unwrap();
            Held::of(&guard, 1000, stream.as_ref()).free(stream.as_ref());
            drop(guard);
            let pool = Cuda::new(&device).pool(PoolConfig::default()).unwrap();
            Held::of(&pool, 1000, stream.as_ref()).free(stream.as_ref());
            drop(pool);
            assert_eq!(sim.context_device(), Ok(current));
        }
    });
    let Some(log) = log else { return };
    let lines: Vec<&str> = log.lines().collect();
    let answers = |to: &str| {
        let asked = lines.windows(2).filter(|pair| pair[0].starts_with(to) && pair[1].starts_with("mark "));
        asked.map(|pair| pair[1].to_owned()).collect::<Vec<_>>()
    };
    // A guard has a pool for its copies.
    assert_eq!(answers("heap "), ["mark 0 Ok(Some(1))"; 9]);
    assert_eq!(answers("written "), ["mark 0 Ok(Some(1))"; 3]);
}

#[test]
fn a_child_of_a_fork_tells_nothing() {
    let picture = told("foreign::a_child_of_a_fork_tells_nothing", "", || {
        use_a_pool();
        // SAFETY: the child allocates, as the C library permits here, and ends without running destructors of the parent.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let heard = alluvion::nvtx::start();
            use_a_pool();
            with_tag("of the child", || ());
            // SAFETY: it ends the child.
            unsafe { libc::_exit(i32::from(heard.ranges() || heard.memory())) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable, and the child is this process's.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
    assert_eq!(picture.registers, 3);
    assert!(!picture.told.contains(&"of the child".to_owned()));
}

/// What has forked before its first memory has not met the tool. Each process has it begin for itself.
#[test]
fn a_child_of_a_fork_that_came_first_has_the_tool_begin() {
    let picture = told("foreign::a_child_of_a_fork_that_came_first_has_the_tool_begin", "", || {
        // SAFETY: the child allocates, as the C library permits here, and ends without running destructors of the parent.
        let child = unsafe { libc::fork() };
        if child == 0 {
            use_a_pool();
            // SAFETY: it ends the child.
            unsafe { libc::_exit(i32::from(!alluvion::nvtx::start().memory())) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable, and the child is this process's.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        use_a_pool();
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
    assert_eq!(picture.registers, 6);
}

/// A child that the tool itself makes while it begins tells nothing either.
#[test]
fn a_child_that_the_tool_makes_tells_nothing() {
    let picture = told("foreign::a_child_that_the_tool_makes_tells_nothing", "forks", || {
        let parent = std::process::id();
        let heard = alluvion::nvtx::start();
        if std::process::id() != parent {
            use_a_pool();
            // SAFETY: it ends the child.
            unsafe { libc::_exit(i32::from(heard.ranges() || heard.memory())) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert!(unsafe { libc::wait(&raw mut status) } > 0);
        assert_eq!(status, 0);
        assert!(heard.ranges() && heard.memory());
        use_a_pool();
    });
    let Some(picture) = picture else { return };
    picture.assert_empty();
    assert_eq!(picture.registers, 3);
}

#[test]
fn what_is_no_library_is_no_tool() {
    let body = || assert!(!alluvion::nvtx::start().ranges() && !alluvion::nvtx::start().memory());
    for named in ["/nonexistent/tool.so", "", "tests/nvtx/tool.c"] {
        if crate::is_child("foreign::what_is_no_library_is_no_tool") {
            return body();
        }
        let ended = crate::run_child(
            "foreign::what_is_no_library_is_no_tool",
            &[("NVTX_INJECTION64_PATH", named.as_ref())],
        );
        assert!(ended.status.success(), "{}{}", ended.printed, ended.said);
    }
}

/// Where no tool watches, a hit is what it is without the feature: it is served at once, from the cache of its stream. A tool may take
/// as long as it likes, so that where one listens nothing comes at once.
#[test]
fn without_a_tool_a_hit_stays_a_hit() {
    const TEST: &str = "foreign::without_a_tool_a_hit_stays_a_hit";
    let body = || {
        let sim = announced_sim();
        let stream = sim.device(0).stream().unwrap();
        let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
        let block = Held::of(&pool, 1000, stream.as_ref());
        let layout = block.layout;
        block.free(stream.as_ref());
        let served = pool.allocate_at_once(layout, stream.as_ref());
        assert_eq!(served.is_some(), !alluvion::nvtx::start().memory());
        // SAFETY: the block came from the pool with this layout, and nothing uses it.
        let is_freed = |block| unsafe { pool.deallocate_at_once(block, layout, stream.as_ref()) };
        assert_eq!(served.is_some_and(is_freed), served.is_some());
    };
    if let Some(picture) = told(TEST, "", body) {
        picture.assert_empty();
        let ended = crate::run_child(TEST, &[]);
        assert!(ended.status.success() && ended.printed.contains(crate::DONE), "{}", ended.said);
    }
}
