//! Memory of one device that the other uses, and a stack for each of them: one text for two simulated devices and for two GPUs.

#![allow(dead_code, reason = "some tests need a part of it")]
#![expect(unsafe_code, reason = "writes from one device to the memory of another")]

use std::thread;

use alluvion::compose::PerDevice;
use alluvion::driver::FillValue;
use alluvion::metrics::Metrics;
use alluvion::source::{Mapped, MappedConfig, NumaPolicy, Pinned, PinnedConfig};
use alluvion::{
    AnyResource, Device, DeviceAccessible, DeviceVec, Machine, PoolConfig, Recipe, Resource, ResourceExt,
    SleepConfig, Stream,
};

/// Numbers in a vector: 3 MiB, which no page of 2 MiB holds.
const LENGTH: usize = 3 << 18;

/// Every source whose memory peers may access, alone and under each suballocator.
pub(crate) const STACKS: [&str; 10] = [
    "cuda(peers=all)",
    "cuda-async(peers=all)",
    "mapped(peers=all)",
    "pool | cuda(peers=reachable)",
    "pool | cuda-async(peers=reachable)",
    "pool | mapped(peers=reachable)",
    "arena(64MiB) | cuda(peers=0+1)",
    "fixed-size(4MiB, blocks=4) | mapped(peers=0+1)",
    "binning(4MiB, blocks=4) | pool | cuda-async(peers=0+1)",
    "stats | tracking | limiting(256MiB) | pool | mapped(peers=all)",
];

