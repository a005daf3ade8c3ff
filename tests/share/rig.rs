//! Two processes on one machine, a directory for their leases, and ways to make memory that can be shared.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use alluvion::driver::{DeviceAttribute, HandleType};
use alluvion::share::{Import, Imported, ImportedMut, Message, ShareConfig, Shared};
use alluvion::sim::SimConfig;
use alluvion::source::{CudaAsync, CudaAsyncConfig, Mapped, MappedConfig};
use alluvion::testing::Bench;
use alluvion::{AnyResource, DeviceCopy, DeviceVec, Error, Sim, Stream};

use crate::shareable::{BY_DESCRIPTORS, Shareable};
pub(crate) use crate::shareable::{mapped, pooled};
use crate::shared_directory::SharedDirectory;

/// A descriptor and a fabric handle.
pub(crate) const BOTH: HandleType = HandleType(1 | 8);

pub(crate) struct Rig {
    pub(crate) directory: SharedDirectory,
    pub(crate) first: Sim,
    pub(crate) second: Sim,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Self::config())
    }

    pub(crate) fn config() -> SimConfig {
        Bench::config().attribute(DeviceAttribute::PoolHandleTypes, BOTH.0 as i32)
    }

    pub(crate) fn with(config: SimConfig) -> Self {
        let first = Sim::with_config(config);
        let second = first.process();
        Self { directory: SharedDirectory::new(), first, second }
    }

    pub(crate) fn share_config(&self) -> ShareConfig {
        ShareConfig::default().directory(self.directory.path())
    }

    /// Shares to be read.
    #[track_caller]
    pub(crate) fn share<T: DeviceCopy + Send + Sync>(
        &self,
        vector: DeviceVec<T, AnyResource>,
        stream: &Stream,
    ) -> Shared<DeviceVec<T, AnyResource>> {
        Shared::with_config(vector, self.share_config(), stream).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn import<'m>(&self, message: &'m Message, descriptor: Option<OwnedFd>) -> Import<'m> {
        let import = Import::new(message).directory(self.directory.path());
        match descriptor {
            Some(descriptor) => import.descriptor(descriptor),
            None => import,
        }
    }

    /// Opens in the process of the stream, as a message and a descriptor that were sent.
    pub(crate) fn open<T: DeviceCopy + Send + Sync>(
        &self,
        shared: &Shared<DeviceVec<T, AnyResource>>,
        stream: &Stream,
    ) -> Result<Imported<T>, Error> {
        let message = Message::from_bytes(&shared.message().to_bytes())?;
        self.import(&message, sent(shared)).open(stream)
    }

    pub(crate) fn open_mut<T: DeviceCopy + Send + Sync>(
        &self,
        shared: &Shared<DeviceVec<T, AnyResource>>,
        stream: &Stream,
    ) -> Result<ImportedMut<T>, Error> {
        self.import(shared.message(), sent(shared)).open_mut(stream)
    }

    /// Fails unless everything has gone that both processes had.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        self.first.assert_clean();
        self.second.assert_clean();
        assert_eq!(self.directory.files(), 0, "files of leases");
    }
}

/// A copy of the descriptor, as a socket makes one.
pub(crate) fn sent<C: alluvion::share::Container>(shared: &Shared<C>) -> Option<OwnedFd> {
    let descriptor = shared.descriptor()?;
    assert!(shared.message().needs_descriptor());
    Some(descriptor.try_clone_to_owned().expect("there are descriptors"))
}

/// The descriptors of this process.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux says").count()
}

/// Waits until this process has fewer descriptors than that: other tests of this program have some open for a while, up to some hundreds.
/// Fails after a minute, which is a hundred times what the slowest of them takes.
#[track_caller]
pub(crate) fn await_fewer_descriptors(than: usize) {
    let begun = Instant::now();
    while descriptors() >= than {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{} descriptors, and no fewer than {than}",
            descriptors()
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// Every way of making memory that can be shared, with its name.
pub(crate) fn ways() -> Vec<Shareable> {
    let by_fabric: [Shareable; 2] = [
        ("cuda-async by fabric", |device| {
            let config = CudaAsyncConfig::default().handle_types(HandleType::FABRIC);
            AnyResource::new(CudaAsync::with_config(device, config).expect("it has pools"))
        }),
        ("mapped by fabric", |device| {
            let config = MappedConfig::default().handle_types(HandleType::FABRIC);
            AnyResource::new(Mapped::with_config(device, config).expect("it has pages"))
        }),
    ];
    BY_DESCRIPTORS.into_iter().chain(by_fabric).collect()
}
