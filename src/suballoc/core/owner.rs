//! `Owner`: the stream that owns a free block.

use hashbrown::HashMap;

use super::Core;
use super::bins::{Bins, End};
use crate::stream::{Epoch, Stamp, StreamId};
use crate::suballoc::debugger::{NO_STREAM, ShownArray};

/// The owner of a free block: the place of a stream in the table of this core, or none.
///
/// Once the stream has left, another stream may get its place. So code that releases the lock keeps the number of the
/// stream, and looks its owner up again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Owner(u32);

impl Owner {
    /// All work of the block is completed: any stream may take it.
    pub(crate) const UNOWNED: Self = Self(0);
    /// In a node: the block is not free.
    pub(crate) const OUT: Self = Self(u32::MAX);
    /// In a node: there is no block.
    pub(super) const VACANT: Self = Self(u32::MAX - 1);
    /// In a node: there is no memory.
    pub(super) const ABSENT: Self = Self(u32::MAX - 2);
    /// In a node: its pages are being mapped or unmapped, or its addresses are lost, and it stays so.
    pub(super) const MOVING: Self = Self(u32::MAX - 3);
    /// In a node: the block is out, and sleeps.
    pub(crate) const ASLEEP: Self = Self(u32::MAX - 4);
    /// In a node: free memory of a page that is given up to sleep.
    pub(super) const HOLLOW: Self = Self(u32::MAX - 5);

    /// Returns `true` in a node of memory that a free block may have: not of a block, and not without pages.
    pub(super) const fn is_of_free(self) -> bool {
        self.0 < Self::HOLLOW.0
    }

    /// Returns `true` in a node of a block that is awake, or of free memory: in a node with memory at its addresses.
    pub(super) const fn has_memory(self) -> bool {
        self.is_of_free() || self.0 == Self::OUT.0
    }

    pub(super) const fn place(self) -> usize {
        self.0 as usize
    }
}

/// A stream that owns free blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owned {
    pub(crate) stream: StreamId,
    pub(crate) free_units: u64,
    /// No free block of the owner has a later epoch. The block that had this epoch may have been taken since; the
    /// stream has reached the epoch in any case.
    pub(crate) newest: Epoch,
    /// When a block was last freed here, or a query last found the stream busy. Counted in frees of all owners.
    pub(crate) last_busy: u64,
}

impl Owned {
    /// The point of the stream at which all its free blocks are freed.
    pub(crate) fn latest(&self) -> Stamp {
        Stamp { stream: self.stream, epoch: self.newest }
    }
}

/// The free blocks of one owner.
#[derive(Debug)]
pub(super) struct OwnerPlace {
    /// `None` for the place of unowned blocks, and for a vacant place.
    pub(super) stream: Option<StreamId>,
    /// The same for a debugger: its number, or [`NO_STREAM`].
    pub(super) shown: u64,
    pub(super) free_units: u64,
    /// No free block has an earlier epoch.
    pub(super) oldest: u64,
    /// No free block has a later epoch.
    pub(super) newest: u64,
    /// See [`Owned`].
    pub(super) last_busy: u64,
    pub(super) bins: Bins,
}

impl Default for OwnerPlace {
    fn default() -> Self {
        Self {
            stream: None,
            shown: NO_STREAM,
            free_units: 0,
            oldest: 0,
            newest: 0,
            last_busy: 0,
            bins: Bins::default(),
        }
    }
}

impl OwnerPlace {
    /// Adds units that are free from now on, in a block of that epoch.
    #[inline]
    pub(super) fn gain(&mut self, units: u32, epoch: u64) {
        if self.free_units == 0 {
            (self.oldest, self.newest) = (epoch, epoch);
        }
        self.oldest = self.oldest.min(epoch);
        self.newest = self.newest.max(epoch);
        self.free_units += u64::from(units);
    }

    /// The end of its bin at which a block of that epoch is inserted, after [`gain`](Self::gain).
    #[inline]
    pub(super) fn end(&self, epoch: u64) -> End {
        if epoch >= self.newest { End::Front } else { End::Back }
    }
}

/// The places of all owners.
#[derive(Debug)]
pub(super) struct Owners {
    /// The place of unowned blocks is the first.
    places: Vec<OwnerPlace>,
    /// Where the places are.
    shown: ShownArray,
    /// The places whose stream has left.
    vacant: Vec<Owner>,
    by_stream: HashMap<StreamId, Owner>,
    /// The number of streams entered so far.
    entered: u64,
}

