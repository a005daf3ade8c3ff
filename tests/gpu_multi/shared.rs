//! Containers of one GPU that a process on the other one reads and writes, over a Unix socket.

use std::env;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{self, Command, Stdio};
use std::time::Duration;

use alluvion::share::{Import, Message, ShareConfig, Shared};
use alluvion::{DeviceVec, ErrorKind, Machine, Stream};

use crate::shareable::ways_of;
use crate::sharing_contract::wire;

/// Set in a child: the number of its GPU.
const CARD: &str = "ALLUVION_TEST_CARD";

/// Elements: 4 MiB, more than a page of the device.
const COUNT: usize = 1 << 20;

/// What a child answers if the way of sharing is for the memory's own device alone.
const REFUSED: u64 = 2;

/// A process that takes longer hangs: a hundred times what one takes to make a context.
const PATIENCE: Duration = Duration::from_secs(60);

fn stream_of(card: u32) -> Stream {
    let machine = Machine::of_environment().expect("these tests need a driver");
    machine.device(card).and_then(|device| device.stream()).expect("these tests need two GPUs")
}

fn numbers(seed: u32) -> Vec<u32> {
    (0..COUNT as u32).map(|number| number.wrapping_mul(0x9E37_79B9) ^ seed).collect()
}

/// The child: takes what it is sent until the socket ends, says whether it has the numbers, and writes the second half.
#[test]
#[ignore = "needs two GPUs"]
fn a_child_of_these_tests() {
    let Some(card) = env::var(CARD).ok().and_then(|card| card.parse().ok()) else { return };
    let socket = std::io::stdin().as_fd().try_clone_to_owned().expect("the parent has given it");
    let socket = UnixStream::from(socket);
    let stream = stream_of(card);
    while let Ok((told, bytes)) = wire::Message::receive_with_bytes(&socket) {
        let seed = told.numbers[1];
        let message = Message::from_bytes(&bytes).expect("it is a message");
        let import = Import::new(&message).peer();
        let import = match told.descriptor {
            Some(descriptor) => import.descriptor(descriptor),
            None => import,
        };
        let mut imported = match import.open_mut::<u32>(&stream) {
            Ok(imported) => imported,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                wire::Message::of([REFUSED, 0, 0, 0]).send(&socket, None).expect("the parent listens");
                continue;
            }
        };
        let is_same = imported.to_vec(&stream).expect("it can be read") == numbers(seed as u32);
        let half = imported.slice_mut(COUNT / 2..);
        half.and_then(|mut half| half.fill(seed as u32 + 1, &stream)).expect("it can be written");
        drop(imported);
        wire::Message::of([is_same.into(), 0, 0, 0]).send(&socket, None).expect("the parent listens");
    }
    process::exit(0);
}

#[test]
#[ignore = "needs two GPUs"]
fn containers_of_each_device_are_used_by_a_process_on_the_other() {
    for (own, other) in [(0, 1), (1, 0)] {
        let stream = stream_of(own);
        let (socket, of_child) = UnixStream::pair().expect("there are sockets");
        socket.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        let mut child = Command::new(env::current_exe().expect("this program has a file"))
            .args([
                "--exact",
                "shared::a_child_of_these_tests",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(CARD, other.to_string())
            .stdin(Stdio::from(OwnedFd::from(of_child)))
            .stdout(Stdio::null())
            .spawn()
            .expect("this program can be started");
        let ways = ways_of(stream.device());
        assert!(!ways.is_empty());
        for (seed, (name, make)) in (10..).zip(ways) {
            let vector = DeviceVec::from_slice_in(&numbers(seed), &stream, make(stream.device()));
            let vector = vector.unwrap_or_else(|error| panic!("{name}: {error}"));
            let shared = Shared::with_config(vector, ShareConfig::default().writable(), &stream)
                .unwrap_or_else(|kept| panic!("{name}: {}", kept.error()));
            let bytes = shared.message().to_bytes();
            let sent = wire::Message::of([0, seed.into(), 0, 0]).send_with_bytes(
                &bytes,
                &socket,
                shared.descriptor(),
            );
            sent.expect("the child listens");
            let answer = wire::Message::receive(&socket).unwrap_or_else(|error| panic!("{name}: {error}"));
            // The driver imports a block of a pool of its own for that device alone.
            let expected = if name.ends_with("cuda-async") { REFUSED } else { 1 };
            assert_eq!(answer.numbers[0], expected, "{name}: the other device reads what this one wrote");
            let vector = shared.end().unwrap_or_else(|kept| panic!("{name}: {}", kept.error()));
            if expected == REFUSED {
                continue;
            }
            let found = vector.to_vec(&stream).expect("it can be read");
            assert!(found[..COUNT / 2] == numbers(seed)[..COUNT / 2], "{name}");
            assert!(found[COUNT / 2..].iter().all(|&number| number == seed + 1), "{name}");
            println!("fact: a process on gpu {other} uses memory of gpu {own}: {name}");
        }
        drop(socket);
        assert!(child.wait().expect("it ends").success());
    }
}
