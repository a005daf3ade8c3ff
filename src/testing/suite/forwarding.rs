//! Checks that an adaptor forwards calls to its upstream.
//!
//! These clauses are for a layer that passes each request on, and not for a suballocator. Each names the method that the layer
//! forgot. A layer may answer for itself where the clause sees that it has asked its upstream.

use super::super::block::{Block, layout_of};
use super::super::upstream::Method;
use super::super::{Bench, Upstream};
use crate::compose::ResourceExt;
use crate::resource::{Describe, Resource};

/// The adaptor, and another handle of what it stands on.
fn put<R>(bench: &Bench, wrap: impl Fn(Upstream) -> R) -> (Upstream, R) {
    let upstream = Upstream::new(&bench.device());
    let adaptor = wrap(upstream.clone());
    (upstream, adaptor)
}

fn name_of<R>() -> &'static str {
    Describe::name_of::<R>()
}

/// The largest alignment is the upstream's, or the adaptor has asked for it and says another.
#[track_caller]
pub fn forwards_max_align<R: Resource>(bench: &Bench, wrap: impl Fn(Upstream) -> R) {
    let (upstream, adaptor) = put(bench, wrap);
    let (says, honoured) = (adaptor.max_align(), upstream.uncounted().max_align());
    assert!(
        says == honoured || upstream.calls(Method::MaxAlign) > 0,
        "`{}` does not forward `max_align`: it says {says}, and its upstream honours {honoured}",
        name_of::<R>()
    );
}

/// A trim reaches the upstream.
#[track_caller]
pub fn forwards_trim<R: Resource>(bench: &Bench, wrap: impl Fn(Upstream) -> R) {
    let (upstream, adaptor) = put(bench, wrap);
    let stream = bench.stream();
    Block::of(&adaptor, bench.at_most(1 << 20), stream.as_ref()).free(stream.as_ref());
    bench.device().synchronize().expect("all work succeeds");
    let gave = adaptor.trim(0).expect("trimming succeeds");
    let left = upstream.uncounted().trim(0).expect("trimming succeeds");
    assert_eq!(
        left,
        0,
        "`{}` does not forward `trim`: it says that {gave} bytes were given back, and its upstream gives {left} bytes back when \
         it is asked itself",
        name_of::<R>()
    );
    bench.check();
}

/// The adaptor asks the upstream how much memory there is.
#[track_caller]
pub fn forwards_memory_info<R: Resource>(bench: &Bench, wrap: impl Fn(Upstream) -> R) {
    let (upstream, adaptor) = put(bench, wrap);
    let info = adaptor.memory_info().expect("the resource knows its memory");
    assert!(
        upstream.calls(Method::MemoryInfo) > 0,
        "`{}` does not forward `memory_info`: it answers {info:?} and has not asked its upstream",
        name_of::<R>()
    );
}

/// The adaptor says what it stands on: the description goes on with the upstream, and the layers below are found, each once.
#[track_caller]
pub fn forwards_upstream<R: Resource>(bench: &Bench, wrap: impl Fn(Upstream) -> R) {
    let (upstream, adaptor) = put(bench, wrap);
    let (name, line) = (name_of::<R>(), adaptor.describe().to_string());
    let Some(below) = adaptor.upstream() else {
        panic!(
            "`{name}` does not return its upstream: its description is {line:?}, and no layer below it can be found; \
             `upstream` returns `Some(&self.upstream)`"
        );
    };
    assert!(
        line.ends_with(&format!(" > {upstream:?}")),
        "`{name}` does not return its upstream: its description is {line:?}, and should end with \"> {upstream:?}\""
    );
    let found = adaptor.find::<Upstream>();
    assert!(
        found.is_some_and(|found| found.is_same(&upstream)),
        "`find` does not find the upstream of `{name}`, whose description is {line:?}"
    );
    let books = |book: Option<crate::resource::LayerBook<'_>>| book.is_some_and(|book| book.is::<Upstream>());
    assert!(
        !(books(adaptor.layer()) && books(below.layer())),
        "`{name}` returns the book of its upstream from `layer`: it would be counted twice; return its own, or none"
    );
}

/// The adaptor is of the device that its upstream is of.
#[track_caller]
pub fn forwards_device<R: Resource>(bench: &Bench, wrap: impl Fn(Upstream) -> R) {
    let (upstream, adaptor) = put(bench, wrap);
    assert_eq!(
        adaptor.device(),
        upstream.uncounted().device(),
        "`{}` does not forward `device`: the left is its device, the right that of its upstream",
        name_of::<R>()
    );
}

