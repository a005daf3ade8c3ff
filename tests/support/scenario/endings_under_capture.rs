//! What ends while somebody records a graph.

use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use alluvion::adaptor::{Allowance, GuardConfig, LogConfig};
use alluvion::relief::Relief;
use alluvion::source::{Cuda, CudaAsync, CudaAsyncManaged, Managed, Pinned, System};
use alluvion::suballoc::{ArenaConfig, FixedSizeConfig, Growth};
use alluvion::testing::{Bench, stall};
use alluvion::{
    AnyResource, Device, DeviceAccessible, DeviceVec, Machine, PinnedAlloc, PoolConfig, ResourceExt, Stream,
    StreamPool,
};

use super::capture::Recorder;
use crate::raw_block::Held;

const MIB: usize = 1 << 20;

/// Something that has been in use and is about to end.
type Ending = (&'static str, Box<dyn FnOnce()>);

/// Many pools are made at once, and some of their memory is never given back.
fn small_steps() -> PoolConfig {
    PoolConfig::default().growth(Growth::Step(2 * MIB))
}

/// Two streams, with work on the way on hardware.
struct Site {
    device: Device,
    one: Stream,
    two: Stream,
    is_simulated: bool,
}

impl Site {
    fn of(bench: &Bench) -> Self {
        let (device, one, two) = (bench.device(), bench.stream(), bench.stream());
        Self { device, one, two, is_simulated: bench.is_simulated() }
    }

    fn keep_busy(&self) {
        if !self.is_simulated {
            stall(self.one.as_ref(), Duration::from_millis(2));
        }
    }

    /// Uses a resource on two streams. One of the blocks is never given back.
    fn used<R: DeviceAccessible + 'static>(&self, name: &'static str, resource: R) -> Ending {
        self.keep_busy();
        for stream in [&self.one, &self.two] {
            let block = Held::of(&resource, 10_000, stream.as_ref());
            block.fill(1, stream.as_ref());
            block.free(stream.as_ref());
        }
        let out = Held::of(&resource, 100_000, self.one.as_ref());
        out.fill(2, self.one.as_ref());
        let _ = out.into_parts();
        (name, Box::new(move || drop(resource)))
    }

    fn pool(&self) -> impl DeviceAccessible + Send + Sync + use<> {
        Cuda::new(&self.device).pool(small_steps()).expect("it starts with nothing")
    }

    /// Of every source.
    fn sources(&self) -> Vec<Ending> {
        let device = &self.device;
        let mut endings = vec![
            self.used("Cuda", Cuda::new(device)),
            self.used("CudaAsync", CudaAsync::new(device).expect("the device has pools")),
            self.used("Managed", Managed::new(device).expect("there is managed memory")),
            self.used("Pinned", Pinned::new(device).expect("there is pinned memory")),
        ];
        if let Ok(managed) = CudaAsyncManaged::new(device) {
            endings.push(self.used("CudaAsyncManaged", managed));
        }
        if let Ok(system) = System::new(device) {
            endings.push(self.used("System", system));
        }
        endings
    }

    /// Of every suballocator, over memory of several kinds.
    fn suballocators(&self) -> Vec<Ending> {
        let device = &self.device;
        let cuda = || Cuda::new(device);
        let config = small_steps;
        let tiles = FixedSizeConfig::default().block(128 << 10).blocks(16);
        let arena = ArenaConfig::default().bytes(16 * MIB);
        let binned = cuda().binning().blocks(16).build().expect("there is room");
        vec![
            self.used("Pool<Cuda>", cuda().pool(config()).expect("it starts with nothing")),
            self.used(
                "Pool<CudaAsync>",
                CudaAsync::new(device).and_then(|pool| pool.pool(config())).expect("it starts with nothing"),
            ),
            self.used(
                "Pool<Managed>",
                Managed::new(device).and_then(|managed| managed.pool(config())).expect("as above"),
            ),
            self.used(
                "Pool<Pinned>",
                Pinned::new(device)
                    .and_then(|pinned| pinned.pool(config().initial(MIB).maximum(8 * MIB)))
                    .expect("there is as much"),
            ),
            self.used("Arena", cuda().arena(arena).expect("there is as much")),
            self.used("FixedSize", cuda().fixed_size(tiles).expect("there is as much")),
            self.used("Binning", binned),
        ]
    }

    /// Of every layer.
    fn layers(&self) -> Vec<Ending> {
        let pool = || self.pool();
        let log = LogConfig::default().write_to(std::io::sink()).expect("there is a thread for it");
        let guard = GuardConfig::default;
        vec![
            self.used("Aligned", pool().aligned(4096).expect("a power of two")),
            self.used("Budget", pool().budget(Allowance::new("all", 1 << 40))),
            self.used("FailureCallback", pool().failure_callback(|_| Relief::None)),
            self.used("Fallback", pool().fallback(Cuda::new(&self.device)).expect("of one device")),
            self.used("Guard", pool().guard(guard()).expect("there is pinned memory")),
            self.used(
                "Guard<CudaAsync>",
                CudaAsync::new(&self.device).and_then(|pool| pool.guard(guard())).expect("as above"),
            ),
            self.used("Limiting", pool().limiting(1 << 40)),
            self.used("Logging", pool().logging(log)),
            self.used("Prefetch", pool().prefetch()),
            self.used("Stats", pool().stats()),
            self.used("ThreadSafe", pool().thread_safe()),
            self.used("Tracking", pool().tracking().on_leak(|left| assert_eq!(left.blocks.len(), 1))),
        ]
    }

    /// Of what holds blocks, with uses on two streams.
    fn containers(&self, capturing: &Stream) -> Vec<Ending> {
        let pool = Arc::new(self.pool());
        let cuda = Cuda::new(&self.device);
        let used_on_two = |home: &Stream, resource: AnyResource| {
            let mut vector = DeviceVec::filled_in(1000, 1_u32, home.as_ref(), resource).expect("room");
            vector.fill(2, self.one.as_ref()).expect("it can be queued");
            mem::forget(vector.write_on(self.two.as_ref()).expect("it is ordered"));
            vector
        };
        self.keep_busy();
        let plain = used_on_two(&self.one, AnyResource::new(pool.clone()));
        let of_the_recorder = used_on_two(capturing, AnyResource::new(cuda));
        let mut moved = DeviceVec::<u32, _>::zeroed_in(300_000, self.one.as_ref(), pool).expect("room");
        let upload = moved.upload(vec![1; 300_000], self.one.as_ref()).expect("it can be queued");
        let download = moved.download(vec![1; 300_000], self.one.as_ref()).expect("it can be queued");
        let alloc = PinnedAlloc::new(&self.device).expect("there is pinned memory");
        let mut pinned = allocator_api2::vec::Vec::with_capacity_in(300_000, alloc);
        pinned.resize(300_000, 0_u32);
        let pinned = moved.upload(pinned, self.one.as_ref()).expect("it can be queued");
        vec![
            ("a vector", Box::new(move || drop(plain))),
            ("a vector whose home captures", Box::new(move || drop(of_the_recorder))),
            ("an upload", Box::new(move || drop(upload))),
            ("a download", Box::new(move || assert_eq!(download.wait().expect("it runs").len(), 300_000))),
            ("an upload of pinned memory", Box::new(move || drop(pinned))),
            ("a vector that was moved", Box::new(move || drop(moved))),
        ]
    }

    /// Of streams, threads, and a whole machine.
    fn streams(&self) -> Vec<Ending> {
        let device = self.device.clone();
        let stream = device.stream().expect("there are streams");
        let event = stream.record().expect("nothing is wrong");
        let pool = StreamPool::new(&device, 3).expect("there are streams");
        let blocks = Arc::new(self.pool());
        drop(DeviceVec::<u8, _>::zeroed_in(1000, pool.next(), blocks.clone()).expect("there is room"));
        // Another machine over the driver, with a stream of its own for calls that name none.
        let machine = Machine::new(Arc::clone(device.driver())).expect("there are devices");
        let elsewhere = machine.device(0).expect("there is one");
        let small = Pinned::new(&elsewhere).expect("there is pinned memory");
        Held::allocate_sync(&small, crate::raw_block::layout_of(1000)).expect("there is room").free_sync();
        let far = CudaAsync::new(&elsewhere).expect("the device has pools");
        Held::allocate_sync(&far, crate::raw_block::layout_of(1000)).expect("there is room").free_sync();
        drop(small);
        vec![
            ("a stream", Box::new(move || drop(stream))),
            ("an event", Box::new(move || drop(event))),
            ("a stream pool", Box::new(move || drop(pool))),
            ("a thread's default stream", {
                Box::new(move || {
                    let ending = move || {
                        let mine = device.per_thread_stream().expect("it has one");
                        let made = DeviceVec::filled_in(1000, 1_u32, mine.as_ref(), blocks);
                        drop(made.expect("there is room"));
                    };
                    thread::spawn(ending).join().expect("it does not panic");
                })
            }),
            ("a pool of the driver, of another machine", Box::new(move || drop(far))),
            ("another machine", Box::new(move || drop((machine, elsewhere)))),
        ]
    }
}

