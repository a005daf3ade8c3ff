//! Checks calls while a stream captures.

use std::sync::mpsc;

use super::super::Bench;
use super::super::block::{Block, layout_of};
use crate::device::Device;
use crate::driver::CaptureMode;
use crate::resource::Resource;

/// Allocating, freeing and trimming do not break a capture that another thread has begun in the strictest mode, nor does
/// the capture stop them. On a simulated machine alone: the seam to a driver begins no captures.
///
/// # Panics
///
/// On hardware, and if the resource does otherwise.
#[track_caller]
pub fn captures_elsewhere_survive<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let sim = bench.simulated().expect("a capture is begun on a simulated machine, not on hardware");
    let device = bench.device();
    let (capturing, stream) = (bench.stream(), bench.stream());
    // The first resource has been used before, the second has not.
    let used = make(&device);
    Block::of(&used, bench.at_most(4096), stream.as_ref()).free(stream.as_ref());
    let fresh = make(&device);

    let (begun, has_begun) = mpsc::channel();
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let capturing = &capturing;
        let ordinal = device.ordinal();
        let capture = scope.spawn(move || {
            let raw = capturing.as_ref().raw();
            sim.begin_capture(ordinal, raw, CaptureMode::Global).expect("a stream can capture");
            begun.send(()).expect("the test waits");
            // Ends in either way: the test has gone on, or has failed and dropped its end.
            let _ = is_done.recv();
            sim.end_capture(ordinal, raw).map(|graph| graph.node_count())
        });
        has_begun.recv().expect("the capture begins");
        let done = done;
        // After each call, so that the message names the one that did it.
        let check = |call: &str, bytes: usize| {
            if let Some(hazard) = sim.hazards().first() {
                panic!("`{call}` of {bytes} bytes breaks the capture of another thread: {hazard}");
            }
        };
        for resource in [&used, &fresh] {
            for bytes in [100, 1 << 20].map(|bytes| bench.at_most(bytes)) {
                let ordered = Block::allocate(resource, layout_of(bytes), stream.as_ref());
                let ordered = ordered.unwrap_or_else(|error| {
                    panic!("`allocate` of {bytes} bytes fails while another thread captures: {error}")
                });
                check("allocate", bytes);
                let synchronous = Block::allocate_sync(resource, layout_of(bytes));
                let synchronous = synchronous.unwrap_or_else(|error| {
                    panic!("`allocate_sync` of {bytes} bytes fails while another thread captures: {error}")
                });
                check("allocate_sync", bytes);
                ordered.free(stream.as_ref());
                check("deallocate", bytes);
                synchronous.free_sync();
                check("deallocate_sync", bytes);
            }
            resource.memory_info().expect("`memory_info` succeeds while another thread captures");
            check("memory_info", 0);
            resource.trim(0).expect("`trim` succeeds while another thread captures");
            check("trim", 0);
        }
        drop(fresh);
        drop(done);
        let nodes = capture.join().expect("the capturing thread does not panic");
        assert_eq!(nodes, Ok(0), "the capture was broken, or recorded what is not its own");
    });
    drop(used);
    bench.check();
}