pub(crate) fn stacks(machine: &Machine, line: &str) -> PerDevice<AnyResource> {
    let recipe: Recipe = line.parse().expect("it is well formed");
    recipe.per_device(machine).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn first_two(machine: &Machine) -> [Device; 2] {
    [0, 1].map(|ordinal| machine.device(ordinal).expect("these tests need two devices"))
}

/// A device writes half of a vector in memory of another one, in order with a stream of that one.
fn write_half<R: DeviceAccessible>(
    by: &Device,
    on: &Stream,
    vector: &DeviceVec<u32, R>,
    home: &Stream,
    number: u32,
) {
    on.wait_for_stream(home).unwrap();
    let half = vector.as_device_ptr().address() + (LENGTH / 2 * 4) as u64;
    // SAFETY: the second half of the vector, which nothing else uses until `home` has waited for `on` below.
    let filled = unsafe {
        by.driver().fill_async(by.ordinal(), half, FillValue::U32(number), LENGTH / 2, on.as_ref().raw())
    };
    filled.unwrap_or_else(|error| panic!("{by} writes to memory of {}: {error}", home.device()));
    home.wait_for_stream(on).unwrap();
}

fn assert_halves<R: DeviceAccessible>(vector: &DeviceVec<u32, R>, stream: &Stream, first: u32, second: u32) {
    let numbers = vector.to_vec(stream).unwrap();
    assert!(numbers[..LENGTH / 2].iter().all(|&number| number == first), "the half of its own device");
    assert!(numbers[LENGTH / 2..].iter().all(|&number| number == second), "the half of its peer");
}

/// Each device writes to memory of the other one; the memory is freed behind the peer's work, and handed out again.
pub(crate) fn memory_of_each_is_written_by_the_other(machine: &Machine, line: &str) {
    let stacks = stacks(machine, line);
    let devices = first_two(machine);
    let streams = devices.each_ref().map(|device| device.stream().unwrap());
    for round in 0..4 {
        for own in [0, 1] {
            let (peer, home) = (1 - own, &streams[own]);
            let stack = stacks[own as u32].clone();
            let vector = DeviceVec::filled_in(LENGTH, 1 + round, home, stack).unwrap();
            write_half(&devices[peer], &streams[peer], &vector, home, 7 + round);
            assert_halves(&vector, home, 1 + round, 7 + round);
            // Again, and dropped while the peer's work may still run: the free is behind it.
            write_half(&devices[peer], &streams[peer], &vector, home, 70 + round);
            drop(vector);
        }
    }
    for (device, stack) in &stacks {
        device.synchronize().unwrap();
        stack.trim(0).unwrap();
    }
}

/// A pool sleeps behind the work of a peer that writes to its pages. When it is awake both devices have the memory at its old addresses.
pub(crate) fn a_pool_that_its_peer_uses_sleeps(machine: &Machine) {
    let [first, second] = first_two(machine);
    let (home, there) = (first.stream().unwrap(), second.stream().unwrap());
    let config = MappedConfig::default().peers([second.clone()]);
    let pool = Mapped::with_config(&first, config).unwrap().pool(PoolConfig::default()).unwrap();
    let host = Pinned::new(&first).unwrap().pool(PoolConfig::default()).unwrap();
    for round in 0..4 {
        let vector = DeviceVec::filled_in(LENGTH, 1 + round, &home, &pool).unwrap();
        let address = vector.as_device_ptr();
        // Queued, and not waited for.
        write_half(&second, &there, &vector, &home, 7 + round);
        // SAFETY: nothing uses or frees a block until the pool is awake.
        let mut asleep = unsafe { pool.sleep(SleepConfig::default().keep_in(&host)) }.unwrap();
        assert_eq!(pool.pool_size(), 0, "the pages are gone, for both devices");
        asleep.wake().unwrap();
        drop(asleep);
        assert_eq!(vector.as_device_ptr(), address);
        assert_halves(&vector, &home, 1 + round, 7 + round);
        write_half(&second, &there, &vector, &home, 70 + round);
        assert_halves(&vector, &home, 1 + round, 70 + round);
    }
}

/// Two threads, one for each device, that write to memory of each other: with the stacks of all devices current.
pub(crate) fn threads_of_two_devices_use_the_current_stacks(machine: &Machine, line: &str) {
    let stacks = stacks(machine, line);
    let before = first_two(machine).map(|device| device.current_resource().unwrap());
    let current = stacks.set_current_resources().unwrap();
    let devices = first_two(machine);
    thread::scope(|scope| {
        for own in [0, 1] {
            let (devices, stacks) = (&devices, &stacks);
            scope.spawn(move || {
                let (home, there) = (devices[own].stream().unwrap(), devices[1 - own].stream().unwrap());
                for round in 0..16 {
                    let vector = DeviceVec::filled(LENGTH, round, &home).unwrap();
                    assert!(vector.resource().is_same(&stacks[own as u32]));
                    write_half(&devices[1 - own], &there, &vector, &home, 100 + round);
                    assert_halves(&vector, &home, round, 100 + round);
                }
            });
        }
    });
    let mut page = Metrics::new();
    page.add_per_device("all", &stacks);
    let page = page.to_string();
    for device in ["0", "1"] {
        assert!(
            page.contains(&format!("alluvion_layer{{resource=\"all\",device=\"{device}\",depth=\"0\"")),
            "{page}"
        );
    }
    drop(current);
    for (device, before) in devices.iter().zip(before) {
        assert!(device.current_resource().unwrap().is_same(&before));
    }
}

/// Copies between the memory of each device and pinned memory that is near it, and near the other one. Returns what is known of
/// where that is, a line for each device.
pub(crate) fn pinned_memory_is_near_each(machine: &Machine) -> Vec<String> {
    let make =
        |device: &Device| Pinned::with_config(device, PinnedConfig::default().numa(NumaPolicy::NearDevice));
    let pinned = machine.per_device(make).unwrap();
    let numbers: Vec<u32> = (0..LENGTH as u32).collect();
    let mut facts = Vec::new();
    for own in first_two(machine) {
        let stream = own.stream().unwrap();
        for home in first_two(machine) {
            let host = home.stream().unwrap();
            let near = DeviceVec::from_slice_in(&numbers, &host, &pinned[home.ordinal()]).unwrap();
            let mut vector = DeviceVec::<u32, _>::zeroed_in(
                LENGTH,
                &stream,
                AnyResource::new(alluvion::source::Cuda::new(&own)),
            )
            .unwrap();
            vector.copy_from(near.as_slice(), &stream).unwrap();
            assert!(vector.to_vec(&stream).unwrap() == numbers, "{own} reads pinned memory near {home}");
            if own == home {
                let node = own.capabilities().unwrap().numa_node;
                let pages = pages_by_node(near.as_device_ptr().address());
                facts.push(format!(
                    "{own}: nearest node {node:?}; pages of its pinned memory by node: {pages:?}"
                ));
                if let (Some(node), Some(pages)) = (node, pages) {
                    let all: u64 = pages.iter().map(|(_, count)| count).sum();
                    let there = pages.iter().find(|(at, _)| *at == node).map_or(0, |(_, count)| *count);
                    // A preference: the system may have put some of it elsewhere.
                    assert!(there * 2 > all, "{}", facts.last().expect("it was pushed"));
                }
            }
        }
    }
    facts
}

/// How many pages of the mapping at that address lie on each node of the host, where the system says.
fn pages_by_node(address: u64) -> Option<Vec<(u32, u64)>> {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").ok()?;
    let begins = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
    // The last mapping that begins at the address or before it.
    let line = maps.lines().rfind(|line| begins(line).is_some_and(|start| start <= address))?;
    let counts = line.split(' ').filter_map(|word| {
        let (node, count) = word.strip_prefix('N')?.split_once('=')?;
        Some((node.parse().ok()?, count.parse().ok()?))
    });
    let counts: Vec<_> = counts.collect();
    (!counts.is_empty()).then_some(counts)
}
