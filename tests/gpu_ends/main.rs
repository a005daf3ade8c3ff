//! When copies end on the GPU of this computer: as the process ends, and after errors that lose the context.

#![cfg(unix)]
#![expect(
    unsafe_code,
    reason = "copies without waiting, looks at memory that copies write, and calls libcuda"
)]

#[path = "../support/child.rs"]
mod child;
#[path = "../support/gpu_faults.rs"]
mod gpu_faults;
#[path = "../support/gpu_module.rs"]
mod gpu_module;
#[path = "../support/lost_context.rs"]
mod lost_context;
#[path = "../support/own_context.rs"]
mod own_context;
#[path = "../support/process_ends.rs"]
mod process_ends;
#[path = "../support/rerun.rs"]
mod rerun;
#[path = "../support/transfer_ends.rs"]
mod transfer_ends;
#[path = "../support/wait_for_fork.rs"]
mod wait_for_fork;

use std::env;
use std::ffi::{OsStr, c_uint};
use std::hint;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use alluvion::driver::DriverResult;
use alluvion::source::{Cuda, Managed};
use alluvion::{Device, DeviceVec, Machine, PinnedAlloc, Stream};
use child::{done, in_child};
use cudarc::driver::sys;
use gpu_faults::{FAULTS, Fault, launch};
use gpu_module::raw;
use rerun::{is_child, run_child};

/// Runs of each end of a process, a second each for its context.
const RUNS: usize = 20;
/// Runs of each end of a process that holds one of everything. The simulated machine does two hundred.
const CHILDREN: usize = 5;
/// Long enough to be under way for a millisecond from pinned memory, and for many from other memory.
const BYTES: usize = 32 << 20;

fn cuda() -> Machine {
    Machine::of_environment().expect("these tests need a GPU")
}

#[test]
fn main_returns_under_transfers() {
    in_child("main_returns_under_transfers", RUNS, || {
        transfer_ends::end_under_transfers(&cuda(), BYTES, false);
    });
}

#[test]
fn the_process_exits_under_transfers() {
    in_child("the_process_exits_under_transfers", RUNS, || {
        transfer_ends::end_under_transfers(&cuda(), BYTES, true);
    });
}

#[test]
fn a_child_forked_within_transfers_waits_for_nobody() {
    in_child("a_child_forked_within_transfers_waits_for_nobody", 5, || {
        transfer_ends::fork_within_transfers(&cuda());
    });
}

#[test]
fn scenario_15_a_static_outlives_main() {
    in_child("scenario_15_a_static_outlives_main", CHILDREN, || process_ends::keep_in_a_static(&cuda()));
}

#[test]
fn scenario_15_the_locals_of_a_thread_go_last() {
    in_child(
        "scenario_15_the_locals_of_a_thread_go_last",
        CHILDREN,
        || process_ends::keep_in_locals(&cuda()),
    );
}

#[test]
fn scenario_15_the_process_exits_under_a_running_thread() {
    in_child("scenario_15_the_process_exits_under_a_running_thread", CHILDREN, || {
        process_ends::exit_under_a_running_thread(&cuda());
    });
}

#[test]
fn scenario_16_a_forked_child_drops_everything() {
    in_child(
        "scenario_16_a_forked_child_drops_everything",
        CHILDREN,
        || process_ends::fork_and_drop(&cuda()),
    );
}

/// What a child is told: which fault, and who asks first.
const FAULT: &str = "ALLUVION_TEST_FAULT";
const ASKER: &str = "ALLUVION_TEST_ASKER";

/// The kernel goes wrong this long after it has begun, when copies of another stream are under way.
const BEFORE_THE_FAULT: Duration = Duration::from_millis(100);
/// Copies on the other stream: at 50 GB/s half a second of them, five times as long as the kernel waits.
const COPIES: usize = 200;
/// What the last of them writes.
const LAST: u8 = 3;
const COPY_BYTES: usize = 128 << 20;
/// How long the memory of the host is watched: twice what all copies would have taken.
const WATCH: Duration = Duration::from_secs(1);
/// One byte of each page stands for the page.
const PAGE: usize = 4096;
const WRITERS: usize = 8;
/// What no copy writes.
const CANARY: u8 = 0xEE;

/// Who learns of the error first, and whether the memory is left alone from that moment on.
#[derive(Clone, Copy, PartialEq)]
enum Asker {
    /// A wait for the stream of the kernel.
    Same,
    /// A wait for the stream with nothing but copies.
    Other,
    /// A wait for an event behind the copies.
    Event,
    /// A wait for the device.
    Context,
    /// A wait on a thread where no context is current, begun after the error.
    Late,
}

