//! A `DeviceVec` that two processes of a library share, in every way that the library has.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use alluvion::driver::HandleType;
use alluvion::driver::runtime::Runtime;
use alluvion::share::{ExportWay, Import, ImportedMut, Message, ShareConfig, Shared};
use alluvion::sim::SimDriver;
use alluvion::source::{Cuda, CudaAsync, CudaAsyncConfig};
use alluvion::{AnyResource, Device, DeviceVec, Error, Machine, Stream};

use crate::shareable::{SEVERAL_PAGES, Shareable, mapped, ways_of};
use crate::shared_directory::SharedDirectory;
use crate::stand_in::StandIn;

const COUNT: u32 = 5000;

/// A simulated process behind the library, on the thread that stands for it.
fn begin(stand_in: StandIn, process: Arc<SimDriver>) -> (Device, Stream) {
    let machine = Machine::new(stand_in.load_for_thread(process, 1)).expect("the stand-in starts");
    let device = machine.device(0).expect("it has one");
    let stream = device.stream().expect("a stream can be made");
    (device, stream)
}

fn numbers() -> Vec<u32> {
    (0..COUNT).map(|number| number.wrapping_mul(0x9E37_79B9)).collect()
}

/// What is sent to an importer.
struct Sent {
    message: Vec<u8>,
    descriptor: Option<OwnedFd>,
    directory: PathBuf,
}

impl Sent {
    fn open(self, stream: &Stream) -> Result<ImportedMut<u32>, Error> {
        let message = Message::from_bytes(&self.message)?;
        let import = Import::new(&message).directory(&self.directory);
        let import = match self.descriptor {
            Some(descriptor) => import.descriptor(descriptor),
            None => import,
        };
        import.open_mut(stream)
    }
}

/// Hands a vector over to another process, which reads it and writes to it, and ends the share.
fn hand_over(stand_in: StandIn, (name, make): Shareable) {
    let directory = SharedDirectory::new();
    let sim = SimDriver::new(stand_in.config());
    let other = sim.process();
    let importers = Arc::clone(&other);
    let (device, stream) = begin(stand_in, Arc::clone(&sim));
    let resource = make(&device);
    let is_on_several_pages = name == SEVERAL_PAGES;
    // A neighbour, so that a piece does not begin where its segment does. On several pages there is one already.
    let neighbour = (!is_on_several_pages)
        .then(|| DeviceVec::filled_in(1000, 7_u32, &stream, resource.clone()).expect("there is memory"));
    let vector = DeviceVec::from_slice_in(&numbers(), &stream, resource.clone()).expect("there is memory");
    let config = ShareConfig::default().writable().directory(directory.path());
    let shared =
        Shared::with_config(vector, config, &stream).unwrap_or_else(|error| panic!("{name}: {error}"));
    let way = shared.message().way();
    assert_eq!(way == ExportWay::AdjacentPagesByDescriptor, is_on_several_pages, "{name}: {way:?}");
    let sent = Sent {
        message: shared.message().to_bytes(),
        descriptor: shared
            .descriptor()
            .map(|descriptor| descriptor.try_clone_to_owned().expect("it is open")),
        directory: directory.path().to_owned(),
    };
    let (tells, opened) = channel::<()>();
    let (lets_go, waits) = channel::<()>();
    let importer = thread::spawn(move || {
        let (_device, stream) = begin(stand_in, importers);
        let mut imported = sent.open(&stream).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(imported.to_vec(&stream).expect("it can be read"), numbers(), "{name}");
        let half = imported.slice_mut(COUNT as usize / 2..);
        half.and_then(|mut half| half.fill(9, &stream)).expect("it can be written");
        tells.send(()).expect("the exporter waits");
        waits.recv().expect("the exporter lets it go");
    });
    opened.recv().unwrap_or_else(|_| panic!("{name}: the importer has ended"));
    assert_eq!(shared.importers().expect("the file is there"), 1, "{name}");
    let shared = shared.try_end().expect_err("it is open there");
    lets_go.send(()).expect("the importer waits");
    importer.join().expect("it goes well");
    let vector = shared.end().unwrap_or_else(|error| panic!("{name}: {error}"));
    let (read, written) = (vector.to_vec(&stream).expect("it can be read"), numbers());
    let (kept, filled) = read.split_at(COUNT as usize / 2);
    assert_eq!(kept, &written[..COUNT as usize / 2], "{name}");
    assert!(filled.iter().all(|&number| number == 9), "{name}: what the importer has written");
    drop((vector, neighbour, resource, stream, device));
    assert_eq!(directory.files(), 0, "{name}: the file of the lease");
    for process in [&sim, &other] {
        assert!(process.hazards().is_empty(), "{name}: {:#?}", process.hazards());
    }
}

