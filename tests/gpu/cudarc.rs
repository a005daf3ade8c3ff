//! Memory of this crate in kernels that cudarc launches, on cudarc's streams.

#![allow(clippy::disallowed_types, reason = "no model is run here")]
#![expect(unsafe_code, reason = "launches kernels")]

use std::ffi::{CString, c_void};
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use alluvion::ResourceExt;
use alluvion::driver::FillValue;
use alluvion::interop::cudarc::CudarcViewMut;
use alluvion::relief::Relief;
use alluvion::resource::{Layout, Resource};
use alluvion::source::{Cuda, CudaAsync, Pinned};
use alluvion::stream::StreamKind;
use alluvion::testing::stall;
use alluvion::{Device, DeviceAccessible, DevicePtr, DeviceVec, ErrorKind, PoolConfig, Stream};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaStream, DevicePtr as _, LaunchConfig, PushKernelArg, result, sys,
};
use cudarc::nvrtc::Ptx;

use crate::own_context::own_context;

/// Adds one to each of `count` numbers. For Turing, the oldest that current drivers translate for.
const ADD_ONE: &str = r"
.version 6.3
.target sm_75
.address_size 64
.visible .entry add_one(.param .u64 numbers, .param .u32 count)
{
    .reg .pred %beyond;
    .reg .b32 %block, %width, %thread, %index, %count, %number;
    .reg .b64 %base, %offset, %address;
    ld.param.u64 %base, [numbers];
    ld.param.u32 %count, [count];
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %index, %block, %width, %thread;
    setp.ge.u32 %beyond, %index, %count;
    @%beyond bra done;
    cvta.to.global.u64 %address, %base;
    mul.wide.u32 %offset, %index, 4;
    add.u64 %address, %address, %offset;
    ld.global.u32 %number, [%address];
    add.u32 %number, %number, 1;
    st.global.u32 [%address], %number;
done:
    ret;
}
";

const COUNT: usize = 100_000;
const BYTES: usize = 4 * COUNT;

fn context() -> Arc<CudaContext> {
    CudaContext::new(0).expect("these tests need a GPU")
}

/// The kernel. It stays loaded: the process is short.
fn add_one(context: &CudaContext) -> sys::CUfunction {
    context.bind_to_thread().expect("the context lives");
    let image = CString::new(ADD_ONE).expect("it has no zero byte");
    // SAFETY: the image is PTX and ends in a zero byte.
    let module = unsafe { result::module::load_data(image.as_ptr().cast()) }.expect("it can be translated");
    let name = CString::new("add_one").expect("it has no zero byte");
    // SAFETY: the module is loaded.
    unsafe { result::module::get_function(module, name) }.expect("it is in the module")
}

fn launch(function: sys::CUfunction, stream: &CudaStream, numbers: DevicePtr) {
    let (mut address, mut count) = (numbers.address(), COUNT as u32);
    let mut arguments: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut count).cast()];
    let blocks = COUNT.div_ceil(256) as u32;
    // SAFETY: the arguments are those of the kernel; the tests keep the memory until the stream has been synchronised.
    unsafe {
        result::launch_kernel(function, (blocks, 1, 1), (256, 1, 1), 0, stream.cu_stream(), &mut arguments)
    }
    .expect("it can be launched");
}

/// Memory of `resource` that a kernel has counted up from 41, on one stream, read back.
fn counted(resource: &CudaAsync, ours: &Stream, theirs: &CudaStream) -> Vec<u32> {
    let function = add_one(theirs.context());
    let (stream, driver, ordinal) = (ours.as_ref(), ours.device().driver(), ours.device().ordinal());
    let layout = Layout::array::<u32>(COUNT).expect("it fits");
    let block = resource.allocate(layout, stream).expect("there is memory");
    // SAFETY: the block is live, and the stream's.
    unsafe { driver.fill_async(ordinal, block.address(), FillValue::U32(41), COUNT, stream.raw()) }
        .expect("it can be queued");
    launch(function, theirs, block);
    let mut numbers = vec![0_u32; COUNT];
    let to = numbers.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: both are live until the stream has been synchronised, below.
    unsafe { driver.copy_async(ordinal, to, block.address(), BYTES, stream.raw()) }
        .expect("it can be queued");
    // SAFETY: the block came from the resource, and its work is on this stream.
    unsafe { resource.deallocate(block, layout, stream) };
    stream.synchronize().expect("the work is sound");
    numbers
}

