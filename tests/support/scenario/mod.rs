//! What hurt real users, as programs that run on either machine. The numbers are those of the collection they come from.

#![allow(dead_code, reason = "some scenarios are for one of the machines alone")]
#![expect(unsafe_code, reason = "allocates and frees by hand")]

pub(crate) mod absurd_layers;
mod capture;
pub(crate) mod endings_under_capture;
pub(crate) mod layers_under_threads;
pub(crate) mod limits;
pub(crate) mod pools;
pub(crate) mod pools_under_capture;
pub(crate) mod pools_under_threads;

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use alluvion::driver::CaptureMode;
use alluvion::sim::HazardKind;
use alluvion::source::{Cuda, CudaAsync, CudaAsyncManaged, Managed, Pinned};
use alluvion::testing::{Bench, stall};
use alluvion::{
    AnyResource, DeviceAccessible, DeviceVec, Error, ErrorKind, Layout, PinnedAlloc, Resource, Stream,
};
use capture::Recorder;

/// Longer than everything that a scenario does on a stream that is not held up.
const STALL: Duration = Duration::from_millis(50);

/// As `Bench::check`, for a scenario that breaks a capture on purpose: that much is reported.
fn check_but_for_captures(bench: &Bench) {
    bench.device().synchronize().unwrap();
    let Some(sim) = bench.simulated() else { return };
    let mut hazards = sim.hazards();
    hazards.retain(|hazard| hazard.kind() != HazardKind::IllegalDuringCapture);
    assert!(hazards.is_empty(), "{}", hazards[0]);
}

/// Free on a stream, destroy it, make another that gets the same handle, allocate there at once: the new stream was taken for
/// the old one, and the block for its own (rmm 649).
pub(crate) fn a_recycled_handle_is_another_stream(bench: &Bench) {
    let device = bench.device();
    let resource = CudaAsync::new(&device).unwrap();
    let mut recycled = 0;
    for round in 0..20_u32 {
        let old = device.stream().unwrap();
        let (old_id, old_raw) = (old.id(), old.as_ref().raw());
        if !bench.is_simulated() {
            stall(old.as_ref(), Duration::from_millis(2));
        }
        let vector = DeviceVec::filled_in(10_000, u32::MAX, old.as_ref(), &resource).unwrap();
        drop(vector);
        drop(old);
        let new = device.stream().unwrap();
        recycled += u32::from(new.as_ref().raw() == old_raw);
        assert_ne!(new.id(), old_id, "a stream has the number of another");
        let vector = DeviceVec::filled_in(10_000, round, new.as_ref(), &resource).unwrap();
        assert_eq!(vector.to_vec(new.as_ref()).unwrap(), vec![round; 10_000]);
        device.synchronize().unwrap();
        assert_eq!(vector.to_vec(new.as_ref()).unwrap(), vec![round; 10_000]);
    }
    assert!(recycled > 0 || !bench.is_simulated(), "the simulated machine recycles handles");
    bench.check();
}

/// Allocate on many streams, destroy them all, ask for everything at once on the default stream: the memory was stuck in the
/// lists of streams that were gone (cuml 2632).
pub(crate) fn memory_of_ended_streams_comes_back(bench: &Bench) {
    const STREAMS: usize = 8;
    let device = bench.device();
    let resource = CudaAsync::new(&device).unwrap();
    let each = bench.exhaustion_bytes();
    for _ in 0..3 {
        let streams: Vec<Stream> = (0..STREAMS).map(|_| device.stream().unwrap()).collect();
        let buffers: Vec<_> = streams
            .iter()
            .map(|stream| DeviceVec::<u8, _>::uninit_in(each, stream.as_ref(), &resource).unwrap())
            .collect();
        drop((buffers, streams));
        device.synchronize().unwrap();
        let default = device.default_stream();
        let whole = DeviceVec::<u8, _>::uninit_in(STREAMS * each, default.as_ref(), &resource)
            .expect("what the ended streams had is free again");
        drop(whole);
        default.synchronize().unwrap();
        resource.trim(0).unwrap();
    }
    bench.check();
}

