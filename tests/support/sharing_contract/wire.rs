//! Messages between two processes: of one size, each with at most one descriptor.

#![expect(clippy::multiple_unsafe_ops_per_block, reason = "what a message consists of is one thing")]

use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Four numbers and a handle.
pub(crate) const BYTES: usize = 4 * 8 + 64;

/// What is asked, and what is answered.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) numbers: [u64; 4],
    pub(crate) handle: [u8; 64],
    pub(crate) descriptor: Option<OwnedFd>,
}

impl Message {
    pub(crate) fn of(numbers: [u64; 4]) -> Self {
        Self { numbers, handle: [0; 64], descriptor: None }
    }

    /// Sends it, with a copy of the descriptor.
    pub(crate) fn send(&self, to: &UnixStream, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut bytes = [0_u8; BYTES];
        for (place, number) in bytes.chunks_exact_mut(8).zip(self.numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes[32..].copy_from_slice(&self.handle);
        let mut control = Control::default();
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: BYTES };
        let mut header = control.header(&mut part);
        match descriptor {
            None => header.msg_controllen = 0,
            // SAFETY: the control buffer has room for one descriptor behind its header.
            Some(descriptor) => unsafe {
                let first = libc::CMSG_FIRSTHDR(&raw const header);
                (*first).cmsg_level = libc::SOL_SOCKET;
                (*first).cmsg_type = libc::SCM_RIGHTS;
                (*first).cmsg_len = libc::CMSG_LEN(DESCRIPTOR) as _;
                libc::CMSG_DATA(first).cast::<i32>().write_unaligned(descriptor.as_raw_fd());
            },
        }
        // SAFETY: the header names buffers that live until the call returns.
        match unsafe { libc::sendmsg(to.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) } {
            // A message is far smaller than the socket's buffer, and nothing else is in it.
            sent if sent == BYTES as isize => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits for one. The other side's end is an error.
    pub(crate) fn receive(from: &UnixStream) -> io::Result<Self> {
        let mut bytes = [0_u8; BYTES];
        let mut control = Control::default();
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: BYTES };
        let mut header = control.header(&mut part);
        let flags = libc::MSG_WAITALL | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the header names buffers that live until the call returns.
        let received = unsafe { libc::recvmsg(from.as_raw_fd(), &raw mut header, flags) };
        if received < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has filled the header in, and a message of rights holds one descriptor, which is this process's now.
        let descriptor = unsafe {
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (!first.is_null() && (*first).cmsg_type == libc::SCM_RIGHTS)
                .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(first).cast::<i32>().read_unaligned()))
        };
        if received != BYTES as isize {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let number =
            |at: usize| u64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
        let handle = bytes[32..].try_into().expect("64 bytes");
        Ok(Self { numbers: [number(0), number(1), number(2), number(3)], handle, descriptor })
    }

    /// Sends it before bytes of any length, which its first number becomes.
    pub(crate) fn send_with_bytes(
        mut self,
        bytes: &[u8],
        mut to: &UnixStream,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        self.numbers[0] = bytes.len() as u64;
        self.send(to, descriptor)?;
        to.write_all(bytes)
    }

    /// Waits for one and for the bytes that come after it.
    pub(crate) fn receive_with_bytes(mut from: &UnixStream) -> io::Result<(Self, Vec<u8>)> {
        let told = Self::receive(from)?;
        let mut bytes = vec![0; told.numbers[0] as usize];
        from.read_exact(&mut bytes)?;
        Ok((told, bytes))
    }
}

const DESCRIPTOR: u32 = size_of::<i32>() as u32;

/// Room for one descriptor and what goes before it, aligned as that is.
#[derive(Default)]
struct Control([u64; 4]);

impl Control {
    fn header(&mut self, part: &mut libc::iovec) -> libc::msghdr {
        // SAFETY: a header of zeros names nothing. The room that a descriptor takes is a matter of numbers.
        let (mut header, room): (libc::msghdr, _) =
            unsafe { (mem::zeroed(), libc::CMSG_SPACE(DESCRIPTOR) as usize) };
        assert!(room <= size_of::<Self>());
        header.msg_iov = part;
        header.msg_iovlen = 1;
        header.msg_control = self.0.as_mut_ptr().cast();
        header.msg_controllen = room as _;
        header
    }
}
