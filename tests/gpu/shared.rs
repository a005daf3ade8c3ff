//! Containers that real processes share, over a Unix socket, on the GPU of this computer. One side is killed at every step of a
//! hand-over, a hundred times; then the memory of the device, the descriptors and the files of leases are what they were.

#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]
#![expect(unsafe_code, reason = "forks, and kills what was forked")]

use std::env;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{self, Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use alluvion::driver::HandleType;
use alluvion::share::{ExportWay, Import, Imported, ImportedMut, Message, ShareConfig, Shared};
use alluvion::testing::Stall;
use alluvion::{
    AnyResource, Device, DeviceVec, Error, Machine, PoolConfig, Resource as _, ResourceExt, Stream,
};

use crate::left_over::{descriptors, leases};
use crate::shareable::{Shareable, mapped, ways_of};
use crate::sharing_contract::wire;

/// What a child is to be: `import`, `import and fork`, or `export` and the number of a way.
const ROLE: &str = "ALLUVION_TEST_SHARED_ROLE";

/// Elements: 4 MiB, more than a page of the device.
const COUNT: usize = 1 << 20;

/// A process that takes longer hangs: a hundred times what one takes to make a context.
const PATIENCE: Duration = Duration::from_secs(60);

/// One at a time: they look at how much memory the device has free.
static ALONE: Mutex<()> = Mutex::new(());

fn numbers(seed: u32) -> Vec<u32> {
    (0..COUNT as u32).map(|number| number.wrapping_add(seed).wrapping_mul(0x9E37_79B9)).collect()
}

fn checksum(numbers: &[u32]) -> u64 {
    numbers.iter().fold(0, |sum, &number| (sum ^ u64::from(number)).wrapping_mul(0x0000_0100_0000_01B3))
}

/// What the second half of the elements is when an importer has written.
const WRITTEN: u32 = 77;

/// The other side: a process that tells of each step, and waits before the next.
struct Other {
    child: Child,
    socket: UnixStream,
}

impl Other {
    fn start(role: &str) -> Self {
        let (socket, of_child) = UnixStream::pair().expect("there are sockets");
        socket.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        let child = Command::new(env::current_exe().expect("this program has a file"))
            .args(["--exact", "shared::a_child_of_these_tests", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::from(OwnedFd::from(of_child)))
            .stdout(Stdio::null())
            .spawn()
            .expect("this program can be started");
        Self { child, socket }
    }

    /// Waits until it has come to a step. Returns the number that it tells.
    #[track_caller]
    fn reach(&self, step: u64) -> u64 {
        let told = wire::Message::receive(&self.socket).expect("it comes to a step");
        assert_eq!(told.numbers[0], step, "the step that it has come to");
        told.numbers[1]
    }

    fn go_on(&self) {
        tell(&self.socket, 0, 0);
    }

    fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a killed child ends");
    }
}

fn tell(socket: &UnixStream, step: u64, number: u64) {
    wire::Message::of([step, number, 0, 0]).send(socket, None).expect("the other side listens");
}

/// Tells of a step, and waits until it may go on.
fn step(socket: &UnixStream, step: u64, number: u64) {
    tell(socket, step, number);
    let _ = wire::Message::receive(socket).expect("the parent speaks");
}

fn send(socket: &UnixStream, shared: &Shared<DeviceVec<u32, AnyResource>>) {
    let sent =
        wire::Message::of([0; 4]).send_with_bytes(&shared.message().to_bytes(), socket, shared.descriptor());
    sent.expect("the other side listens");
}

fn receive(socket: &UnixStream) -> (Message, Option<OwnedFd>) {
    let (told, bytes) = wire::Message::receive_with_bytes(socket).expect("something was sent");
    (Message::from_bytes(&bytes).expect("it is a message"), told.descriptor)
}

/// The children of the tests below.
#[test]
fn a_child_of_these_tests() {
    let Ok(role) = env::var(ROLE) else { return };
    let socket = std::io::stdin().as_fd().try_clone_to_owned().expect("the parent has given it");
    let socket = UnixStream::from(socket);
    let (device, stream) = gpu();
    match role.strip_prefix("export ") {
        Some(way) => export(&socket, &device, &stream, way),
        None => import(&socket, &stream, role == "import and fork"),
    }
    process::exit(0);
}

const STARTED: u64 = 0;
const RECEIVED: u64 = 1;
const OPENED: u64 = 2;
const READ: u64 = 3;
const WRITING: u64 = 4;
const GIVEN_UP: u64 = 5;
const FORKED: u64 = 6;

/// Forks a child, which has a copy of each descriptor of the device, and returns its number.
fn fork_one_that_waits() -> u64 {
    // SAFETY: the child waits for its end, and calls nothing else.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process can be forked");
    if child == 0 {
        loop {
            // SAFETY: it waits for a signal.
            unsafe { libc::pause() };
        }
    }
    child as u64
}

fn import(socket: &UnixStream, stream: &Stream, forks: bool) {
    step(socket, STARTED, 0);
    let (message, descriptor) = receive(socket);
    step(socket, RECEIVED, 0);
    let mut imported = ImportedMut::<u32>::open(&message, descriptor, stream).expect("it is there");
    step(socket, OPENED, 0);
    let sum = checksum(&imported.to_vec(stream).expect("it can be read"));
    step(socket, READ, sum);
    if forks {
        step(socket, FORKED, fork_one_that_waits());
    }
    // Of some 10 µs each: seconds of them, where the process is to be killed in the middle of its work.
    for _ in 0..if forks { 200_000 } else { 200 } {
        imported
            .slice_mut(COUNT / 2..)
            .and_then(|mut half| half.fill(WRITTEN, stream))
            .expect("it can be written");
    }
    step(socket, WRITING, 0);
    drop(imported);
    step(socket, GIVEN_UP, 0);
}

const SHARED: u64 = 10;
const AFTER: u64 = 11;
const PENDING: u64 = 12;

fn export(socket: &UnixStream, device: &Device, stream: &Stream, way: &str) {
    let (number, is_pending) = way.split_once(' ').map_or((way, false), |(number, _)| (number, true));
    let (_, make) = ways_of(device)[number.parse::<usize>().expect("it is a number")];
    let mut vector = DeviceVec::from_slice_in(&numbers(3), stream, make(device)).expect("there is memory");
    if is_pending {
        let stall = Stall::on(stream);
        vector.fill(1, stream).expect("it can be written");
        let shared = vector.share(stream).expect("it can be shared");
        send(socket, &shared);
        step(socket, PENDING, 0);
        drop(stall);
        return;
    }
    let shared = vector.share(stream).expect("it can be shared");
    send(socket, &shared);
    step(socket, SHARED, 0);
    step(socket, AFTER, 0);
}

/// What must be as it was in the end.
struct Before {
    free_bytes: usize,
    descriptors: usize,
    leases: usize,
}

impl Before {
    fn look(device: &Device) -> Self {
        device.synchronize().expect("nothing has failed");
        let free_bytes = device.memory_info().expect("the device says").free_bytes;
        Self { free_bytes, descriptors: descriptors(), leases: leases() }
    }

    #[track_caller]
    fn require_again(&self, device: &Device) {
        eventually(
            || device.memory_info().is_ok_and(|info| info.free_bytes >= self.free_bytes),
            || {
                let free = device.memory_info().expect("the device says").free_bytes;
                format!("{} bytes of the device were free, and {free} are", self.free_bytes)
            },
        );
        assert_eq!(descriptors(), self.descriptors, "descriptors");
        assert_eq!(leases(), self.leases, "files of leases");
    }
}

#[track_caller]
fn eventually(is_so: impl Fn() -> bool, what: impl Fn() -> String) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{}", what());
        thread::sleep(Duration::from_millis(5));
    }
}

