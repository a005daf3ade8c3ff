//! Pages: addresses and physical memory, apart.

#![expect(unsafe_code, reason = "maps pages, and copies to and from them")]

use super::super::Bench;
use crate::device::Device;
use crate::driver::Code;
use crate::error::{Error, ErrorKind};
use crate::resource::{DevicePtr, Page, Pages, Resource};
use crate::sim::Fault;

/// A page, and where it is mapped. The clauses of this file unmap and release each page once, and use none afterwards.
struct Rig<'r> {
    device: Device,
    pages: &'r dyn Pages,
    unit: usize,
}

impl<'r> Rig<'r> {
    #[track_caller]
    fn of(resource: &'r impl Resource) -> Self {
        let pages = resource.pages().expect("a source of pages returns them from `Resource::pages`");
        let unit = pages.page_bytes();
        assert!(unit.is_power_of_two() && unit >= 4096, "the unit is {unit}");
        Self { device: resource.device().clone(), pages, unit }
    }

    #[track_caller]
    fn reserve(&self, bytes: usize) -> DevicePtr {
        let range = self.pages.reserve(bytes).unwrap_or_else(|error| panic!("{bytes} addresses: {error}"));
        assert!(range.is_aligned_to(self.unit), "{range} is not aligned to {}", self.unit);
        range
    }

    #[track_caller]
    fn create(&self, bytes: usize) -> Page {
        let page = self.pages.create(bytes).unwrap_or_else(|error| panic!("a page of {bytes}: {error}"));
        assert_eq!(page.bytes(), bytes, "a page has the size that it was created with");
        page
    }

    fn map(&self, page: Page, at: DevicePtr) -> Result<(), Error> {
        // SAFETY: the clauses map a page that has no address to addresses of a range that nothing is mapped at.
        unsafe { self.pages.map(page, at) }
    }

    fn unmap(&self, page: Page, at: DevicePtr) -> Result<(), Error> {
        // SAFETY: the clauses unmap a page from where it is mapped, after copies that are over when they return.
        unsafe { self.pages.unmap(page, at) }
    }

    fn release(&self, page: Page) {
        // SAFETY: the clauses release a page once, when it has no address.
        unsafe { self.pages.release(page) };
    }

    fn unreserve(&self, range: DevicePtr, bytes: usize) {
        // SAFETY: the clauses give a range back once, with its size, when nothing is mapped in it.
        unsafe { self.pages.unreserve(range, bytes) };
    }

    #[track_caller]
    fn write(&self, at: DevicePtr, bytes: &[u8]) {
        let from = bytes.as_ptr().expose_provenance() as u64;
        let driver = self.device.driver();
        // SAFETY: the clauses write where a page is mapped, and no other work uses it; the copy is over when the call returns.
        unsafe { driver.copy(self.device.ordinal(), at.address(), from, bytes.len()) }
            .expect("mapped memory can be written");
    }

    #[track_caller]
    fn read(&self, at: DevicePtr, bytes: usize) -> Vec<u8> {
        let mut found = vec![0_u8; bytes];
        let to = found.as_mut_ptr().expose_provenance() as u64;
        let driver = self.device.driver();
        // SAFETY: as in `write`.
        unsafe { driver.copy(self.device.ordinal(), to, at.address(), bytes) }
            .expect("mapped memory can be read");
        found
    }

    /// Takes away a page that is mapped.
    #[track_caller]
    fn take_away(&self, page: Page, at: DevicePtr) {
        self.unmap(page, at).expect("a mapped page can be unmapped");
        self.release(page);
    }
}

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index.wrapping_mul(37) ^ (index >> 9)).wrapping_add(seed) as u8).collect()
}

/// Pages side by side are one range of memory, and hold what is written across their border.
#[track_caller]
pub fn pages_hold_what_is_written<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let before = bench.footprint();
    let rig = Rig::of(&resource);
    let unit = rig.unit;
    let range = rig.reserve(8 * unit);
    let (one, two) = (rig.create(unit), rig.create(2 * unit));
    rig.map(one, range.offset(unit)).expect("a page can be mapped inside of a range");
    rig.map(two, range.offset(2 * unit)).expect("a page can be mapped behind another");
    let expected = pattern(1, 3 * unit);
    rig.write(range.offset(unit), &expected);
    assert!(rig.read(range.offset(unit), 3 * unit) == expected, "two pages do not hold what was written");
    // A hole beside a page is filled without a change to the page.
    let third = rig.create(unit);
    rig.map(third, range).expect("a page can be mapped in front of another");
    rig.write(range, &pattern(2, unit));
    assert!(rig.read(range.offset(unit), 3 * unit) == expected, "a page overlaps its neighbour");
    rig.take_away(one, range.offset(unit));
    rig.take_away(two, range.offset(2 * unit));
    assert!(rig.read(range, unit) == pattern(2, unit), "a page went with its neighbour");
    rig.take_away(third, range);
    rig.unreserve(range, 8 * unit);
    bench.check();
    assert!(bench.footprint().has_lost_nothing_since(&before), "pages were lost");
}

