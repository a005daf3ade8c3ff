//! Pages of physical memory: their hazards, their costs, and what is left of them.

#![expect(unsafe_code, reason = "drives the driver seam by hand")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "the tests break the seam's contract on purpose, in ways whose outcome the simulator defines"
)]

use std::sync::Arc;

use alluvion::driver::{
    Code, Driver, FillValue, HandleType, Location, MapAccess, RawMemory, RawStream, StreamFlags,
};
use alluvion::sim::{AccessMode, CostModel, Hazard, HazardKind, Kernel, SimConfig, SimDriver, StreamLabel};
use alluvion::{Resource, Sim, source::Mapped};

const UNIT: usize = 2 << 20;

/// A machine with a range of eight units, and two independent streams.
struct Rig {
    driver: Arc<SimDriver>,
    range: u64,
    a: RawStream,
    b: RawStream,
}

impl Rig {
    fn new() -> Self {
        Self::with(SimConfig::default())
    }

    fn with(config: SimConfig) -> Self {
        let driver = SimDriver::new(config);
        let stream = || driver.stream_create(0, StreamFlags::default()).unwrap();
        Self { range: driver.virtual_reserve(0, 8 * UNIT, 0).unwrap(), a: stream(), b: stream(), driver }
    }

    fn at(&self, unit: usize) -> u64 {
        self.range + (unit * UNIT) as u64
    }

    fn create(&self) -> RawMemory {
        self.driver.memory_create(0, UNIT, HandleType::NONE).unwrap()
    }

    fn map(&self, memory: RawMemory, unit: usize) {
        unsafe { self.driver.memory_map(0, self.at(unit), UNIT, memory) }.unwrap();
    }

    fn open(&self, unit: usize, units: usize) {
        let (own, access) = (Location::Device(0), MapAccess::ReadWrite);
        unsafe { self.driver.memory_set_access(0, self.at(unit), units * UNIT, own, access) }.unwrap();
    }

    fn unmap(&self, unit: usize, units: usize) {
        unsafe { self.driver.memory_unmap(0, self.at(unit), units * UNIT) }.unwrap();
    }

    /// A page that is mapped and open there.
    fn page(&self, unit: usize) -> RawMemory {
        let memory = self.create();
        self.map(memory, unit);
        self.open(unit, 1);
        memory
    }

    /// Launches a kernel that writes 64 bytes.
    fn write(&self, stream: RawStream, unit: usize) {
        let at = self.at(unit);
        let kernel = Kernel::new("writer").writes(at, 64).run(move |memory| memory.write(at, &[7; 64]));
        unsafe { self.driver.launch(0, stream, kernel) }.unwrap();
    }

    fn bytes(&self, unit: usize) -> [u8; 64] {
        let mut found = [0; 64];
        let to = found.as_mut_ptr().expose_provenance() as u64;
        unsafe { self.driver.copy(0, to, self.at(unit), 64) }.unwrap();
        found
    }

    fn synchronize(&self, stream: RawStream) -> Result<(), Code> {
        unsafe { self.driver.stream_synchronize(0, stream) }.map_err(|error| error.code)
    }

    fn only_hazard(&self) -> Hazard {
        let hazards = self.driver.take_hazards();
        let [hazard] = &hazards[..] else { panic!("{hazards:?}") };
        hazard.clone()
    }
}

#[test]
fn unmapping_under_queued_work_names_both_and_loses_the_context() {
    for is_fill in [false, true] {
        let rig = Rig::new();
        rig.page(0);
        if is_fill {
            unsafe { rig.driver.fill_async(0, rig.at(0), FillValue::U8(1), UNIT, rig.a) }.unwrap();
        } else {
            rig.write(rig.a, 0);
        }
        rig.unmap(0, 1);
        let hazard = rig.only_hazard();
        assert_eq!(hazard.kind(), HazardKind::FreeInUse);
        let (first, second) = (hazard.first().unwrap(), hazard.second().unwrap());
        assert_eq!(first.operation(), if is_fill { "cuMemsetAsync" } else { "writer" });
        assert_eq!(first.mode(), AccessMode::Write);
        assert_eq!((second.operation(), second.stream()), ("cuMemUnmap", StreamLabel::Host));
        assert_eq!((second.address(), second.bytes()), (rig.at(0), UNIT as u64));
        assert!(hazard.missing().starts_with("the host has not waited for stream"), "{hazard}");
        // What hardware answers: CUDA_ERROR_ILLEGAL_ADDRESS, for ever.
        assert_eq!(rig.synchronize(rig.a), Err(Code::ILLEGAL_ADDRESS));
        assert_eq!(rig.driver.memory_info(0).unwrap_err().code, Code::ILLEGAL_ADDRESS);
    }
}