const ASKERS: [(&str, Asker); 5] = [
    ("same", Asker::Same),
    ("other", Asker::Other),
    ("late", Asker::Late),
    ("event", Asker::Event),
    ("context", Asker::Context),
];

/// Why no error of libcuda ends a borrow: a copy that is queued behind the kernel that failed never runs, and those of another
/// stream go on, as far as this GPU shows, for as long as they take. What is seen is printed; `settle` rests on none of it.
#[test]
fn copies_beside_a_kernel_that_fails() {
    const TEST: &str = "copies_beside_a_kernel_that_fails";
    if is_child(TEST) {
        let asker = ASKERS.into_iter().find(|(name, _)| env::var(ASKER).is_ok_and(|asked| asked == *name));
        let fault = Fault::named(&env::var(FAULT).expect("the parent names a fault"));
        watch_copies_beside(fault, asker.expect("the parent names an asker").1);
        return;
    }
    for fault in &FAULTS {
        // Who asks makes no difference to most: the first fault is asked about in every way, the others in one.
        let askers = if fault.name == FAULTS[0].name { &ASKERS[..] } else { &ASKERS[..1] };
        for (name, _) in askers {
            let ended = run_child(TEST, &[(FAULT, OsStr::new(fault.name)), (ASKER, OsStr::new(name))]);
            let (text, said) = (ended.printed, ended.said);
            assert!(ended.status.success(), "{} {name}: {}\n{text}\n{said}", fault.name, ended.status);
            let seen = text.lines().find_map(|line| line.strip_prefix("seen "));
            println!("{:>10} asked by {name}: {}", fault.name, seen.expect("a child says what it has seen"));
        }
    }
}

/// After a kernel has lost the context, what waits says so, and lends nothing: no call of these hangs.
#[test]
fn the_error_of_a_kernel_is_told_before_anything_is_lent() {
    in_child("the_error_of_a_kernel_is_told_before_anything_is_lent", 1, || {
        let device = cuda().device(0).unwrap();
        let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
        let mut vector = DeviceVec::filled_in(BYTES, 7_u8, stream.as_ref(), Cuda::new(&device)).unwrap();
        let context = cudarc::driver::CudaContext::new(0).expect("these tests need a GPU");
        context.bind_to_thread().expect("the context lives");
        let mut lent = vec![0; BYTES];
        let function = Fault::named("address").load();
        launch(function, raw(stream.as_ref()), None, BEFORE_THE_FAULT);
        for asked in [&stream, &other] {
            let asked = asked.as_ref();
            let errors = [
                vector.copy_to_slice(&mut lent, asked),
                vector.copy_from_slice(&lent, asked),
                vector.to_vec(asked).map(drop),
                vector.get(3, asked).map(drop),
                vector
                    .download(vec![0; BYTES], asked)
                    .map_or_else(|it| Err(it.into()), |it| it.wait().map(drop)),
            ];
            for error in errors {
                let error = error.expect_err("the context is lost");
                assert!(error.is_context_lost(), "{error}");
            }
        }
        assert!(lent.iter().all(|byte| *byte == 0));
        done();
    });
}

/// A kernel that goes wrong.
fn lose_by_a_kernel(device: &Device) {
    let context = cudarc::driver::CudaContext::new(0).expect("these tests need a GPU");
    context.bind_to_thread().expect("the context lives");
    let stream = device.stream().unwrap();
    launch(Fault::named("address").load(), raw(stream.as_ref()), None, Duration::ZERO);
    assert!(stream.synchronize().is_err_and(|error| error.is_context_lost()));
}

/// A managed page that finds no room on the device: other memory has all of it, and cannot go elsewhere.
fn lose_for_lack_of_room(device: &Device) {
    let stream = device.stream().unwrap();
    let mut all = Vec::new();
    for bytes in [4 << 30, 256 << 20, 16 << 20, 2 << 20] {
        while let Ok(vector) = DeviceVec::<u8, _>::uninit_in(bytes, stream.as_ref(), Cuda::new(device)) {
            all.push(vector);
        }
    }
    let managed = Managed::new(device).unwrap();
    let filled = DeviceVec::filled_in(512 << 20, 7_u8, stream.as_ref(), managed);
    let waited = stream.synchronize();
    let error = filled.err().or(waited.err()).expect("there is no room for it");
    assert!(error.is_context_lost(), "{error}");
}