fn gpu() -> (Device, Stream) {
    let machine = Machine::of_environment().expect("these tests need a GPU");
    let device = machine.device(0).expect("these tests need a GPU");
    let stream = device.stream().expect("a stream");
    (device, stream)
}

/// A hand-over whose importer is killed when it has come to `last`.
fn importer_dies(device: &Device, stream: &Stream, (name, make): Shareable, last: u64) {
    let written = numbers(last as u32);
    let resource = make(device);
    let vector = DeviceVec::from_slice_in(&written, stream, resource.clone()).expect("there is memory");
    let shared = Shared::with_config(vector, ShareConfig::default().writable(), stream)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let other = Other::start("import");
    for at in STARTED..=last {
        let told = other.reach(at);
        if at == READ {
            assert_eq!(told, checksum(&written), "{name}: what the importer has read");
        }
        if at < last {
            other.go_on();
            if at == STARTED {
                send(&other.socket, &shared);
            }
        }
    }
    let has_it = (OPENED..GIVEN_UP).contains(&last);
    assert_eq!(shared.importers().expect("the file is there"), usize::from(has_it), "{name} at step {last}");
    let shared = if has_it { shared.try_end().expect_err("it has it open") } else { shared };
    other.kill();
    let vector = shared.end().unwrap_or_else(|error| panic!("{name} at step {last}: {error}"));
    let read = vector.to_vec(stream).expect("it can be read");
    assert_eq!(read[..COUNT / 2], written[..COUNT / 2], "{name} at step {last}: what nobody wrote");
    let second = &read[COUNT / 2..];
    let is_old = || *second == written[COUNT / 2..];
    let is_new = || second.iter().all(|&number| number == WRITTEN);
    match last {
        STARTED..=READ => assert!(is_old(), "{name} at step {last}"),
        GIVEN_UP => assert!(is_new(), "{name} at step {last}"),
        // It was killed in the middle of its work.
        _ => {
            assert!(second.iter().zip(&written[COUNT / 2..]).all(|(now, old)| now == old || *now == WRITTEN));
        }
    }
}

