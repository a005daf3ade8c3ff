//! Descriptors that stand for memory: what a descriptor is of, and whether any copy of it is open.
//!
//! A descriptor is a socket with a name in the abstract namespace. The name says what it is of. The kernel gives a name back once the
//! last copy of its socket is closed, in whatever process, and also where that copy was on its way through another socket. So
//! the machine keeps no descriptor itself to know that one is alive, and a test that counts descriptors sees those of its own.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// What all names begin with.
const PREFIX: &str = "alluvion-sim";

fn address(machine: u64, number: u64) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{PREFIX}-{machine:016x}-{number}"))
}

/// A new descriptor.
pub(super) fn make(machine: u64, number: u64) -> io::Result<OwnedFd> {
    Ok(UnixDatagram::bind_addr(&address(machine, number)?)?.into())
}

/// The number of a descriptor that this machine made.
pub(super) fn number_of(machine: u64, descriptor: BorrowedFd<'_>) -> Option<u64> {
    let socket = UnixDatagram::from(descriptor.try_clone_to_owned().ok()?);
    let address = socket.local_addr().ok()?;
    let name = core::str::from_utf8(address.as_abstract_name()?).ok()?;
    name.strip_prefix(&format!("{PREFIX}-{machine:016x}-"))?.parse().ok()
}

/// Returns `true` if a copy of the descriptor is open, and where that cannot be found out.
pub(super) fn is_open(machine: u64, number: u64) -> bool {
    !address(machine, number).is_ok_and(|address| UnixDatagram::bind_addr(&address).is_ok())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// A machine that no other test of this program has.
    fn machine() -> u64 {
        super::super::sealed::Sealed::default().machine()
    }

    #[test]
    fn a_descriptor_is_open_until_its_last_copy_is_closed() {
        let machine = machine();
        let first = make(machine, 5).unwrap();
        let second = first.try_clone().unwrap();
        assert_eq!((number_of(machine, second.as_fd()), is_open(machine, 5)), (Some(5), true));
        drop(first);
        assert!(is_open(machine, 5));
        drop(second);
        assert!(!is_open(machine, 5));
    }

    #[test]
    fn what_is_no_descriptor_of_the_machine_has_no_number() {
        let machine = machine();
        let (other, plain) = (make(machine ^ 1, 5).unwrap(), UnixDatagram::unbound().unwrap());
        let file = std::fs::File::open("/dev/null").unwrap();
        for foreign in [other.as_fd(), plain.as_fd(), file.as_fd()] {
            assert_eq!(number_of(machine, foreign), None);
        }
    }
}
