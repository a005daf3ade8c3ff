//! Checks that handles of one resource free each other's blocks.

use std::sync::Arc;

use super::super::Bench;
use super::super::block::Block;
use crate::compose::ResourceExt;
use crate::device::Device;
use crate::resource::{AnyResource, DeviceAccessible, Resource, ResourceRef};
use crate::stream::StreamRef;

/// `&R`, `Box<R>`, `Arc<R>` and `ResourceRef` say the same as the resource and free its blocks, and it frees theirs.
#[track_caller]
pub fn every_handle_frees_every_block<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = Box::new(Arc::new(make(&bench.device())));
    let stream = bench.stream();
    let direct: &R = &resource;
    exchange(bench, direct, &direct, stream.as_ref());
    exchange(bench, direct, &**resource, stream.as_ref());
    exchange(bench, direct, &*resource, stream.as_ref());
    exchange(bench, direct, &resource, stream.as_ref());
    exchange(bench, direct, &ResourceRef::new(direct), stream.as_ref());
    exchange(bench, &resource, &ResourceRef::new(&resource), stream.as_ref());
    bench.check();
}

/// `AnyResource` and the erased `ResourceRef` say the same as the resource and free its blocks, and it frees theirs.
#[track_caller]
pub fn erased_handles_free_every_block<R: DeviceAccessible + Send + Sync + 'static>(
    bench: &Bench,
    make: impl Fn(&Device) -> R,
) {
    let resource = Arc::new(make(&bench.device()));
    let stream = bench.stream();
    let any = AnyResource::from_arc(Arc::clone(&resource));
    exchange(bench, &*resource, &any, stream.as_ref());
    exchange(bench, &*resource, &any.clone(), stream.as_ref());
    exchange(bench, &any, &any.as_ref(), stream.as_ref());
    exchange(bench, &any, &ResourceRef::erase(&*resource), stream.as_ref());
    assert_eq!(any, any.clone());
    // The resource lives as long as its last handle.
    drop(resource);
    let block = Block::of(&any, bench.at_most(100), stream.as_ref());
    block.fill(1, stream.as_ref());
    block.free(stream.as_ref());
    bench.check();
}

/// Each frees a block of the other, and both say the same of themselves.
#[track_caller]
fn exchange(bench: &Bench, one: &impl Resource, other: &impl Resource, stream: StreamRef<'_>) {
    let bytes = bench.at_most(700);
    Block::of(one, bytes, stream).free_through(other, stream);
    Block::of(other, bytes, stream).free_through(one, stream);
    assert_eq!(one.id(), other.id());
    assert_eq!(one.device(), other.device());
    assert_eq!(one.max_align(), other.max_align());
    assert_eq!(one.host_access(), other.host_access());
    assert_eq!(one.describe().to_string(), other.describe().to_string());
    assert_eq!(one.upstream().is_some(), other.upstream().is_some());
}

/// An id stays the same wherever the resource is moved; resources with one id free each other's blocks; resources of two
/// devices differ.
#[track_caller]
pub fn ids_say_who_frees_what<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let stream = bench.stream();
    let (first, second) = (make(&bench.device()), make(&bench.device()));
    let id = first.id();
    let first = Box::new(first);
    assert_eq!(first.id(), id, "the id depends on where the resource lies");
    if first.id() == second.id() {
        Block::of(&*first, bench.at_most(700), stream.as_ref()).free_through(&second, stream.as_ref());
        Block::of(&second, bench.at_most(700), stream.as_ref()).free_through(&*first, stream.as_ref());
    }
    if let Some(device) = bench.second_device() {
        let elsewhere = make(&device);
        assert_ne!(elsewhere.id(), id, "resources of two devices have one id");
        assert_eq!(elsewhere.device(), &device);
    }
    assert_eq!(first.device(), &bench.device());
    bench.check();
}
