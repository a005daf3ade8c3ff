//! When a transfer ends, over a device that is slow: its copies run when the test says so, and write to wherever they were told.

#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::ffi::c_uint;
use std::io::Read;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};
use std::{env, fs, process, thread};

use alluvion::driver::{Call, Code};
use alluvion::source::Cuda;
use alluvion::{Device, DeviceVec, Error, Stream, Transfer};
use cudarc::driver::sys;

use super::rerun::is_child;
use super::{DONE, WHOLE, heap, in_child};

const LEN: usize = 4096;
/// What the device writes.
const WRITTEN: u8 = 0xAB;
/// Kinds of calls, as the stub numbers them.
const COPIES: usize = 0;
const WAITS: usize = 1;
const QUESTIONS: usize = 2;
const ENTRIES: usize = 3;

type Vector = DeviceVec<u8, Cuda>;

/// The functions of the stub that are none of libcuda's.
struct Stub {
    queued: extern "C" fn() -> [u64; 2],
    is_held: extern "C" fn() -> bool,
    let_go: extern "C" fn(),
    run: extern "C" fn(),
    answer: extern "C" fn(usize, c_uint, usize),
}

fn stub() -> &'static Stub {
    static STUB: OnceLock<Stub> = OnceLock::new();
    STUB.get_or_init(|| {
        // SAFETY: the library is loaded: each caller has loaded the driver.
        let library = unsafe { sys::culib() };
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the stub's function has the type of the field.
                *unsafe { library.get($name) }.expect("the stub is what was loaded")
            };
        }
        Stub {
            queued: function!(b"stub_queued\0"),
            is_held: function!(b"stub_is_held\0"),
            let_go: function!(b"stub_let_go\0"),
            run: function!(b"stub_run\0"),
            answer: function!(b"stub_answer\0"),
        }
    })
}

fn bytes_on(device: &Device) -> (Stream, Vector) {
    let stream = device.stream().expect("the stub has streams");
    let vector = DeviceVec::uninit_in(LEN, stream.as_ref(), Cuda::new(device)).expect("the stub has memory");
    (stream, vector)
}

fn is_written(host: &[u8]) -> bool {
    host.iter().all(|byte| *byte == WRITTEN)
}

/// A transfer, by a thread that the process does not wait for.
type Operation = fn(&mut Vector, &Stream);

/// What the exit handler has to know of the thread.
static BORROWS: AtomicBool = AtomicBool::new(false);
static RETURNED: AtomicBool = AtomicBool::new(false);
static ON_ITS_STACK: AtomicU64 = AtomicU64::new(0);
static STATUS_FILE: OnceLock<String> = OnceLock::new();

/// Runs `operation` in children that end while its thread is in the call that submits the copy, and in the one that waits for it:
/// by returning from `main`, and by `exit`. The copy runs when the handlers of the exit do.
fn end_under(test: &str, borrows: bool, operation: Operation) {
    for hold in ["copy", "wait"] {
        for end in ["return", "exit"] {
            let variables = [("STUB_SLOW", "1"), ("STUB_HOLD", hold), ("TEST_END", end)];
            in_child_with(test, &variables, borrows, operation);
            if is_child(test) {
                return;
            }
        }
    }
}

fn in_child_with(test: &str, variables: &[(&str, &str)], borrows: bool, operation: Operation) {
    static OPERATION: OnceLock<Operation> = OnceLock::new();
    BORROWS.store(borrows, SeqCst);
    let _ = OPERATION.set(operation);
    in_child(test, &WHOLE, variables, || {
        // Handlers run in reverse order: this one, registered before the driver is loaded, runs after the driver's own.
        // SAFETY: `judge` does not unwind.
        assert_eq!(unsafe { libc::atexit(judge) }, 0);
        let device = Device::cuda(0).expect("the stub starts");
        thread::spawn(move || {
            let on_the_stack = 0_u8;
            ON_ITS_STACK.store(ptr::from_ref(&on_the_stack).addr() as u64, SeqCst);
            // SAFETY: it asks for a number.
            let thread = unsafe { libc::syscall(libc::SYS_gettid) };
            let _ = STATUS_FILE.set(format!("/proc/self/task/{thread}/stat"));
            let (stream, mut vector) = bytes_on(&device);
            OPERATION.get().expect("it was set")(&mut vector, &stream);
            RETURNED.store(true, SeqCst);
            loop {
                thread::park();
            }
        });
        while STATUS_FILE.get().is_none() || !(stub().is_held)() {
            thread::yield_now();
        }
        heap::watch((stub().queued)()[0]);
        if env::var("TEST_END").is_ok_and(|end| end == "exit") {
            println!("{DONE}");
            process::exit(0);
        }
    });
}

