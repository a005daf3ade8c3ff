//! Memory of graphs, of stacks whose type is forgotten.

#![expect(unsafe_code, reason = "gives the memory of graphs back")]

use alluvion::driver::{Call, CaptureMode, Code};
use alluvion::sim::Fault;
use alluvion::suballoc::SuballocBook;
use alluvion::{AnyResource, DeviceVec, ErrorKind, Recipe, ResourceExt, Sim, Stream};

fn rig(recipe: &str) -> (Sim, AnyResource, Stream) {
    let sim = Sim::new();
    let device = sim.device(0);
    let recipe: Recipe = recipe.parse().expect("it is a recipe");
    let (stack, stream) =
        (recipe.build(&device).expect("it can be built"), device.stream().expect("as before"));
    (sim, stack, stream)
}

fn graph_bytes(stack: &AnyResource) -> usize {
    stack.find::<SuballocBook>().expect("there is a pool").status().graph_bytes
}

#[test]
fn it_serves_the_graph_through_layers_that_watch() {
    let (sim, stack, stream) =
        rig("logging(file=\"/dev/null\") | stats | tracking | limiting(64MiB) | pool | cuda");
    sim.begin_capture(0, stream.raw(), CaptureMode::Global).expect("it can capture");
    let memory = stack.capture(&stream).expect("there is a pool");
    let block = DeviceVec::filled_in(1000, 7_u8, &stream, &stack).expect("there is memory");
    let graph = sim.end_capture(0, stream.raw()).expect("the capture is whole");
    assert_eq!((memory.reserved_bytes(), graph_bytes(&stack)), (2 << 20, 2 << 20));
    memory.end().expect("it is open");
    assert_eq!(memory.end().expect_err("it has ended").kind(), ErrorKind::InvalidArgument);
    drop(graph);
    // SAFETY: the graph is gone, and was never launched.
    let kept = unsafe { memory.release() }.expect_err("a block is out");
    assert_eq!(kept.kind(), ErrorKind::InUse);
    drop(block);
    // SAFETY: as above.
    let given_back = [(); 2].map(|()| unsafe { memory.release() }.expect("none is out"));
    assert_eq!((given_back, graph_bytes(&stack)), ([2 << 20, 0], 0));
}

#[test]
fn where_there_is_no_pool_it_is_refused() {
    for recipe in ["cuda", "stats | cuda-async", "arena(8MiB) | pool | cuda"] {
        let (sim, stack, stream) = rig(recipe);
        sim.begin_capture(0, stream.raw(), CaptureMode::Global).expect("it can capture");
        let refused = stack.capture(&stream).expect_err("there is none");
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{recipe}: {refused}");
        drop(sim.end_capture(0, stream.raw()));
    }
    let (_sim, stack, stream) = rig("pool | cuda");
    assert_eq!(stack.capture(&stream).expect_err("it does not").kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_call_that_fails_changes_nothing() {
    let (sim, stack, stream) = rig("stats | pool | cuda");
    sim.begin_capture(0, stream.raw(), CaptureMode::Global).expect("it can capture");
    sim.inject(Fault::nth_call(1, Code::UNKNOWN));
    assert!(stack.capture(&stream).is_err());
    sim.clear_faults();
    let memory = stack.capture(&stream).expect("it is tried again");
    sim.inject(Fault::every(Call::AllocateDevice, Code::OUT_OF_MEMORY));
    let failed = DeviceVec::<u8, _>::uninit_in(1000, &stream, &stack).map(drop);
    assert!(failed.is_err_and(|error| error.is_out_of_memory()));
    sim.clear_faults();
    drop(DeviceVec::<u8, _>::uninit_in(1000, &stream, &stack).expect("there is memory again"));
    drop(sim.end_capture(0, stream.raw()).expect("the capture is whole"));
    // SAFETY: the graph is gone, and was never launched.
    assert_eq!(unsafe { memory.release() }.expect("none is out"), 2 << 20);
}

#[test]
fn one_that_is_dropped_leaves_the_memory_with_the_graph() {
    let (sim, stack, stream) = rig("pool | cuda");
    sim.begin_capture(0, stream.raw(), CaptureMode::Global).expect("it can capture");
    let memory = stack.capture(&stream).expect("there is a pool");
    drop(DeviceVec::<u8, _>::uninit_in(1000, &stream, &stack).expect("there is memory"));
    let graph = sim.end_capture(0, stream.raw()).expect("the capture is whole");
    drop(memory);
    assert_eq!(graph_bytes(&stack), 2 << 20);
    drop((graph, stack));
    assert!(!sim.leaks().is_empty(), "nobody has said that the graph is gone");
}
