//! Another process, which does what it is told: a child of this one with a driver of its own, or a simulated one.

use std::env;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{self, Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use alluvion::driver::{Code, Driver};

use super::wire::Message;
use super::worker::{Op, serve};

/// The answer of a process that has ended instead, as no driver does.
pub(crate) const CRASHED: Code = Code(u32::MAX);
/// The answer of one that does not answer.
pub(crate) const HANGS: Code = Code(u32::MAX - 1);

/// Set in the child, to the number of its device.
const ORDINAL: &str = "ALLUVION_TEST_PROCESS";
/// A process that takes longer hangs: a hundred times what one takes to make a context.
const PATIENCE: Duration = Duration::from_secs(60);

/// Memory or an event that a process has lent.
pub(crate) type Handle = [u8; 64];

/// A pool or pages that a process has lent.
#[derive(Debug)]
pub(crate) enum Lent {
    Descriptor(OwnedFd),
    Fabric(Handle),
}

/// A process that is killed at the end.
pub(crate) struct Process {
    socket: UnixStream,
    end: End,
}

enum End {
    Child(Child),
    /// What ends it, once, and its thread.
    Simulated(Option<Box<dyn FnOnce()>>, Option<JoinHandle<()>>),
}

/// In a child of [`Process::start`]: serves until it is over, and does not return. Elsewhere: nothing.
pub(crate) fn serve_if_child(load: impl FnOnce() -> Arc<dyn Driver>) {
    let Ok(ordinal) = env::var(ORDINAL) else { return };
    let ordinal = ordinal.parse().expect("it is a number");
    let socket = std::io::stdin().as_fd().try_clone_to_owned().expect("the parent has given it");
    let is_told = serve(load(), ordinal, &UnixStream::from(socket));
    process::exit(if is_told { 0 } else { 1 });
}

impl Process {
    /// This program again, with the test alone that calls [`serve_if_child`].
    pub(crate) fn start(test: &str, ordinal: u32) -> Self {
        Self::start_with(test, ordinal, &[])
    }

    /// The same, with variables of its own.
    pub(crate) fn start_with(test: &str, ordinal: u32, variables: &[(&str, &str)]) -> Self {
        let (socket, of_child) = UnixStream::pair().expect("there are sockets");
        let child = Command::new(env::current_exe().expect("this program has a file"))
            .args(["--exact", test, "--nocapture", "--test-threads=1", "--include-ignored"])
            .env(ORDINAL, ordinal.to_string())
            .envs(variables.iter().copied())
            .stdin(Stdio::from(OwnedFd::from(of_child)))
            .stdout(Stdio::null())
            .spawn()
            .expect("this program can be started");
        Self::with(socket, End::Child(child))
    }

    /// A process of a simulated machine. `kill` ends it as SIGKILL would: whatever the driver was asked, it has returned.
    pub(crate) fn simulated(driver: Arc<dyn Driver>, ordinal: u32, kill: impl FnOnce() + 'static) -> Self {
        Self::of_thread(ordinal, move || driver, kill)
    }

    /// The same, with a driver that the thread loads which stands for the process.
    pub(crate) fn of_thread(
        ordinal: u32,
        load: impl FnOnce() -> Arc<dyn Driver> + Send + 'static,
        kill: impl FnOnce() + 'static,
    ) -> Self {
        let (socket, of_worker) = UnixStream::pair().expect("there are sockets");
        let worker = thread::spawn(move || {
            serve(load(), ordinal, &of_worker);
        });
        Self::with(socket, End::Simulated(Some(Box::new(kill)), Some(worker)))
    }

    fn with(socket: UnixStream, end: End) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        Self { socket, end }
    }

    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self.end, End::Simulated(..))
    }

    fn ask_with(
        &self,
        op: Op,
        numbers: [u64; 3],
        handle: Option<&Handle>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Message, Code> {
        let [a, b, c] = numbers;
        let mut asked = Message::of([op as u64, a, b, c]);
        asked.handle = handle.copied().unwrap_or(asked.handle);
        let answered = asked.send(&self.socket, descriptor).and_then(|()| Message::receive(&self.socket));
        match answered {
            Ok(answer) if answer.numbers[0] == 0 => Ok(answer),
            Ok(answer) => Err(Code(answer.numbers[0] as u32)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Err(HANGS),
            Err(_) => Err(CRASHED),
        }
    }

    /// Asks for what three numbers say.
    pub(crate) fn ask(&self, op: Op, numbers: [u64; 3]) -> Result<u64, Code> {
        self.ask_with(op, numbers, None, None).map(|answer| answer.numbers[1])
    }

    /// Asks for what must succeed.
    #[track_caller]
    pub(crate) fn must(&self, op: Op, numbers: [u64; 3]) -> u64 {
        self.ask(op, numbers).unwrap_or_else(|code| panic!("{op:?}: {code}"))
    }

    /// Asks for a handle.
    pub(crate) fn handle(&self, op: Op, number: u64) -> Result<Handle, Code> {
        self.ask_with(op, [number, 0, 0], None, None).map(|answer| answer.handle)
    }

    /// Asks for something to be made of a handle.
    pub(crate) fn open(&self, op: Op, number: u64, handle: &Handle) -> Result<u64, Code> {
        self.ask_with(op, [number, 0, 0], Some(handle), None).map(|answer| answer.numbers[1])
    }

    /// Asks for a pool or for pages, to be imported elsewhere.
    pub(crate) fn export(&self, op: Op, number: u64, handle_type: u32) -> Result<Lent, Code> {
        let answer = self.ask_with(op, [number, handle_type.into(), 0], None, None)?;
        Ok(answer.descriptor.map_or(Lent::Fabric(answer.handle), Lent::Descriptor))
    }

    /// Asks for a pool or for pages to be imported. A descriptor is copied, and the copy closed when that is done.
    pub(crate) fn import(&self, op: Op, lent: &Lent) -> Result<u64, Code> {
        let answer = match lent {
            Lent::Descriptor(descriptor) => self.ask_with(op, [0; 3], None, Some(descriptor.as_fd())),
            Lent::Fabric(handle) => self.ask_with(op, [0; 3], Some(handle), None),
        };
        answer.map(|answer| answer.numbers[1])
    }

    /// The byte that all of the range has, or `worker::MIXED`.
    #[track_caller]
    pub(crate) fn read(&self, address: u64, bytes: u64) -> u64 {
        self.must(Op::Read, [address, bytes, 0])
    }

    /// Fills and waits.
    #[track_caller]
    pub(crate) fn write(&self, address: u64, byte: u8, bytes: u64) {
        self.must(Op::Fill, [address, byte.into(), bytes]);
        self.must(Op::Synchronize, [0; 3]);
    }

    /// Lets it leave by itself: it gives nothing back, as a program that ends.
    pub(crate) fn leave(mut self) {
        let leave = Message::of([Op::Leave as u64, 0, 0, 0]);
        leave.send(&self.socket, None).expect("it listens");
        if let End::Child(child) = &mut self.end {
            assert!(child.wait().expect("a child can be waited for").success());
        }
    }

    /// Ends it as SIGKILL does.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        match &mut self.end {
            End::Child(child) => {
                // One that has ended already cannot be killed, only waited for.
                let _ = child.kill();
                let _ = child.wait();
            }
            End::Simulated(kill, worker) => {
                let _ = kill.take().map(|kill| kill());
                let _ = self.socket.shutdown(std::net::Shutdown::Both);
                let ended = worker.take().map(JoinHandle::join);
                assert!(thread::panicking() || matches!(ended, Some(Ok(()))), "the worker has panicked");
            }
        }
    }
}