/// Safe code that has memory of the host goes on with it when the context is lost.
#[test]
fn memory_of_the_host_stays_when_a_kernel_loses_the_context() {
    in_child("memory_of_the_host_stays_when_a_kernel_loses_the_context", 1, || {
        lost_context::memory_of_the_host_stays(&cuda().device(0).unwrap(), lose_by_a_kernel);
        done();
    });
}

#[test]
fn memory_of_the_host_stays_when_a_page_finds_no_room() {
    in_child("memory_of_the_host_stays_when_a_page_finds_no_room", 1, || {
        lost_context::memory_of_the_host_stays(&cuda().device(0).unwrap(), lose_for_lack_of_room);
        done();
    });
}

/// The body of a child. Prints the code that the first wait returned, and whether the memory was still from then on.
fn watch_copies_beside(fault: &Fault, asker: Asker) {
    let machine = cuda();
    let device = machine.device(0).unwrap();
    let driver = device.driver();
    let (same, other) = (device.stream().unwrap(), device.stream().unwrap());
    let context = cudarc::driver::CudaContext::new(0).expect("these tests need a GPU");
    context.bind_to_thread().expect("the context lives");
    let function = fault.load();

    // The copies of the other stream take turns, so that each changes every byte. The last has a source of its own. That stream is
    // their home: a stream that is not waits for the home first, and must not wait for the kernel.
    let bytes = [1_u8, 2, LAST];
    let sources = bytes.map(|byte| {
        DeviceVec::filled_in(COPY_BYTES, byte, other.as_ref(), Cuda::new(&device)).expect("there is memory")
    });
    let (behind, beside) = (Watched::new(&device), Watched::new(&device));
    device.synchronize().unwrap();

    let words = sources[0].as_slice().as_device_ptr();
    launch(function, raw(same.as_ref()), Some(words), BEFORE_THE_FAULT);
    behind.fill_from(&sources[0], &same);
    for copy in 0..COPIES {
        beside.fill_from(&sources[copy % 2], &other);
    }
    beside.fill_from(&sources[2], &other);
    let end = driver.event_create(0).unwrap();
    // SAFETY: both are live.
    unsafe { driver.event_record(0, end, other.as_ref().raw()) }.unwrap();
    let synchronize = |stream: &Stream| {
        // SAFETY: the stream is live.
        unsafe { driver.stream_synchronize(0, stream.as_ref().raw()) }
    };
    // Threads that are ready, so that all pages have canaries within a fraction of a millisecond.
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (is_over, memories) = (Arc::clone(&is_over), [beside, behind]);
            thread::spawn(move || {
                while !is_over.load(SeqCst) {
                    hint::spin_loop();
                }
                memories.iter().for_each(|memory| memory.put_canaries(writer));
            })
        })
        .collect();
    let answer: DriverResult<()> = match asker {
        Asker::Same => synchronize(&same),
        Asker::Other => synchronize(&other),
        // SAFETY: the event is live.
        Asker::Event => unsafe { driver.event_synchronize(0, end) },
        Asker::Context => driver.context_synchronize(0),
        Asker::Late => {
            thread::sleep(2 * BEFORE_THE_FAULT);
            thread::scope(|scope| scope.spawn(|| synchronize(&other)).join().unwrap())
        }
    };
    // The moment that a borrow would end at. From here on the memory is somebody else's.
    is_over.store(true, SeqCst);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let (first, last) = (beside.byte(1), beside.byte(COPY_BYTES - 1));
    let Err(error) = answer else {
        // The driver keeps some errors back until the copies of other streams have run, whose waits succeed then.
        assert!(matches!(asker, Asker::Other | Asker::Event), "the kernel fails");
        assert_eq!(last, LAST, "a wait succeeded before the copies had run");
        println!("seen 0: all copies of the other stream had run");
        return;
    };
    thread::sleep(WATCH);
    let written = (behind.canaries_gone(), beside.canaries_gone());
    assert!(error.code.is_sticky(), "{error}");
    assert_eq!(written.0, 0, "a copy ran behind a kernel that has failed");
    println!(
        "\nseen {}: {error}; the other stream's bytes began with {first} and ended with {last}; of {} pages {} were written later; \
         then: same {:?}, other {:?}, device {:?}, current {}, push {}",
        error.code.0,
        COPY_BYTES / PAGE,
        written.1,
        synchronize(&same),
        synchronize(&other),
        driver.context_synchronize(0),
        on_a_fresh_thread(b"cuCtxGetCurrent\0", 0),
        on_a_fresh_thread(b"cuCtxPushCurrent_v2\0", context.cu_ctx().expose_provenance()),
    );
}