#[test]
fn a_kernel_of_cudarc_works_on_memory_of_ours() {
    let theirs = context().new_stream().expect("a stream can be made");
    let ours = Stream::from_cudarc(&theirs).expect("it can be wrapped");
    assert_eq!((ours.kind(), ours.device().ordinal()), (StreamKind::Foreign, 0));
    assert_eq!(ours.as_ref().raw().0, theirs.cu_stream() as u64);
    let resource = CudaAsync::new(ours.device()).expect("the device has pools");
    assert!(counted(&resource, &ours, &theirs).iter().all(|number| *number == 42));
}

#[test]
fn the_default_stream_of_cudarc_is_the_devices() {
    let theirs = context().default_stream();
    let ours = Stream::from_cudarc(&theirs).expect("it can be wrapped");
    assert_eq!(ours.kind(), StreamKind::Legacy);
    assert_eq!(ours, Device::cuda(0).expect("it is there").default_stream());
    let resource = CudaAsync::new(ours.device()).expect("the device has pools");
    assert!(counted(&resource, &ours, &theirs).iter().all(|number| *number == 42));
}

#[test]
fn a_wrapped_stream_keeps_what_it_wraps() {
    let theirs = context().new_stream().expect("a stream can be made");
    let watched = Arc::downgrade(&theirs);
    let ours = Stream::from_cudarc(&theirs).expect("it can be wrapped");
    drop(theirs);
    assert!(watched.upgrade().is_some());
    ours.synchronize().expect("it is still there");
    drop(ours);
    assert!(watched.upgrade().is_none(), "nobody else keeps it");
}

#[test]
fn streams_that_have_no_place_are_refused() {
    let error = Stream::from_cudarc(&context().per_thread_stream()).expect_err("it is no single stream");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let (device, own) = own_context();
    // SAFETY: the context is of that device, and nobody else destroys it.
    let own = unsafe { CudaContext::from_raw_context(0, device, own) }.expect("it can be wrapped");
    let error = Stream::from_cudarc(&own.default_stream()).expect_err("it is not of the primary context");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        Device::from_cudarc(&own).map(drop).map_err(|error| error.kind()),
        Err(ErrorKind::Unsupported)
    );
}

/// Long against a launch (5 µs), so that what does not wait for it is early.
const A_WHILE: Duration = Duration::from_millis(30);

/// A stream of cudarc's, and the same as this crate has it.
fn two_names(context: &Arc<CudaContext>) -> (Arc<CudaStream>, Stream) {
    loaded(context);
    let theirs = context.new_stream().expect("a stream can be made");
    let ours = Stream::from_cudarc(&theirs).expect("it can be wrapped");
    (theirs, ours)
}

/// The kernel, as cudarc has it. Loaded and launched once before a test needs it, because either may wait for the
/// device.
fn loaded(context: &Arc<CudaContext>) -> &'static CudaFunction {
    static LOADED: OnceLock<CudaFunction> = OnceLock::new();
    LOADED.get_or_init(|| {
        let module = context.load_module(Ptx::from_src(ADD_ONE)).expect("it can be translated");
        let function = module.load_function("add_one").expect("it is in the module");
        let stream = context.default_stream();
        let mut launch = stream.launch_builder(&function);
        launch.arg(&0_u64).arg(&0_u32);
        // SAFETY: the arguments are those of the kernel, which touches none of no numbers.
        unsafe { launch.launch(LaunchConfig::for_num_elems(1)) }.expect("it can be launched");
        stream.synchronize().expect("the work is sound");
        function
    })
}

/// Launches `add_one` the way that users of cudarc do.
fn add_one_to(view: &mut CudarcViewMut<'_, u32>, stream: &CudaStream) {
    let function = loaded(stream.context());
    let count = COUNT as u32;
    let mut launch = stream.launch_builder(function);
    launch.arg(view).arg(&count);
    // SAFETY: the arguments are those of the kernel; the view has as many elements, and is for this stream.
    unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }.expect("it can be launched");
}

