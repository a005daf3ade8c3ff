//! `Stack`: a kind of resource that can be measured, by its name.

use core::marker::PhantomData;

use alluvion::source::{Cuda, CudaAsync, CudaAsyncConfig, Mapped, Null};
use alluvion::suballoc::{Arena, ArenaConfig, Binning, FixedSize, FixedSizeConfig, PageBudget};
use alluvion::{Device, Error, Pool, PoolConfig, Resource};

use super::figure::Report;
use super::{Job, cross, multi_stream, pair, random, threads, turns};
use crate::counted::Counted;
use crate::failure::Failure;
use crate::null_pages::NullPages;
use crate::rig::Rig;

/// Where a stack gets its memory from.
pub(crate) trait Source: Resource + Sync + Sized {
    fn open(device: &Device) -> Result<Self, Error>;
}

impl Source for Cuda {
    fn open(device: &Device) -> Result<Self, Error> {
        Ok(Self::new(device))
    }
}

impl Source for Mapped {
    fn open(device: &Device) -> Result<Self, Error> {
        Self::new(device)
    }
}

impl Source for Null {
    fn open(device: &Device) -> Result<Self, Error> {
        Ok(Self::new(device))
    }
}

impl Source for NullPages {
    fn open(device: &Device) -> Result<Self, Error> {
        Ok(Self::new(device))
    }
}

/// A kind of resource over the source `U`: each is a type of its own, and measured as a user's would be who names it.
pub(crate) trait Stack<U> {
    type Resource<'u>: Resource + Sync
    where
        U: 'u;

    /// It serves no larger requests: workloads leave those out.
    const LARGEST_BYTES: usize = usize::MAX;

    /// One with `initial` bytes to begin with, where it can have that; 0 is as it comes.
    fn make(upstream: &Counted<U>, initial: usize) -> Result<Self::Resource<'_>, Error>;

    /// The most that it ever took from below.
    fn footprint(resource: &Self::Resource<'_>, upstream: &Counted<U>) -> Result<usize, Error> {
        let _ = resource;
        Ok(upstream.peak_bytes())
    }
}

/// The source itself.
struct Bare;

impl<U: Source> Stack<U> for Bare {
    type Resource<'u>
        = &'u Counted<U>
    where
        U: 'u;

    fn make(upstream: &Counted<U>, _: usize) -> Result<&Counted<U>, Error> {
        Ok(upstream)
    }
}

/// A pool of the driver's.
struct DriverPool;

impl Stack<Cuda> for DriverPool {
    type Resource<'u> = CudaAsync;

    fn make(upstream: &Counted<Cuda>, initial: usize) -> Result<CudaAsync, Error> {
        CudaAsync::with_config(upstream.device(), CudaAsyncConfig::default().initial_bytes(initial))
    }

    /// The driver takes its memory itself, and counts it.
    fn footprint(resource: &CudaAsync, _: &Counted<Cuda>) -> Result<usize, Error> {
        resource.reserved_high_bytes()
    }
}

struct OurPool;

impl<U: Source> Stack<U> for OurPool {
    type Resource<'u>
        = Pool<&'u Counted<U>>
    where
        U: 'u;

    fn make(upstream: &Counted<U>, initial: usize) -> Result<Pool<&Counted<U>>, Error> {
        Pool::new(upstream, PoolConfig::default().initial(initial))
    }
}

/// Ten hundredths above the live peak; beyond, free pages move.
struct OurPoolWithBudget;

impl<U: Source> Stack<U> for OurPoolWithBudget {
    type Resource<'u>
        = Pool<&'u Counted<U>>
    where
        U: 'u;

    fn make(upstream: &Counted<U>, initial: usize) -> Result<Pool<&Counted<U>>, Error> {
        let config = PoolConfig::default().initial(initial).budget(PageBudget::TimesPeak(1.10));
        Pool::new(upstream, config)
    }
}

struct OurArena;

impl<U: Source> Stack<U> for OurArena {
    type Resource<'u>
        = Arena<&'u Counted<U>>
    where
        U: 'u;

    /// Without an initial size it takes half of the device, as RMM's.
    fn make(upstream: &Counted<U>, initial: usize) -> Result<Arena<&Counted<U>>, Error> {
        let config = ArenaConfig::default();
        Arena::new(upstream, if initial == 0 { config } else { config.bytes(initial) })
    }
}