/// What a function of contexts returns where none is current: with room for a context to write, or with one.
fn on_a_fresh_thread(name: &'static [u8], context: usize) -> c_uint {
    let call = move || {
        // SAFETY: the library is loaded: the caller has a context.
        let library = unsafe { sys::culib() };
        type Function = unsafe extern "C" fn(usize) -> c_uint;
        // SAFETY: both functions take one pointer.
        let function = unsafe { library.get::<Function>(name) }.expect("every driver has it");
        let mut room = 0_usize;
        let argument = if context == 0 { (&raw mut room).expose_provenance() } else { context };
        // SAFETY: the argument is a live context, or a place for one.
        unsafe { function(argument) }
    };
    thread::spawn(call).join().expect("it does not panic")
}

/// Pinned memory that copies write to while it is looked at: by volatile accesses alone. It is there for ever.
#[derive(Clone, Copy)]
struct Watched {
    address: usize,
}

impl Watched {
    fn new(device: &Device) -> Self {
        let mut bytes = allocator_api2::vec::Vec::new_in(PinnedAlloc::new(device).unwrap());
        bytes.resize(COPY_BYTES, 0_u8);
        // For ever: nobody knows when the copies are over. That is what is to be found out.
        Self { address: allocator_api2::vec::Vec::leak(bytes).as_mut_ptr().expose_provenance() }
    }

    fn fill_from(self, source: &DeviceVec<u8, Cuda>, stream: &Stream) {
        // SAFETY: the memory is never let go; it is looked at by volatile accesses while it is written.
        unsafe { source.as_slice().download_unchecked(self.at(0), stream.as_ref()) }.unwrap();
    }

    fn at(self, at: usize) -> *mut u8 {
        assert!(at < COPY_BYTES);
        ptr::with_exposed_provenance_mut(self.address + at)
    }

    fn byte(self, at: usize) -> u8 {
        // SAFETY: the place is one of the bytes, which are never let go.
        unsafe { ptr::read_volatile(self.at(at)) }
    }

    /// Puts one on each page of a share.
    fn put_canaries(self, writer: usize) {
        let share = COPY_BYTES / WRITERS;
        for at in (writer * share..(writer + 1) * share).step_by(PAGE) {
            // SAFETY: the place is one of the bytes, which are never let go.
            unsafe { ptr::write_volatile(self.at(at), CANARY) };
        }
    }

    fn canaries_gone(self) -> usize {
        (0..COPY_BYTES).step_by(PAGE).filter(|&at| self.byte(at) != CANARY).count()
    }
}

/// Another context of the process is lost and current, while a copy of ours is held up: a wait for our stream may return its error,
/// and the copy has not run yet. What happens then is printed.
#[test]
fn a_lost_context_of_somebody_else_ends_no_transfer() {
    in_child("a_lost_context_of_somebody_else_ends_no_transfer", 1, || {
        let device = cuda().device(0).unwrap();
        let stream = device.stream().unwrap();
        let source = DeviceVec::filled_in(COPY_BYTES, LAST, stream.as_ref(), Cuda::new(&device)).unwrap();
        let back = Watched::new(&device);
        // It stays current on this thread until the end.
        let (_, stranger) = own_context::own_context();
        let function = Fault::named("address").load();
        let mut stall = alluvion::testing::Stall::on(stream.as_ref());
        back.fill_from(&source, &stream);
        launch(function, ptr::null_mut(), None, Duration::ZERO);
        while !lost() {
            thread::yield_now();
        }
        // Its error comes at once, if it comes; else the wait is over when the copy is.
        stall.let_go_soon();
        let waited = stream.synchronize();
        let first = back.byte(0);
        let begun = Instant::now();
        while back.byte(COPY_BYTES - 1) != LAST && begun.elapsed() < Duration::from_secs(5) {
            thread::yield_now();
        }
        println!(
            "beside the lost context {stranger:?} a wait of ours: {waited:?}, when the copy {}; in the end it {}",
            if first == LAST { "had begun" } else { "had not begun" },
            if back.byte(COPY_BYTES - 1) == LAST { "had run" } else { "never ran" },
        );
        assert!(waited.is_err() || first == LAST, "a wait succeeded before the copy had run");
        done();
    });
}

/// Whether the context that is current is lost.
fn lost() -> bool {
    // SAFETY: a context is current.
    unsafe { sys::cuCtxSynchronize() != sys::CUresult::CUDA_SUCCESS }
}