impl Default for Owners {
    fn default() -> Self {
        let places = vec![OwnerPlace::default()];
        Self {
            shown: ShownArray::of(&places),
            places,
            vacant: Vec::new(),
            by_stream: HashMap::new(),
            entered: 0,
        }
    }
}

impl Owners {
    #[inline]
    pub(super) fn place(&self, owner: Owner) -> &OwnerPlace {
        &self.places[owner.place()]
    }

    #[inline]
    pub(super) fn place_mut(&mut self, owner: Owner) -> &mut OwnerPlace {
        &mut self.places[owner.place()]
    }

    /// Returns `true` if only one stream has ever been entered: then no other stream competes for memory, and unowned
    /// memory may as well be its own.
    #[inline]
    pub(super) fn is_sole(&self) -> bool {
        self.entered == 1
    }

    /// The number of places, that of unowned blocks included.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The place of unowned blocks, and that of every stream.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Owner, &OwnerPlace)> + '_ {
        (0..)
            .map(Owner)
            .zip(&self.places)
            .filter(|(owner, place)| *owner == Owner::UNOWNED || place.stream.is_some())
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<OwnerPlace>()
            + self.vacant.capacity() * size_of::<Owner>()
            + self.by_stream.allocation_size()
            + self.places.iter().map(|place| place.bins.bytes()).sum::<usize>()
    }

    /// For a debugger.
    pub(super) fn shown(&self) -> &ShownArray {
        &self.shown
    }

    fn enter(&mut self, stream: StreamId) -> Owner {
        if let Some(&owner) = self.by_stream.get(&stream) {
            return owner;
        }
        let owner = self.vacant.pop().unwrap_or_else(|| {
            let place = u32::try_from(self.places.len()).ok().filter(|&place| place < Owner::HOLLOW.0);
            self.shown.push(&mut self.places, OwnerPlace::default());
            Owner(place.expect("fewer streams than a machine has places for"))
        });
        let entered = &mut self.places[owner.place()];
        (entered.stream, entered.shown) = (Some(stream), stream.number());
        self.by_stream.insert(stream, owner);
        self.entered += 1;
        owner
    }

    /// Frees the place, which has no free blocks any more.
    fn vacate(&mut self, owner: Owner) {
        let place = self.place_mut(owner);
        debug_assert_eq!(place.free_units, 0, "a stream leaves no block behind");
        place.shown = NO_STREAM;
        if let Some(stream) = place.stream.take() {
            self.by_stream.remove(&stream);
            self.vacant.push(owner);
        }
    }
}

impl Core {
    /// The owner of a stream's blocks. Enters the stream if it is new. O(1).
    #[inline]
    pub(crate) fn enter(&mut self, stream: StreamId) -> Owner {
        self.owners.enter(stream)
    }

    /// The owner of a stream's blocks, if it has been entered and has not left. O(1).
    pub(crate) fn owner_of(&self, stream: StreamId) -> Option<Owner> {
        self.owners.by_stream.get(&stream).copied()
    }

    /// The stream of an owner.
    pub(crate) fn stream_of(&self, owner: Owner) -> Option<StreamId> {
        self.owners.place(owner).stream
    }

    /// Every stream that owns free blocks.
    pub(crate) fn owners(&self) -> impl Iterator<Item = Owned> + '_ {
        self.owners.iter().filter(|(_, place)| place.free_units > 0).filter_map(|(_, place)| {
            let OwnerPlace { free_units, last_busy, .. } = *place;
            Some(Owned { stream: place.stream?, free_units, newest: Epoch(place.newest), last_busy })
        })
    }

    /// Notes that a query found the stream of these blocks busy.
    pub(crate) fn note_busy(&mut self, owner: Owner) {
        // After the streams that have freed last.
        self.owners.place_mut(owner).last_busy = self.released + 1;
    }

    /// Removes a stream that has ended with all its work: its blocks become unowned, and its place is vacant.
    pub(crate) fn leave(&mut self, owner: Owner) {
        if owner == Owner::UNOWNED {
            return;
        }
        self.disown(owner, Epoch(u64::MAX));
        self.owners.vacate(owner);
    }
}
