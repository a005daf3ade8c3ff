//! Segments that go to other processes by a descriptor of their own.

#![cfg(unix)]
#![expect(unsafe_code, reason = "lends segments, and maps what was lent")]

use alluvion::driver::{Call, Code, Driver, ExportedMemory, Location, MapAccess};
use alluvion::sim::Fault;
use alluvion::suballoc::SuballocBook;
use alluvion::{AnyResource, DevicePtr, ErrorKind, Layout, Recipe, Resource, ResourceExt, Sim, SleepConfig};

use super::SEGMENT;
use crate::paged::{PAGE, machine};

fn stack_of(sim: &Sim, recipe: &str) -> AnyResource {
    recipe.parse::<Recipe>().expect("it is one").build(&sim.device(0)).expect("it can be built")
}

fn first(stack: &AnyResource) -> DevicePtr {
    stack.find::<SuballocBook>().expect("there is one").segments()[0].address
}

const SHAREABLE: &str = "stats | pool(registered=8MiB,initial=8MiB) | mapped(handles=fd)";

#[test]
fn a_segment_is_imported_whole_and_outlives_its_pool() {
    let sim = machine(64);
    let stack = stack_of(&sim, SHAREABLE);
    let layout = Layout::from_bytes(PAGE).expect("it is short");
    let block = stack.allocate_sync(layout).expect("there is memory");
    // SAFETY: the block is live.
    let descriptor = unsafe { stack.export_segment(first(&stack)) }.expect("it has one");
    // SAFETY: as above.
    let again = unsafe { stack.export_segment(first(&stack)) }.expect("each is another one");
    let driver = sim.sim_driver();
    let sharing = driver.sharing().expect("it shares");
    let memory = sharing.memory_import(0, &ExportedMemory::FileDescriptor(descriptor)).expect("it is live");
    let address = driver.virtual_reserve(0, SEGMENT, 0).expect("there are addresses");
    // SAFETY: the addresses were reserved just now, and the memory was imported just now.
    unsafe { driver.memory_map(0, address, SEGMENT, memory) }.expect("it is as long as the segment");
    let (to, access) = (Location::Device(0), MapAccess::ReadWrite);
    // SAFETY: it was mapped just now.
    unsafe { driver.memory_set_access(0, address, SEGMENT, to, access) }.expect("it is mapped");
    // SAFETY: the block came from there with this layout, and nothing uses it.
    unsafe { stack.deallocate_sync(block, layout) };
    drop((stack, again));
    // SAFETY: it is mapped, by these addresses alone, and no work is left.
    unsafe { driver.memory_unmap(0, address, SEGMENT) }.expect("it is mapped");
    // SAFETY: it was imported, and is mapped nowhere.
    unsafe { driver.memory_release(0, memory) }.expect("it was imported");
    // SAFETY: the addresses were reserved, and nothing is mapped there.
    unsafe { driver.virtual_free(0, address, SEGMENT) }.expect("nothing is mapped");
    assert_eq!((sim.live().physical, sim.live().reservations), (0, 0));
}

#[test]
fn what_has_no_descriptor_says_why() {
    let cases = [
        ("cuda", ErrorKind::Unsupported),
        ("pool(initial=8MiB) | cuda", ErrorKind::Unsupported),
        ("pool(registered=8MiB,initial=8MiB) | mapped", ErrorKind::Unsupported),
    ];
    for (recipe, kind) in cases {
        let sim = machine(64);
        let stack = stack_of(&sim, recipe);
        let address = stack.find::<SuballocBook>().map_or(DevicePtr::new(4096), |_| Some(first(&stack)));
        // SAFETY: nobody gives the segment back.
        let refused = unsafe { stack.export_segment(address.expect("it is not 0")) }.expect_err(recipe);
        assert_eq!(refused.kind(), kind, "{recipe}: {refused}");
    }
    let sim = machine(64);
    let stack = stack_of(&sim, SHAREABLE);
    // SAFETY: nobody gives the segment back.
    let within = unsafe { stack.export_segment(first(&stack).offset(256)) }.expect_err("it begins before");
    assert_eq!(within.kind(), ErrorKind::InvalidArgument, "{within}");
    // SAFETY: no work uses what sleeps.
    let sleeper = unsafe { stack.sleep(SleepConfig::default()) }.expect("it has pages");
    assert!(stack.find::<SuballocBook>().is_some_and(|book| book.segments().is_empty()));
    sleeper.wake().expect("there is memory");
}

#[test]
fn a_driver_that_fails_is_asked_again() {
    let sim = machine(64);
    let stack = stack_of(&sim, SHAREABLE);
    sim.inject(Fault::nth(Call::MemoryExport, 1, Code::UNKNOWN));
    // SAFETY: nobody gives the segment back.
    let export = || unsafe { stack.export_segment(first(&stack)) };
    assert_eq!(export().expect_err("it fails once").code(), Some(Code::UNKNOWN));
    assert!(export().is_ok());
}