/// A hand-over whose exporter is killed when this process has come to `last`.
fn exporter_dies(stream: &Stream, number: usize, last: u64) {
    let name = ways_of(stream.device())[number].0;
    let other = Other::start(&format!("export {number}"));
    let (message, descriptor) = receive(&other.socket);
    assert_eq!(other.reach(SHARED), 0);
    let copy =
        || descriptor.as_ref().map(|descriptor| descriptor.try_clone().expect("there are descriptors"));
    let opened = (last > 0).then(|| Imported::<u32>::open(&message, copy(), stream).expect("it is there"));
    let sum = checksum(&numbers(3));
    if let Some(opened) = &opened
        && last > 1
    {
        assert_eq!(checksum(&opened.to_vec(stream).expect("it can be read")), sum, "{name}");
    }
    if last > 2 {
        // It is killed while it ends by itself.
        other.go_on();
        assert_eq!(other.reach(AFTER), 0);
        other.go_on();
    }
    other.kill();
    if let Some(opened) = opened {
        assert_eq!(
            checksum(&opened.to_vec(stream).expect("it can be read")),
            sum,
            "{name}: after the exporter's end"
        );
    }
    let late = || Imported::<u32>::open(&message, copy(), stream).map(drop);
    eventually(|| late().as_ref().is_err_and(Error::is_stale), || format!("{name}: {:?}", late()));
}

#[test]
fn importers_that_are_killed_a_hundred_times() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (device, stream) = gpu();
    // What the first use of a way sets up in the driver stays.
    let ways = ways_of(&device);
    for &way in &ways {
        importer_dies(&device, &stream, way, GIVEN_UP);
    }
    let before = Before::look(&device);
    for round in 0..100 {
        importer_dies(&device, &stream, ways[round % ways.len()], round as u64 % 6);
    }
    before.require_again(&device);
}

#[test]
fn exporters_that_are_killed_a_hundred_times() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (device, stream) = gpu();
    let ways = ways_of(&device).len();
    for number in 0..ways {
        exporter_dies(&stream, number, 3);
    }
    let before = Before::look(&device);
    for round in 0..100 {
        exporter_dies(&stream, round % ways, round as u64 % 4);
    }
    before.require_again(&device);
}

/// A device that waited for the event of such an exporter would wait for ever.
#[test]
fn exporters_that_are_killed_before_their_work_is_done() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (device, stream) = gpu();
    if !device.capabilities().expect("it can be asked").shared_events {
        println!("not tested: without events that processes share, an exporter waits for its work itself");
        return;
    }
    for (number, (name, _)) in ways_of(&device).iter().enumerate() {
        let other = Other::start(&format!("export {number} pending"));
        let (message, descriptor) = receive(&other.socket);
        assert_eq!(other.reach(PENDING), 0);
        thread::scope(|scope| {
            let opens = scope.spawn(|| {
                let import = Import::new(&message);
                let import = match descriptor {
                    Some(descriptor) => import.descriptor(descriptor),
                    None => import,
                };
                import.open::<u32>(&stream).map(drop)
            });
            thread::sleep(Duration::from_millis(50));
            assert!(!opens.is_finished(), "{name}: it waits for what is not done");
            other.kill();
            let outcome = opens.join().expect("it does not panic");
            assert!(outcome.as_ref().is_err_and(Error::is_stale), "{name}: {outcome:?}");
        });
        stream.synchronize().expect("it waits for nothing");
    }
    device.synchronize().expect("nothing has failed");
}