/// Bins of 256 KiB to 4 MiB over a pool, as the peers' programs make RMM's.
struct OurBinning;

impl<U: Source> Stack<U> for OurBinning {
    type Resource<'u>
        = Binning<Pool<&'u Counted<U>>>
    where
        U: 'u;

    fn make(upstream: &Counted<U>, initial: usize) -> Result<Binning<Pool<&Counted<U>>>, Error> {
        Binning::over(OurPool::make(upstream, initial)?).range(18..=22).build()
    }
}

/// Blocks of 1 MiB.
struct OurFixedSize;

impl<U: Source> Stack<U> for OurFixedSize {
    type Resource<'u>
        = FixedSize<&'u Counted<U>>
    where
        U: 'u;

    const LARGEST_BYTES: usize = 1 << 20;

    fn make(upstream: &Counted<U>, initial: usize) -> Result<FixedSize<&Counted<U>>, Error> {
        let bytes = <Self as Stack<U>>::LARGEST_BYTES;
        FixedSize::new(upstream, FixedSizeConfig::default().block(bytes).blocks((initial / bytes).max(128)))
    }
}

/// A stack with its name.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) measure: fn(&Job, &Rig, bool, &mut Report) -> Result<(), Failure>,
}

impl Entry {
    fn new<S: Stack<U>, U: Source>(name: &'static str) -> Self {
        Self { name, measure: measure::<S, U> }
    }
}

/// What can be measured over the memory of a device.
pub(crate) fn over_cuda() -> [Entry; 9] {
    [
        Entry::new::<OurPool, Cuda>("pool"),
        Entry::new::<OurPool, Mapped>("pool-mapped"),
        Entry::new::<OurPoolWithBudget, Mapped>("pool-mapped-budget"),
        Entry::new::<OurArena, Cuda>("arena"),
        Entry::new::<OurBinning, Cuda>("binning"),
        Entry::new::<OurFixedSize, Cuda>("fixed-size"),
        Entry::new::<Bare, Cuda>("cuda"),
        Entry::new::<Bare, Mapped>("mapped"),
        Entry::new::<DriverPool, Cuda>("cuda-async"),
    ]
}

/// What can be measured over no memory at all.
pub(crate) fn over_null() -> [Entry; 7] {
    [
        Entry::new::<OurPool, Null>("pool"),
        Entry::new::<OurPool, NullPages>("pool-mapped"),
        Entry::new::<OurPoolWithBudget, NullPages>("pool-mapped-budget"),
        Entry::new::<OurArena, Null>("arena"),
        Entry::new::<OurBinning, Null>("binning"),
        Entry::new::<OurFixedSize, Null>("fixed-size"),
        Entry::new::<Bare, Null>("null"),
    ]
}

fn measure<S: Stack<U>, U: Source>(
    job: &Job,
    rig: &Rig,
    quick: bool,
    report: &mut Report,
) -> Result<(), Failure> {
    let bench = Subject::<S, U> { rig, quick, _stack: PhantomData };
    match job {
        Job::Pair => pair::run(&bench, report),
        Job::Random(shape) => random::run(shape, &bench, report),
        Job::MultiStream(shape) => multi_stream::run(shape, &bench, report),
        Job::Threads => threads::run(&bench, report),
        Job::Cross => cross::run(&bench, report),
        Job::Turns => turns::run(&bench, report),
        Job::Replay(replayed) => replayed.run(&bench, report),
    }
}

/// The stack that is measured now. Every case of a workload gets a resource of its own.
pub(crate) struct Subject<'r, S, U> {
    pub(crate) rig: &'r Rig,
    pub(crate) quick: bool,
    _stack: PhantomData<(S, U)>,
}

impl<S: Stack<U>, U: Source> Subject<'_, S, U> {
    pub(crate) fn with_resource<T>(
        &self,
        initial: usize,
        body: impl FnOnce(&S::Resource<'_>, &Counted<U>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let upstream = Counted::new(U::open(&self.rig.device)?);
        let resource = S::make(&upstream, self.rig.initial_bytes(initial)?)?;
        body(&resource, &upstream)
    }

    /// `full`, or `quick` where only a small part of the work is asked for.
    pub(crate) fn either<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}