/// Everything that this crate makes ends while a stream captures in the strictest mode, on this thread or on another, with
/// blocks that are out and with work on the way. The capture is whole afterwards, and its graph runs (a pool that was dropped with a
/// block out waited for the device, and broke it).
pub(crate) fn nothing_that_ends_breaks_a_capture(bench: &Bench) {
    let recorder = Recorder::of(bench);
    // One that the machine knows, and one of which it knows nothing, as one that another library has made.
    let stranger = Machine::new(Arc::clone(bench.device().driver())).expect("there are devices");
    let unknown = stranger.device(0).and_then(|device| device.stream()).expect("there are streams");
    let known = bench.stream();
    for capturing in [&known, &unknown] {
        for is_elsewhere in [false, true] {
            let site = Site::of(bench);
            let mut endings = site.sources();
            endings.extend(site.suballocators());
            endings.extend(site.layers());
            if capturing.device() == &bench.device() {
                endings.extend(site.containers(capturing));
            }
            endings.extend(site.streams());
            for (name, ending) in endings {
                recorder.a_graph_comes_of_it(capturing, is_elsewhere, name, ending);
            }
        }
    }
    bench.check();
}

/// A pool that is dropped with a block out, beside a capture of which this machine knows nothing, waits for every stream that it
/// does know, and gives all of its memory back.
pub(crate) fn a_pool_with_a_block_out_gives_everything_back(bench: &Bench) {
    let recorder = Recorder::of(bench);
    let stranger = Machine::new(Arc::clone(bench.device().driver())).expect("there are devices");
    let unknown = stranger.device(0).and_then(|device| device.stream()).expect("there are streams");
    let site = Site::of(bench);
    // What the first use of everything costs is not counted.
    site.used("Pool<Cuda>", site.pool()).1();
    bench.check();
    let before = bench.footprint();
    let (name, ending) = site.used("Pool<Cuda>", site.pool());
    recorder.a_graph_comes_of_it(&unknown, true, name, ending);
    assert!(bench.footprint().has_lost_nothing_since(&before), "{before:?}, then {:?}", bench.footprint());
    bench.check();
}
