//! Memory of graphs, of stacks whose type is forgotten.

#![expect(unsafe_code, reason = "gives the memory of graphs back, and frees blocks")]

use std::sync::mpsc;
use std::thread;

use alluvion::driver::{Call, CaptureMode, Code, Driver};
use alluvion::sim::Fault;
use alluvion::suballoc::SuballocBook;
use alluvion::{AnyResource, DeviceVec, ErrorKind, Layout, Recipe, Resource, ResourceExt, Sim, Stream};

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
    let recipes = [
        "cuda",
        "stats | cuda-async",
        "arena(8MiB) | pool | cuda",
        "binning(from=4KiB,to=4KiB,blocks=2) | pool | cuda",
        "stats | binning(from=4KiB,to=8KiB,blocks=2) | tracking | pool | cuda",
    ];
    for recipe in recipes {
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

/// A release waits, on the host, for the work behind which a block was freed elsewhere. Here that work waits for this test.
#[test]
fn of_two_threads_that_release_it_one_is_told_so() {
    let (sim, stack, stream) = rig("pool | cuda");
    let other = sim.device(0).stream().expect("there are numbers");
    sim.begin_capture(0, stream.raw(), CaptureMode::Global).expect("it can capture");
    let memory = stack.capture(&stream).expect("there is a pool");
    let layout = Layout::from_bytes(1000).expect("it is short");
    let block = stack.allocate(layout, stream.as_ref()).expect("there is memory");
    drop(sim.end_capture(0, stream.raw()).expect("the capture is whole"));
    memory.end().expect("it is open");
    let (go_on, may_go_on) = mpsc::channel::<()>();
    // It ends with the sender, too: a test that fails leaves no thread behind.
    let work = move || {
        let _ = may_go_on.recv();
    };
    // SAFETY: the stream lives, and the function calls nothing of the library.
    unsafe { sim.stream_host_call(0, other.raw(), Box::new(work)) }.expect("it can be queued");
    // SAFETY: the block came from there with this layout, and nothing but that work uses it.
    unsafe { stack.deallocate(block, layout, other.as_ref()) };
    // SAFETY: the graph is gone, and was never launched.
    let release = || unsafe { memory.release() };
    let (returned, answers) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..2 {
            let returned = returned.clone();
            scope.spawn(move || returned.send(release()).expect("the test waits for it"));
        }
        // The one that has it cannot return before the work goes on.
        let refused = answers.recv().expect("there are two").expect_err("the other is at it");
        assert_eq!(refused.kind(), ErrorKind::InUse);
        assert!(refused.to_string().contains("another thread is releasing it"), "{refused}");
        drop(go_on);
        assert_eq!(answers.recv().expect("there are two").expect("it gets the memory"), 2 << 20);
    });
    assert_eq!((release().expect("it is gone"), graph_bytes(&stack)), (0, 0));
}
