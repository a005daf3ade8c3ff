//! Where the descriptors of several pages cannot be one.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::message::CONTENTS_BYTES;
use crate::error::Error;

pub(super) fn pack(_: [u8; CONTENTS_BYTES], _: &[(BorrowedFd<'_>, u64)]) -> Result<OwnedFd, Error> {
    Err(unsupported())
}

pub(super) fn unpack(
    _: BorrowedFd<'_>,
    _: [u8; CONTENTS_BYTES],
    _: impl FnMut(OwnedFd, u64) -> Result<(), Error>,
) -> Result<(), Error> {
    Err(unsupported())
}

fn unsupported() -> Error {
    Error::unwritable("the descriptors of a block on several pages", &io::ErrorKind::Unsupported.into())
}
