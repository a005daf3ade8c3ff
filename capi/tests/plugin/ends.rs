//! Calls without a driver, in children of forks, and while a thread or the process ends.

use std::cell::Cell;
use std::env;
use std::ffi::{c_int, c_void};
use std::process::Command;
use std::ptr::{null, null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use calluvion::*;

use crate::chosen::*;
use crate::support::*;

/// A pair of functions.
#[derive(Clone, Copy, Debug)]
enum Pair {
    Torch,
    TorchLedger,
    Cupy,
    Ort,
    Handler,
}

const PAIRS: [Pair; 5] = [Pair::Torch, Pair::TorchLedger, Pair::Cupy, Pair::Ort, Pair::Handler];

impl Pair {
    /// A request for 4096 bytes on the legacy default stream.
    fn allocate(self) -> *mut c_void {
        let mut block = null_mut();
        // SAFETY: default streams, no context and a place.
        unsafe {
            match self {
                Self::Torch => block = alluvion_torch_malloc(4096, 0, null_mut()),
                Self::TorchLedger => block = alluvion_torch_ledger_malloc(4096, 0, null_mut()),
                Self::Cupy => block = alluvion_cupy_malloc(null_mut(), 4096, 0),
                Self::Ort => block = alluvion_ort_alloc(4096),
                Self::Handler => {
                    let status = alluvion_handler_alloc(null_mut(), &raw mut block, 4096, null_mut());
                    assert_eq!(status == 0, !block.is_null());
                }
            }
        }
        block
    }

    /// A free on that stream.
    fn free(self, block: *mut c_void) {
        // SAFETY: a block of the function or none, which nothing uses, and default streams.
        unsafe {
            match self {
                Self::Torch => alluvion_torch_free(block, 4096, 0, null_mut()),
                Self::TorchLedger => alluvion_torch_ledger_free(block, 4096, 0, null_mut()),
                Self::Cupy => alluvion_cupy_free(null_mut(), block, 0),
                Self::Ort => alluvion_ort_free(block),
                Self::Handler => {
                    let _ = alluvion_handler_free(null_mut(), block, 4096, null_mut());
                }
            }
        }
    }
}

#[test]
fn without_a_driver_they_answer_null_and_say_why() {
    let chosen = Chosen::new(1);
    // SAFETY: null is the machine of CUDA.
    assert_eq!(unsafe { alv_set_machine(null()) }, ALV_OK);
    let mut cuda = null_mut();
    // SAFETY: a place.
    if unsafe { alv_machine_cuda(&raw mut cuda) } == ALV_OK {
        // SAFETY: a count of this test. A machine with a GPU has nothing to show here.
        unsafe { alv_machine_release(cuda) };
        drop(chosen);
        return;
    }
    for pair in PAIRS {
        assert!(pair.allocate().is_null(), "{pair:?}");
        assert_eq!(error().status, ALV_NO_DRIVER, "{pair:?}");
        pair.free(0x1234_5600 as *mut c_void);
    }
    alluvion_torch_init(1);
    alluvion_torch_empty_cache();
    alluvion_torch_memory_fraction(0.5, 0);
    // SAFETY: no block, and a place that may be null.
    unsafe {
        alluvion_torch_record_stream(0x1234_5600 as *mut c_void, null_mut());
        let block = 0x1234_5600 as *mut c_void;
        assert_eq!(alluvion_torch_base_alloc(block, null_mut()), block);
    }
    // SAFETY: a live machine.
    assert_eq!(unsafe { alv_set_machine(chosen.sim.0) }, ALV_OK);
}

#[test]
fn a_child_of_a_fork_is_refused_and_leaves_its_parents_blocks_alone() {
    let chosen = Chosen::new(1);
    let resource = chosen.set("stats | cuda", 0);
    let blocks = PAIRS.map(Pair::allocate);
    assert_eq!(live(resource), 5 * 4096);
    // SAFETY: the child calls functions that are tested to survive a fork, and ends at once.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process can be forked");
    if child == 0 {
        let mut served = 0;
        for (block, pair) in blocks.into_iter().zip(PAIRS) {
            pair.free(block);
            served += c_int::from(!pair.allocate().is_null());
        }
        alluvion_torch_empty_cache();
        alluvion_torch_memory_fraction(0.5, 0);
        // SAFETY: the parent's block; a default stream.
        unsafe {
            alluvion_torch_record_stream(blocks[0], null_mut());
            alluvion_torch_ledger_record_stream(blocks[1], null_mut());
            served += c_int::from(alluvion_torch_base_alloc(blocks[0], null_mut()) != blocks[0]);
        }
        // SAFETY: ends the process.
        unsafe { libc::_exit(served) };
    }
    let mut status = 0;
    // SAFETY: a child of this process, and a place.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "nothing is served in a child");
    for (block, pair) in blocks.into_iter().zip(PAIRS) {
        pair.free(block);
    }
    assert_eq!(live(resource), 0);
    release(resource);
}

#[test]
fn a_thread_that_ends_frees_what_it_keeps() {
    /// Frees in the destructor of a thread's local.
    struct Late(Cell<[usize; 5]>);

    impl Drop for Late {
        fn drop(&mut self) {
            for (block, pair) in self.0.get().into_iter().zip(PAIRS) {
                pair.free(with_exposed_provenance_mut(block));
            }
        }
    }

    thread_local! {
        static LATE: Late = const { Late(Cell::new([0; 5])) };
    }

    let chosen = Chosen::new(1);
    let resource = chosen.set("stats | cuda", 0);
    thread::spawn(|| {
        // Before the library's own locals of the thread, and so dropped after them.
        LATE.with(|late| late.0.set([0; 5]));
        let blocks = PAIRS.map(|pair| pair.allocate().expose_provenance());
        LATE.with(|late| late.0.set(blocks));
    })
    .join()
    .expect("it does not panic");
    assert_eq!(live(resource), 0);
    release(resource);
}

const IN_CHILD: &str = "ALLUVION_TEST_ENDS";

static AT_EXIT: [AtomicUsize; 5] = [const { AtomicUsize::new(0) }; 5];

extern "C" fn free_at_exit() {
    for (block, pair) in AT_EXIT.iter().zip(PAIRS) {
        pair.free(with_exposed_provenance_mut(block.load(Ordering::Relaxed)));
        // Whether there is still memory is nobody's business; that the call comes back is.
        let _ = pair.allocate();
    }
    println!("freed at the exit");
}

#[test]
fn a_process_that_ends_frees_at_its_exit() {
    if env::var_os(IN_CHILD).is_none() {
        let program = env::current_exe().expect("this program has a file");
        let test = "ends::a_process_that_ends_frees_at_its_exit";
        let mut child = Command::new(program);
        child.args([test, "--exact", "--nocapture"]).env(IN_CHILD, "1");
        let ended = child.output().expect("this program can be run");
        let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.status.success(), "{}: {printed}", ended.status);
        assert!(printed.contains("freed at the exit"), "{printed}");
        return;
    }
    let chosen = Chosen::new(1);
    let resource = chosen.set("pool | cuda", 0);
    for (place, pair) in AT_EXIT.iter().zip(PAIRS) {
        place.store(pair.allocate().expose_provenance(), Ordering::Relaxed);
    }
    // SAFETY: a function that is there at the exit.
    assert_eq!(unsafe { libc::atexit(free_at_exit) }, 0);
    // The machine stays the chosen one.
    std::mem::forget(chosen);
    release(resource);
}