/// Sizes at the end of the number line wrapped to small ones, and alignments were ignored (rmm 1156, 2002, 2402).
pub(crate) fn absurd_sizes_and_alignments_are_refused(bench: &Bench) {
    for bytes in [usize::MAX, usize::MAX - 3, isize::MAX as usize + 1, isize::MAX as usize] {
        assert_eq!(Layout::from_bytes(bytes).unwrap_err().kind(), ErrorKind::SizeOverflow, "{bytes}");
    }
    let device = bench.device();
    let stream = bench.stream();
    let resources = [
        AnyResource::new(Cuda::new(&device)),
        AnyResource::new(CudaAsync::new(&device).unwrap()),
        AnyResource::new(CudaAsyncManaged::new(&device).unwrap()),
        AnyResource::new(Managed::new(&device).unwrap()),
        AnyResource::new(Pinned::new(&device).unwrap()),
    ];
    for resource in resources {
        for align in [1, 32, 256, 512, 2 << 20, 1 << 40] {
            let layout = Layout::new(1000, align).unwrap();
            match resource.allocate(layout, stream.as_ref()) {
                Ok(block) => {
                    assert!(
                        align <= resource.max_align() && block.is_aligned_to(align.max(256)),
                        "{resource:?}"
                    );
                    // SAFETY: the block came from this resource with this layout, and nothing uses it.
                    unsafe { resource.deallocate(block, layout, stream.as_ref()) };
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::UnsupportedAlignment, "{resource:?}: {error}");
                    assert!(align > resource.max_align(), "{resource:?}: {error}");
                }
            }
        }
    }
    assert!(DeviceVec::<u64>::uninit(usize::MAX / 4, stream.as_ref()).unwrap_err().is_size_overflow());
    bench.check();
}

/// The first allocation of all, while another thread, or this one, captures in the strictest mode: the driver calls that made
/// the resource ready broke the capture (cccl 11360, cuda-python 2834).
pub(crate) fn the_first_allocation_may_be_beside_a_capture(bench: &Bench) {
    let device = bench.device();
    let (capturing, other) = (bench.stream(), bench.stream());
    let first_use = || -> Result<(), Error> {
        let vector = DeviceVec::filled(1000, 7_u32, other.as_ref())?;
        vector.try_clone(other.as_ref())?;
        let pinned = AnyResource::new(Pinned::new(&device)?);
        drop(DeviceVec::<u8>::uninit_in(100_000, other.as_ref(), pinned)?);
        drop(DeviceVec::<u8, _>::uninit_in(100_000, other.as_ref(), Managed::new(&device)?)?);
        drop(DeviceVec::<u8, _>::uninit_in(100_000, other.as_ref(), Cuda::new(&device))?);
        drop(vector);
        device.current_resource()?.trim(0)?;
        Ok(())
    };

    // On the thread that captures.
    let recorder = Recorder::of(bench);
    recorder.is_not_broken_here(&capturing, first_use);

    // On another thread, with a device that has served nothing yet.
    device.machine().reset_current_resources();
    recorder.is_not_broken_from_here(&capturing, first_use);
    bench.check();
}

/// A buffer is used by work that is recorded, the graph goes, the buffer goes: the buffer had kept an event of the capture
/// (cudarc 590).
pub(crate) fn a_buffer_outlives_the_graph_that_used_it(bench: &Bench) {
    let device = bench.device();
    let (home, capturing) = (bench.stream(), bench.stream());
    let recorder = Recorder::of(bench);
    let resource = CudaAsync::new(&device).unwrap();
    let mut vector = DeviceVec::filled_in(1000, 1_u32, home.as_ref(), &resource).unwrap();
    home.synchronize().unwrap();

    recorder.begin(&capturing, CaptureMode::Relaxed);
    // It may be refused, since what comes before lies outside of the capture; it must not leave anything behind.
    let recorded = vector.fill(2, capturing.as_ref());
    let ended = recorder.end(&capturing);
    if let Err(error) = &recorded {
        assert!(error.is_capture(), "{error}");
    }
    assert!(recorded.is_err() || ended.is_ok(), "what was recorded broke the capture");

    vector.fill(3, home.as_ref()).expect("the buffer can be used after the graph is gone");
    assert_eq!(vector.to_vec(home.as_ref()).unwrap(), [3; 1000]);
    drop(vector);
    home.synchronize().unwrap();
    assert_eq!(resource.used_bytes().unwrap(), 0, "the buffer did not go back");
    check_but_for_captures(bench);
}