/// Lets the thread go on, waits until it has come back or waits itself, and has the device run the copy. If the thread has come back,
/// memory that it borrowed is another's, and memory that it owned must not have been freed.
extern "C" fn judge() {
    let [address, bytes] = (stub().queued)();
    (stub().let_go)();
    while !RETURNED.load(SeqCst) && !is_asleep() {
        thread::yield_now();
    }
    let is_on_the_stack = address.abs_diff(ON_ITS_STACK.load(SeqCst)) < 1 << 20;
    let has_let_go = BORROWS.load(SeqCst) || is_on_the_stack || heap::is_freed();
    if RETURNED.load(SeqCst) && has_let_go || bytes == 0 {
        // SAFETY: it does not return. The status tells the parent.
        unsafe { libc::_exit(3) };
    }
    (stub().run)();
}

/// Whether the thread waits for something. What holds it in the stub spins.
fn is_asleep() -> bool {
    let mut text = [0; 512];
    let file = STATUS_FILE.get().and_then(|path| fs::File::open(path).ok());
    let length = file.and_then(|mut file| file.read(&mut text).ok()).unwrap_or_default();
    // "number (name) state …"; the name is the test's or empty, and has no parenthesis of its own.
    text[..length].split(|byte| *byte == b')').next_back().is_some_and(|rest| rest.starts_with(b" S "))
}

macro_rules! ends {
    ($($name:ident, borrows: $borrows:literal, $operation:expr;)+) => {
        $(#[test]
        fn $name() {
            end_under(concat!("ends::", stringify!($name)), $borrows, $operation);
        })+
    };
}

ends! {
    an_exit_frees_nothing_of_to_vec, borrows: false, |vector, stream| {
        assert!(vector.to_vec(stream.as_ref()).is_err_and(|error| error.is_shut_down()));
    };
    an_exit_frees_nothing_of_get, borrows: false, |vector, stream| {
        assert!(vector.get(7, stream.as_ref()).is_err_and(|error| error.is_shut_down()));
    };
    an_exit_ends_no_copy_to_slice, borrows: true, |vector, stream| {
        let mut back = vec![0; LEN];
        let _ = vector.copy_to_slice(&mut back, stream.as_ref());
    };
    an_exit_ends_no_copy_from_slice, borrows: true, |vector, stream| {
        let _ = vector.copy_from_slice(&vec![1; LEN], stream.as_ref());
    };
    an_exit_ends_no_scope, borrows: true, |vector, stream| {
        let mut back = vec![0; LEN];
        let _ = stream.scope(|scope| scope.download(&*vector, &mut back));
    };
    an_exit_ends_no_scope_of_an_upload, borrows: true, |vector, stream| {
        let host = vec![0; LEN];
        let _ = stream.scope(|scope| scope.upload(&mut *vector, &host));
    };
    an_exit_frees_nothing_of_a_transfer_that_is_waited_for, borrows: false, |vector, stream| {
        let waited = vector.download(vec![0; LEN], stream.as_ref()).map_err(Error::from);
        assert!(waited.and_then(|transfer| transfer.wait()).is_err_and(|error| error.is_shut_down()));
    };
    an_exit_frees_nothing_of_a_transfer_that_is_dropped, borrows: false, |vector, stream| {
        drop(vector.upload(vec![0; LEN], stream.as_ref()));
    };
}

