//! Which resources say that the host may access their blocks: every source and every layer that a recipe can name, the handles, and
//! the layers that no recipe names.

use alluvion::driver::DeviceAttribute;
use alluvion::recipe::{Recipe, ingredients};
use alluvion::relief::Relief;
use alluvion::source::{Cuda, CudaAsyncManaged, Managed, Null, Pinned};
use alluvion::suballoc::Binning;
use alluvion::testing::{Bench, Delayed, Faulty, Shadow, Upstream};
use alluvion::{
    AnyResource, Device, DeviceAccessible, HostAccessible, PoolConfig, Resource, ResourceExt, ResourceRef,
};

use crate::every_source::{callback_over, view_of_default_pool};

/// Each source, and whether its blocks are the host's too.
const SOURCES: &[(&str, bool)] = &[
    ("auto", false),
    ("cuda", false),
    ("cuda-async", false),
    ("cuda-async-managed", true),
    ("managed", true),
    ("mapped", false),
    ("pinned", true),
    ("system", true),
];

/// A way to write each layer.
const LAYERS: &[(&str, &str)] = &[
    ("logging", "logging(file=/dev/null)"),
    ("stats", "stats"),
    ("tracking", "tracking"),
    ("guard", "guard"),
    ("limiting", "limiting(64MiB)"),
    ("budget", "budget(hard=64MiB)"),
    ("aligned", "aligned(4096)"),
    ("prefetch", "prefetch"),
    ("pool", "pool"),
    ("arena", "arena(16MiB)"),
    ("fixed-size", "fixed-size(block=64KiB)"),
    ("binning", "binning(from=4KiB, to=256KiB, blocks=8)"),
];

#[track_caller]
fn says(line: &str, device: &Device) -> bool {
    let recipe: Recipe = line.parse().unwrap_or_else(|error| panic!("{error}"));
    recipe.build(device).unwrap_or_else(|error| panic!("{error}")).host_access()
}

/// A machine whose devices read all memory of the host.
fn with_pageable_memory() -> Bench {
    Bench::sim_with(Bench::config().attribute(DeviceAttribute::PageableMemoryAccess, 1))
}

/// The type says it, and the value does.
fn is_for_the_host<R: HostAccessible>(resource: &R) -> bool {
    resource.host_access()
}

#[test]
fn every_ingredient_is_asked_here() {
    let mut known: Vec<_> = SOURCES.iter().map(|(name, _)| *name).collect();
    known.extend(LAYERS.iter().map(|(name, _)| *name));
    known.extend(["fallback", "null"]);
    for ingredient in ingredients() {
        assert!(
            known.contains(&ingredient.name()),
            "say whether the host may access the blocks of `{}`",
            ingredient.name()
        );
    }
    assert_eq!(known.len(), ingredients().count());
}

#[test]
fn sources_know_whose_memory_they_hand_out() {
    let bench = with_pageable_memory();
    for &(source, access) in SOURCES {
        assert_eq!(says(source, &bench.device()), access, "{source}");
    }
}

#[test]
fn layers_answer_as_what_they_stand_on() {
    let bench = with_pageable_memory();
    for &(name, layer) in LAYERS {
        for &(source, access) in SOURCES {
            // Prefetching is for managed memory.
            if name == "prefetch" && source != "managed" && source != "cuda-async-managed" {
                continue;
            }
            let line = format!("{layer} | {source}");
            assert_eq!(says(&line, &bench.device()), access, "{line}");
        }
    }
}

#[test]
fn of_two_resources_both_must_be_for_the_host() {
    let bench = Bench::sim();
    for (first, second) in
        [("managed", "pinned"), ("managed", "cuda"), ("cuda", "managed"), ("cuda", "cuda-async")]
    {
        let line = format!("fallback({second}) | {first}");
        let both = says(first, &bench.device()) && says(second, &bench.device());
        assert_eq!(says(&line, &bench.device()), both, "{line}");
    }
}

#[test]
fn a_bin_of_other_memory_changes_the_answer() {
    let bench = Bench::sim();
    let device = bench.device();
    let pinned = || AnyResource::new(Pinned::new(&device).expect("there is memory"));
    let bins = Binning::<AnyResource, AnyResource>::with_given_bins(pinned())
        .bin_over(256, pinned())
        .build()
        .expect("the bins are of one device");
    assert!(bins.host_access());
    bins.add_bin_over(512, pinned()).expect("of one device");
    assert!(bins.host_access());
    bins.add_bin_over(1024, AnyResource::new(Cuda::new(&device))).expect("of one device");
    assert!(!bins.host_access());
    let over_device = Binning::<_, AnyResource>::with_given_bins(Cuda::new(&device)).bin_over(256, pinned());
    assert!(!over_device.build().expect("of one device").host_access());
}

#[test]
fn handles_answer_as_their_resource() {
    fn check<R: DeviceAccessible + Send + Sync + 'static>(resource: R, access: bool) {
        let resource = std::sync::Arc::new(resource);
        assert_eq!(Resource::host_access(&&*resource), access);
        assert_eq!(resource.host_access(), access);
        assert_eq!(Box::new(&resource).host_access(), access);
        assert_eq!(ResourceRef::new(&*resource).host_access(), access);
        assert_eq!(ResourceRef::erase(&*resource).host_access(), access);
        assert_eq!(AnyResource::from_arc(resource).host_access(), access);
    }
    let bench = Bench::sim();
    check(Pinned::new(&bench.device()).expect("there is memory"), true);
    check(Cuda::new(&bench.device()), false);
}

#[test]
fn layers_without_a_name_in_recipes_answer_as_what_they_stand_on() {
    let bench = Bench::sim();
    let device = &bench.device();
    let managed = || Managed::new(device).expect("the device has it");
    assert!(is_for_the_host(&managed().failure_callback(|_| Relief::None)));
    assert!(!Cuda::new(device).failure_callback(|_| Relief::None).host_access());
    assert!(is_for_the_host(&managed().thread_safe()));
    assert!(!Cuda::new(device).thread_safe().host_access());
    let pool = |managed: Managed| managed.pool(PoolConfig::default()).expect("there is memory");
    assert!(
        is_for_the_host(&pool(managed()))
            && is_for_the_host(&CudaAsyncManaged::new(device).expect("it has it"))
    );
    assert!(Shadow::new(managed()).host_access() && Faulty::nth(managed(), 9).host_access());
    assert!(Delayed::new(managed(), core::time::Duration::ZERO).host_access());
    assert!(!Shadow::new(Cuda::new(device)).host_access() && !Upstream::new(device).host_access());
    // Nothing is known of other code's memory, and there is no memory in these.
    assert!(!callback_over(device, managed()).host_access());
    assert!(!view_of_default_pool(device).host_access() && !Null::new(device).host_access());
}
