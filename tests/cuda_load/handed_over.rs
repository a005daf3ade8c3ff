//! Which addresses cudarc is given, and what becomes of memory that was cudarc's.

use std::sync::Arc;
use std::thread;

use alluvion::driver::RawStream;
use alluvion::source::Cuda;
use alluvion::{Device, DeviceVec, ErrorKind, Stream};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DeviceSlice, sys};

use super::{WHOLE, current_context, in_child, push_context};

/// A stream of the stub, as cudarc has it. The stub takes any number for one; 0xCA captures.
fn stream_of_cudarc(context: &Arc<CudaContext>, handle: usize) -> Arc<CudaStream> {
    // SAFETY: to the stub every stream is valid, for ever.
    unsafe { context.wrap_borrowed_stream(handle as sys::CUstream) }
}

/// Three numbers of cudarc's, at an address that nobody looks at.
fn slice_of_cudarc(stream: &Arc<CudaStream>, address: u64) -> CudaSlice<u32> {
    // SAFETY: the stub never touches what is behind an address, and takes any to be freed.
    unsafe { stream.upgrade_device_ptr(address, 3) }
}

/// The address that the stub has freed last.
fn last_freed() -> u64 {
    // SAFETY: the library is loaded: each caller has a context.
    let library = unsafe { sys::culib() };
    // SAFETY: the stub's function has this type.
    let get = unsafe { library.get::<extern "C" fn() -> u64>(b"stub_last_freed\0") };
    get.expect("the stub is what was loaded")()
}

#[test]
fn a_view_gives_its_address_for_its_own_stream_alone() {
    in_child("handed_over::a_view_gives_its_address_for_its_own_stream_alone", &WHOLE, &[], || {
        let context = CudaContext::new(0).expect("the stub starts");
        let (theirs, other) = (stream_of_cudarc(&context, 0x51), stream_of_cudarc(&context, 0x52));
        let ours = Stream::from_cudarc(&theirs).expect("it can be wrapped");
        let resource = Cuda::new(ours.device());
        let mut vector = DeviceVec::uninit_in(3, ours.as_ref(), &resource).expect("the stub has memory");
        let address = vector.as_device_ptr().address();
        let mut numbers = [1_u32, 2, 3];

        let guard = vector.write_on(ours.as_ref()).expect("the stream is the home");
        let mut view = guard.for_cudarc(&theirs).expect("the streams are one");
        assert_eq!((DeviceSlice::len(&view), view.device_ptr(&theirs).0), (3, address));
        theirs.memcpy_htod(&numbers, &mut view).expect("the stream is the view's");
        // Another wrapping of the same stream is the same stream.
        let again = stream_of_cudarc(&context, 0x51);
        again.memcpy_dtoh(&view, &mut numbers).expect("the stream is the view's");

        // Another stream is refused, by an error, and so is the one that the view itself names.
        let invalid = Err(sys::CUresult::CUDA_ERROR_INVALID_VALUE);
        assert_eq!(other.memcpy_htod(&numbers, &mut view).map_err(|error| error.0), invalid);
        assert_eq!(other.memcpy_dtoh(&view, &mut numbers).map_err(|error| error.0), invalid);
        let named = Arc::clone(DeviceSlice::stream(&view));
        assert_eq!(named.context(), &context);
        assert_eq!(named.memcpy_dtoh(&view, &mut numbers).map_err(|error| error.0), invalid);
        let default = context.default_stream();
        assert_eq!(default.memcpy_dtoh(&view, &mut numbers).map_err(|error| error.0), invalid);
    });
}