/// What is in a static may be dropped by the thread that runs the handlers of the exit: it waits for nobody.
#[test]
fn the_thread_that_exits_leaks_and_goes_on() {
    type Kept = (Transfer<Vec<u8>>, Vector, Stream);
    static KEPT: Mutex<Option<Kept>> = Mutex::new(None);
    extern "C" fn last() {
        let Some((transfer, vector, stream)) = KEPT.lock().ok().and_then(|mut kept| kept.take()) else {
            process::abort();
        };
        heap::watch((stub().queued)()[0]);
        drop(transfer);
        let mut back = vec![0; LEN];
        let is_refused = vector.to_vec(stream.as_ref()).is_err_and(|error| error.is_shut_down())
            && vector.copy_to_slice(&mut back, stream.as_ref()).is_err_and(|error| error.is_shut_down())
            && stream
                .scope(|scope| scope.download(&vector, &mut back))
                .is_err_and(|error| error.is_shut_down());
        drop((vector, stream));
        if !is_refused || heap::is_freed() {
            process::abort();
        }
        (stub().run)();
    }
    in_child("ends::the_thread_that_exits_leaks_and_goes_on", &WHOLE, &SLOW, || {
        // Before the driver is loaded: it runs after the driver's own handler.
        // SAFETY: `last` does not unwind.
        assert_eq!(unsafe { libc::atexit(last) }, 0);
        let device = Device::cuda(0).expect("the stub starts");
        let (stream, vector) = bytes_on(&device);
        let transfer = vector.download(vec![0; LEN], stream.as_ref()).expect("it is submitted");
        *KEPT.lock().expect("nobody has panicked") = Some((transfer, vector, stream));
    });
}

const SLOW: [(&str, &str); 1] = [("STUB_SLOW", "1")];

/// Copies to memory that is borrowed while `lie` has been told to the waits.
fn borrow(device: &Device, lie: impl Fn()) {
    let (stream, vector) = bytes_on(device);
    let mut back = vec![0; LEN];
    lie();
    vector.copy_to_slice(&mut back, stream.as_ref()).expect("the driver waits in the end");
    assert!(is_written(&back));
    back.fill(0);
    lie();
    stream.scope(|scope| scope.download(&vector, &mut back)).expect("the driver waits in the end");
    assert!(is_written(&back));
}

/// Copies to memory that is owned, which must still be there when the call has failed.
fn own(device: &Device, lie: impl Fn()) -> Error {
    let (stream, vector) = bytes_on(device);
    lie();
    let transfer = vector.download(vec![0; LEN], stream.as_ref()).expect("it is submitted");
    heap::watch((stub().queued)()[0]);
    let error = transfer.wait().expect_err("nobody can say");
    assert!(!heap::is_freed(), "freed after {error}");
    (stub().run)();
    error
}

#[test]
fn no_answer_that_sounds_final_ends_a_transfer() {
    in_child("ends::no_answer_that_sounds_final_ends_a_transfer", &WHOLE, &SLOW, || {
        let device = Device::cuda(0).expect("the stub starts");
        // Shut down, not started, unknown; errors that lose a context, after which copies of other streams go on.
        for code in [4, 3, 999, 214, 700, 709, 710, 714, 715, 716, 718, 719, 720] {
            borrow(&device, || (stub().answer)(WAITS, code, 4));
        }
        for code in [4, 3, 999, 214, 700, 709, 710, 714, 715, 716, 718, 719] {
            assert_eq!(own(&device, || (stub().answer)(WAITS, code, 3)).code(), Some(Code(code)));
        }
    });
}

