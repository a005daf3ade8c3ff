//! `Requester`: a stream, or the host.

use crate::device::Device;
use crate::stream::{Epoch, StreamId, StreamRef};

/// The requester of a block: a stream, whose next work will use it, or the host, in a synchronous call; any work may
/// use that block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Requester<'s> {
    Stream(StreamRef<'s>),
    Host,
}

impl<'s> Requester<'s> {
    pub(super) fn stream(self) -> Option<StreamRef<'s>> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Host => None,
        }
    }

    #[inline]
    pub(super) fn id(self) -> Option<StreamId> {
        self.stream().map(StreamRef::id)
    }

    /// The last epoch of `of` that the requester's next work comes after. No driver call.
    pub(super) fn reach(self, device: &Device, of: StreamId) -> Epoch {
        match self {
            Self::Stream(stream) => stream.reach(of),
            Self::Host => device.machine().done_up_to(of),
        }
    }

    /// The epoch for blocks that the requester owns from now on.
    pub(super) fn now(self) -> Epoch {
        match self {
            Self::Stream(stream) => stream.now().epoch,
            Self::Host => Epoch::NONE,
        }
    }
}
