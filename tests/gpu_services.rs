//! Two services under a limit that they share, on one GPU or on one each, one of which is killed each second, for twenty seconds, or as
//! many as `ALLUVION_SOAK_SECONDS` says.

#[path = "support/raw_block.rs"]
mod raw_block;
#[path = "support/rerun.rs"]
mod rerun;
#[path = "support/shared_directory.rs"]
mod shared_directory;

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use alluvion::adaptor::{Allowance, SharedConfig};
use alluvion::source::Mapped;
use alluvion::{Device, Machine, PoolConfig, Resource, ResourceExt};
use raw_block::{Held, layout_of};
use rerun::{CHILD, is_child};
use shared_directory::SharedDirectory;

/// Where the file of the limit is, who the child is, and the number of its GPU.
const DIRECTORY: &str = "ALLUVION_TEST_DIRECTORY";
const MEMBER: &str = "ALLUVION_TEST_MEMBER";
const CARD: &str = "ALLUVION_TEST_CARD";

/// The limit of all, and what each of the two is sure of: together half of it, so that they compete for the rest.
const LIMIT: usize = 4 << 30;
const GUARANTEE: usize = 1 << 30;
/// What a process has on the device beside its memory: its context. 520 MiB on an H200 with driver 580.
const CONTEXT: usize = 1 << 30;

const BLOCK: usize = 32 << 20;

/// Numbers that look random, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

fn config(directory: &Path) -> SharedConfig {
    SharedConfig::new("card", LIMIT)
        .directory(directory)
        .guarantee("server", GUARANTEE)
        .guarantee("trainer", GUARANTEE)
}

fn gpu(card: u32) -> Device {
    let machine = Machine::of_environment().unwrap_or_else(|error| panic!("a test needs a GPU: {error}"));
    machine.device(card).unwrap_or_else(|error| panic!("a test needs GPU {card}: {error}"))
}

fn say(word: &str) {
    println!("{word}");
    std::io::stdout().flush().expect("the parent listens");
}

/// Has its guarantee first, then as much as it can get, in blocks that it writes and checks, until it is killed.
fn serve(directory: &Path, member: &str, card: u32) -> ! {
    let allowance =
        Allowance::shared(&config(directory).member(member)).unwrap_or_else(|error| panic!("{error}"));
    let device = gpu(card);
    let stream = device.stream().expect("a GPU has streams");
    let source = Mapped::new(&device).expect("a GPU maps pages").budget(allowance.clone());
    let pool = source.pool(PoolConfig::default().maximum(LIMIT)).expect("a pool can be made");
    let mut dice = Dice(std::process::id().into());
    let mut held = Vec::new();
    loop {
        while held.len() < GUARANTEE / BLOCK {
            let word = dice.below(1 << 30) as u32;
            let block = Held::of(&pool, BLOCK, stream.as_ref());
            block.fill(word, stream.as_ref());
            held.push((block, word));
        }
        say("guaranteed");
        for _ in 0..50 {
            let bytes = 4096 * (1 + dice.below(BLOCK / 2048));
            let word = dice.below(1 << 30) as u32;
            match Held::allocate(&pool, layout_of(bytes), stream.as_ref()) {
                Ok(block) => {
                    block.fill(word, stream.as_ref());
                    held.push((block, word));
                }
                Err(error) => {
                    assert!(error.is_out_of_memory(), "{error}");
                    // The others are to have a turn.
                    let kept = GUARANTEE / BLOCK / 2;
                    while held.len() > kept {
                        let (block, word) = held.swap_remove(dice.below(held.len()));
                        block.check(word, stream.as_ref());
                        block.free(stream.as_ref());
                    }
                    stream.synchronize().expect("the work succeeds");
                    pool.trim(0).expect("free pages can be given back");
                }
            }
        }
        // What is not of the guarantee's size makes way for it.
        while allowance.used_bytes() > GUARANTEE / 2 {
            let Some((block, word)) = held.pop() else { break };
            block.check(word, stream.as_ref());
            block.free(stream.as_ref());
            stream.synchronize().expect("the work succeeds");
            pool.trim(0).expect("free pages can be given back");
        }
        say("worked");
    }
}

