//! `Log`: a trace that is replayed, with its name.

use std::path::Path;

use alluvion::trace::{EventKind, Trace};
use alluvion::{Device, Error, Layout};

use crate::failure::Failure;
use crate::note::note;
use crate::rig::Rig;
use crate::trace_file;

/// A trace that is replayed, with its name.
#[derive(Debug)]
pub(crate) struct Log {
    /// That of the file, without what it is packed with.
    pub(crate) name: String,
    pub(crate) trace: Trace,
}

impl Log {
    /// Says on the standard error stream what of the log is left out.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let trace = trace_file::read(path)?;
        if trace.events.is_empty() {
            return Err(Failure::of_file(path, "nothing is allocated in it"));
        }
        for (count, what) in
            [(trace.failures, "allocations that failed"), (trace.strays, "frees of what was never allocated")]
        {
            if count > 0 {
                note(&format!("{}: {count} {what} are left out", path.display()));
            }
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.strip_suffix(".gz").unwrap_or(&name);
        let name = stem.strip_suffix(".csv").unwrap_or(stem).to_owned();
        Ok(Self { name, trace })
    }

    /// The devices of the log, in its order.
    ///
    /// Fails where the machine lacks one of them.
    pub(crate) fn devices(&self, rig: &Rig) -> Result<Vec<Device>, Failure> {
        let machine = rig.device.machine();
        let devices = self.trace.device_ordinals.iter().map(|&ordinal| machine.device(ordinal));
        devices.collect::<Result<_, Error>>().map_err(|error| {
            let simulated =
                if rig.is_hardware() { "" } else { "; `--sim-devices` gives a simulated one more" };
            Failure::Failed(format!("{}: {error}{simulated}", self.name))
        })
    }

    /// The number of devices that a machine needs for the log: each row is played on the device that it names.
    pub(crate) fn machine_devices(&self) -> u32 {
        self.trace.device_ordinals.iter().max().map_or(1, |last| last + 1)
    }

    /// The log of each device alone, with the number of the device in its name; the log itself, if it is of one device.
    pub(crate) fn by_device(self) -> Vec<Self> {
        if self.trace.devices <= 1 {
            return vec![self];
        }
        let mut parts = self.trace.by_device();
        parts.retain(|part| !part.events.is_empty());
        parts.sort_by_key(|part| part.device_ordinals[0]);
        let named =
            |trace: Trace| Self { name: format!("{}@gpu{}", self.name, trace.device_ordinals[0]), trace };
        parts.into_iter().map(named).collect()
    }

    /// The most bytes that were live at once on all devices, each at its own peak, without the blocks that `is_left_out` says so of.
    pub(crate) fn peak_live_bytes(&self, is_left_out: impl Fn(u32) -> bool) -> u64 {
        self.peaks_live_bytes(is_left_out).into_iter().fold(0, u64::saturating_add)
    }

    /// The most bytes that were live at once on each device, in the order of the log.
    pub(crate) fn peaks_live_bytes(&self, is_left_out: impl Fn(u32) -> bool) -> Vec<u64> {
        let mut marks = vec![(0_u64, 0); self.trace.devices.max(1) as usize];
        for event in self.trace.events.iter().filter(|event| !is_left_out(event.block)) {
            let bytes = event.bytes.next_multiple_of(Layout::MIN_ALIGN as u64);
            let (live, peak) = &mut marks[self.trace.device_of(event) as usize];
            match event.kind {
                EventKind::Allocate => *live = live.saturating_add(bytes),
                EventKind::Free => *live = live.saturating_sub(bytes),
            }
            *peak = (*peak).max(*live);
        }
        marks.into_iter().map(|(_, peak)| peak).collect()
    }
}
