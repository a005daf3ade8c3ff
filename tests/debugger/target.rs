//! A program with suballocators of every kind, in the middle of its work.

use std::fs::File;
use std::path::Path;
use std::process;

use alluvion::driver::CaptureMode;
use alluvion::source::{Cuda, Mapped};
use alluvion::suballoc::{ArenaConfig, FixedSizeConfig, SuballocBook};
use alluvion::tag::with_tag;
use alluvion::{AnyResource, DeviceBuffer, DeviceVec, PoolConfig, ResourceExt, Sim, Stream};

/// Numbers without a pattern, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

/// Allocates and frees on all streams, and returns what is out then.
fn use_it(
    resource: &AnyResource,
    streams: &[Stream],
    most_bytes: usize,
    numbers: &mut Numbers,
) -> Vec<DeviceBuffer> {
    let mut held = Vec::new();
    for _ in 0..600 {
        let stream = &streams[numbers.below(streams.len())];
        // As many small ones as large ones.
        let halvings = numbers.below(14);
        let bytes = 1 + numbers.below(1 + (most_bytes >> halvings));
        if let Ok(block) = DeviceBuffer::uninit_in(bytes, stream, resource.clone()) {
            held.push(block);
        }
        if held.len() > 60 || numbers.below(3) == 0 && !held.is_empty() {
            drop(held.swap_remove(numbers.below(held.len())));
        }
    }
    held
}

/// Works, writes a snapshot of each suballocator into the folder, and stops, if there is one.
pub(crate) fn work(folder: Option<&Path>) {
    const MIB: usize = 1 << 20;
    let sim = Sim::new();
    let device = sim.device(0);
    let streams: Vec<Stream> = (0..7).map(|_| device.stream().expect("there is room")).collect();
    // A stream whose place another one gets.
    drop(device.stream());
    let cuda = || Cuda::new(&device);
    let outer =
        AnyResource::new(cuda().pool(PoolConfig::default().checked(true)).expect("a right configuration"));
    let mapped = Mapped::new(&device).expect("it has pages");
    let all: Vec<(&str, AnyResource, usize)> = vec![
        (
            "pool",
            AnyResource::new(
                cuda().pool(PoolConfig::default().maximum(64 * MIB)).expect("a right configuration"),
            ),
            4 * MIB,
        ),
        (
            "pages",
            AnyResource::new(mapped.pool(PoolConfig::default()).expect("a right configuration")),
            8 * MIB,
        ),
        (
            "arena",
            AnyResource::new(cuda().arena(ArenaConfig::default().bytes(32 * MIB)).expect("there is room")),
            MIB,
        ),
        (
            "tiles",
            AnyResource::new(
                cuda()
                    .fixed_size(FixedSizeConfig::default().block(64 << 10).blocks(32))
                    .expect("there is room"),
            ),
            64 << 10,
        ),
        (
            "inner",
            AnyResource::new(
                outer.clone().stats().pool(PoolConfig::default()).expect("a right configuration"),
            ),
            MIB,
        ),
        ("outer", outer, 2 * MIB),
    ];
    // One that is gone is not shown.
    drop(cuda().pool(PoolConfig::default().initial(MIB)));
    let mut numbers = Numbers(7);
    let held: Vec<Vec<DeviceBuffer>> = all
        .iter()
        .map(|(name, resource, most)| with_tag(name, || use_it(resource, &streams, *most, &mut numbers)))
        .collect();
    let numbers: DeviceVec<f32> =
        DeviceVec::zeroed_in(1000, &streams[0], all[0].1.clone()).expect("there is room");
    let tail = numbers.slice(990..).expect("there are a thousand");
    let stream = streams[3].id();
    let pool = cuda().pool(PoolConfig::default().initial(4 * MIB)).expect("there is room");
    sim.begin_capture(0, streams[1].raw(), CaptureMode::Global).expect("a stream can capture");
    let memory = pool.capture(&streams[1]).expect("it captures");
    let of_graph = DeviceBuffer::uninit_in(5000, &streams[1], &pool).expect("there is room");
    if let Some(folder) = folder {
        for (name, resource, _) in &all {
            let book = resource.find::<SuballocBook>().expect("it is a suballocator");
            let file = File::create(folder.join(name).with_extension("json")).expect("the folder is there");
            book.snapshot().write_json(file).expect("there is room for it");
        }
        let graph = format!("{:#x}", of_graph.as_device_ptr().address());
        std::fs::write(folder.join("graph"), graph).expect("the folder is there");
        std::fs::write(folder.join("stream"), stream.to_string()).expect("the folder is there");
        // gdb is told of the signal, and the program stays as it is.
        process::abort();
    }
    assert_eq!((tail.len(), stream.to_string().is_empty()), (10, false));
    drop((of_graph, memory, held, numbers));
}
