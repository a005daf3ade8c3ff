//! `PluginDevice`: what the functions know of a device, for as long as the process.

#![expect(unsafe_code, reason = "reads a list that only grows, and looks streams up")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use alluvion::driver::RawStream;
use alluvion::{AnyResource, Device, DevicePtr, Error, ErrorKind, Frontier, Resource, Stream, StreamRef};

use super::recorded::Users;
use super::{LiveBytes, Recorded};
use crate::machine;
use crate::resource::ResourceHandle;

/// More devices than a host has.
const DEVICES: usize = 64;

/// What is known of a device. Never freed: functions are called while the process ends.
#[derive(Debug)]
pub(super) struct PluginDevice {
    pub(super) device: Device,
    /// The resource of the blocks that come back with their size.
    fixed: OnceLock<ResourceHandle>,
    /// Whether blocks were asked for from the current resource, whichever it is.
    uses_current: AtomicBool,
    pub(super) live: LiveBytes,
    pub(super) recorded: Recorded,
    /// The stream that ONNX Runtime's blocks are ordered on; [`NO_STREAM`] for none.
    ort_stream: AtomicU64,
}

/// No handle of a stream.
const NO_STREAM: u64 = u64::MAX;

/// What a number means, since the machine was chosen for the `choice`th time.
struct Meaning {
    choice: u64,
    device: &'static PluginDevice,
    before: *const Meaning,
}

/// What each number means now, at the head of what it has meant: a list that only grows, by a node for each choice of a machine.
static MEANINGS: [AtomicPtr<Meaning>; DEVICES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; DEVICES];