/// A synchronous call reaches the upstream as one: not as a call on a stream of the crate's own, and a wait for it.
#[track_caller]
pub fn forwards_synchronous_calls<R: Resource>(bench: &Bench, wrap: impl Fn(Upstream) -> R) {
    let (upstream, adaptor) = put(bench, wrap);
    let name = name_of::<R>();
    let block = Block::allocate_sync(&adaptor, layout_of(bench.at_most(4096)));
    let block = block.unwrap_or_else(|error| panic!("`{name}` refuses a synchronous allocation: {error}"));
    assert!(
        upstream.calls(Method::AllocateSync) > 0,
        "`{name}` does not forward `allocate_sync`: its upstream got {} calls of `allocate` on a stream instead, and each is \
         waited for",
        upstream.calls(Method::Allocate)
    );
    block.free_sync();
    assert!(
        upstream.calls(Method::DeallocateSync) > 0 || upstream.live_blocks() > 0,
        "`{name}` does not forward `deallocate_sync`: its upstream got the block on a stream instead, which is waited for"
    );
    bench.check();
}

/// What is freed through the adaptor is free in the upstream; and if the two have one id, each frees the blocks of the other.
#[track_caller]
pub fn forwards_frees<R: Resource>(bench: &Bench, wrap: impl Fn(Upstream) -> R) {
    let (upstream, adaptor) = put(bench, wrap);
    let (name, stream) = (name_of::<R>(), bench.stream());
    let quiet = || {
        // The whole device: an adaptor may have work on a stream of its own.
        bench.device().synchronize().expect("all work succeeds");
        // What an adaptor keeps for a while goes with a trim.
        adaptor.trim(0).expect("trimming succeeds");
        upstream.live_blocks()
    };
    let bytes = bench.at_most(5000);
    Block::of(&adaptor, bytes, stream.as_ref()).free(stream.as_ref());
    let lost = quiet();
    assert_eq!(
        lost, 0,
        "`{name}` does not forward `deallocate`: {lost} blocks are still out of its upstream"
    );
    let block = Block::allocate_sync(&adaptor, layout_of(bytes)).expect("a synchronous allocation succeeds");
    block.free_sync();
    let lost = quiet();
    assert_eq!(
        lost, 0,
        "`{name}` does not forward `deallocate_sync`: {lost} blocks are still out of its upstream"
    );
    if adaptor.id() == upstream.uncounted().id() {
        Block::of(&adaptor, bytes, stream.as_ref()).free_through(upstream.uncounted(), stream.as_ref());
        Block::of(upstream.uncounted(), bytes, stream.as_ref()).free_through(&adaptor, stream.as_ref());
        let lost = quiet();
        assert_eq!(
            lost, 0,
            "`{name}` has the `id` of its upstream, but {lost} blocks that one allocated and the other freed are still out: \
             give it an id of its own, `ResourceId::unique`, or hand out the upstream's blocks as they are"
        );
    }
    bench.check();
}

/// The adaptor has asked its upstream whether the host may touch the blocks, or says that it may.
#[track_caller]
pub fn forwards_host_access<R: Resource>(bench: &Bench, wrap: impl Fn(Upstream) -> R) {
    let (upstream, adaptor) = put(bench, wrap);
    assert!(
        adaptor.host_access() || upstream.calls(Method::HostAccess) > 0,
        "`{}` does not forward `host_access`: it says that the host may not touch its blocks, and has not asked its upstream",
        name_of::<R>()
    );
}

/// Whether blocks can sleep is the upstream's answer.
#[track_caller]
pub fn forwards_sleeping<R: Resource>(bench: &Bench, wrap: impl Fn(Upstream) -> R) {
    let (upstream, adaptor) = put(bench, wrap);
    assert!(
        adaptor.sleeping().is_some() || upstream.calls(Method::Sleeping) > 0,
        "`{}` does not forward `sleeping`: no container over it can sleep, whatever its upstream can",
        name_of::<R>()
    );
}

/// A block that is to be shared with another process is looked for in the upstream.
#[track_caller]
pub fn forwards_export<R: Resource>(bench: &Bench, wrap: impl Fn(Upstream) -> R) {
    let (upstream, adaptor) = put(bench, wrap);
    let stream = bench.stream();
    let block = Block::of(&adaptor, bench.at_most(4096), stream.as_ref());
    let exported = block.export();
    block.free(stream.as_ref());
    assert!(
        upstream.calls(Method::Export) > 0,
        "`{}` does not forward `export`: it answers {exported:?} and has not asked its upstream",
        name_of::<R>()
    );
    bench.check();
}
