//! `Loan`: what an exporter keeps while others have its memory. Not generic.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::device_side::{SharedEvent, key_of, sharing_of};
use super::lease::Lease;
use super::message::{CONTENTS_BYTES, Element, Message, contents, handle_of_parcel};
use super::parcel;
use super::share_config::ShareConfig;
use crate::device::Device;
use crate::driver::{Call, Code, DriverError, ExportedMemory, RelaxedCapture};
use crate::error::Error;
use crate::resource::{Export, ExportForm};
use crate::stream::StreamRef;
use crate::sync::Arc;

#[derive(Debug)]
pub(super) struct Loan {
    lease: Lease,
    message: Message,
    /// The descriptor to send, if there is one: it keeps the memory alive.
    exported: Option<Arc<ExportedMemory>>,
    /// Importers may be about to open it.
    _event: Option<SharedEvent>,
    device: Device,
}

/// What is shared of an export.
#[derive(Clone, Debug)]
pub(super) struct Lent {
    pub(super) export: Export,
    pub(super) bytes: usize,
    pub(super) element: Element,
}

impl Loan {
    /// Begins a loan of memory all of whose uses are on `stream` now.
    pub(super) fn begin(lent: Lent, config: ShareConfig, stream: StreamRef<'_>) -> Result<Self, Error> {
        let Lent { export, bytes, element } = lent;
        let ShareConfig { is_writable, directory } = config;
        let (device, export) = (stream.device(), export.narrowed(bytes));
        if stream.is_capturing()? {
            return Err(DriverError::new(Call::StreamCaptureStatus, Code::CAPTURE_UNSUPPORTED).into());
        }
        let uuid = {
            let _relaxed = RelaxedCapture::enter(&**device.driver())?;
            sharing_of(device)?.device_uuid(device.ordinal())?
        };
        let exporter = key_of(device.machine())?;
        let (event, event_handle) = SharedEvent::record(stream)?.unzip();
        let way = export.way();
        let (handle, exported) = match export.form {
            ExportForm::Nothing => ([0; 64], None),
            ExportForm::Allocation(handle) => (handle.0, None),
            ExportForm::Pool(pool, block) => (block.0, Some(pool)),
            ExportForm::Pages(memory) => ([0; 64], Some(memory)),
            ExportForm::AdjacentPages(pages) => {
                static NEXT: AtomicUsize = AtomicUsize::new(1);
                // Relaxed: only that the numbers of an exporter differ matters.
                let number = NEXT.fetch_add(1, Ordering::Relaxed) as u64;
                let contents = contents(exporter, export.segment, export.segment_bytes as u64, number);
                let parcel = ExportedMemory::FileDescriptor(packed(contents, &pages)?);
                (handle_of_parcel(number), Some(Arc::new(parcel)))
            }
        };
        let fabric = match exported.as_deref() {
            Some(ExportedMemory::Fabric(fabric)) => **fabric,
            _ => [0; 64],
        };
        let describe = |lease| Message {
            lease,
            way,
            is_writable,
            device: uuid,
            exporter,
            segment: export.segment,
            segment_bytes: export.segment_bytes as u64,
            offset: export.offset as u64,
            bytes: bytes as u64,
            element: element.clone(),
            event: event_handle,
            handle,
            fabric,
        };
        let lease = Lease::begin(&directory, |name| describe(name).to_bytes())?;
        let message = describe(lease.name());
        Ok(Self { lease, message, exported, _event: event, device: device.clone() })
    }

    pub(super) fn message(&self) -> &Message {
        &self.message
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self.exported.as_deref()? {
            #[cfg(unix)]
            ExportedMemory::FileDescriptor(descriptor) => Some(descriptor.as_fd()),
            _ => None,
        }
    }

    /// In a child of the process that shares, which has no part of it.
    pub(super) fn is_forked_child(&self) -> bool {
        self.lease.is_forked_child()
    }

    /// The number of processes that have it open.
    pub(super) fn importers(&self) -> Result<usize, Error> {
        self.device.machine().require_same_process()?;
        self.lease.holders()
    }

    /// Ends the loan if nobody has the memory, and returns whether it has ended.
    pub(super) fn try_end(&mut self) -> Result<bool, Error> {
        self.device.machine().require_same_process()?;
        self.lease.try_end()
    }
}

/// The descriptors of several pages, as one.
fn packed(contents: [u8; CONTENTS_BYTES], pages: &[(Arc<ExportedMemory>, usize)]) -> Result<OwnedFd, Error> {
    let descriptors = pages.iter().filter_map(|(memory, bytes)| match &**memory {
        #[cfg(unix)]
        ExportedMemory::FileDescriptor(descriptor) => Some((descriptor.as_fd(), *bytes as u64)),
        _ => None,
    });
    parcel::pack(contents, &descriptors.collect::<Vec<_>>())
}