/// A page gets another address, and its old one another page.
#[track_caller]
pub fn a_page_moves_to_another_address<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let rig = Rig::of(&resource);
    let unit = rig.unit;
    let (first, second) = (rig.reserve(4 * unit), rig.reserve(2 * unit));
    let (page, other) = (rig.create(2 * unit), rig.create(unit));
    rig.map(page, first).expect("a page can be mapped");
    rig.write(first, &pattern(3, 2 * unit));
    for (from, to) in [(first, first.offset(2 * unit)), (first.offset(2 * unit), second), (second, first)] {
        rig.unmap(page, from).expect("a mapped page can be unmapped");
        rig.map(page, to).expect("a page can be mapped again");
        rig.map(other, from).expect("another page can be mapped where one was");
        rig.write(from, &pattern(4, unit));
        rig.write(to, &pattern(5, 2 * unit));
        assert!(rig.read(from, unit) == pattern(4, unit), "a page that moved is still where it was");
        assert!(rig.read(to, 2 * unit) == pattern(5, 2 * unit), "a page does not hold what was written");
        rig.unmap(other, from).expect("a mapped page can be unmapped");
    }
    rig.take_away(page, first);
    rig.release(other);
    rig.unreserve(first, 4 * unit);
    rig.unreserve(second, 2 * unit);
    bench.check();
}

/// Sizes that are no whole units are refused, and so is more than there is; then everything works as before.
#[track_caller]
pub fn pages_that_cannot_be_are_refused<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let rig = Rig::of(&resource);
    let unit = rig.unit;
    let before = bench.footprint();
    for bytes in [0, 1, unit - 1, unit + 1, unit / 2 * 3] {
        for refused in [rig.pages.reserve(bytes).map(drop), rig.pages.create(bytes).map(drop)] {
            let error = refused.expect_err("a size that is no whole unit is refused");
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{bytes}: {error}");
        }
    }
    // More than any device has, and the most that a size can say.
    for bytes in [1 << 50, isize::MAX as usize / unit * unit] {
        let error = rig.pages.create(bytes).expect_err("more than there is, is refused");
        assert!(error.is_out_of_memory(), "{bytes}: {error}");
    }
    assert!(bench.footprint().has_lost_nothing_since(&before), "what was refused is gone");
    let page = rig.create(unit);
    let range = rig.reserve(unit);
    rig.map(page, range).expect("a page can be mapped");
    rig.write(range, &pattern(6, unit));
    assert!(rig.read(range, unit) == pattern(6, unit));
    rig.take_away(page, range);
    rig.unreserve(range, unit);
    bench.check();
}

/// Memory runs out with a report, and what is released can be had again; the addresses of a page come from another place.
#[track_caller]
pub fn released_pages_can_be_had_again<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let rig = Rig::of(&resource);
    // About sixteen of them are all that there is, on any machine.
    let total = resource.memory_info().expect("a resource knows its memory").total_bytes;
    let bytes = (total / 16).next_multiple_of(rig.unit);
    // Addresses are not memory: the range is longer than the device has bytes.
    let range = rig.reserve(1 << 42);
    for _ in 0..2 {
        let mut held = Vec::new();
        let error = loop {
            match rig.pages.create(bytes) {
                Ok(page) => held.push(page),
                Err(error) => break error,
            }
            assert!(held.len() < 100, "memory does not run out");
        };
        assert!(error.is_out_of_memory(), "{error}");
        assert_eq!(error.requested_bytes(), Some(bytes), "{error}");
        assert!(error.out_of_memory_report().is_some(), "no report: {error}");
        assert!(held.len() > 4, "only {} pages of {bytes} bytes", held.len());
        for (index, &page) in held.iter().enumerate() {
            rig.map(page, range.offset(index * bytes)).expect("a page can be mapped");
            rig.write(range.offset(index * bytes), &pattern(index, 4096));
        }
        for (index, page) in held.into_iter().enumerate() {
            assert!(rig.read(range.offset(index * bytes), 4096) == pattern(index, 4096), "page {index}");
            rig.take_away(page, range.offset(index * bytes));
        }
    }
    rig.unreserve(range, 1 << 42);
    bench.check();
}