/// While a child of an importer's fork lives, the driver goes on with what the importer had queued: nobody gets the memory before.
#[test]
fn an_importer_that_is_killed_and_leaves_a_child() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (device, stream) = gpu();
    for (name, make) in ways_of(&device) {
        let vector = DeviceVec::from_slice_in(&numbers(9), &stream, make(&device)).expect("there is memory");
        let mut shared = Shared::with_config(vector, ShareConfig::default().writable(), &stream)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let other = Other::start("import and fork");
        let mut child = 0;
        for at in [STARTED, RECEIVED, OPENED, READ, FORKED] {
            child = other.reach(at);
            other.go_on();
            if at == STARTED {
                send(&other.socket, &shared);
            }
        }
        // Some of its work is queued: a queue has an end, so it may not come to a step of its own.
        thread::sleep(Duration::from_millis(100));
        other.kill();
        for _ in 0..100 {
            shared = shared.try_end().map(drop).expect_err(name);
            assert_eq!(shared.importers().expect("the file is there"), 1, "{name}");
            thread::sleep(Duration::from_millis(5));
        }
        // SAFETY: it was forked by a process of this test, and waits for this.
        assert_eq!(unsafe { libc::kill(child as libc::pid_t, libc::SIGKILL) }, 0);
        let mut vector = shared.end().unwrap_or_else(|error| panic!("{name}: {error}"));
        let written = numbers(10);
        vector.copy_from_slice(&written, &stream).expect("it can be written");
        for _ in 0..20 {
            assert!(
                vector.to_vec(&stream).expect("it can be read") == written,
                "{name}: somebody has written"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What one process shares many times is opened once for each segment, whatever the way; and given back as a whole.
#[test]
fn many_pieces_between_two_processes() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (device, stream) = gpu();
    let ways = ways_of(&device);
    for &way in &ways {
        for _ in 0..3 {
            importer_dies(&device, &stream, way, GIVEN_UP);
        }
    }
    let before = Before::look(&device);
    for way in ways {
        let resource = (way.1)(&device);
        let shared: Vec<_> = (0..64_u32)
            .map(|number| {
                DeviceVec::filled_in(1000, number, &stream, resource.clone()).expect("there is memory")
            })
            .map(|vector| vector.share(&stream).unwrap_or_else(|error| panic!("{}: {error}", way.0)))
            .collect();
        assert!(shared.iter().all(|shared| shared.importers().is_ok_and(|importers| importers == 0)));
        for shared in shared {
            drop(shared.try_end().expect("nobody has it"));
        }
        drop(resource);
    }
    before.require_again(&device);
}

/// More short pages than one message of the system carries descriptors.
const PAGES: usize = 300;

/// Shares a block on [`PAGES`] pages, with a process that is killed while it writes. Prints what the first share and open took.
fn hundreds_of_pages(device: &Device, stream: &Stream) {
    let source = mapped(device);
    let page = source.pages().expect("it has pages").page_bytes();
    // There is no room for longer pages than these, which come one by one.
    let pool = AnyResource::new(
        source.pool(PoolConfig::default().maximum(PAGES * page)).expect("nothing is asked for yet"),
    );
    let single = || DeviceVec::<u8, _>::uninit_in(page, stream, pool.clone()).expect("there is memory");
    let short: Vec<_> = (0..PAGES).map(|_| single()).collect();
    drop(short);
    stream.synchronize().expect("nothing has failed");
    let written: Vec<u32> =
        (0..(PAGES * page / size_of::<u32>()) as u32).map(|at| at.wrapping_mul(0x9E37_79B9)).collect();
    let vector = DeviceVec::from_slice_in(&written, stream, pool.clone()).expect("there is room");
    stream.synchronize().expect("nothing has failed");
    let begun = Instant::now();
    let shared = Shared::with_config(vector, ShareConfig::default().writable(), stream)
        .unwrap_or_else(|error| panic!("{error}"));
    let took = begun.elapsed();
    assert_eq!(shared.message().way(), ExportWay::AdjacentPagesByDescriptor);
    assert_eq!(shared.message().visible_bytes(), PAGES * page);
    let other = Other::start("import");
    assert_eq!(other.reach(STARTED), 0);
    other.go_on();
    send(&other.socket, &shared);
    assert_eq!(other.reach(RECEIVED), 0);
    let begun = Instant::now();
    other.go_on();
    assert_eq!(other.reach(OPENED), 0);
    println!("fact: {PAGES} pages of {page} bytes: shared in {took:?}, opened in {:?}", begun.elapsed());
    other.go_on();
    assert_eq!(other.reach(READ), checksum(&written), "what the importer has read");
    assert_eq!(shared.importers().expect("the file is there"), 1);
    other.go_on();
    assert_eq!(other.reach(WRITING), 0);
    other.kill();
    let vector = shared.end().unwrap_or_else(|error| panic!("{error}"));
    let read = vector.to_vec(stream).expect("it can be read");
    assert!(read[..COUNT / 2] == written[..COUNT / 2], "what nobody wrote");
    let later = read[COUNT / 2..].iter().zip(&written[COUNT / 2..]);
    assert!(later.into_iter().all(|(now, old)| now == old || *now == WRITTEN));
}

#[test]
fn a_block_on_hundreds_of_pages() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (device, stream) = gpu();
    let capabilities = device.capabilities().expect("it can be asked");
    if !capabilities.page_handle_types.contains(HandleType::POSIX_FILE_DESCRIPTOR) {
        println!("not tested: the device has no pages that are lent by descriptors");
        return;
    }
    hundreds_of_pages(&device, &stream);
    let before = Before::look(&device);
    hundreds_of_pages(&device, &stream);
    before.require_again(&device);
}
