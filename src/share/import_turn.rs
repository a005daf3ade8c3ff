//! `ImportTurn`: the right of one machine to import a block of a pool into its process.

use std::collections::BTreeSet;

use super::open_segment::SegmentKey;
use crate::driver::{Call, Code, DriverError, Sharing};
use crate::error::Error;
use crate::sync::Global;

/// The process, the exporter, and where the block is there.
type Imported = (u64, [u8; 16], u64);

/// A process has a block of a pool once, as libcuda counts, and machines over two libraries, or two over one, know nothing of each
/// other's. So this table is of the whole program.
static IMPORTED: Global<BTreeSet<Imported>> = Global::new(BTreeSet::new(), in_child);

extern "C" fn in_child() {
    IMPORTED.look_after_fork();
}

/// Lasts until it is [given up](Self::end), or as long as the process.
#[derive(Debug)]
pub(super) struct ImportTurn(Imported);

impl ImportTurn {
    pub(super) fn take(sharing: &dyn Sharing, key: SegmentKey) -> Result<Self, Error> {
        let imported = (sharing.process_number(), key.exporter, key.segment);
        let mut all = IMPORTED.lock().ok_or(DriverError::new(Call::Init, Code::NOT_INITIALIZED))?;
        if all.insert(imported) {
            return Ok(Self(imported));
        }
        Err(Error::in_use_that(
            "another machine of this process, as of another library, has the memory open: open it on a stream of that one".to_owned(),
        ))
    }

    /// The block has been given back.
    pub(super) fn end(&self) {
        if let Some(mut all) = IMPORTED.lock() {
            all.remove(&self.0);
        }
    }
}