/// As `DeviceVec::write_on` and `for_cudarc`, then `add_one`.
fn count_up<R: DeviceAccessible>(vector: &mut DeviceVec<u32, R>, theirs: &Arc<CudaStream>, ours: &Stream) {
    let guard = vector.write_on(ours.as_ref()).expect("it is ordered");
    let mut view = guard.for_cudarc(theirs).expect("the streams are one");
    add_one_to(&mut view, theirs);
}

#[test]
fn a_kernel_follows_the_home_stream_and_the_home_follows_it() {
    let (theirs, ours) = two_names(&context());
    let home = ours.device().stream().expect("a stream can be made");
    let mut vector = DeviceVec::<u32>::zeroed(COUNT, home.as_ref()).expect("there is memory");
    stall(home.as_ref(), A_WHILE);
    vector.fill(41, home.as_ref()).expect("it can be queued");
    count_up(&mut vector, &theirs, &ours);
    assert_eq!(vector.to_vec(home.as_ref()).expect("the work is sound"), [42; COUNT]);
}

#[test]
fn kernels_on_two_streams_take_turns() {
    let context = context();
    let ((first, ours), (second, ours_too)) = (two_names(&context), two_names(&context));
    let home = ours.device().stream().expect("a stream can be made");
    let mut vector = DeviceVec::filled(COUNT, 40_u32, home.as_ref()).expect("there is memory");
    stall(ours.as_ref(), A_WHILE);
    count_up(&mut vector, &first, &ours);
    count_up(&mut vector, &second, &ours_too);
    assert_eq!(vector.to_vec(home.as_ref()).expect("the work is sound"), [42; COUNT]);
}

#[test]
fn a_vector_is_dropped_right_after_the_launch() {
    let (theirs, ours) = two_names(&context());
    let home = ours.device().stream().expect("a stream can be made");
    let pool = CudaAsync::new(ours.device()).expect("the device has pools");
    let mut vector = DeviceVec::filled_in(COUNT, 0_u32, home.as_ref(), &pool).expect("there is memory");
    let address = vector.as_device_ptr();
    stall(ours.as_ref(), A_WHILE);
    count_up(&mut vector, &theirs, &ours);
    drop(vector);
    // The next one has the block, behind the kernel.
    let next = DeviceVec::filled_in(COUNT, 7_u32, home.as_ref(), &pool).expect("there is memory");
    assert_eq!(next.as_device_ptr(), address, "the pool has nothing else that is free");
    theirs.synchronize().expect("the work is sound");
    assert_eq!(next.to_vec(home.as_ref()).expect("the work is sound"), [7; COUNT]);
}

#[test]
fn cudarc_copies_into_a_vector_and_out_of_it() {
    let (theirs, ours) = two_names(&context());
    let home = ours.device().stream().expect("a stream can be made");
    let mut vector = DeviceVec::<u32>::zeroed(3, home.as_ref()).expect("there is memory");
    let guard = vector.write_on(ours.as_ref()).expect("it is ordered");
    let mut view = guard.for_cudarc(&theirs).expect("the streams are one");
    theirs.memcpy_htod(&[1, 2, 3], &mut view).expect("it can be queued");
    assert_eq!(theirs.clone_dtoh(&view).expect("the work is sound"), [1, 2, 3]);
    let slice = theirs.clone_htod(&[4_u32, 5, 6]).expect("there is memory");
    theirs.memcpy_dtod(&slice, &mut view).expect("it can be queued");
    drop(view);
    assert_eq!(vector.to_vec(home.as_ref()).expect("the work is sound"), [4, 5, 6]);

    let guard = vector.read_on(ours.as_ref()).expect("it is ordered");
    let copied = theirs.clone_dtod(&guard.for_cudarc(&theirs).expect("the streams are one"));
    drop(vector);
    let copied = copied.expect("it can be queued");
    assert_eq!(theirs.clone_dtoh(&copied).expect("the work is sound"), [4, 5, 6]);
}

