//! Whoever refuses says so: every resource of the crate that is out of memory, and in one style.

use alluvion::adaptor::{Allowance, GuardConfig};
use alluvion::error::Cause;
use alluvion::source::{Cuda, CudaAsync, Managed, Pinned};
use alluvion::suballoc::{Arena, ArenaConfig, Binning, FixedSize, FixedSizeConfig};
use alluvion::testing::{Bench, Faulty};
use alluvion::{Error, Layout, PoolConfig, Resource, ResourceExt};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// The figures that no run changes: who, what, and why.
#[track_caller]
fn told(error: &Error) -> (&'static str, usize, Cause) {
    assert!(error.is_out_of_memory(), "{error}");
    let report = error.out_of_memory_report().expect("whoever of the crate refuses reports");
    assert!(error.to_string().starts_with(&format!("out of memory: {}", report.refused_by)), "{error}");
    assert_eq!(error.requested_bytes(), Some(report.requested_bytes));
    (report.refused_by, report.requested_bytes, report.cause)
}

#[test]
fn every_source_reports() {
    let bench = Bench::sim_with(Bench::config().memory_bytes(16 * MIB));
    let (device, stream) = (bench.device(), bench.stream());
    let sources: [(&str, &dyn Resource); 3] = [
        ("Cuda", &Cuda::new(&device)),
        ("CudaAsync", &CudaAsync::new(&device).unwrap()),
        ("Managed", &Managed::new(&device).unwrap()),
    ];
    for (name, source) in sources {
        {
            let (bytes, cause) = (1 << 50, Cause::TooLarge);
            let error = source.allocate(layout_of(bytes), stream.as_ref()).unwrap_err();
            assert_eq!(told(&error), (name, bytes, cause), "{error}");
            assert!(error.call().is_some() && error.to_string().contains("; the driver said: "), "{error}");
        }
    }
    let error = Pinned::new(&device).unwrap().allocate_sync(layout_of(1 << 50)).unwrap_err();
    assert_eq!(told(&error).0, "Pinned", "{error}");
    let cuda = Cuda::new(&device);
    let live = Held::of(&cuda, 12 * MIB, stream.as_ref());
    let error = Cuda::new(&device).allocate_sync(Layout::from_bytes(6 * MIB + 1).unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "out of memory: Cuda of gpu 0 refused 6.0 MiB (6291457 B): there is no more; 4 MiB free of 16 MiB; the driver said: \
         cuMemAlloc: out of memory (2)"
    );
    live.free(stream.as_ref());
    bench.check();
}

#[test]
fn every_limit_reports() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    let limiting = Cuda::new(&device).limiting(4 * MIB);
    let live = Held::of(&limiting, 3 * MIB, stream.as_ref());
    let error = limiting.allocate(layout_of(2 * MIB), stream.as_ref()).unwrap_err();
    let of_stream = stream.id();
    assert_eq!(
        error.to_string(),
        format!(
            "out of memory: Limiting refused 2 MiB on stream {of_stream}: more than the limit leaves; live 3 MiB, limit 4 MiB"
        )
    );
    assert_eq!(told(&error), ("Limiting", 2 * MIB, Cause::Limit));
    live.free(stream.as_ref());

    let jobs = Allowance::new("jobs", 4 * MIB);
    let budget = Cuda::new(&device).budget(jobs.child("join", 8 * MIB));
    let error = budget.allocate_sync(Layout::new(5 * MIB, 256).unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "out of memory: Budget `jobs` refused 5 MiB: more than can ever be had; live 0 B, limit 4 MiB"
    );
    assert_eq!((error.limit_name(), error.limit()), (Some("jobs"), Some(4 * MIB)));
    let error = jobs.reserve(4 * MIB + 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "out of memory: Allowance `jobs` refused 4.0 MiB (4194305 B): more than can ever be had; live 0 B, limit 4 MiB"
    );
    let mut reservation = budget.book().reserve(MIB).unwrap();
    let error = budget.allocate_within(&mut reservation, layout_of(2 * MIB), stream.as_ref()).unwrap_err();
    assert_eq!((told(&error).0, error.limit(), error.limit_name()), ("Reservation", Some(MIB), Some("join")));
    bench.check();
}

#[test]
fn every_suballocator_reports() {
    let bench = Bench::sim();
    let device = bench.device();
    let pool = Cuda::new(&device).pool(PoolConfig::default().maximum(4 * MIB)).unwrap();
    assert_eq!(
        told(&pool.allocate_sync(layout_of(5 * MIB)).unwrap_err()),
        ("Pool", 5 * MIB, Cause::TooLarge)
    );
    let arena = Arena::new(Cuda::new(&device), ArenaConfig::default().bytes(2 * MIB)).unwrap();
    assert_eq!(
        told(&arena.allocate_sync(layout_of(5 * MIB)).unwrap_err()),
        ("Arena", 5 * MIB, Cause::TooLarge)
    );
    let blocks =
        FixedSize::new(Cuda::new(&device), FixedSizeConfig::default().block(4096).blocks(4)).unwrap();
    let error = blocks.allocate_sync(layout_of(5000)).unwrap_err();
    assert_eq!((told(&error), error.limit()), (("FixedSize", 5000, Cause::TooLarge), Some(4096)));
    let limited = Cuda::new(&device).limiting(MIB);
    let bins = Binning::over(limited).blocks(4).bin(4096).build().unwrap();
    let error = bins.allocate_sync(layout_of(2 * MIB)).unwrap_err();
    assert_eq!(told(&error), ("Limiting", 2 * MIB, Cause::TooLarge), "what is no bin's is the upstream's");
}

#[test]
fn a_chain_of_layers_tells_each_ones_part() {
    let bench = Bench::sim_with(Bench::config().memory_bytes(16 * MIB));
    let stream = bench.stream();
    let cuda = Cuda::new(&bench.device());
    let others = Held::of(&cuda, 14 * MIB, stream.as_ref());
    let inner = Cuda::new(&bench.device()).pool(PoolConfig::default()).unwrap();
    let outer = inner.pool(PoolConfig::default()).unwrap();
    let error = outer.allocate(layout_of(4 * MIB), stream.as_ref()).unwrap_err();
    let report = error.out_of_memory_report().expect("a pool reports");
    assert!(report.chain().map(|report| report.refused_by).eq(["Pool", "Pool", "Cuda"]), "{error}");
    assert_eq!(error.call(), report.chain().last().and_then(|cuda| cuda.upstream_error.as_ref()?.call()));
    others.free(stream.as_ref());
    bench.check();
}

#[test]
fn layers_that_refuse_for_themselves_report() {
    let bench = Bench::sim();
    let device = bench.device();
    let most = layout_of(isize::MAX as usize - 255);
    let aligned = Cuda::new(&device).aligned(1 << 20).unwrap();
    assert_eq!(told(&aligned.allocate_sync(most).unwrap_err()), ("Aligned", most.bytes(), Cause::TooLarge));
    let guard = Cuda::new(&device).guard(GuardConfig::default()).unwrap();
    assert_eq!(told(&guard.allocate_sync(most).unwrap_err()), ("Guard", most.bytes(), Cause::TooLarge));
    let faulty = Faulty::nth(Cuda::new(&device), 1);
    assert_eq!(told(&faulty.allocate_sync(layout_of(8)).unwrap_err()).0, "Faulty");
}