#[test]
fn a_view_for_the_default_stream_does_not_name_it() {
    in_child("handed_over::a_view_for_the_default_stream_does_not_name_it", &WHOLE, &[], || {
        let context = CudaContext::new(0).expect("the stub starts");
        let theirs = context.default_stream();
        let ours = Stream::from_cudarc(&theirs).expect("it is the device's");
        let resource = Cuda::new(ours.device());
        let vector =
            DeviceVec::<u32, _>::uninit_in(3, ours.as_ref(), &resource).expect("the stub has memory");
        let guard = vector.read_on(ours.as_ref()).expect("the stream is the home");
        let view = guard.for_cudarc(&theirs).expect("the streams are one");
        assert_eq!(view.device_ptr(&context.default_stream()).0, vector.as_device_ptr().address());
        assert_eq!(view.device_ptr(DeviceSlice::stream(&view)).0, 0);
    });
}

/// A capture that begins while a view is there is refused by the view: `tests/gpu/cudarc.rs` shows it, the stub cannot begin one.
#[test]
fn a_stream_that_captures_gets_no_memory_and_no_guard() {
    in_child("handed_over::a_stream_that_captures_gets_no_memory_and_no_guard", &WHOLE, &[], || {
        let context = CudaContext::new(0).expect("the stub starts");
        let ours = Stream::from_cudarc(&stream_of_cudarc(&context, 0xCA)).expect("it can be wrapped");
        let resource = Cuda::new(ours.device());
        let made = DeviceVec::<u32, _>::uninit_in(3, ours.as_ref(), &resource);
        assert_eq!(made.expect_err("it captures").kind(), ErrorKind::Capture);
        let home = ours.device().default_stream();
        let vector =
            DeviceVec::<u32, _>::uninit_in(3, home.as_ref(), &resource).expect("the stub has memory");
        let refused = vector.read_on(ours.as_ref()).expect_err("it captures");
        assert_eq!(refused.kind(), ErrorKind::Capture);
    });
}

#[test]
fn a_guard_for_another_stream_makes_no_view() {
    in_child("handed_over::a_guard_for_another_stream_makes_no_view", &WHOLE, &[], || {
        let context = CudaContext::new(0).expect("the stub starts");
        let ours = Stream::from_cudarc(&stream_of_cudarc(&context, 0x51)).expect("it can be wrapped");
        let resource = Cuda::new(ours.device());
        let vector =
            DeviceVec::<u32, _>::uninit_in(3, ours.as_ref(), &resource).expect("the stub has memory");
        let refused = |ours: &Stream, theirs| {
            let guard = vector.read_on(ours.as_ref()).expect("the streams are of one device");
            guard.for_cudarc(&theirs).expect_err("the streams are two").kind()
        };
        let other = stream_of_cudarc(&context, 0x52);
        assert_eq!(refused(&ours, other), ErrorKind::InvalidArgument);
        assert_eq!(refused(&ours, context.default_stream()), ErrorKind::InvalidArgument);
        // Two handles of one value, which is another stream on each thread.
        let device = Device::from_cudarc(&context).expect("it is there");
        let mine = device.per_thread_stream().expect("the thread goes on");
        assert_eq!(refused(&mine, context.per_thread_stream()), ErrorKind::InvalidArgument);
        // On another thread the device's default stream stands in for it, there and for as long as the thread says.
        let mine = Stream::clone(&mine);
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(refused(&mine, context.default_stream()), ErrorKind::InvalidArgument);
            });
        });
    });
}

#[test]
fn memory_of_cudarc_goes_back_to_cudarc() {
    in_child("handed_over::memory_of_cudarc_goes_back_to_cudarc", &WHOLE, &[], || {
        let context = CudaContext::new(0).expect("the stub starts");
        let theirs = stream_of_cudarc(&context, 0x51);
        let vector = DeviceVec::from_cudarc(slice_of_cudarc(&theirs, 0x9000)).expect("it can be taken over");
        assert_eq!((vector.len(), vector.capacity(), vector.as_device_ptr().address()), (3, 3, 0x9000));
        assert_eq!(vector.stream().raw(), RawStream(0x51));
        let slice = vector.into_cudarc().expect("the driver waits");
        assert_eq!((slice.len(), slice.device_ptr(&theirs).0), (3, 0x9000));
        assert_eq!(last_freed(), 0);
        // Dropped, it goes on the way that cudarc has for it, on a thread where another context is current.
        let vector = DeviceVec::from_cudarc(slice).expect("it can be taken over");
        let current = thread::spawn(move || {
            push_context(0xD0);
            drop(vector);
            current_context()
        });
        assert_eq!(current.join().expect("it does not panic"), 0xD0);
        assert_eq!(last_freed(), 0x9000);
    });
}

