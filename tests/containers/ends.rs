//! When a transfer may end: after a wait that succeeded, or on a device that is known to have stopped. Whatever else a driver
//! answers, memory of the host is neither lent on nor freed while a copy may touch it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use allocator_api2::alloc::{AllocError, Allocator, Global, Layout};
use allocator_api2::vec::Vec as VecIn;
use alluvion::driver::{Call, Code};
use alluvion::sim::Fault;
use alluvion::{DeviceVec, Error, Sim, Stream};

const LEN: usize = 64 << 10;

/// The calls that wait, in the ways that there are.
const WAITS: [Call; 3] = [Call::StreamSynchronize, Call::EventSynchronize, Call::ContextSynchronize];

/// Codes that sound final and are no proof.
const SOUND_FINAL: [Code; 3] = [Code::DEINITIALIZED, Code::NOT_INITIALIZED, Code::UNKNOWN];

/// Codes of one call.
const OF_ONE_CALL: [Code; 7] = [
    Code::INVALID_VALUE,
    Code::OUT_OF_MEMORY,
    Code::INVALID_CONTEXT,
    Code::INVALID_HANDLE,
    Code::NOT_READY,
    Code::NOT_PERMITTED,
    Code::NOT_SUPPORTED,
];

/// Counts the blocks that were given back.
#[derive(Clone, Default)]
struct Freed(Arc<AtomicUsize>);

impl Freed {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn zeros(&self) -> VecIn<u8, Self> {
        let mut vector = VecIn::with_capacity_in(LEN, self.clone());
        vector.resize(LEN, 0);
        vector
    }
}

#[expect(unsafe_code, reason = "forwards the contract of allocators")]
// SAFETY: everything is the global allocator's.
unsafe impl Allocator for Freed {
    fn allocate(&self, layout: Layout) -> Result<std::ptr::NonNull<[u8]>, AllocError> {
        Global.allocate(layout)
    }

    unsafe fn deallocate(&self, block: std::ptr::NonNull<u8>, layout: Layout) {
        self.0.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promises.
        unsafe { Global.deallocate(block, layout) };
    }
}

/// A machine, a stream of it, and bytes on the device that are all 7.
struct Rig {
    sim: Sim,
    stream: Stream,
    sevens: DeviceVec<u8>,
}

impl Rig {
    fn new() -> Self {
        let sim = Sim::new();
        let stream = sim.device(0).stream().unwrap();
        let sevens = DeviceVec::filled(LEN, 7, stream.as_ref()).unwrap();
        stream.synchronize().unwrap();
        Self { sim, stream, sevens }
    }

    /// Makes the next wait of each of these kinds fail. None of them loses the context.
    fn lie(&self, calls: &[Call], code: Code) {
        for &call in calls {
            self.sim.inject(Fault::nth(call, 1, code));
        }
    }

    /// What was queued has not been thrown away, and nothing that it touched was gone.
    fn finish(self, context: &str) {
        self.sim.clear_faults();
        self.stream.synchronize().unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(self.sim.hazards(), [], "{context}");
    }
}

/// Copies to memory that is borrowed, in each way. The bytes must be there when the borrow ends.
fn borrow(rig: &Rig, lie: impl Fn(), context: &str) {
    let stream = rig.stream.as_ref();
    let mut back = vec![0; LEN];
    lie();
    rig.sevens.copy_to_slice(&mut back, stream).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(back == [7; LEN], "{context}: the borrow ended before the copy");

    back.fill(0);
    rig.sim.clear_faults();
    lie();
    rig.stream
        .scope(|scope| scope.download(&rig.sevens, &mut back))
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(back == [7; LEN], "{context}: the scope ended before the copy");

    rig.sim.clear_faults();
    let mut taken = DeviceVec::<u8>::zeroed(LEN, stream).unwrap();
    back.fill(5);
    lie();
    taken.copy_from_slice(&back, stream).unwrap_or_else(|error| panic!("{context}: {error}"));
    back.fill(6);
    rig.sim.clear_faults();
    assert!(taken.to_vec(stream).unwrap() == [5; LEN], "{context}: the borrow ended before the copy");
}

/// What became of copies to memory that is owned.
struct Owned {
    /// The memory of a transfer that was waited for, and of one that was dropped.
    freed: [usize; 2],
    waited: Result<Vec<u8>, Error>,
    vector: Result<Vec<u8>, Error>,
    element: Result<u8, Error>,
}