/// A service that runs, and speaks in lines.
struct Service {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    member: &'static str,
    card: u32,
}

impl Service {
    fn start(test: &str, directory: &SharedDirectory, (member, card): (&'static str, u32)) -> Self {
        let mut child = Command::new(env::current_exe().expect("this program has a file"))
            .args(["--exact", test, "--nocapture", "--test-threads=1", "--include-ignored"])
            .env(CHILD, test)
            .env(DIRECTORY, directory.path())
            .env(MEMBER, member)
            .env(CARD, card.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        Self { child, lines, member, card }
    }

    /// Waits until it says a line that ends with that.
    #[track_caller]
    fn wait_for(&mut self, word: &str) {
        for line in &mut self.lines {
            if line.expect("it is text").ends_with(word) {
                return;
            }
        }
        panic!("the service `{}` ended without a word of `{word}`", self.member);
    }

    fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a killed child ends");
    }
}

#[test]
fn two_services_live_on_one_card_while_one_is_killed_each_second() {
    compete("two_services_live_on_one_card_while_one_is_killed_each_second", [0, 0]);
}

#[test]
#[ignore = "needs two GPUs"]
fn two_services_on_two_cards_share_a_limit_while_one_is_killed_each_second() {
    compete("two_services_on_two_cards_share_a_limit_while_one_is_killed_each_second", [0, 1]);
}

/// The test of that name, with a service on each of two cards, which may be the same.
fn compete(test: &str, [first, second]: [u32; 2]) {
    if is_child(test) {
        let directory = env::var_os(DIRECTORY).expect("the parent says where");
        let card = env::var(CARD).ok().and_then(|card| card.parse().ok()).expect("the parent says on which");
        serve(Path::new(&directory), &env::var(MEMBER).expect("the parent says who"), card);
    }
    let said = env::var("ALLUVION_SOAK_SECONDS");
    let seconds =
        said.map_or(20, |seconds| seconds.parse().expect("ALLUVION_SOAK_SECONDS is a number of seconds"));
    let mut devices = vec![gpu(first)];
    devices.extend((second != first).then(|| gpu(second)));
    let free_of = |device: &Device| device.memory_info().expect("a device knows its memory").free_bytes;
    let free = || devices.iter().map(free_of).sum::<usize>();
    let before = free();
    let directory = SharedDirectory::new();
    let looker = Allowance::shared(&config(directory.path())).unwrap_or_else(|error| panic!("{error}"));
    let taken = || looker.members().iter().map(|member| member.used_bytes).sum::<usize>();

    let start = |who| Some(Service::start(test, &directory, who));
    let mut services = [("server", first), ("trainer", second)].map(start);
    let (mut kills, mut most_taken, mut most_used) = (0, 0, 0);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut next = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        // Both get their guarantees and go on, whatever the other one has, and whatever the killed one had.
        for service in services.iter_mut().flatten() {
            service.wait_for("guaranteed");
        }
        while Instant::now() < next {
            let used = taken();
            most_taken = most_taken.max(used);
            assert!(used <= LIMIT, "{used} bytes are taken");
            most_used = most_used.max(before.saturating_sub(free()));
            thread::sleep(Duration::from_millis(5));
        }
        next = Instant::now() + Duration::from_secs(1);
        let at = kills % 2;
        let killed = services[at].take().expect("both run");
        let who = (killed.member, killed.card);
        killed.kill();
        kills += 1;
        services[at] = start(who);
    }
    services.into_iter().flatten().for_each(Service::kill);
    // The kernel gives the locks of a process that has ended back when the last user of its memory is gone.
    let begun = Instant::now();
    while taken() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(300), "what the killed ones had does not come back");
        thread::sleep(Duration::from_millis(1));
    }
    let left = before.saturating_sub(free());
    println!(
        "{kills} killed; {most_taken} bytes of {LIMIT} taken at most, {most_used} used on {} device(s); {left} left",
        devices.len()
    );
    assert!(most_taken > 2 * GUARANTEE, "they never competed: {most_taken} bytes were taken");
    assert!(most_used <= LIMIT + 2 * CONTEXT, "{most_used} bytes of the devices were used");
    assert!(left <= 64 << 20, "{left} bytes are lost");
}
