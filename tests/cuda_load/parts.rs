//! Parts of a GPU: what the driver says that they have is what is used, and the rest is refused by name.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use alluvion::driver::cuda::CudaDriver;
use alluvion::driver::{Code, Driver, ExportedMemory, HandleType, PoolProperties};
use alluvion::recipe::Recipe;
use alluvion::source::{CudaAsync, CudaAsyncConfig, CudaAsyncManaged, Managed, Mapped, MappedConfig, Pinned};
use alluvion::{Device, DeviceVec, Error, Stream};

use super::{in_child, libraries};

static PART: LazyLock<PathBuf> = LazyLock::new(|| {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda_load/shared_gpu.rs");
    libraries::build(&source, libraries::directory("cuda_load-shared_gpu"), &[])
});

const MIG: [(&str, &str); 1] = [("STUB_MACHINE", "mig")];
const VGPU: [(&str, &str); 1] = [("STUB_MACHINE", "vgpu")];
const GIB: usize = 1 << 30;

/// Stacks that need nothing but plain memory.
const PLAIN: [&str; 6] = [
    "cuda",
    "pool | cuda",
    "stats | pool(initial=64MiB) | cuda",
    "arena(64MiB) | cuda",
    "binning(1MiB, 4MiB, blocks=8) | pool | cuda",
    "limiting(1GiB) | fixed-size(4MiB) | pool | cuda",
];

fn device() -> (Device, Stream) {
    let device = Device::cuda(0).expect("the part is there");
    let stream = device.stream().expect("it has streams");
    (device, stream)
}

/// Builds the stack, and writes to memory of it and reads it back.
fn uses(recipe: &str) {
    let (device, stream) = device();
    let built = recipe.parse::<Recipe>().and_then(|recipe| recipe.build(&device));
    let resource = built.unwrap_or_else(|error| panic!("{recipe}: {error}"));
    for round in 0..4_u32 {
        let numbers: Vec<u32> = (0..100_000).map(|at| at * 7 + round).collect();
        let vector = DeviceVec::from_slice_in(&numbers, stream.as_ref(), &resource)
            .unwrap_or_else(|error| panic!("{recipe}: {error}"));
        assert!(vector.to_vec(stream.as_ref()).is_ok_and(|back| back == numbers), "{recipe}");
    }
}

/// What cannot be had says what has it not, and what to use.
#[track_caller]
fn lacks(what: Result<(), Error>, instead: &str) {
    let error = what.expect_err("the part has none");
    assert!(error.is_unsupported(), "{error}");
    let detail = error.unsupported_detail().unwrap_or_else(|| panic!("{error}"));
    assert!(detail.instead.contains(instead), "{error}");
}

fn build(recipe: &str) -> Result<(), Error> {
    recipe.parse::<Recipe>()?.build(&device().0).map(drop)
}

#[test]
fn a_slice_has_its_own_memory_and_its_own_number() {
    in_child("parts::a_slice_has_its_own_memory_and_its_own_number", &PART, &MIG, || {
        let (device, _) = device();
        let can = device.capabilities().expect("it says");
        assert_eq!((can.name.as_str(), can.total_bytes), ("NVIDIA H200 MIG 1g.18gb", 18 * GIB));
        assert!(can.memory_pools && can.virtual_memory && can.managed_memory && can.host_register);
        assert_eq!(can.pool_handle_types, HandleType::NONE);
        assert_eq!((can.page_handle_types, can.shared_events), (HandleType::POSIX_FILE_DESCRIPTOR, false));
        assert!(!can.page_rdma && !can.dma_buf);
        let driver = CudaDriver::load().expect("it is loaded");
        let sharing = driver.sharing().expect("libcuda has these calls");
        // The slice's, not that of the GPU.
        assert_eq!(sharing.device_uuid(0), Ok(*b"the slice itself"));
        assert_eq!(sharing.can_reach(0, 0), Ok(false));
        assert_eq!(sharing.can_reach(0, 1).map_err(|error| error.code), Err(Code::INVALID_DEVICE));
        // More than the slice has, and less than the GPU.
        let (device, stream) = (device.clone(), device.stream().expect("it has streams"));
        let recipe: Recipe = "pool | cuda".parse().expect("it is one");
        let pool = recipe.build(&device).expect("it can be built");
        let error = DeviceVec::<u8, _>::uninit_in(20 * GIB, stream.as_ref(), pool).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
    });
}

#[test]
fn a_slice_serves_every_stack() {
    in_child("parts::a_slice_serves_every_stack", &PART, &MIG, || {
        PLAIN.into_iter().for_each(uses);
        for recipe in
            ["", "pool | cuda-async", "pool | mapped", "pool | managed", "prefetch | managed", "pinned"]
        {
            uses(recipe);
        }
        lacks(build("cuda-async-managed"), "`Managed`");
    });
}