#[test]
fn using_what_was_unmapped_names_both() {
    let rig = Rig::new();
    rig.page(0);
    rig.page(1);
    rig.write(rig.a, 0);
    rig.synchronize(rig.a).unwrap();
    rig.unmap(0, 1);
    assert!(rig.driver.hazards().is_empty(), "the host has waited");
    rig.write(rig.a, 0);
    let hazard = rig.only_hazard();
    assert_eq!(hazard.kind(), HazardKind::UseAfterFree);
    let (first, second) = (hazard.first().unwrap(), hazard.second().unwrap());
    assert_eq!((first.operation(), first.mode()), ("cuMemUnmap", AccessMode::Free));
    assert_eq!((second.operation(), second.address()), ("writer", rig.at(0)));
    assert!(hazard.missing().contains("nothing is mapped at"), "{hazard}");
    assert_eq!(rig.synchronize(rig.a), Err(Code::ILLEGAL_ADDRESS));
}

#[test]
fn an_access_that_runs_from_a_page_into_a_hole_names_the_unmap() {
    let rig = Rig::new();
    rig.page(0);
    rig.page(1);
    rig.unmap(1, 1);
    let across = Kernel::new("reader").reads(rig.at(1) - 32, 64);
    unsafe { rig.driver.launch(0, rig.a, across) }.unwrap();
    let hazard = rig.only_hazard();
    assert_eq!(hazard.kind(), HazardKind::UseAfterFree);
    assert_eq!(hazard.first().unwrap().address(), rig.at(1));
}

#[test]
fn a_copy_of_what_was_unmapped_is_refused_when_it_is_queued() {
    let rig = Rig::new();
    rig.page(0);
    rig.unmap(0, 1);
    let refused = unsafe { rig.driver.fill_async(0, rig.at(0), FillValue::U8(1), 64, rig.a) };
    assert_eq!(refused.unwrap_err().code, Code::INVALID_VALUE);
    assert_eq!(rig.only_hazard().kind(), HazardKind::UseAfterFree);
}

#[test]
fn using_what_is_not_open_yet_is_no_access() {
    let rig = Rig::new();
    let memory = rig.create();
    rig.map(memory, 0);
    rig.write(rig.a, 0);
    let hazard = rig.only_hazard();
    assert_eq!(hazard.kind(), HazardKind::NoAccess);
    assert!(hazard.missing().contains("was not opened"), "{hazard}");
    assert_eq!(rig.synchronize(rig.a), Err(Code::ILLEGAL_ADDRESS));
}

#[test]
fn a_page_that_is_mapped_twice_is_one_memory() {
    let rig = Rig::new();
    let memory = rig.page(0);
    rig.map(memory, 3);
    rig.open(3, 1);
    rig.write(rig.a, 0);
    rig.write(rig.b, 3);
    assert_eq!(rig.only_hazard().kind(), HazardKind::Race);
    rig.synchronize(rig.a).unwrap();
    rig.synchronize(rig.b).unwrap();
    assert_eq!((rig.bytes(0), rig.bytes(3)), ([7; 64], [7; 64]));
    // Work that uses one address is not disturbed when the other goes.
    rig.write(rig.b, 3);
    rig.unmap(0, 1);
    assert!(rig.driver.hazards().is_empty(), "{:?}", rig.driver.hazards());
    rig.unmap(3, 1);
    assert_eq!(rig.only_hazard().kind(), HazardKind::FreeInUse);
}