/// To find out which context is current, and to push another, may return the error of the one that is.
#[test]
fn the_error_of_another_context_ends_no_transfer() {
    in_child("ends::the_error_of_another_context_ends_no_transfer", &WHOLE, &SLOW, || {
        let device = Device::cuda(0).expect("the stub starts");
        let (stream, vector) = bytes_on(&device);
        let mut back = vec![0; LEN];
        stream
            .scope(|scope| {
                scope.download(&vector, &mut back)?;
                (stub().answer)(QUESTIONS, Code::ILLEGAL_ADDRESS.0, 5);
                (stub().answer)(ENTRIES, Code::ILLEGAL_ADDRESS.0, 5);
                Ok(())
            })
            .expect("the driver waits in the end");
        assert!(is_written(&back));
        let transfer = vector.download(vec![0; LEN], stream.as_ref()).expect("it is submitted");
        heap::watch((stub().queued)()[0]);
        (stub().answer)(ENTRIES, Code::ILLEGAL_ADDRESS.0, 5);
        let error = transfer.wait().expect_err("nobody can say");
        assert_eq!(error.call(), Some(Call::ContextEnter));
        assert!(!heap::is_freed());
        (stub().run)();
        // That the question fails is no reason not to enter.
        (stub().answer)(QUESTIONS, Code::ILLEGAL_ADDRESS.0, 100);
        assert!(is_written(&vector.to_vec(stream.as_ref()).expect("the context can be pushed")));
    });
}

/// A kernel that comes before has lost the context: the wait for it says so, and nothing is lent that would have to come back.
#[test]
fn the_error_of_a_kernel_is_told_before_anything_is_lent() {
    in_child("ends::the_error_of_a_kernel_is_told_before_anything_is_lent", &WHOLE, &SLOW, || {
        let device = Device::cuda(0).expect("the stub starts");
        let (stream, mut vector) = bytes_on(&device);
        let (_, other) = bytes_on(&device);
        let mut lent = vec![0; LEN];
        // Something is pending, so the stream is not idle.
        let pending = other.download(vec![0; LEN], stream.as_ref()).expect("it is submitted");
        let queued = (stub().queued)();
        let tell = |error: Result<(), Error>| {
            let error = error.expect_err("the context is lost");
            assert!(error.is_context_lost() && error.call() == Some(Call::StreamSynchronize), "{error}");
            (stub().answer)(WAITS, Code::ILLEGAL_ADDRESS.0, 1);
        };
        (stub().answer)(WAITS, Code::ILLEGAL_ADDRESS.0, 1);
        tell(vector.copy_to_slice(&mut lent, stream.as_ref()));
        tell(vector.copy_from_slice(&lent, stream.as_ref()));
        tell(vector.to_vec(stream.as_ref()).map(drop));
        tell(vector.get(3, stream.as_ref()).map(drop));
        assert_eq!((stub().queued)(), queued, "nothing was submitted");
        // The last answer is for the transfer's own wait, which goes on.
        assert!(is_written(&pending.wait().expect("the driver waits in the end")));
        assert_eq!(lent, [0; LEN]);
    });
}

/// A copy that has failed in the middle may be under way.
#[test]
fn a_copy_that_fails_half_way_is_waited_for() {
    in_child("ends::a_copy_that_fails_half_way_is_waited_for", &WHOLE, &SLOW, || {
        let device = Device::cuda(0).expect("the stub starts");
        let (stream, vector) = bytes_on(&device);
        for code in [Code::UNKNOWN, Code::ILLEGAL_ADDRESS, Code(304)] {
            let mut back = vec![0; LEN];
            (stub().answer)(COPIES, code.0, 1);
            let error = vector.copy_to_slice(&mut back, stream.as_ref()).expect_err("it fails");
            assert!(error.code() == Some(code) && is_written(&back), "{error}");
            let mut back = vec![0; LEN];
            (stub().answer)(COPIES, code.0, 1);
            let error = stream.scope(|scope| scope.download(&vector, &mut back)).expect_err("it fails");
            assert!(error.code() == Some(code) && is_written(&back), "{error}");
            (stub().answer)(COPIES, code.0, 1);
            let rejected = vector.download(vec![0; LEN], stream.as_ref()).expect_err("it fails");
            assert!(rejected.into_value().is_some_and(|host| is_written(&host)));
            // And where nobody can say: the buffer is gone, and not freed.
            (stub().answer)(COPIES, code.0, 1);
            (stub().answer)(WAITS, Code::UNKNOWN.0, 2);
            let host = vec![0_u8; LEN];
            heap::watch(host.as_ptr().addr() as u64);
            assert_eq!(vector.download(host, stream.as_ref()).expect_err("it fails").into_value(), None);
            assert!(!heap::is_freed());
            (stub().run)();
        }
    });
}
