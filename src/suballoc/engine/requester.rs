//! `Requester`: for whom a block is.

use crate::device::Device;
use crate::stream::{Epoch, StreamId, StreamRef};

/// Who asks: a stream, whose next work will use the block, or the host, after which anybody may.
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

    pub(super) fn id(self) -> Option<StreamId> {
        self.stream().map(StreamRef::id)
    }

    /// Up to which epoch of `of` the requester's next work comes after. No driver call.
    pub(super) fn reach(self, device: &Device, of: StreamId) -> Epoch {
        match self {
            Self::Stream(stream) => stream.reach(of),
            Self::Host => device.machine().done_up_to(of),
        }
    }

    /// The epoch that a block which is the requester's from now on is marked with.
    pub(super) fn now(self) -> Epoch {
        match self {
            Self::Stream(stream) => stream.now().epoch,
            Self::Host => Epoch::NONE,
        }
    }
}
