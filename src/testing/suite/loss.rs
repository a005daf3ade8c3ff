//! After the worst has happened.

use super::super::Bench;
use super::super::block::{Block, layout_of};
use crate::compose::ResourceExt;
use crate::device::Device;
use crate::driver::Code;
use crate::resource::Resource;

/// Once the context is lost, an allocation that needs the driver fails at once with the error that lost it; freeing and
/// dropping are silent. On a simulated machine alone: a lost context stays lost.
///
/// # Panics
///
/// On hardware, and if the resource does otherwise.
#[track_caller]
pub fn a_lost_context_fails_fast_and_silently<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let sim = bench.simulated().expect("a context is lost on a simulated machine, not on hardware");
    let resource = make(&bench.device());
    let stream = bench.stream();
    let bytes = bench.at_most(4096);
    let mut blocks: Vec<_> = (0..3).map(|_| Block::of(&resource, bytes, stream.as_ref())).collect();
    let synchronous = Block::allocate_sync(&resource, layout_of(bytes)).expect("a healthy device serves");
    blocks.pop().into_iter().for_each(|block| block.free(stream.as_ref()));

    sim.poison(bench.device().ordinal(), Code::ILLEGAL_ADDRESS);

    for _ in 0..2 {
        let attempts = [
            Block::allocate(&resource, layout_of(bytes), stream.as_ref()),
            Block::allocate_sync(&resource, layout_of(bytes)),
        ];
        for attempt in attempts {
            match attempt {
                // What needs no driver may still be served: nothing can be done with it.
                Ok(block) => blocks.push(block),
                Err(error) => {
                    assert!(error.is_context_lost(), "not as a lost context: {error}");
                    assert_eq!(error.code(), Some(Code::ILLEGAL_ADDRESS), "not the first error: {error}");
                }
            }
        }
    }
    blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
    synchronous.free_sync();
    let _ = resource.trim(0);
    assert!(!resource.describe().to_string().is_empty());
    drop(stream);
    drop(resource);
    bench.check_hazards();
}
