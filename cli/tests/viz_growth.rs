//! How a page and the memory that it is made in grow with the log: counted, not timed.
//!
//! A program of its own, because its allocator counts for the whole process.

#![expect(unsafe_code, reason = "an allocator is unsafe to write")]

#[allow(dead_code, reason = "each test file uses its part")]
mod page;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use page::scratch;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Counts the bytes that are live, and the most that ever were.
struct Counting;

// Relaxed: they are counts, and nothing is read on their word.
fn count(more: usize, less: usize) {
    let live = LIVE.fetch_add(more, Ordering::Relaxed) + more;
    PEAK.fetch_max(live - less, Ordering::Relaxed);
    LIVE.fetch_sub(less, Ordering::Relaxed);
}

// SAFETY: everything is forwarded to the system's allocator; counting touches no block.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises; the block came from there with this layout.
        unsafe { System.dealloc(block, layout) }
    }

    // The system lengthens large blocks in place or moves their pages, so that old and new are not there at once.
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller's promises; the block came from there with this layout.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A log of that many events on eight streams, with up to 2000 blocks at once.
fn log_of(events: u64, says_reserved: bool, devices: u64) -> String {
    let path = scratch(&format!("growth_{events}_{says_reserved}_{devices}.csv"));
    let mut log = "Thread,Time,Action,Pointer,Size,Stream,Reserved,Device\n".to_owned();
    let mut seed = 5_u64;
    let mut next = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut live: Vec<(u64, u64, u64)> = Vec::new();
    // The blocks of a device lie close together, as those of a pool do: a block far from all others is a region of the map of its own.
    let (mut microseconds, mut known) = (0, vec![0_u64; devices as usize]);
    for _ in 0..events {
        microseconds += next(40);
        let (seconds, rest) = (microseconds / 1_000_000, microseconds % 1_000_000);
        let time = format!("10:{:02}:{:02}.{rest:06}", seconds / 60, seconds % 60);
        let frees = live.len() == 2000 || (!live.is_empty() && next(100) < 49);
        let (action, (address, bytes, stream)) = if frees {
            ("free", live.swap_remove(next(live.len() as u64) as usize))
        } else {
            let (bytes, stream) = (256 << next(13), next(8));
            let device = stream % devices;
            let number = &mut known[device as usize];
            *number += 1;
            live.push((0x7f00_0000_0000 + (device << 38) + (*number << 21), bytes, stream));
            ("allocate", live[live.len() - 1])
        };
        let reserved = if says_reserved { (100 << 30).to_string() } else { String::new() };
        let device = stream % devices;
        writeln!(
            log,
            "{},{time},{action},{address:#x},{bytes},{stream:#x},{reserved},{device}",
            100 + stream
        )
        .expect("memory takes it");
    }
    fs::write(&path, log).expect("it can be written");
    path.to_str().expect("its name is text").to_owned()
}

/// The log of the figures in `docs/design/program.md`.
#[test]
#[ignore = "writes 164 MB, for figures that are taken by hand"]
fn a_log_of_three_million_events_of_two_devices() {
    println!("{}", log_of(3_000_000, false, 2));
}

/// The memory that drawing a log takes: the most bytes that are live at once, and the bytes of the page.
fn drawn(log: &str) -> (usize, u64) {
    let page = scratch("growth.html");
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    alluvion_cli::write_page(log.as_ref(), &page).expect("it can be drawn");
    let peak = PEAK.load(Ordering::Relaxed) - before;
    (peak, fs::metadata(&page).expect("the page is there").len())
}

/// Of an event more. Three million then take 120 MB, and their page 26 MB.
const MOST_HEAP_BYTES: f64 = 40.0;
const MOST_PAGE_BYTES: f64 = 8.5;

#[test]
fn an_event_more_takes_few_bytes_of_memory_and_page() {
    // One after the other, because there is one count. Lists double as they grow: both counts lie as far beyond a power of two.
    for (says_reserved, devices) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let [few, many] = [40_000, 160_000];
        let (few_heap, few_page) = drawn(&log_of(few, says_reserved, devices));
        let (many_heap, many_page) = drawn(&log_of(many, says_reserved, devices));
        let more = (many - few) as f64;
        let heap = (many_heap as f64 - few_heap as f64) / more;
        let page = (many_page as f64 - few_page as f64) / more;
        println!(
            "says what was reserved: {says_reserved}, devices: {devices}; an event more: {heap:.1} bytes of memory, {page:.1} of the page"
        );
        assert!(heap > 1.0 && heap < MOST_HEAP_BYTES, "an event takes {heap:.1} bytes of memory");
        assert!(page > 1.0 && page < MOST_PAGE_BYTES, "an event takes {page:.1} bytes of the page");
    }
}
