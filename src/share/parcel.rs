//! A parcel: the descriptors of several pages, as one descriptor.
//!
//! A parcel is a socket whose other end is closed, and which has got one message: its words, and the descriptors. Who has a copy of it
//! looks at the message, which gives him descriptors of his own and takes nothing out (`MSG_PEEK`). So whatever carries one descriptor
//! from process to process carries many pages, to any number of importers, and nobody has to be there to hand them out. What is in a
//! parcel lives until its last copy is closed, in whatever process, or on its way through another socket.
//!
//! Linux lets a message have so many descriptors; of more, a parcel has parcels.

#![expect(unsafe_code, reason = "sends descriptors to a socket, and looks at them")]

use core::mem;
use core::ops::Range;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;

use super::message::CONTENTS_BYTES;
use crate::error::Error;
use crate::resource::MOST_PAGES;

/// The most descriptors of one message: `SCM_MAX_FD` of Linux.
const IN_A_MESSAGE: usize = 253;

const _: () = assert!(MOST_PAGES <= IN_A_MESSAGE * IN_A_MESSAGE, "a parcel of parcels has room");

/// The type of a descriptor of the sender's process, which a socket adds that somebody has told to (`SO_PASSPIDFD`). The crate `libc`
/// does not name it.
const SCM_PIDFD: libc::c_int = 4;

const MAGIC: [u8; 4] = *b"ALVP";
/// Of the words. A library reads the version that it writes.
const VERSION: u8 = 1;

/// Whether a parcel has pages or parcels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pages = 0,
    Parcels = 1,
}

// Where each word is. Numbers are little-endian. Behind them are the bytes of each page.
const AT_VERSION: usize = 4;
const AT_KIND: usize = 5;
const AT_FIRST: Range<usize> = 8..16;
const AT_CONTENTS: Range<usize> = 16..16 + CONTENTS_BYTES;
const WORDS: usize = AT_CONTENTS.end;
const LONGEST: usize = WORDS + IN_A_MESSAGE * size_of::<u64>();

