//! What `compute-sanitizer` finds inside of suballocators, on a GPU. Each test starts this program again under it, where kernels do
//! what they must not, or only what they may, and reads its report. With `ALLUVION_DRIVER=cudart` the memory is cudart's, and the
//! reports are to be the same.

#![expect(unsafe_code, reason = "writes memory of the host, and frees on the driver's thread")]

#[path = "support/gpu_kernels.rs"]
mod gpu_kernels;
#[path = "support/gpu_module.rs"]
mod gpu_module;
#[path = "support/raw_block.rs"]
mod raw_block;
#[path = "support/rerun.rs"]
mod rerun;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{ptr, slice, thread};

use alluvion::adaptor::GuardConfig;
use alluvion::source::{Cuda, CudaAsync, Managed, Mapped, Pinned, PinnedConfig};
use alluvion::suballoc::{Arena, ArenaConfig, Binning, FixedSize, FixedSizeConfig};
use alluvion::tag::with_tag;
use alluvion::{AnyResource, Device, DevicePtr, PoolConfig, ResourceExt, Stream};
use gpu_kernels::Kernels;
use raw_block::{Held, layout_of};
use rerun::{CHILD, is_child};

const MIB: usize = 1 << 20;

/// The stack that the child is to make.
const STACK: &str = "ALLUVION_WATCHED_STACK";

/// What a child prints when its body has run to the end.
const DONE: &str = "the body has run";

/// Every suballocator, and every source. The tool takes the memory of the first ones for heaps.
const STACKS: [&str; 14] = [
    "pool over cuda",
    "pool over managed",
    "checked pool",
    "arena",
    "fixed_size",
    "bins over pool",
    "pool over pool",
    "guard over cuda",
    "guard over pool",
    "pool over pinned",
    "pool over small pinned",
    "pool over cuda_async",
    "pool over mapped",
    "guard over cuda_async",
];

/// Whether the tool hears of the blocks of a stack: nothing is announced of memory of driver pools, and of mapped memory.
fn is_heard(stack: &str) -> bool {
    !["cuda_async", "mapped"].iter().any(|kind| stack.ends_with(kind))
}

/// What the reports of several stacks should not have said, all of it.
#[derive(Default)]
struct Faults(String);

impl Faults {
    /// The body should have run to its end, and the report should count so many errors, and have these words if there are some.
    fn expect(&mut self, stack: &str, said: &str, count: usize, words: &str) {
        let found = errors(said);
        let is_right = said.contains(DONE) && found == Some(count);
        if is_right && (count == 0 || said.contains(words)) {
            return;
        }
        self.0 += &format!("{stack}: {found:?} errors instead of {count} with {words:?}\n");
        // What the tool says first, and else what came last.
        let lines: Vec<&str> = said.lines().filter(|line| line.len() > 10).collect();
        let first = lines.iter().position(|line| line.starts_with("=========")).unwrap_or(0);
        let (from, to) = if said.contains(DONE) {
            (first, first + 12)
        } else {
            (lines.len().saturating_sub(12), lines.len())
        };
        lines[from..to.min(lines.len())].iter().for_each(|line| self.0 += &format!("    {line}\n"));
    }

    /// Fails if there are any.
    fn tell(self) {
        assert!(self.0.is_empty(), "\n{}", self.0);
    }
}

/// Where the CUDA toolkit is, if it is not on the path.
fn sanitizer() -> PathBuf {
    let name = Path::new("compute-sanitizer");
    let paths = env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = env::split_paths(&paths).collect();
    places.push("/usr/local/cuda/bin".into());
    let found = places.into_iter().map(|place| place.join(name)).find(|file| file.exists());
    found.expect("these tests need compute-sanitizer, of the CUDA toolkit")
}

