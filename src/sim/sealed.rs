//! `Sealed`: handles of 64 bytes that other processes get, and that nobody can make up.

use core::hash::{BuildHasher, Hasher};
use std::collections::hash_map::RandomState;

use super::device_bytes::{junk, mix};

/// What a handle is of. Its number is in the handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum SealedKind {
    /// Memory of `allocate_device`: its process, its address, its backing.
    Memory = 1,
    /// A shared event: its process, its number.
    Event,
    /// A block of a pool: its process, its address, the submission that allocated it.
    Pointer,
    /// Physical memory as a fabric handle: its backing.
    Fabric,
    /// A pool as a fabric handle: its process, its handle there, its device.
    FabricPool,
}

/// Makes and reads the handles of one machine.
#[derive(Debug)]
pub(super) struct Sealed {
    /// Differs between machines, so that none takes the handle of another for its own.
    machine: u64,
}

impl Default for Sealed {
    fn default() -> Self {
        // The standard library's hasher has a seed of its own from the operating system.
        Self { machine: RandomState::new().build_hasher().finish() }
    }
}

impl Sealed {
    /// A number that no other machine has.
    pub(super) const fn machine(&self) -> u64 {
        self.machine
    }

    /// A handle with three numbers.
    pub(super) fn seal(&self, kind: SealedKind, numbers: [u64; 3]) -> [u8; 64] {
        let words = [self.machine, kind as u64, numbers[0], numbers[1], numbers[2]];
        let mut handle = [0; 64];
        for (bytes, word) in handle.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        // The rest depends on all of it, so that a handle with a changed byte is none.
        let check = words.into_iter().fold(0, |check, word| mix(check ^ word));
        junk(check, 0, &mut handle[40..]);
        handle
    }

    /// The numbers of a handle that this machine made of that kind.
    pub(super) fn open(&self, kind: SealedKind, handle: &[u8; 64]) -> Option<[u64; 3]> {
        let mut numbers = [0; 3];
        for (number, bytes) in numbers.iter_mut().zip(handle[16..].chunks_exact(8)) {
            *number = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        (self.seal(kind, numbers) == *handle).then_some(numbers)
    }

    /// Returns `true` for a handle that this machine made of that kind, some of whose bytes were changed afterwards.
    pub(super) fn is_altered(&self, kind: SealedKind, handle: &[u8; 64]) -> bool {
        handle[..16] == self.seal(kind, [0; 3])[..16] && self.open(kind, handle).is_none()
    }

    /// The number of a device that every process knows it by.
    pub(super) fn uuid(&self, ordinal: u32) -> [u8; 16] {
        let mut uuid = [0; 16];
        junk(mix(self.machine ^ mix(ordinal.into())), 0, &mut uuid);
        uuid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_with_a_changed_byte_is_none() {
        let (sealed, other) = (Sealed { machine: 7 }, Sealed { machine: 8 });
        let handle = sealed.seal(SealedKind::Pointer, [1, u64::MAX, 3]);
        assert_eq!(sealed.open(SealedKind::Pointer, &handle), Some([1, u64::MAX, 3]));
        assert_eq!(sealed.open(SealedKind::Event, &handle), None);
        assert_eq!(other.open(SealedKind::Pointer, &handle), None);
        for byte in 0..64 {
            let mut changed = handle;
            changed[byte] ^= 0x10;
            assert_eq!(sealed.open(SealedKind::Pointer, &changed), None, "byte {byte}");
            assert_eq!(sealed.is_altered(SealedKind::Pointer, &changed), byte >= 16, "byte {byte}");
        }
        assert_eq!(sealed.open(SealedKind::Memory, &[0; 64]), None);
        assert!(![handle, [0; 64]].iter().any(|handle| sealed.is_altered(SealedKind::Memory, handle)));
    }

    #[test]
    fn devices_and_machines_have_numbers_of_their_own() {
        let (sealed, other) = (Sealed { machine: 7 }, Sealed { machine: 8 });
        assert_eq!(sealed.uuid(0), sealed.uuid(0));
        assert!(sealed.uuid(0) != sealed.uuid(1) && sealed.uuid(0) != other.uuid(0));
        assert_ne!(Sealed::default().machine(), Sealed::default().machine());
    }
}