/// A call that fails changes nothing, whichever driver call failed under it, and works when it is made again. On a simulated
/// machine alone.
///
/// # Panics
///
/// On hardware, and if anything is lost.
#[track_caller]
pub fn a_failed_call_of_pages_loses_nothing<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let sim = bench.simulated().expect("faults are injected on a simulated machine, not on hardware");
    let resource = make(&bench.device());
    let rig = Rig::of(&resource);
    let (unit, start) = (rig.unit, bench.footprint());
    // Makes a call with a fault in its first, second, … driver call, until the fault is not met any more.
    let attempt = |call: &str, least: u64, make: &dyn Fn() -> Result<(), Error>, undo: &dyn Fn()| {
        for code in [Code::OUT_OF_MEMORY, Code::NOT_PERMITTED, Code::UNKNOWN] {
            for n in 1.. {
                let before = bench.footprint();
                sim.inject(Fault::nth_call(n, code));
                let outcome = make();
                let is_met = sim.faults_left() == 0;
                sim.clear_faults();
                match outcome {
                    Err(error) => {
                        assert!(is_met, "`{call}` failed without a fault: {error}");
                        assert_eq!(error.code(), Some(code), "`{call}` hides why it failed: {error}");
                        assert!(
                            bench.footprint().has_lost_nothing_since(&before),
                            "`{call}` failed at driver call {n}, and is not as it was: {}",
                            sim.live()
                        );
                    }
                    Ok(()) => undo(),
                }
                if !is_met {
                    assert!(n > least, "`{call}` makes {} driver calls", n - 1);
                    break;
                }
            }
        }
    };
    let slot = core::cell::Cell::new(None);
    let kept = core::cell::Cell::new(None);
    attempt("reserve", 1, &|| rig.pages.reserve(4 * unit).map(|range| slot.set(Some(range))), &|| {
        rig.unreserve(slot.take().expect("it was reserved"), 4 * unit);
    });
    attempt("create", 1, &|| rig.pages.create(unit).map(|page| kept.set(Some(page))), &|| {
        rig.release(kept.take().expect("it was created"));
    });
    let (range, page) = (rig.reserve(4 * unit), rig.create(2 * unit));
    let at = range.offset(unit);
    attempt("map", 2, &|| rig.map(page, at), &|| rig.unmap(page, at).expect("it is mapped"));
    rig.map(page, at).expect("a page can be mapped after all that");
    let written = pattern(7, 2 * unit);
    rig.write(at, &written);
    attempt("unmap", 1, &|| rig.unmap(page, at), &|| {
        rig.map(page, at).expect("a page can be mapped again");
        rig.write(at, &written);
    });
    assert!(rig.read(at, 2 * unit) == written, "a page is gone after a call that failed");
    rig.take_away(page, at);
    rig.unreserve(range, 4 * unit);
    bench.check();
    assert!(bench.footprint().has_lost_nothing_since(&start), "something is left: {}", sim.live());
}

/// Stamps a module of tests, one for each clause of the contract of [`Pages`](crate::resource::Pages), for a resource that
/// returns them from [`Resource::pages`](crate::Resource::pages).
///
/// ```
/// use alluvion::source::Mapped;
///
/// # fn main() {}
/// alluvion::pages_suite!(mapped_pages, |device| Mapped::new(device).unwrap());
/// ```
///
/// After the name may stand `on sim(bench)` or `on gpu(bench)`, as in [`resource_suite!`](crate::resource_suite). The clause that
/// makes driver calls fail is stamped on a simulated machine alone.
#[macro_export]
macro_rules! pages_suite {
    ($name:ident on sim($bench:expr), |$device:ident| $make:expr) => {
        $crate::resource_suite! {
            @module $name, $bench, Make of |$device| $crate::resource::AnyResource::new($make), [pages page_faults]
        }
    };
    ($name:ident on gpu($bench:expr), |$device:ident| $make:expr) => {
        $crate::resource_suite! {
            @module $name, $bench, Make of |$device| $crate::resource::AnyResource::new($make), [pages]
        }
    };
    ($name:ident, |$device:ident| $make:expr) => {
        $crate::pages_suite!($name on sim($crate::testing::Bench::sim()), |$device| $make);
    };
}
