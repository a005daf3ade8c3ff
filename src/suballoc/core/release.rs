//! How a block comes back.

use super::{Core, Owner};
use crate::stream::Epoch;

/// No block that is out begins at the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotOut;

impl Core {
    /// A block comes back, freed on `owner` at `epoch`, which is ignored for nobody. Returns its size.
    ///
    /// It is joined at once with free neighbours of the same owner. While only one stream has ever been entered, what that
    /// stream frees is joined with nobody's memory too, and is the stream's: nobody else is there to take it sooner, and
    /// a program of one stream never needs to gather.
    ///
    /// # Errors
    ///
    /// [`NotOut`] if no block that is out begins there; then nothing has changed.
    #[inline]
    pub(crate) fn release(&mut self, address: u64, owner: Owner, epoch: Epoch) -> Result<u32, NotOut> {
        let id = self.index.remove(&self.nodes, address).ok_or(NotOut)?;
        let units = self.nodes[id].units;
        self.free_units += u64::from(units);
        if owner == Owner::NOBODY {
            self.join(id, owner, 0, false);
        } else {
            debug_assert!(self.owners.place(owner).stream.is_some(), "the stream has left");
            self.join(id, owner, epoch.0, self.owners.is_sole());
        }
        Ok(units)
    }
}