fn own(rig: &Rig, lie: impl Fn()) -> Owned {
    let stream = rig.stream.as_ref();
    let (kept, dropped) = (Freed::default(), Freed::default());
    let transfer = rig.sevens.download(kept.zeros(), stream).unwrap();
    lie();
    let waited = transfer.wait().map(|bytes| bytes.to_vec());
    rig.sim.clear_faults();
    let transfer = rig.sevens.download(dropped.zeros(), stream).unwrap();
    lie();
    drop(transfer);
    rig.sim.clear_faults();
    lie();
    let vector = rig.sevens.to_vec(stream);
    rig.sim.clear_faults();
    lie();
    let element = rig.sevens.get(LEN / 2, stream);
    rig.sim.clear_faults();
    Owned { freed: [kept.count(), dropped.count()], waited, vector, element }
}

#[test]
fn one_answer_ends_nothing() {
    for code in SOUND_FINAL.into_iter().chain(OF_ONE_CALL) {
        for call in WAITS {
            let (rig, context) = (Rig::new(), format!("{} failing with {code}", call.symbol()));
            borrow(&rig, || rig.lie(&[call], code), &context);
            let owned = own(&rig, || rig.lie(&[call], code));
            assert_eq!(owned.freed, [1, 1], "{context}");
            assert!(owned.waited.unwrap() == [7; LEN], "{context}");
            assert!(owned.vector.unwrap() == [7; LEN], "{context}");
            assert_eq!(owned.element.unwrap(), 7, "{context}");
            rig.finish(&context);
        }
    }
}

/// The memory that is borrowed is waited for; the memory that is owned is leaked, with the error.
#[test]
fn all_answers_that_sound_final_end_no_borrow_and_free_nothing() {
    for code in SOUND_FINAL {
        let (rig, context) = (Rig::new(), format!("every wait failing with {code}"));
        borrow(&rig, || rig.lie(&WAITS, code), &context);
        let owned = own(&rig, || rig.lie(&WAITS, code));
        assert_eq!(owned.freed, [0, 0], "{context}: freed under a copy that is queued");
        assert_eq!(owned.waited.unwrap_err().code(), Some(code));
        assert_eq!(owned.vector.unwrap_err().code(), Some(code));
        assert_eq!(owned.element.unwrap_err().code(), Some(code));
        // Now the copies run.
        rig.finish(&context);
    }
}

#[test]
fn answers_about_one_call_are_asked_again() {
    for code in OF_ONE_CALL {
        let (rig, context) = (Rig::new(), format!("every wait failing with {code}"));
        borrow(&rig, || rig.lie(&WAITS, code), &context);
        let owned = own(&rig, || rig.lie(&WAITS, code));
        assert_eq!(owned.freed, [1, 1], "{context}");
        assert!(owned.waited.unwrap() == [7; LEN], "{context}");
        rig.finish(&context);
    }
}

/// A machine that has thrown its queues away says so, whichever code its calls return from then on.
#[test]
fn a_device_that_has_stopped_ends_every_wait_whatever_its_code() {
    let codes = SOUND_FINAL.into_iter().chain(OF_ONE_CALL);
    for code in codes.chain([Code::ILLEGAL_ADDRESS, Code::CAPTURE_UNSUPPORTED]) {
        let Rig { sim, stream, sevens } = Rig::new();
        let (kept, dropped) = (Freed::default(), Freed::default());
        let waited = sevens.download(kept.zeros(), stream.as_ref()).unwrap();
        let transfer = sevens.download(dropped.zeros(), stream.as_ref()).unwrap();
        let mut back = vec![0; LEN];
        let scope = stream.scope(|scope| {
            scope.download(&sevens, &mut back)?;
            sim.poison(0, code);
            Ok(())
        });
        assert_eq!(scope.unwrap_err().code(), Some(code));
        assert!(back == [0; LEN]);
        drop(transfer);
        assert_eq!(waited.wait().unwrap_err().code(), Some(code));
        assert_eq!([kept.count(), dropped.count()], [1, 1], "nothing touches it any more: {code}");
        assert!(sevens.to_vec(stream.as_ref()).is_err());
    }
}

/// A fault that loses the context, too.
#[test]
fn a_sticky_fault_ends_a_wait_whatever_its_code() {
    for code in SOUND_FINAL.into_iter().chain([Code::OUT_OF_MEMORY, Code::LAUNCH_FAILED]) {
        for call in [Call::StreamSynchronize, Call::ContextSynchronize] {
            let rig = Rig::new();
            let mut back = vec![0; LEN];
            if call == Call::ContextSynchronize {
                rig.sim.inject(Fault::nth(Call::StreamSynchronize, 1, Code::NOT_READY));
            }
            rig.sim.inject(Fault::nth(call, 1, code).sticky());
            let error = rig.sevens.copy_to_slice(&mut back, rig.stream.as_ref()).unwrap_err();
            assert_eq!((error.code(), error.call()), (Some(code), Some(call)));
            assert!(back == [0; LEN]);
        }
    }
}