/// A capture breaks half-way: what was allocated before and freed inside never came back (torch 190308).
pub(crate) fn a_broken_capture_leaks_nothing(bench: &Bench) {
    let device = bench.device();
    let (capturing, other) = (bench.stream(), bench.stream());
    let recorder = Recorder::of(bench);
    let resource = CudaAsync::new(&device).unwrap();
    for _ in 0..4 {
        let before = DeviceVec::<u32, _>::zeroed_in(100_000, capturing.as_ref(), &resource).unwrap();
        recorder.begin(&capturing, CaptureMode::Relaxed);
        drop(before);
        recorder.break_off(&capturing);
        other.wait_for_stream(&capturing).unwrap();
        device.synchronize().unwrap();
    }
    assert_eq!(resource.used_bytes().unwrap(), 0, "buffers that were dropped during a capture are lost");
    check_but_for_captures(bench);
}

/// A buffer is dropped on a thread that has another current device, or no context at all (rmm 1342, mistral.rs 1428).
pub(crate) fn a_buffer_may_be_dropped_on_any_thread(bench: &Bench) {
    let device = bench.device();
    let resource = AnyResource::new(CudaAsync::new(&device).unwrap());
    let stream = bench.stream();
    let make = || DeviceVec::filled_in(10_000, 5_u32, stream.as_ref(), resource.clone()).unwrap();
    let (first, second, third) = (make(), make(), make());
    thread::scope(|scope| {
        // A thread that has never called a driver.
        scope.spawn(move || drop(first));
        // A thread that has used another device just before.
        let elsewhere = bench.second_device();
        scope.spawn(move || {
            if let Some(elsewhere) = elsewhere {
                elsewhere.stream().unwrap().synchronize().unwrap();
            }
            drop(second);
        });
    });
    // A thread that has called the driver by itself, on its own default stream.
    thread::scope(|scope| {
        let device = &device;
        scope.spawn(move || {
            let mine = device.per_thread_stream().unwrap();
            assert_eq!(third.to_vec(mine.as_ref()).unwrap(), vec![5; 10_000]);
            drop(third);
        });
    });
    device.synchronize().unwrap();
    drop((stream, resource));
    bench.check();
}

/// A vector of pinned memory is dropped right after it was handed to a copy: the device read whatever came next. Small ones
/// pass by chance, because the driver stages up to 64 KiB (cudarc 340).
pub(crate) fn a_pinned_vector_may_go_at_once(bench: &Bench) {
    let device = bench.device();
    let stream = bench.stream();
    let alloc = PinnedAlloc::new(&device).unwrap();
    for elements in [1_000, 16_384, 16_385, 300_000] {
        let mut vector = DeviceVec::<u32>::uninit(elements, stream.as_ref()).unwrap();
        if !bench.is_simulated() {
            stall(stream.as_ref(), STALL);
        }
        let mut payload = allocator_api2::vec::Vec::with_capacity_in(elements, alloc.clone());
        payload.extend((0..elements as u32).map(|index| index ^ 0x5A5A_5A5A));
        let expected = payload.to_vec();
        drop(vector.upload(payload, stream.as_ref()).unwrap());
        // Whoever takes the memory next writes over it.
        let mut next = allocator_api2::vec::Vec::with_capacity_in(elements, alloc.clone());
        next.resize(elements, 0_u32);
        assert_eq!(vector.to_vec(stream.as_ref()).unwrap(), expected, "{elements} elements");

        // A transfer that is forgotten keeps its buffer: leaked, and never handed out again.
        let mut payload = allocator_api2::vec::Vec::with_capacity_in(elements, alloc.clone());
        payload.extend((0..elements as u32).map(|index| !index));
        let expected = payload.to_vec();
        std::mem::forget(vector.upload(payload, stream.as_ref()).unwrap());
        next.fill(7);
        assert_eq!(vector.to_vec(stream.as_ref()).unwrap(), expected, "{elements} elements, forgotten");
    }
    bench.check();
}