impl PluginDevice {
    /// A device by its number, on the chosen machine; the current one for a negative number. No lock is taken for a number that
    /// is known.
    #[inline]
    pub(super) fn numbered(number: i32) -> Result<&'static Self, Error> {
        let Ok(at) = usize::try_from(number) else { return Self::current_device() };
        if let Some(meanings) = MEANINGS.get(at) {
            // Acquire: what is found was written before it was published.
            let newest = meanings.load(Ordering::Acquire);
            // SAFETY: null, or leaked by `learn`.
            if let Some(newest) = unsafe { newest.as_ref() }
                && newest.choice == machine::choice()
            {
                return Ok(newest.device);
            }
        }
        Self::learn(number)
    }

    /// The device that is current for the calling thread.
    pub(super) fn current_device() -> Result<&'static Self, Error> {
        Self::numbered(machine::device(-1)?.ordinal().cast_signed())
    }

    #[cold]
    fn learn(number: i32) -> Result<&'static Self, Error> {
        // Before the machine is asked for: a choice that comes between makes this node an old one, which is learnt anew.
        let choice = machine::choice();
        let device = machine::device(number)?;
        let Some(meanings) = MEANINGS.get(device.ordinal() as usize) else {
            return Err(Error::unsupported(
                "a device with a number above 63",
                "functions that are loaded by name know 64 devices",
                "call a function with a handle of the resource",
            ));
        };
        let mut newest = meanings.load(Ordering::Acquire);
        loop {
            let known = Self::find(newest, &device);
            let device = known.unwrap_or_else(|| Box::leak(Box::new(Self::of(device.clone()))));
            let node = Box::into_raw(Box::new(Meaning { choice, device, before: newest }));
            match meanings.compare_exchange(newest, node, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(device),
                // The device that was made, if one was, is leaked: another thread came first.
                Err(now) => newest = now,
            }
        }
    }

    /// What was known of a device under an earlier choice.
    fn find(newest: *const Meaning, device: &Device) -> Option<&'static Self> {
        let mut at = newest;
        // SAFETY: null, or leaked by `learn`, as all that are behind it.
        while let Some(meaning) = unsafe { at.as_ref() } {
            if meaning.device.device == *device {
                return Some(meaning.device);
            }
            at = meaning.before;
        }
        None
    }

    fn of(device: Device) -> Self {
        Self {
            device,
            fixed: OnceLock::new(),
            uses_current: AtomicBool::new(false),
            live: LiveBytes::new(),
            recorded: Recorded::default(),
            ort_stream: AtomicU64::new(NO_STREAM),
        }
    }

    /// The devices of the chosen machine that were asked for by a number.
    pub(super) fn known() -> impl Iterator<Item = &'static Self> {
        MEANINGS.iter().filter_map(|meanings| {
            // SAFETY: null, or leaked by `learn`.
            let newest = unsafe { meanings.load(Ordering::Acquire).as_ref() }?;
            (newest.choice == machine::choice()).then_some(newest.device)
        })
    }

    /// The device of memory that the driver knows; else the current one.
    pub(super) fn of_block(block: DevicePtr) -> Result<&'static Self, Error> {
        let current = Self::current_device()?;
        current.require_same_process()?;
        let info = current.device.driver().pointer_attributes(block.address());
        let ordinal = info.ok().flatten().and_then(|info| info.ordinal);
        ordinal.map_or(Ok(current), |ordinal| Self::numbered(ordinal.cast_signed()))
    }

    /// The device whose ledger has a block; else the current one.
    pub(super) fn of_ledger_block(block: DevicePtr) -> Result<&'static Self, Error> {
        let current = Self::current_device()?;
        let has = |device: &Device| device.ledger().is_out(block);
        let found = current.device.machine().devices().find(has);
        found.map_or(Ok(current), |device| Self::numbered(device.ordinal().cast_signed()))
    }

    /// The resource that blocks come from which come back with their size: the current one of the first request.
    #[inline]
    pub(super) fn fixed(&self) -> Result<&ResourceHandle, Error> {
        match self.fixed.get() {
            Some(fixed) => Ok(fixed),
            None => self.fix(),
        }
    }

    #[cold]
    fn fix(&self) -> Result<&ResourceHandle, Error> {
        self.require_same_process()?;
        let current = self.device.current_resource()?;
        Ok(self.fixed.get_or_init(|| ResourceHandle::new(current)))
    }

    /// The resource, if it was fixed: without one no block came from it.
    #[inline]
    pub(super) fn known_fixed(&self) -> Option<&ResourceHandle> {
        self.fixed.get()
    }

    /// The current resource, for blocks that a ledger knows.
    pub(super) fn current(&self) -> Result<AnyResource, Error> {
        self.uses_current.store(true, Ordering::Relaxed);
        self.device.current_resource()
    }

    pub(super) fn require_same_process(&self) -> Result<(), Error> {
        self.device.require(&self.device)
    }

    /// Gives unused memory back to the driver.
    pub(super) fn trim(&self) -> Result<(), Error> {
        self.require_same_process()?;
        let fixed = self.fixed.get().map(ResourceHandle::get);
        let trimmed = fixed.map_or(Ok(0), |fixed| fixed.trim(0));
        if self.uses_current.load(Ordering::Relaxed) {
            let current = self.device.current_resource()?;
            if fixed != Some(&current) {
                current.trim(0)?;
            }
        }
        trimmed.map(drop)
    }

    /// Names the stream that ONNX Runtime's blocks are ordered on.
    pub(super) fn set_ort_stream(&self, stream: RawStream) {
        // Relaxed: the caller orders it before the requests.
        self.ort_stream.store(stream.0, Ordering::Relaxed);
    }

    pub(super) fn ort_stream(&self) -> Option<RawStream> {
        let stream = self.ort_stream.load(Ordering::Relaxed);
        (stream != NO_STREAM).then_some(RawStream(stream))
    }

    /// The streams that a handle means which comes without a device, as a user of a block of this device: the default stream is
    /// that of this device and of the current one.
    ///
    /// # Safety
    ///
    /// `stream` is live, of any device of the machine, until the streams are dropped, or names a default stream.
    pub(super) unsafe fn users(&self, stream: RawStream) -> Result<Vec<Stream>, Error> {
        self.require_same_process()?;
        let machine = self.device.machine();
        if stream == RawStream::PER_THREAD {
            let device = machine.current_device()?;
            return Ok(vec![device.per_thread_stream()?.as_ref().to_stream()]);
        }
        if stream.is_default() {
            let current = machine.current_device()?;
            let mut users = vec![self.device.default_stream()];
            if current != self.device {
                users.push(current.default_stream());
            }
            return Ok(users);
        }
        // SAFETY: the caller's promise.
        let mut found = unsafe { self.device.raw_streams().stream(stream) };
        for device in machine.devices() {
            if found.as_ref().is_err_and(|error| error.kind() == ErrorKind::DeviceMismatch) {
                // SAFETY: the caller's promise.
                found = unsafe { device.raw_streams().stream(stream) };
            }
        }
        found.map(|stream| vec![stream])
    }

    /// Makes a stream come after the work of those that use a block.
    pub(super) fn wait_for_users(users: &Users, stream: StreamRef<'_>) -> Result<(), Error> {
        if users.has_unknown {
            return Err(Error::invalid_argument(
                "block",
                "a stream uses it that could not be found when it was recorded",
                "record streams of primary contexts, while they live",
            ));
        }
        let mut points = Frontier::quiescent();
        users
            .streams
            .iter()
            .filter(|user| user.id() != stream.id())
            .for_each(|user| points.extend(user.release()));
        stream.wait_for(&points)
    }

    /// Frees a block that a ledger of the machine knows, by `free`: on this device, as the call says, or on the one that has it.
    /// Returns the bytes.
    pub(super) fn free_of_ledgers(
        &self,
        block: DevicePtr,
        free: impl Fn(&Device) -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        let freed = free(&self.device);
        if freed.is_ok() {
            return freed;
        }
        let has = |device: &Device| *device != self.device && device.ledger().is_out(block);
        self.device.machine().devices().find(has).map_or(freed, |device| free(&device))
    }
}
