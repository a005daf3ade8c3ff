//! `Backings`: physical memory, whoever has it mapped.

use std::collections::HashMap;

use super::device_bytes::{DeviceBytes, mix};
use super::host_bytes::HostBytes;
use super::machine::SimMachine;
use super::memory::{AccessRefusal, Accessor};

/// The number of a backing: bytes without an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BackingId(pub(super) u64);

/// The bytes of a backing.
#[derive(Debug)]
pub(super) enum Backing {
    Device(DeviceBytes),
    Host(HostBytes),
}

#[derive(Debug)]
struct HeldBacking {
    content: Backing,
    /// The device that it takes memory of, and how much. Memory of the host is counted elsewhere.
    home: Option<(u32, u64)>,
    /// What keeps it: an allocation, a page of a pool, a handle or an opening of a process.
    holders: usize,
}

/// All physical memory. Every backing is as long as something holds it, in whatever process.
#[derive(Debug)]
pub(super) struct Backings {
    seed: u64,
    backings: HashMap<BackingId, HeldBacking>,
    next: u64,
}

impl Backings {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, backings: HashMap::new(), next: 0 }
    }

    /// Memory of a device, of which `bytes` were taken.
    pub(super) fn add_device(&mut self, ordinal: u32, bytes: u64) -> BackingId {
        let content = Backing::Device(DeviceBytes::new(mix(self.seed ^ mix(self.next))));
        self.add(content, Some((ordinal, bytes)))
    }

    pub(super) fn add_host(&mut self, bytes: HostBytes) -> BackingId {
        self.add(Backing::Host(bytes), None)
    }

    fn add(&mut self, content: Backing, home: Option<(u32, u64)>) -> BackingId {
        let id = BackingId(self.next);
        self.next += 1;
        self.backings.insert(id, HeldBacking { content, home, holders: 1 });
        id
    }

    /// One more holds it. Returns `false` if it is gone.
    pub(super) fn hold(&mut self, id: BackingId) -> bool {
        let held = self.backings.get_mut(&id);
        held.map(|held| held.holders += 1).is_some()
    }

    /// The number of holders; 0 for memory that is gone.
    pub(super) fn holders(&self, id: BackingId) -> usize {
        self.backings.get(&id).map_or(0, |held| held.holders)
    }

    /// The device whose memory it is, and how much of that.
    pub(super) fn home(&self, id: BackingId) -> Option<(u32, u64)> {
        self.backings.get(&id)?.home
    }

    pub(super) fn get(&self, id: BackingId) -> Option<&Backing> {
        self.backings.get(&id).map(|held| &held.content)
    }

    pub(super) fn get_mut(&mut self, id: BackingId) -> Option<&mut Backing> {
        self.backings.get_mut(&id).map(|held| &mut held.content)
    }
}

impl SimMachine {
    /// One holds it no more. The last one gives the memory back to its device, or gets the block of the host to free it.
    pub(super) fn let_go(&mut self, id: BackingId) -> Option<HostBytes> {
        let held = self.backings.backings.get_mut(&id)?;
        held.holders -= 1;
        if held.holders > 0 {
            self.lent.note_let_go(id, held.holders);
            return None;
        }
        let held = self.backings.backings.remove(&id)?;
        self.watch.forget(id);
        if let Some((ordinal, bytes)) = held.home {
            self.free_device_bytes(ordinal, bytes);
        }
        match held.content {
            Backing::Device(_) => None,
            Backing::Host(block) => Some(block),
        }
    }

    /// Reads what the process that runs has at an address.
    pub(super) fn read(
        &self,
        address: u64,
        into: &mut [u8],
        accessor: Accessor,
    ) -> Result<(), AccessRefusal> {
        for piece in self.process.memory.pieces(address, into.len() as u64, accessor, false)? {
            let start = (piece.address - address) as usize;
            let chunk = &mut into[start..start + piece.bytes as usize];
            match self.backings.get(piece.backing) {
                Some(Backing::Device(bytes)) => bytes.read(piece.offset, chunk),
                Some(Backing::Host(bytes)) => bytes.read(piece.offset, chunk),
                None => return Err(AccessRefusal::Unmapped(piece.address)),
            }
        }
        Ok(())
    }

    /// Writes to what the process that runs has at an address.
    pub(super) fn write(
        &mut self,
        address: u64,
        from: &[u8],
        accessor: Accessor,
    ) -> Result<(), AccessRefusal> {
        for piece in self.process.memory.pieces(address, from.len() as u64, accessor, true)? {
            let start = (piece.address - address) as usize;
            let chunk = &from[start..start + piece.bytes as usize];
            match self.backings.get_mut(piece.backing) {
                Some(Backing::Device(bytes)) => bytes.write(piece.offset, chunk),
                Some(Backing::Host(bytes)) => bytes.write(piece.offset, chunk),
                None => return Err(AccessRefusal::Unmapped(piece.address)),
            }
        }
        Ok(())
    }

    /// Fills a range with junk, where it is memory of a device.
    pub(super) fn scramble(&mut self, address: u64, bytes: u64) {
        let pieces = self.process.memory.pieces(address, bytes, Accessor::CopyEngine, true);
        for piece in pieces.unwrap_or_default() {
            if let Some(Backing::Device(content)) = self.backings.get_mut(piece.backing) {
                content.scramble(piece.offset, piece.bytes);
            }
        }
    }
}
