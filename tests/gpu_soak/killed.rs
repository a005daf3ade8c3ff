//! Processes that open memory of the pool, write to it, and are killed meanwhile.

use std::env;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{self, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use alluvion::share::{ImportedMut, Message, ShareConfig, Shared};
use alluvion::source::Mapped;
use alluvion::{DeviceVec, Machine, Pool, Resource as _};

use crate::left_over::{descriptors, leases};
use crate::wire;

/// Set in the child.
const CHILD: &str = "ALLUVION_TEST_SOAK_CHILD";

/// Elements: 4 MiB, more than a page.
const COUNT: usize = 1 << 20;

const WRITTEN: u32 = 77;

/// What must be as it was in the end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Left {
    descriptors: usize,
    leases: usize,
}

impl Left {
    pub(crate) fn look() -> Self {
        Self { descriptors: descriptors(), leases: leases() }
    }
}

/// What the first use sets up in the driver and in this process stays.
pub(crate) fn warm_up(pool: &Arc<Pool<Mapped>>) {
    let once = AtomicUsize::new(0);
    lend_to_the_dying(pool, &|| once.load(Ordering::Relaxed) == 0, &once);
}

/// Lends a container to a process, kills it while it writes, and looks at what it could not reach. Counts the killed.
pub(crate) fn lend_to_the_dying(pool: &Arc<Pool<Mapped>>, goes_on: &dyn Fn() -> bool, killed: &AtomicUsize) {
    let stream = pool.device().stream().expect("a stream can be made");
    let mut word = 1_u32;
    while goes_on() {
        word = word.wrapping_add(0x9E37_79B9);
        let vector = match DeviceVec::filled_in(COUNT, word, &stream, Arc::clone(pool)) {
            Ok(vector) => vector,
            Err(error) => {
                assert!(error.is_out_of_memory(), "{error}");
                continue;
            }
        };
        let shared = Shared::with_config(vector, ShareConfig::default().writable(), &stream);
        let shared = shared.unwrap_or_else(|error| panic!("{error}"));
        let (socket, of_child) = UnixStream::pair().expect("there are sockets");
        let mut child = Command::new(env::current_exe().expect("this program has a file"))
            .args(["--exact", "killed::a_child_that_writes_until_it_is_killed", "--nocapture"])
            .env(CHILD, "yes")
            .stdin(Stdio::from(OwnedFd::from(of_child)))
            .stdout(Stdio::null())
            .spawn()
            .expect("this program can be started");
        let bytes = shared.message().to_bytes();
        let sent = wire::Message::of([0; 4]).send_with_bytes(&bytes, &socket, shared.descriptor());
        sent.expect("the child listens");
        wire::Message::receive(&socket).expect("the child has it open");
        assert_eq!(shared.importers().expect("the file is there"), 1);
        // From the first of its kernels to some thousands.
        thread::sleep(Duration::from_millis(u64::from(word % 8)));
        child.kill().expect("a child can be killed");
        child.wait().expect("a killed child ends");
        killed.fetch_add(1, Ordering::Relaxed);
        let vector = shared.end().unwrap_or_else(|error| panic!("{error}"));
        let read = vector.to_vec(&stream).expect("it can be read");
        let (first, second) = read.split_at(COUNT / 2);
        assert!(first.iter().all(|&read| read == word), "what the importer did not write");
        assert!(second.iter().all(|&read| read == word || read == WRITTEN), "what the importer wrote");
    }
}

/// The child.
#[test]
fn a_child_that_writes_until_it_is_killed() {
    if env::var_os(CHILD).is_none() {
        return;
    }
    let socket = std::io::stdin().as_fd().try_clone_to_owned().expect("the parent has given it");
    let socket = UnixStream::from(socket);
    let (told, bytes) = wire::Message::receive_with_bytes(&socket).expect("the parent speaks");
    let message = Message::from_bytes(&bytes).expect("it is a message");
    let machine = Machine::of_environment().expect("there is a GPU");
    let stream = machine.device(0).and_then(|device| device.stream()).expect("there is a GPU");
    let mut imported = ImportedMut::<u32>::open(&message, told.descriptor, &stream).expect("it is lent");
    wire::Message::of([0; 4]).send(&socket, None).expect("the parent listens");
    // Until the parent kills this process; if the parent is gone, its end of the socket is.
    socket.set_nonblocking(true).expect("it can be set");
    while !matches!((&socket).read(&mut [0]), Ok(0)) {
        let half = imported.slice_mut(COUNT / 2..);
        half.and_then(|mut half| half.fill(WRITTEN, &stream)).expect("it can be written");
    }
    process::exit(0);
}