/// Packs the descriptors of pages, each with its bytes.
pub(super) fn pack(
    contents: [u8; CONTENTS_BYTES],
    pages: &[(BorrowedFd<'_>, u64)],
) -> Result<OwnedFd, Error> {
    pack_pages(contents, pages).map_err(|error| match error.raw_os_error() {
        Some(libc::ETOOMANYREFS) => Error::unwritable(
            "the descriptors of a block on several pages: as many of this user wait in sockets as a process may have open (`ulimit -n`)",
            &error,
        ),
        _ => Error::unwritable("the descriptors of a block on several pages", &error),
    })
}

fn pack_pages(contents: [u8; CONTENTS_BYTES], pages: &[(BorrowedFd<'_>, u64)]) -> io::Result<OwnedFd> {
    let parcel_of = |first: usize, pages: &[(BorrowedFd<'_>, u64)]| {
        let sizes = pages.iter().flat_map(|(_, bytes)| bytes.to_le_bytes());
        let words = words(contents, Kind::Pages, first).into_iter().chain(sizes).collect::<Vec<u8>>();
        sealed(&words, pages.iter().map(|(descriptor, _)| descriptor.as_raw_fd()))
    };
    if pages.len() <= IN_A_MESSAGE {
        return parcel_of(0, pages);
    }
    let parts = pages.chunks(IN_A_MESSAGE).enumerate();
    let parts =
        parts.map(|(at, pages)| parcel_of(at * IN_A_MESSAGE, pages)).collect::<io::Result<Vec<_>>>()?;
    sealed(&words(contents, Kind::Parcels, 0), parts.iter().map(AsRawFd::as_raw_fd))
}

fn words(contents: [u8; CONTENTS_BYTES], kind: Kind, first: usize) -> [u8; WORDS] {
    let mut words = [0; WORDS];
    words[..4].copy_from_slice(&MAGIC);
    words[AT_VERSION] = VERSION;
    words[AT_KIND] = kind as u8;
    words[AT_FIRST].copy_from_slice(&(first as u64).to_le_bytes());
    words[AT_CONTENTS].copy_from_slice(&contents);
    words
}

/// Opens a parcel of these contents, page by page: each descriptor, and the bytes of its page. At most as many descriptors are open
/// at once as two messages have, one in the other.
pub(super) fn unpack(
    parcel: BorrowedFd<'_>,
    contents: [u8; CONTENTS_BYTES],
    mut each: impl FnMut(OwnedFd, u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let (kind, outer) = opened(parcel, contents, 0)?;
    let mut pass_on = |pages: Vec<(OwnedFd, u64)>| {
        pages.into_iter().try_for_each(|(descriptor, bytes)| each(descriptor, bytes))
    };
    if kind == Kind::Pages {
        return pass_on(outer);
    }
    let mut first = 0;
    for (inner, _) in outer {
        let (kind, pages) = opened(inner.as_fd(), contents, first as u64)?;
        first += pages.len();
        // A parcel in a parcel has pages: to look for more would not come to an end.
        if kind != Kind::Pages || first > MOST_PAGES {
            return Err(no_parcel());
        }
        pass_on(pages)?;
    }
    Ok(())
}

/// What is in one message: the descriptors, and the bytes of each page, or 0.
fn opened(
    parcel: BorrowedFd<'_>,
    contents: [u8; CONTENTS_BYTES],
    first: u64,
) -> Result<(Kind, Vec<(OwnedFd, u64)>), Error> {
    let (words, descriptors) = looked_at(parcel).map_err(|error| match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS) => {
            Error::unwritable("the descriptors of a block on several pages", &error)
        }
        _ => no_parcel(),
    })?;
    let is_one = words.len() >= WORDS
        && words[..4] == MAGIC
        && words[AT_VERSION] == VERSION
        && words[AT_CONTENTS] == contents
        && words[AT_FIRST] == first.to_le_bytes();
    let kind = match words.get(AT_KIND) {
        Some(0) => Kind::Pages,
        Some(1) => Kind::Parcels,
        _ => return Err(no_parcel()),
    };
    let sizes: Vec<u64> = match kind {
        Kind::Pages => words.get(WORDS..).map_or_else(Vec::new, |sizes| {
            sizes.as_chunks().0.iter().map(|size| u64::from_le_bytes(*size)).collect()
        }),
        Kind::Parcels => vec![0; descriptors.len()],
    };
    if !is_one || descriptors.is_empty() || sizes.len() != descriptors.len() {
        return Err(no_parcel());
    }
    Ok((kind, descriptors.into_iter().zip(sizes).collect()))
}

#[cold]
fn no_parcel() -> Error {
    Error::malformed_file("the descriptor is not the one that was sent with the message".to_owned())
}

// What the kernel puts before the descriptors of a message: its length, its level and its type, padded to whole words.
const LENGTH: Range<usize> = 0..size_of::<usize>();
const LEVEL: Range<usize> = LENGTH.end..LENGTH.end + 4;
const TYPE: Range<usize> = LEVEL.end..LEVEL.end + 4;
const HEAD: usize = TYPE.end.next_multiple_of(size_of::<usize>());
const _: () =
    assert!(size_of::<libc::cmsghdr>() == TYPE.end && HEAD == TYPE.end.next_multiple_of(size_of::<usize>()));

/// Room for a message's descriptors and what goes before them, aligned as that is; and for what a socket adds of its own that is none
/// of ours, so that no descriptor is cut off behind it.
const CONTROL_WORDS: usize = (HEAD + IN_A_MESSAGE * size_of::<RawFd>()).div_ceil(size_of::<usize>()) + 64;

/// The bytes of words: in the order of the machine, as the kernel has them.
fn to_words(bytes: &[u8]) -> [usize; CONTROL_WORDS] {
    let mut words = [0; CONTROL_WORDS];
    for (word, part) in words.iter_mut().zip(bytes.chunks(size_of::<usize>())) {
        let mut whole = [0; size_of::<usize>()];
        whole[..part.len()].copy_from_slice(part);
        *word = usize::from_ne_bytes(whole);
    }
    words
}

/// A header of a message that names these buffers.
fn header(part: &mut libc::iovec, control: &mut [usize; CONTROL_WORDS], bytes: usize) -> libc::msghdr {
    // SAFETY: all of its fields may be zero: numbers, and pointers that name nothing then.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = bytes as _;
    header
}

/// A new socket with one message, and nobody at its other end.
fn sealed(words: &[u8], descriptors: impl Iterator<Item = RawFd>) -> io::Result<OwnedFd> {
    let mut control = vec![0; HEAD];
    control.extend(descriptors.flat_map(RawFd::to_ne_bytes));
    let bytes = control.len();
    control[LENGTH].copy_from_slice(&bytes.to_ne_bytes());
    control[LEVEL].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    control[TYPE].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
    let mut control = to_words(&control);

    let (sender, receiver) = UnixDatagram::pair()?;
    let mut part = libc::iovec { iov_base: words.as_ptr().cast_mut().cast(), iov_len: words.len() };
    let header = header(&mut part, &mut control, bytes.next_multiple_of(size_of::<usize>()));
    // SAFETY: the header names buffers that live until the call returns, with their lengths; the words are only read.
    let sent = unsafe { libc::sendmsg(sender.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
    match usize::try_from(sent) {
        Ok(sent) if sent == words.len() => Ok(receiver.into()),
        Ok(_) => Err(ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The message of a socket, which stays there: its words, and descriptors of the caller's own.
fn looked_at(parcel: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut words = vec![0_u8; LONGEST];
    let mut control = [0_usize; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: words.len() };
    let mut header = header(&mut part, &mut control, size_of::<[usize; CONTROL_WORDS]>());
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header names buffers that live until the call returns, with their lengths, and are writable.
    let received = unsafe { libc::recvmsg(parcel.as_raw_fd(), &raw mut header, flags) };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let (filled, flags) = (header.msg_controllen as usize, header.msg_flags);
    let control: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // All of them are taken over, so that none stays open, whatever is wrong.
    let descriptors = descriptors_in(control.get(..filled).unwrap_or(&[]));
    if flags & libc::MSG_CTRUNC != 0 {
        // There was room, so mostly the process has no more descriptors.
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    if flags & libc::MSG_TRUNC != 0 {
        return Err(ErrorKind::InvalidData.into());
    }
    words.truncate(received);
    Ok((words, descriptors))
}

/// The descriptors that the kernel has opened for this call.
fn descriptors_in(mut control: &[u8]) -> Vec<OwnedFd> {
    let int = |at: Range<usize>, of: &[u8]| of[at].try_into().map_or(0, libc::c_int::from_ne_bytes);
    let mut found = Vec::new();
    while control.len() >= HEAD {
        let length = control[LENGTH].try_into().map_or(0, usize::from_ne_bytes);
        let Some(data) = control.get(HEAD..length) else { break };
        let (level, kind) = (int(LEVEL, control), int(TYPE, control));
        if level == libc::SOL_SOCKET && [libc::SCM_RIGHTS, SCM_PIDFD].contains(&kind) {
            for number in data.as_chunks().0 {
                let number = RawFd::from_ne_bytes(*number);
                // In place of a descriptor of a process the kernel may give an error.
                if number < 0 {
                    continue;
                }
                // SAFETY: the kernel has opened it for this call, which is the one that knows it.
                let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
                // That of a process is closed again: it is nobody's page.
                if kind == libc::SCM_RIGHTS {
                    found.push(descriptor);
                }
            }
        }
        control = control.get(length.next_multiple_of(size_of::<usize>())..).unwrap_or(&[]);
    }
    found
}