#[test]
fn a_vector_of_cudarcs_memory_stays_where_it_is() {
    in_child("handed_over::a_vector_of_cudarcs_memory_stays_where_it_is", &WHOLE, &[], || {
        let context = CudaContext::new(0).expect("the stub starts");
        let theirs = stream_of_cudarc(&context, 0x51);
        let mut vector =
            DeviceVec::from_cudarc(slice_of_cudarc(&theirs, 0x9000)).expect("it can be taken over");
        let stream = vector.stream().to_stream();
        let error = vector.reserve(1, stream.as_ref()).expect_err("there is one block");
        assert_eq!((error.kind(), vector.len()), (ErrorKind::Unsupported, 3));
        // An empty vector that is shrunk has nothing left to hand back.
        vector.clear();
        vector.shrink_to_fit(stream.as_ref()).expect("nothing is asked for");
        assert_eq!(last_freed(), 0x9000);
        let refused = vector.into_cudarc().expect_err("it is freed");
        assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
        assert!(refused.into_value().is_empty());
    });
}

#[test]
fn memory_of_cudarc_that_cannot_be_ordered_is_refused_or_leaked() {
    in_child(
        "handed_over::memory_of_cudarc_that_cannot_be_ordered_is_refused_or_leaked",
        &WHOLE,
        &[],
        || {
            let context = CudaContext::new(0).expect("the stub starts");
            let theirs = stream_of_cudarc(&context, 0x51);
            let refused = |slice| {
                let refused = DeviceVec::from_cudarc(slice).expect_err("it cannot be taken over");
                (refused.error().kind(), refused.into_value().device_ptr(&theirs).0)
            };
            let odd = slice_of_cudarc(&theirs, 0x9004);
            assert_eq!(refused(odd), (ErrorKind::InvalidArgument, 0x9004));
            let of_a_thread = slice_of_cudarc(&context.per_thread_stream(), 0x9000);
            assert_eq!(refused(of_a_thread), (ErrorKind::InvalidArgument, 0x9000));
            let captured = slice_of_cudarc(&stream_of_cudarc(&context, 0xCA), 0x9000);
            assert_eq!(refused(captured).0, ErrorKind::Capture);
            // The slices were dropped where they were refused. What follows never is.
            drop(slice_of_cudarc(&theirs, 0x100));
            let parts = DeviceVec::from_cudarc(slice_of_cudarc(&theirs, 0x9000))
                .expect("it can be taken over")
                .into_raw_parts();
            drop(parts);
            assert_eq!(last_freed(), 0x100);
        },
    );
}

#[test]
fn the_resource_of_a_vector_taken_apart_hands_nothing_over() {
    in_child("handed_over::the_resource_of_a_vector_taken_apart_hands_nothing_over", &WHOLE, &[], || {
        let context = CudaContext::new(0).expect("the stub starts");
        let theirs = stream_of_cudarc(&context, 0x51);
        let parts = DeviceVec::from_cudarc(slice_of_cudarc(&theirs, 0x9000))
            .expect("it can be taken over")
            .into_raw_parts();
        // The uses of the block are in `parts`, and this one knows nothing of them.
        let stream = parts.home.clone();
        let empty =
            DeviceVec::<u32, _>::uninit_in(0, stream.as_ref(), parts.resource).expect("it needs no memory");
        let refused = empty.into_cudarc().expect_err("it has no block");
        assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
        drop(refused);
        assert_eq!(last_freed(), 0);
    });
}
