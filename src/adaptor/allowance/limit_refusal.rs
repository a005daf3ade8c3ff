//! `LimitRefusal`: the limit that left no room, and the error of the request.

use super::Allowance;
use super::shared::SharedRefusal;
use crate::error::{Error, LimitName, OutOfMemory};
use crate::stream::StreamId;

/// The node that had not enough left: how far above the one that was to be taken from, and what was out then.
#[derive(Clone, Copy, Debug)]
pub(in crate::adaptor) struct LimitRefusal {
    pub(super) height: usize,
    pub(super) used: u64,
    /// Other processes have left no room in the limit that they share.
    pub(super) shared: Option<SharedRefusal>,
}

impl LimitRefusal {
    /// The error of a request that `refused_by`, a layer, has asked `asked` for. One allocation on the heap of the host, because
    /// whoever asks whether there is room asks often.
    #[cold]
    pub(in crate::adaptor) fn into_error(
        self,
        refused_by: &'static str,
        asked: &Allowance,
        bytes: usize,
        align: usize,
        stream: Option<StreamId>,
    ) -> Error {
        if let Err(of_parent) = asked.node.require_same_process() {
            return of_parent.into();
        }
        let refusing = asked.upwards().nth(self.height).unwrap_or(asked);
        let mut report = OutOfMemory::new(refused_by, bytes);
        report.name = Some(LimitName::clone(&refusing.node.name));
        (report.align, report.stream) = (align, stream);
        (report.live_bytes, report.reserved_bytes) = (self.used as usize, self.used as usize);
        report.maximum_bytes = Some(refusing.limit_bytes());
        match self.shared {
            None => report.explained().into(),
            Some(SharedRefusal::NoRoom { used, has_file }) => {
                report.is_without_file = !has_file;
                (report.live_bytes, report.reserved_bytes) = (used as usize, used as usize);
                report.members = refusing.node.members();
                report.refused_to_a_member().into()
            }
            Some(SharedRefusal::Lost) => Error::malformed_file(format!(
                "the shared limit `{}`: its file says that another process has the place of this one",
                refusing.name()
            )),
            Some(SharedRefusal::Corrupt) => Error::malformed_file(format!(
                "the shared limit `{}`: its file says that more is taken and guaranteed than the limit",
                refusing.name()
            )),
        }
    }
}