#[test]
fn a_slice_lends_pages_and_nothing_else() {
    in_child("parts::a_slice_lends_pages_and_nothing_else", &PART, &MIG, || {
        let (device, stream) = device();
        let wanted = HandleType::POSIX_FILE_DESCRIPTOR;
        let pool = CudaAsync::with_config(&device, CudaAsyncConfig::default().handle_types(wanted));
        lacks(pool.map(drop), "for none");
        let mapped = Mapped::with_config(&device, MappedConfig::default().handle_types(wanted));
        let mapped = mapped.expect("pages can be lent");
        let block = DeviceVec::filled_in(1000, 7_u8, stream.as_ref(), &mapped).expect("there is memory");
        assert_eq!(block.to_vec(stream.as_ref()).expect("it can be read"), [7; 1000]);
        let fabric = MappedConfig::default().handle_types(HandleType::FABRIC);
        lacks(Mapped::with_config(&device, fabric).map(drop), "handle_types");

        let driver = CudaDriver::load().expect("it is loaded");
        let sharing = driver.sharing().expect("libcuda has these calls");
        let unsupported = Some(Code::NOT_SUPPORTED);
        assert_eq!(sharing.event_create_shared(0).err().map(|error| error.code), unsupported);
        let plain = driver.allocate_device(0, 4096).expect("there is memory");
        // SAFETY: the memory is live.
        let handle = unsafe { sharing.memory_handle(0, plain) };
        assert_eq!(handle.err().map(|error| error.code), unsupported);
        let pages = driver.memory_create(0, 2 << 20, wanted).expect("there is memory");
        // SAFETY: the memory is live.
        let exported = unsafe { driver.memory_export(0, pages, wanted) }.expect("they can be lent");
        assert!(matches!(exported, ExportedMemory::FileDescriptor(_)));
        let imported = sharing.memory_import(0, &exported).expect("they can be taken back");
        for memory in [pages, imported] {
            // SAFETY: each handle is released once.
            unsafe { driver.memory_release(0, memory) }.expect("it is one");
        }
    });
}

#[test]
fn pages_of_a_slice_are_for_network_cards_where_it_has_such() {
    let name = "parts::pages_of_a_slice_are_for_network_cards_where_it_has_such";
    let [machine] = MIG;
    in_child(name, &PART, &[machine, ("STUB_RDMA", "1")], || {
        let (device, _) = device();
        assert!(device.capabilities().is_ok_and(|can| can.page_rdma && !can.dma_buf));
        // The driver refuses pages that are not for them.
        uses("pool | mapped");
    });
}

#[test]
fn the_share_of_a_virtual_machine_does_with_plain_memory() {
    in_child("parts::the_share_of_a_virtual_machine_does_with_plain_memory", &PART, &VGPU, || {
        let (device, stream) = device();
        let can = device.capabilities().expect("it says");
        assert_eq!((can.name.as_str(), can.total_bytes), ("GRID A10-4Q", 4 * GIB));
        assert!(!can.memory_pools && !can.virtual_memory && !can.managed_memory && !can.managed_pools);
        assert_eq!((can.pool_handle_types, can.page_handle_types), (HandleType::NONE, HandleType::NONE));
        PLAIN.into_iter().for_each(uses);
        // The recipe without a source, and the resource that is there without a word, know what there is.
        uses("");
        uses("pool");
        let vector = DeviceVec::from_slice(&[1, 2, 3], stream.as_ref()).expect("there is a resource");
        assert_eq!(vector.to_vec(stream.as_ref()).expect("it can be read"), [1, 2, 3]);
        let pinned = Pinned::new(&device).expect("memory of the host can be pinned");
        assert!(DeviceVec::<u8, _>::zeroed_in(100, stream.as_ref(), pinned).is_ok());
    });
}

#[test]
fn the_share_of_a_virtual_machine_says_what_it_lacks() {
    in_child("parts::the_share_of_a_virtual_machine_says_what_it_lacks", &PART, &VGPU, || {
        let (device, stream) = device();
        lacks(CudaAsync::new(&device).map(drop), "`Cuda`");
        lacks(Mapped::new(&device).map(drop), "`Cuda`");
        lacks(Managed::new(&device).map(drop), "pinned memory");
        lacks(CudaAsyncManaged::new(&device).map(drop), "pinned memory");
        for recipe in ["cuda-async", "pool | cuda-async", "pool | mapped", "managed", "cuda-async-managed"] {
            let error = build(recipe).expect_err("the part lacks its source");
            assert!(error.is_unsupported(), "{recipe}: {error}");
        }
        // Who asks the driver all the same gets the driver's word.
        let driver = CudaDriver::load().expect("it is loaded");
        let sharing = driver.sharing().expect("libcuda has these calls");
        let code = |error: Option<alluvion::driver::DriverError>| error.map(|error| error.code);
        let unsupported = Some(Code::NOT_SUPPORTED);
        assert_eq!(code(driver.pool_create(0, PoolProperties::default()).err()), unsupported);
        assert_eq!(code(driver.memory_create(0, 2 << 20, HandleType::NONE).err()), unsupported);
        assert_eq!(code(driver.allocate_managed(0, 4096).err()), unsupported);
        assert_eq!(code(driver.virtual_granularity(0).err()), unsupported);
        assert_eq!(code(sharing.event_create_shared(0).err()), unsupported);
        // And the device is as good as before.
        let memory = device.memory_info().expect("it says");
        assert_eq!(memory.total_bytes, 4 * GIB);
        stream.synchronize().expect("nothing is wrong");
    });
}