#[test]
fn another_stream_than_the_views_is_refused_and_nothing_is_harmed() {
    let context = context();
    let ((theirs, ours), (other, _)) = (two_names(&context), two_names(&context));
    let mut vector = DeviceVec::filled(3, 5_u32, ours.as_ref()).expect("there is memory");
    let guard = vector.write_on(ours.as_ref()).expect("it is the home");
    let mut view = guard.for_cudarc(&theirs).expect("the streams are one");
    let invalid = Err(sys::CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(other.memcpy_htod(&[1, 2, 3], &mut view).map_err(|error| error.0), invalid);
    assert_eq!(other.memset_zeros(&mut view).map_err(|error| error.0), invalid);
    assert_eq!(other.memcpy_dtoh(&view, &mut [0; 3]).map_err(|error| error.0), invalid);
    let slice = other.clone_htod(&[1_u32, 2, 3]).expect("there is memory");
    assert_eq!(other.memcpy_dtod(&slice, &mut view).map_err(|error| error.0), invalid);
    // Nor is it in a graph, which could be launched when the memory is gone.
    let thread_local = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    theirs.begin_capture(thread_local).expect("it can be begun");
    assert_eq!(view.device_ptr(&theirs).0, 0);
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    drop(theirs.end_capture(flags).expect("nothing broke it"));
    drop(view);
    assert_eq!(vector.to_vec(ours.as_ref()).expect("the context lives"), [5; 3]);
}

#[test]
fn a_leaked_guard_of_cudarc_and_a_leaked_view_are_waited_for() {
    let (theirs, ours) = two_names(&context());
    let home = ours.device().stream().expect("a stream can be made");
    let mut vector = DeviceVec::<u32>::zeroed(COUNT, home.as_ref()).expect("there is memory");
    for leaks_the_view in [false, true] {
        let guard = vector.write_on(ours.as_ref()).expect("it is ordered");
        let view = guard.for_cudarc(&theirs).expect("the streams are one");
        stall(ours.as_ref(), A_WHILE);
        let (address, recorded) = view.device_ptr(&theirs);
        mem::forget(recorded);
        let byte = if leaks_the_view { 2 } else { 1 };
        // SAFETY: the address is for writes on this stream, of as many bytes.
        unsafe { result::memset_d8_async(address, byte, BYTES, theirs.cu_stream()) }
            .expect("it can be queued");
        if leaks_the_view {
            mem::forget(view);
        } else {
            drop(view);
        }
        let numbers = vector.to_vec(home.as_ref()).expect("the work is sound");
        assert_eq!(numbers, [u32::from_ne_bytes([byte; 4]); COUNT]);
    }
}

#[test]
fn memory_of_cudarc_goes_round() {
    let (theirs, ours) = two_names(&context());
    let slice = theirs.clone_htod(&vec![40_u32; COUNT]).expect("there is memory");
    let address = slice.device_ptr(&theirs).0;
    let mut vector = DeviceVec::from_cudarc(slice).expect("it can be taken over");
    assert_eq!((vector.len(), vector.as_device_ptr().address()), (COUNT, address));
    // On the stream that it came from, under another number, and on one more.
    count_up(&mut vector, &theirs, &ours);
    let other = ours.device().stream().expect("a stream can be made");
    stall(other.as_ref(), A_WHILE);
    vector.set(0, 6, other.as_ref()).expect("it can be queued");
    let slice = vector.into_cudarc().expect("the driver waits");
    assert_eq!(slice.device_ptr(&theirs).0, address);
    let numbers = theirs.clone_dtoh(&slice).expect("the work is sound");
    assert_eq!((numbers[0], &numbers[1..]), (6, [41; COUNT - 1].as_slice()));
}

#[test]
fn memory_of_cudarc_is_freed_by_cudarc_behind_its_uses() {
    let (theirs, ours) = two_names(&context());
    let (other, ours_too) = two_names(theirs.context());
    let mut vector = DeviceVec::from_cudarc(theirs.clone_htod(&vec![0_u32; COUNT]).expect("there is memory"))
        .expect("it can be taken over");
    stall(ours_too.as_ref(), A_WHILE);
    count_up(&mut vector, &other, &ours_too);
    drop(vector);
    // What cudarc allocates next on the stream may have the block, behind the kernel.
    let next = theirs.clone_htod(&vec![7_u32; COUNT]).expect("there is memory");
    other.synchronize().expect("the work is sound");
    assert_eq!(theirs.clone_dtoh(&next).expect("the work is sound"), [7; COUNT]);
    ours.synchronize().expect("the work is sound");
}

const RELAXED: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const GLOBAL: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const AUTO_FREE: sys::CUgraphInstantiate_flags =
    sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

/// A handler of "out of memory" begins a capture in the middle of an allocation: no container is made of the graph's memory, and
/// the graph is as good as without it.
#[test]
fn no_container_is_made_of_a_graphs_memory() {
    const MIB: usize = 1 << 20;
    let (theirs, ours) = two_names(&context());
    let device = ours.device();
    let own = device.stream().expect("a stream can be made");
    let base = Arc::new(CudaAsync::new(device).expect("the device has pools").limiting(MIB));
    let held = DeviceVec::<u8, _>::zeroed_in(MIB, own.as_ref(), base.clone()).expect("there is memory");
    let (held, captured) = (Mutex::new(Some(held)), theirs.clone());
    let resource = Arc::new(base.clone().failure_callback(move |_| {
        drop(held.lock().expect("nobody panics").take());
        captured.begin_capture(RELAXED).expect("it can be begun");
        Relief::Freed
    }));
    let refused = DeviceVec::<u8, _>::uninit_in(MIB, ours.as_ref(), resource).map(drop);
    assert_eq!(refused.expect_err("it captures").kind(), ErrorKind::Capture);
    let graph = theirs.end_capture(AUTO_FREE).expect("nothing broke it").expect("it allocates and frees");
    for _ in 0..3 {
        graph.launch().expect("it can be launched");
    }
    theirs.synchronize().expect("the work is sound");
    drop(graph);
    let made = DeviceVec::<u8, _>::filled_in(MIB, 3, ours.as_ref(), base).expect("there is memory");
    assert_eq!(made.to_vec(ours.as_ref()).expect("the work is sound"), vec![3; MIB]);
}

/// Another thread captures the stream again and again between the copies of this one, some of which come while it captures, and
/// launches each graph later: no graph writes to memory that a copy was to fill, and what succeeded has run.
///
/// The calls take turns: CUDA does not synchronise the graph of a capture, so that two threads must not use its stream at once.
/// Captures in the middle of a call are in `tests/streams/captures_by_others.rs`, on the simulated machine.
#[test]
fn a_copy_with_the_host_is_in_no_graph() {
    const COPIES: usize = 300;
    let (theirs, ours) = two_names(&context());
    let mut vector = DeviceVec::filled(COUNT, 1_u32, ours.as_ref()).expect("there is memory");
    // The stream's own companion is there, so that the race is about the copies.
    assert_eq!(vector.get(0, ours.as_ref()).expect("nobody captures"), 1);
    let captures = AtomicUsize::new(0);
    // A thread that panics drops its ends, so that the other one does not wait for it.
    let (checked, is_checked) = mpsc::channel();
    let (launched, is_launched) = mpsc::channel();
    let turn = Mutex::new(());
    let (captures, turn) = (&captures, &turn);
    let alone = move || turn.lock().expect("nobody panics within a call");
    thread::scope(move |scope| {
        scope.spawn(move || {
            let mut graphs = Vec::new();
            let said = loop {
                let begun = {
                    let _alone = alone();
                    theirs.begin_capture(RELAXED)
                };
                if begun.is_ok() {
                    thread::yield_now();
                    let ended = {
                        let _alone = alone();
                        theirs.end_capture(AUTO_FREE)
                    };
                    if let Ok(Some(graph)) = ended
                        && graphs.len() < 10 * COPIES
                    {
                        graphs.push(graph);
                    }
                    if captures.fetch_add(1, Ordering::Relaxed) > COPIES {
                        // There are enough of them: the copies need a stream that does not capture.
                        thread::sleep(Duration::from_millis(1));
                    }
                }
                thread::yield_now();
                match is_checked.try_recv() {
                    Err(TryRecvError::Empty) => {}
                    said => break said,
                }
            };
            if said.is_err() {
                return;
            }
            for graph in &graphs {
                graph.launch().expect("it can be launched");
            }
            theirs.synchronize().expect("the work is sound");
            launched.send(()).expect("the other thread waits");
        });
        let mut rooms = Vec::new();
        while rooms.len() < COPIES || captures.load(Ordering::Relaxed) < COPIES {
            let mut room = vec![0_u32; 1000];
            let (some, _) = vector.as_slice().split_at(1000).expect("there are as many");
            let copied = {
                let _alone = alone();
                some.copy_to_slice(&mut room, ours.as_ref())
            };
            match copied {
                Ok(()) => {
                    assert_eq!(room, [1; 1000], "it has not run");
                    room.fill(7);
                    if rooms.len() < 10 * COPIES {
                        rooms.push(room);
                    }
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Capture, "{error}"),
            }
            let up = {
                let _alone = alone();
                vector.upload(vec![1; COUNT], ours.as_ref()).map(drop)
            };
            if let Err(refused) = up {
                assert_eq!(refused.error().kind(), ErrorKind::Capture, "{refused}");
            }
        }
        checked.send(()).expect("the other thread captures");
        is_launched.recv().expect("the graphs can be launched");
        assert!(rooms.iter().all(|room| *room == [7; 1000]), "a graph wrote to memory of the host");
        assert_eq!(vector.to_vec(ours.as_ref()).expect("nobody captures"), [1; COUNT]);
    });
}

/// Pools are dropped with a block out while cudarc captures on another thread, in its strictest mode: a graph comes of it, and
/// runs.
#[test]
fn a_pool_that_is_dropped_breaks_no_capture_of_cudarc() {
    let context = context();
    let theirs = context.new_stream().expect("a stream can be made");
    let device = Device::cuda(0).expect("it is there");
    let stream = device.stream().expect("a stream can be made");
    // SAFETY: it is filled before it is read.
    let slice = unsafe { theirs.alloc::<u8>(1000) }.expect("there is memory");
    let address = slice.device_ptr(&theirs).0;
    theirs.synchronize().expect("the work is sound");
    let pools = || -> Vec<Box<dyn FnOnce()>> {
        fn with_a_block_out<R: DeviceAccessible + 'static>(
            resource: R,
            stream: &Stream,
        ) -> Box<dyn FnOnce()> {
            let layout = Layout::from_bytes(100_000).expect("it fits");
            let _out = resource.allocate(layout, stream.as_ref()).expect("there is memory");
            Box::new(move || drop(resource))
        }
        let config = PoolConfig::default;
        let cuda = Cuda::new(&device).pool(config()).expect("it starts with nothing");
        let pooled =
            CudaAsync::new(&device).and_then(|pool| pool.pool(config())).expect("the device has pools");
        let pinned = Pinned::new(&device).and_then(|pinned| pinned.pool(config())).expect("there is as much");
        vec![
            with_a_block_out(cuda, &stream),
            with_a_block_out(pooled, &stream),
            with_a_block_out(pinned, &stream),
        ]
    };
    for ending in pools() {
        let (begun, over) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            let capture = scope.spawn(|| {
                theirs.begin_capture(GLOBAL).expect("it can be begun");
                // SAFETY: the memory is there until the graph is gone, and as long.
                unsafe { result::memset_d8_async(address, 9, 1000, theirs.cu_stream()) }
                    .expect("it is recorded");
                begun.wait();
                over.wait();
                let graph = theirs.end_capture(AUTO_FREE).expect("nothing broke it").expect("it has a node");
                graph.launch().expect("it can be launched");
                theirs.synchronize().expect("the work is sound");
            });
            begun.wait();
            ending();
            over.wait();
            capture.join().expect("it does not panic");
        });
        assert_eq!(theirs.clone_dtoh(&slice).expect("the work is sound"), [9; 1000]);
    }
}