#[test]
fn a_page_that_moves_keeps_its_bytes_and_its_old_address_is_free_for_another() {
    let rig = Rig::new();
    let memory = rig.page(0);
    rig.write(rig.a, 0);
    rig.synchronize(rig.a).unwrap();
    rig.unmap(0, 1);
    rig.map(memory, 5);
    rig.open(5, 1);
    assert_eq!(rig.bytes(5), [7; 64]);
    // What was said of the old address is over.
    rig.page(0);
    rig.write(rig.b, 0);
    rig.write(rig.a, 5);
    rig.synchronize(rig.a).unwrap();
    rig.synchronize(rig.b).unwrap();
    assert!(rig.driver.hazards().is_empty(), "{:?}", rig.driver.hazards());
}

#[test]
fn a_page_that_is_released_while_mapped_keeps_its_bytes() {
    let rig = Rig::new();
    let memory = rig.page(0);
    rig.write(rig.a, 0);
    rig.synchronize(rig.a).unwrap();
    let free = || rig.driver.memory_info(0).unwrap().free_bytes;
    let before = free();
    unsafe { rig.driver.memory_release(0, memory) }.unwrap();
    assert_eq!((rig.bytes(0), free()), ([7; 64], before));
    rig.unmap(0, 1);
    assert_eq!(free(), before + UNIT);
    assert_eq!(
        unsafe { rig.driver.memory_map(0, rig.at(0), UNIT, memory) }.unwrap_err().code,
        Code::INVALID_VALUE
    );
    assert_eq!(rig.only_hazard().kind(), HazardKind::StaleHandle);
}

#[test]
fn access_and_unmapping_are_charged_by_the_handle() {
    let rig = Rig::with(SimConfig::default().cost(CostModel::h200()));
    let pages: Vec<RawMemory> = (0..8).map(|_| rig.create()).collect();
    let cost = |body: &dyn Fn()| {
        let before = rig.driver.clock_ns();
        body();
        rig.driver.clock_ns() - before
    };
    let map_all = || pages.iter().enumerate().for_each(|(unit, &page)| rig.map(page, unit));
    map_all();
    let (one, seven) = (cost(&|| rig.open(0, 1)), cost(&|| rig.open(1, 7)));
    assert!((40_000..48_000).contains(&one) && (200_000..240_000).contains(&seven), "{one} {seven}");
    let (one, seven) = (cost(&|| rig.unmap(0, 1)), cost(&|| rig.unmap(1, 7)));
    assert!((24_000..28_000).contains(&one) && (130_000..160_000).contains(&seven), "{one} {seven}");
    // Nothing is there any more: a call alone.
    assert!(cost(&|| rig.unmap(0, 8)) < 30_000);
}

#[test]
fn ranges_mappings_and_handles_that_are_left_are_named() {
    let rig = Rig::new();
    let memory = rig.page(2);
    let words =
        || -> Vec<String> { rig.driver.leaks().iter().map(|leak| leak.missing().to_owned()).collect() };
    let at = |words: &[String], what: &str| words.iter().filter(|line| line.contains(what)).count();
    let said = words();
    let mapped = format!("{UNIT} bytes at {:#x} are still mapped", rig.at(2));
    assert_eq!(
        (at(&said, &mapped), at(&said, "are still reserved"), at(&said, "were not released")),
        (1, 1, 1)
    );
    unsafe { rig.driver.memory_release(0, memory) }.unwrap();
    // A handle that is gone still has its mapping.
    assert_eq!((at(&words(), &mapped), at(&words(), "were not released")), (1, 0));
    rig.unmap(2, 1);
    assert_eq!(at(&words(), "are still mapped"), 0);
}

#[test]
fn a_machine_with_pages_left_is_not_clean() {
    let said = |body: &dyn Fn(&Mapped)| {
        let sim = Sim::new();
        body(&Mapped::new(&sim.device(0)).unwrap());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sim.assert_clean()));
        outcome.err().map(|payload| *payload.downcast::<String>().unwrap())
    };
    assert_eq!(said(&|_| ()), None);
    let words = said(&|source| {
        source.pages().unwrap().reserve(UNIT).unwrap();
    })
    .unwrap();
    assert!(
        words.contains("1 blocks, pages and streams are out") && words.contains("still reserved"),
        "{words}"
    );
    let words = said(&|source| {
        source.pages().unwrap().create(UNIT).unwrap();
    })
    .unwrap();
    assert!(words.contains("were not released"), "{words}");
}