/// The device's memory is trimmed while a copy from it to another device is queued (torch 196257).
pub(crate) fn trimming_spares_queued_copies(bench: &Bench) {
    let device = bench.device();
    let to = bench.second_device().unwrap_or_else(|| device.clone());
    let (here, there) = (bench.stream(), to.stream().unwrap());
    let resource = CudaAsync::new(&device).unwrap();
    let far = CudaAsync::new(&to).unwrap();
    let layout = Layout::array::<u32>(200_000).unwrap();
    let target = DeviceVec::<u32, _>::zeroed_in(200_000, there.as_ref(), &far).unwrap();
    let source = DeviceVec::filled_in(200_000, 9_u32, here.as_ref(), &resource).unwrap();
    here.wait_for_stream(&there).unwrap();
    if !bench.is_simulated() {
        stall(here.as_ref(), STALL);
    }
    {
        let (read, written) = (source.read_on(&here).unwrap(), target.read_on(&here).unwrap());
        let (from, into) = (read.as_device_ptr().unguarded(), written.as_device_ptr().unguarded());
        // SAFETY: both blocks are live until the stream has been waited for below, and nothing else touches them.
        let copied = unsafe {
            device.driver().copy_async(
                device.ordinal(),
                into.address(),
                from.address(),
                layout.bytes(),
                here.as_ref().raw(),
            )
        };
        copied.unwrap();
    }
    drop(source);
    resource.trim(0).unwrap();
    far.trim(0).unwrap();
    let next = DeviceVec::filled_in(200_000, 1_u32, bench.stream().as_ref(), &resource).unwrap();
    here.synchronize().unwrap();
    there.wait_for_stream(&here).unwrap();
    assert_eq!(target.to_vec(there.as_ref()).unwrap(), vec![9; 200_000]);
    drop(next);
    bench.check();
}

/// Two threads, each on its default stream, whose handles are the same number: a block that one had freed was handed to the
/// other without a wait (cupy 5069).
pub(crate) fn default_streams_of_threads_are_apart(bench: &Bench) {
    let device = bench.device();
    let resource = CudaAsync::new(&device).unwrap();
    let turn = Barrier::new(2);
    let simulated = bench.is_simulated();
    thread::scope(|scope| {
        let (resource, device, turn) = (&resource, &device, &turn);
        for me in 0..2_u32 {
            scope.spawn(move || {
                let mine = device.per_thread_stream().unwrap();
                for round in 0..20 {
                    let word = (round << 8) | me;
                    if !simulated && me == round % 2 {
                        stall(mine.as_ref(), Duration::from_millis(2));
                    }
                    let vector = DeviceVec::filled_in(5_000, word, mine.as_ref(), resource).unwrap();
                    if me == round % 2 {
                        drop(vector);
                        turn.wait();
                    } else {
                        drop(vector);
                        turn.wait();
                        let vector = DeviceVec::filled_in(5_000, word, mine.as_ref(), resource).unwrap();
                        assert_eq!(vector.to_vec(mine.as_ref()).unwrap(), vec![word; 5_000]);
                    }
                    turn.wait();
                }
            });
        }
    });
    bench.check();
}

/// After the context is lost: every drop is silent, every allocation fails at once with the error that lost it.
pub(crate) fn use_a_lost_context<R: DeviceAccessible + Clone>(
    resource: R,
    vector: DeviceVec<u32, R>,
    stream: &Stream,
) {
    for _ in 0..3 {
        let error = DeviceVec::<u32, R>::uninit_in(10, stream.as_ref(), resource.clone()).unwrap_err();
        assert!(error.is_context_lost(), "{error}");
        assert_eq!(error.code(), Some(alluvion::driver::Code::ILLEGAL_ADDRESS), "{error}");
        let error = vector.to_vec(stream.as_ref()).unwrap_err();
        assert!(error.is_context_lost(), "{error}");
    }
    drop(vector);
    drop(resource);
}
