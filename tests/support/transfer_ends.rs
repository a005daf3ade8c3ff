//! How transfers end when the process does, or when it forks in the middle of them.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use alluvion::source::Cuda;
use alluvion::testing::stall;
use alluvion::{DeviceVec, Error, Machine, PinnedAlloc, Stream};

use crate::child::done;
use crate::wait_for_fork::wait_for_fork;

/// Longer than everything that is done beside a stream that is held up.
const STALL: Duration = Duration::from_millis(50);

type Vector = DeviceVec<u8, Cuda>;
type Pinned = allocator_api2::vec::Vec<u8, PinnedAlloc>;
/// One transfer of all elements, in one of the ways that there are.
type Transfer = fn(&mut Vector, &mut Vec<u8>, &mut Pinned, &Stream) -> Result<(), Error>;

const TRANSFERS: [Transfer; 10] = [
    |vector, _, _, stream| vector.to_vec(stream.as_ref()).map(drop),
    |vector, _, _, stream| vector.get(7, stream.as_ref()).map(drop),
    |vector, host, _, stream| vector.copy_to_slice(host, stream.as_ref()),
    |vector, _, pinned, stream| vector.copy_to_slice(pinned, stream.as_ref()),
    |vector, host, _, stream| vector.copy_from_slice(host, stream.as_ref()),
    |vector, _, pinned, stream| vector.copy_from_slice(pinned, stream.as_ref()),
    |vector, host, pinned, stream| {
        let mut other = Vector::uninit_in(vector.len(), stream.as_ref(), vector.resource().clone())?;
        stream.scope(|scope| {
            scope.download(&*vector, host)?;
            scope.upload(&mut other, pinned)
        })
    },
    |vector, _, pinned, stream| stream.scope(|scope| scope.download(&*vector, pinned)),
    |vector, host, _, stream| {
        *host = vector.download(core::mem::take(host), stream.as_ref())?.wait()?;
        Ok(())
    },
    |vector, host, _, stream| {
        drop(vector.upload(host.clone(), stream.as_ref())?);
        Ok(())
    },
];

/// The process ends, by `exit` or by returning from `main`, while a thread for each kind of transfer makes one after another.
pub(crate) fn end_under_transfers(machine: &Machine, bytes: usize, by_exit: bool) {
    let device = machine.device(0).unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    for transfer in TRANSFERS {
        let (device, begun) = (device.clone(), Arc::clone(&begun));
        thread::spawn(move || {
            let stream = device.stream().unwrap();
            let mut vector = Vector::zeroed_in(bytes, stream.as_ref(), Cuda::new(&device)).unwrap();
            let mut host = vec![0; bytes];
            let mut pinned = Pinned::new_in(PinnedAlloc::new(&device).unwrap());
            pinned.resize(bytes, 0);
            transfer(&mut vector, &mut host, &mut pinned, &stream).unwrap();
            begun.fetch_add(1, SeqCst);
            // A driver's lock may be unfair: threads that make transfers without end keep others from their first.
            while begun.load(SeqCst) < TRANSFERS.len() {
                thread::yield_now();
            }
            while host.len() == bytes {
                // At the end, an error or no return.
                let _ = transfer(&mut vector, &mut host, &mut pinned, &stream);
            }
            // The buffer went with the last transfer.
            loop {
                thread::park();
            }
        });
    }
    while begun.load(SeqCst) < TRANSFERS.len() {
        thread::yield_now();
    }
    done();
    if by_exit {
        process::exit(0);
    }
}

/// A child of a fork within a scope, and with a transfer under way: it waits for nobody, leaks what is not its own and ends. To the
/// parent nothing has happened.
#[expect(unsafe_code, reason = "forks")]
pub(crate) fn fork_within_transfers(machine: &Machine) {
    const LEN: usize = 100_000;
    let device = machine.device(0).unwrap();
    let stream = device.stream().unwrap();
    let vector = DeviceVec::filled_in(LEN, 7_u8, stream.as_ref(), Cuda::new(&device)).unwrap();
    let (mut back, mut child) = (vec![0; LEN], 0);
    stall(stream.as_ref(), STALL);
    let waited = vector.download(vec![0; LEN], stream.as_ref()).unwrap();
    let dropped = vector.download(vec![0; LEN], stream.as_ref()).unwrap();
    let scope = stream.scope(|scope| {
        scope.download(&vector, &mut back)?;
        // SAFETY: the child runs on this thread alone. It uses the C library's allocator, which survives a fork, and locks of this
        // crate that no other thread holds: there is none that uses it.
        child = unsafe { libc::fork() };
        Ok(())
    });
    assert!(child >= 0, "a process can be forked");
    if child == 0 {
        drop(dropped);
        let refused = scope.is_err_and(|error| error.is_shut_down())
            && waited.wait().is_err_and(|error| error.is_shut_down())
            && vector.to_vec(stream.as_ref()).is_err_and(|error| error.is_shut_down());
        // SAFETY: ends the process at once. The handlers of the parent's exit are the parent's.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    wait_for_fork(child);
    scope.unwrap();
    drop(dropped);
    assert!(back == [7; LEN] && waited.wait().unwrap() == [7; LEN]);
    drop((vector, stream));
    done();
}