#[test]
fn a_vector_is_handed_over_in_every_way() {
    for (stand_in, count) in [
        (StandIn::new(Runtime::Cudart, 13), 8),
        (StandIn::new(Runtime::Cudart, 12), 8),
        (StandIn::new(Runtime::Hip, 7), 6),
        (StandIn::new(Runtime::Hip, 6), 6),
        (StandIn::new(Runtime::Hip, 5), 6),
        (StandIn::new(Runtime::Maca, 3), 6),
    ] {
        let (device, _stream) = begin(stand_in, SimDriver::new(stand_in.config()));
        let ways = ways_of(&device);
        assert_eq!(ways.len(), count, "{stand_in:?}");
        for way in ways {
            hand_over(stand_in, way);
        }
    }
}

/// Shares a vector of that resource, and says why it cannot be: the container is given back.
fn refusal(stand_in: StandIn, make: fn(&Device) -> AnyResource) -> Option<Error> {
    let directory = SharedDirectory::new();
    let (device, stream) = begin(stand_in, SimDriver::new(stand_in.config()));
    let vector = DeviceVec::from_slice_in(&numbers(), &stream, make(&device)).expect("there is memory");
    let config = ShareConfig::default().directory(directory.path());
    match Shared::with_config(vector, config, &stream) {
        Ok(shared) => {
            let vector = shared.try_end().expect("nobody has it");
            assert_eq!(vector.to_vec(&stream).expect("it can be read"), numbers());
            None
        }
        Err(refused) => {
            let error = refused.error().clone();
            let vector = refused.into_value();
            assert_eq!(vector.to_vec(&stream).expect("it is as it was"), numbers());
            Some(error)
        }
    }
}

#[test]
fn a_way_whose_function_is_missing_is_refused_and_the_others_are_not() {
    let cuda = |device: &Device| AnyResource::new(Cuda::new(device));
    let pages = |device: &Device| AnyResource::new(mapped(device));
    for (runtime, major, prefix) in
        [(Runtime::Cudart, 13, "cuda"), (Runtime::Hip, 7, "hip"), (Runtime::Maca, 3, "mc")]
    {
        let without = |stem: &str| StandIn::new(runtime, major).without(&format!("{prefix}{stem}"));
        let is_refused = |stem: &str, make| {
            let error = refusal(without(stem), make);
            assert!(error.as_ref().is_some_and(Error::is_unsupported), "{runtime} without {stem}: {error:?}");
        };
        let is_shared = |stem: &str, make| {
            let error = refusal(without(stem), make);
            assert!(error.is_none(), "{runtime} without {stem}: {error:?}");
        };
        is_refused("IpcGetMemHandle", cuda);
        is_shared("IpcGetMemHandle", pages);
        // Without events that processes share, the host waits.
        is_shared("IpcGetEventHandle", cuda);
        is_shared("IpcOpenEventHandle", cuda);
    }
    let error = refusal(StandIn::new(Runtime::Cudart, 13).without("cuDeviceGetUuid"), cuda);
    assert!(error.as_ref().is_some_and(Error::is_unsupported), "{error:?}");
}

/// HIP and MACA lend no pools, and cudart none where a function is missing: that is said when a pool is made to be lent.
#[test]
fn a_pool_that_cannot_be_lent_is_not_made() {
    let cudart = StandIn::new(Runtime::Cudart, 13);
    for stand_in in [
        cudart.without("cudaMemPoolExportToShareableHandle"),
        cudart.without("cudaMemPoolImportPointer"),
        StandIn::new(Runtime::Hip, 7),
        StandIn::new(Runtime::Maca, 3),
    ] {
        let (device, _stream) = begin(stand_in, SimDriver::new(stand_in.config()));
        let config = CudaAsyncConfig::default().handle_types(HandleType::POSIX_FILE_DESCRIPTOR);
        let error = CudaAsync::with_config(&device, config).map(drop).expect_err("it cannot be lent");
        assert!(error.is_unsupported(), "{stand_in:?}: {error}");
    }
}
