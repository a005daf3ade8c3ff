//! Memory of this crate in kernels that cudarc launches, on cudarc's streams.

#![expect(unsafe_code, reason = "launches kernels")]

mod own_context;

use std::ffi::{CString, c_void};
use std::sync::Arc;

use alluvion::driver::FillValue;
use alluvion::resource::{Layout, Resource};
use alluvion::source::CudaAsync;
use alluvion::stream::StreamKind;
use alluvion::{Device, DevicePtr, ErrorKind, Stream};
use cudarc::driver::{CudaContext, CudaStream, result, sys};
use own_context::own_context;

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