/// Runs the body under the sanitizer, and returns what it says.
fn report(test: &str, stack: &str, arguments: &[&str], body: fn(&Rig)) -> Option<String> {
    if is_child(test) {
        body(&Rig::new());
        println!("{DONE}");
        return None;
    }
    let output = Command::new(sanitizer())
        .args(["--destroy-on-device-error", "kernel", "--report-api-errors", "no", "--show-backtrace", "no"])
        .args(arguments)
        .arg(env::current_exe().expect("this program has a file"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .env(STACK, stack)
        .output()
        .expect("it can be started");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    Some(said.into_owned())
}

/// The errors that the sanitizer counts at the end.
fn errors(report: &str) -> Option<usize> {
    let (_, rest) = report.lines().find_map(|line| line.split_once("ERROR SUMMARY: "))?;
    rest.split(' ').next()?.parse().ok()
}

/// A GPU, kernels that write and read, and the stack that is asked for.
struct Rig {
    kernels: Kernels,
    stream: Stream,
    resource: AnyResource,
    counter: Cuda,
}

impl Rig {
    fn new() -> Self {
        let kernels = Kernels::load();
        let device = Device::named("0").expect("these tests need a GPU");
        let stack = env::var(STACK).expect("the parent has set it");
        let stream = device.stream().expect("the driver makes one");
        Self { kernels, stream, resource: make(&device, &stack), counter: Cuda::new(&device) }
    }

    fn block(&self, bytes: usize) -> Held<'_, AnyResource> {
        Held::of(&self.resource, bytes, self.stream.as_ref())
    }

    /// Writes so many words, after a while.
    fn write(&self, words: DevicePtr, count: usize, wait: Duration) {
        self.kernels.write_late(self.stream.as_ref(), words, count, 7, wait);
    }

    /// Reads so many words.
    fn read(&self, words: DevicePtr, count: usize) {
        let counter = Held::allocate_sync(&self.counter, layout_of(256)).expect("there is memory");
        counter.fill(0, self.stream.as_ref());
        self.kernels.count_others(self.stream.as_ref(), words, count, 7, counter.pointer);
        self.wait();
        counter.free_sync();
    }

    /// Waits. A kernel that was ended by the sanitizer is no error of the program here.
    fn wait(&self) {
        let _ = self.stream.synchronize();
    }
}

fn make(device: &Device, stack: &str) -> AnyResource {
    let config = PoolConfig::default;
    let pool = || Cuda::new(device).pool(config()).expect("there is memory");
    // So small a quarantine that blocks leave it.
    let guard = || GuardConfig::default().quarantine(256 << 10);
    let made = match stack {
        "pool over cuda" => Ok(AnyResource::new(pool())),
        "pool over cuda_async" => {
            CudaAsync::new(device).and_then(|it| it.pool(config())).map(AnyResource::new)
        }
        "pool over managed" => Managed::new(device).and_then(|it| it.pool(config())).map(AnyResource::new),
        "pool over mapped" => Mapped::new(device).and_then(|it| it.pool(config())).map(AnyResource::new),
        "pool over small pinned" => {
            let small = PinnedConfig::default().huge_bytes(usize::MAX);
            Pinned::with_config(device, small).and_then(|it| it.pool(config())).map(AnyResource::new)
        }
        "pool over pinned" => Pinned::new(device).and_then(|it| it.pool(config())).map(AnyResource::new),
        "guard over cuda" => Cuda::new(device).guard(guard()).map(AnyResource::new),
        "guard over pool" => pool().guard(guard()).map(AnyResource::new),
        "guard over cuda_async" => {
            CudaAsync::new(device).and_then(|it| it.guard(guard())).map(AnyResource::new)
        }
        "checked pool" => Cuda::new(device).pool(config().checked(true)).map(AnyResource::new),
        "arena" => {
            Arena::new(Cuda::new(device), ArenaConfig::default().bytes(64 * MIB)).map(AnyResource::new)
        }
        "fixed_size" => {
            let config = FixedSizeConfig::default().block(256 << 10).blocks(16);
            FixedSize::new(Cuda::new(device), config).map(AnyResource::new)
        }
        "bins over pool" => Binning::over(pool()).blocks(8).range(12..=18).build().map(AnyResource::new),
        "pool over pool" => pool().pool(config()).map(AnyResource::new),
        other => panic!("no stack is called {other}"),
    };
    made.expect("there is memory")
}

/// Writes, reads and reuses blocks as a program may.
fn use_in_order(rig: &Rig) {
    for round in 0..20 {
        let bytes = 1000 + 4 * round * 999;
        let (one, other) = (rig.block(bytes), rig.block(70_000));
        rig.write(one.pointer, bytes / 4, Duration::from_millis(20));
        rig.write(other.pointer, 70_000 / 4, Duration::ZERO);
        rig.read(one.pointer, bytes / 4);
        one.fill(7, rig.stream.as_ref());
        rig.write(one.pointer, bytes / 4, Duration::from_millis(20));
        one.free(rig.stream.as_ref());
        other.free(rig.stream.as_ref());
    }
    // No context is current on this thread.
    thread::scope(|scope| {
        scope.spawn(|| (0..20).for_each(|_| rig.block(1000).free(rig.stream.as_ref())));
    });
    rig.wait();
}

/// Ordered use, and much reuse, is no error: also where a block is freed while a kernel that uses it has not begun to write, where a guard
/// copies its redzones, and where the tool takes the memory for no heap.
#[test]
fn what_a_program_may_do_is_silent() {
    let mut faults = Faults::default();
    for stack in STACKS {
        let said = report("what_a_program_may_do_is_silent", stack, &[], |rig| {
            let block = rig.block(1000);
            let driver = rig.resource.device().driver();
            let around = driver.plain_allocation(block.pointer.address()).expect("it has such a call");
            println!("in a plain allocation: {} ({:x?} in {around:x?})", around.is_some(), block.pointer);
            block.free(rig.stream.as_ref());
            use_in_order(rig);
        });
        let Some(said) = said else { return };
        faults.expect(stack, &said, 0, "");
        // The first line of the body comes behind the name of the test.
        let told = said.split_once("in a plain allocation: ").and_then(|(_, told)| told.lines().next());
        let told = told.unwrap_or("nothing");
        if !told.starts_with(&is_heard(stack).to_string()) {
            faults.0 += &format!("{stack}: the driver says: {told}\n");
        }
    }
    faults.tell();
}

#[test]
fn what_is_written_may_be_read() {
    let mut faults = Faults::default();
    for stack in
        ["pool over cuda", "bins over pool", "guard over cuda", "guard over pool", "guard over cuda_async"]
    {
        let said = report("what_is_written_may_be_read", stack, &["--tool", "initcheck"], use_in_order);
        let Some(said) = said else { return };
        faults.expect(stack, &said, 0, "");
    }
    faults.tell();
}

/// What the host writes, the tool does not see being written.
#[test]
fn what_the_host_has_written_may_be_read() {
    let mut faults = Faults::default();
    for tool in ["initcheck", "memcheck"] {
        for stack in ["pool over managed", "pool over pinned", "pool over small pinned"] {
            let said = report("what_the_host_has_written_may_be_read", stack, &["--tool", tool], |rig| {
                for _ in 0..3 {
                    let block = rig.block(1000);
                    let words: *mut u32 = ptr::with_exposed_provenance_mut(block.pointer.address() as usize);
                    // SAFETY: the block is out, no work uses it yet, and the host may write to such memory.
                    unsafe { slice::from_raw_parts_mut(words, 250) }.fill(7);
                    rig.read(block.pointer, 250);
                    block.free(rig.stream.as_ref());
                }
                rig.wait();
            });
            let Some(said) = said else { return };
            faults.expect(stack, &said, 0, "");
        }
    }
    faults.tell();
}

/// A function that the driver calls on a thread of its own may free a block: the tool is told there, too.
#[test]
fn a_block_may_be_freed_on_the_drivers_thread() {
    let mut faults = Faults::default();
    for stack in ["pool over cuda", "pool over pinned"] {
        let said = report("a_block_may_be_freed_on_the_drivers_thread", stack, &[], |rig| {
            let driver = rig.resource.device().driver();
            for round in 0..50 {
                let block = rig.block(1000 + round);
                rig.write(block.pointer, 250, Duration::from_millis(2));
                let (pointer, layout) = block.into_parts();
                let (resource, stream) = (rig.resource.clone(), rig.stream.clone());
                let free = Box::new(move || Held::adopt(&resource, pointer, layout).free(stream.as_ref()));
                // SAFETY: the stream is live. The free calls no driver: a thread's free puts the block into a cache.
                unsafe { driver.stream_host_call(0, rig.stream.raw(), free) }.expect("it can be queued");
                let beside = rig.block(70_000);
                rig.write(beside.pointer, 70_000 / 4, Duration::ZERO);
                beside.free(rig.stream.as_ref());
            }
            rig.wait();
        });
        let Some(said) = said else { return };
        faults.expect(stack, &said, 0, "");
    }
    faults.tell();
}

#[test]
fn one_element_beyond_a_block_is_found() {
    let test = "one_element_beyond_a_block_is_found";
    let body = |rig: &Rig| {
        let (block, _beside) = (rig.block(1000), rig.block(1000));
        rig.write(block.pointer, 251, Duration::ZERO);
        rig.wait();
    };
    let mut faults = Faults::default();
    for stack in STACKS {
        let Some(said) = report(test, stack, &[], body) else { return };
        let count = usize::from(is_heard(stack));
        faults.expect(stack, &said, count, "Invalid __global__ write of size 4 bytes");
    }
    // Without being told, it sees one allocation.
    let Some(said) = report(test, STACKS[0], &["--nvtx", "no"], body) else { return };
    faults.expect("untold", &said, 0, "");
    faults.tell();
}

#[test]
fn a_block_that_was_freed_is_found() {
    let test = "a_block_that_was_freed_is_found";
    let body = |rig: &Rig| {
        let (block, _beside) = (rig.block(1000), rig.block(1000));
        rig.write(block.pointer, 250, Duration::ZERO);
        let stale = block.pointer;
        block.free(rig.stream.as_ref());
        rig.wait();
        rig.read(stale, 1);
    };
    let mut faults = Faults::default();
    for stack in STACKS {
        let Some(said) = report(test, stack, &[], body) else { return };
        let count = usize::from(is_heard(stack));
        faults.expect(stack, &said, count, "Invalid __global__ read of size 4 bytes");
    }
    // Without being told, it sees memory that waits in a cache.
    let Some(said) = report(test, STACKS[0], &["--nvtx", "no"], body) else { return };
    faults.expect("untold", &said, 0, "");
    faults.tell();
}

/// Also in memory that an earlier block has written. Of managed and pinned memory the tool reports no read.
#[test]
fn a_read_of_a_fresh_block_is_found() {
    let mut faults = Faults::default();
    for stack in STACKS {
        let said = report("a_read_of_a_fresh_block_is_found", stack, &["--tool", "initcheck"], |rig| {
            let first = rig.block(1000);
            rig.write(first.pointer, 250, Duration::ZERO);
            rig.read(first.pointer, 250);
            first.free(rig.stream.as_ref());
            let second = rig.block(1000);
            rig.read(second.pointer, 1);
            second.free(rig.stream.as_ref());
        });
        let Some(said) = said else { return };
        let has_reads = !["managed", "pinned"].iter().any(|kind| stack.ends_with(kind));
        let count = usize::from(is_heard(stack) && has_reads);
        faults.expect(stack, &said, count, "Uninitialized __global__ memory read of size 4 bytes");
    }
    faults.tell();
}

#[test]
fn what_is_left_has_its_tag() {
    let test = "what_is_left_has_its_tag";
    let said = report(test, "pool over cuda", &["--leak-check", "full"], |rig| {
        let left = with_tag("query", || with_tag("join", || rig.block(1000)));
        let (_, _) = left.into_parts();
        // The pool stays, as it does where a program keeps one until it ends.
        std::mem::forget(rig.resource.clone());
    });
    let Some(said) = said else { return };
    assert!(said.contains(DONE), "{said}");
    assert!(said.contains("Leaked 1000 bytes") || said.contains("Leaked 1,000 bytes"), "{said}");
    assert!(said.contains("query;join"), "{said}");
}
