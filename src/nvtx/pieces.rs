//! `Pieces`: what a tool has been told about memory. Plain data: what is to be told comes out of it, and `memory` tells it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;

use smallvec::SmallVec;

use super::abi::VirtualRange;
use super::name::printable;
use super::piece::Piece;

/// A heap that the tool knows.
#[derive(Clone, Copy, Debug)]
struct Heap {
    end: u64,
    /// The handle that the tool gave it, as a number: it is only handed back.
    handle: usize,
}

/// A region, or what will be one again when it is divided no longer.
#[derive(Clone, Copy, Debug)]
struct Region {
    /// The bytes that were asked for, which may be accessed.
    bytes: u64,
    name: Option<&'static CStr>,
}

/// The region around a piece that is divided, and where it begins, if there was one.
type Around = Option<(u64, Region)>;

/// A region to register: its heap, and its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entered {
    pub(super) heap: usize,
    pub(super) piece: Piece,
    pub(super) name: Option<&'static CStr>,
    /// A region begins there already: it is to have this length instead.
    pub(super) is_resized: bool,
}

/// What a division of memory asks of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Divided {
    /// It is a heap, which is to be registered.
    Heap,
    /// It lies within a heap: the region around it, if there is one, is none any more.
    Within(Option<u64>),
}

/// What the end of a division asks of the tool.
#[derive(Debug)]
pub(super) struct United {
    /// The regions within it end.
    pub(super) ended: Vec<usize>,
    /// So does the heap.
    pub(super) heap: Option<usize>,
    /// What was a region before it was divided is one again.
    pub(super) again: Option<Entered>,
}

/// What the tool knows: heaps and regions, none of which overlap among themselves.
///
/// A block that another suballocator carves is divided: its region ends, and the pieces of it are regions of the heap that it lies in.
/// The tools know heaps within heaps as little as regions within regions.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    heaps: BTreeMap<u64, Heap>,
    regions: BTreeMap<u64, Region>,
    /// Pieces of heaps that are divided, by address and bytes: each with the region around it, if there was one. One piece may be
    /// divided by several, of whom the last ends first.
    divided: HashMap<(u64, u64), SmallVec<[Around; 1]>>,
    /// The names of tags, by their numbers. Kept for ever: a tool may keep the address that it is given. There are as many as tags.
    names: HashMap<u32, &'static CStr>,
}

impl Pieces {
    /// The heap that a piece lies in.
    fn heap_of(&self, piece: &Piece) -> Option<&Heap> {
        let (_, heap) = self.heaps.range(..=piece.address).next_back()?;
        (piece.end() <= heap.end).then_some(heap)
    }

    pub(super) fn knows(&self, piece: Piece) -> bool {
        self.heap_of(&piece).is_some()
    }

    /// A piece is going to be carved.
    pub(super) fn divide(&mut self, piece: Piece) -> Divided {
        if self.heap_of(&piece).is_none() {
            return Divided::Heap;
        }
        let around = self.regions.range(..=piece.address).next_back();
        let around = around.map(|(address, region)| (*address, *region));
        let around = around.filter(|(address, region)| {
            Piece { address: *address, bytes: region.bytes.next_multiple_of(256) }.contains(&piece)
        });
        if let Some((address, _)) = around {
            self.regions.remove(&address);
        }
        self.divided.entry((piece.address, piece.bytes)).or_default().push(around);
        Divided::Within(around.map(|(address, _)| address))
    }

    /// The tool knows a heap by that handle.
    pub(super) fn add_heap(&mut self, piece: Piece, handle: usize) {
        self.heaps.insert(piece.address, Heap { end: piece.end(), handle });
    }

    /// A piece is carved no longer.
    pub(super) fn unite(&mut self, piece: Piece) -> United {
        let divided = self.end_division(piece);
        let is_heap = self.heaps.get(&piece.address).is_some_and(|heap| heap.end == piece.end());
        if divided.is_none() && !is_heap {
            // It was not told of.
            return United { ended: Vec::new(), heap: None, again: None };
        }
        let ended = self.end_regions(piece);
        let Some(around) = divided else {
            let heap = self.heaps.remove(&piece.address).map(|heap| heap.handle);
            return United { ended, heap, again: None };
        };
        let again = around.and_then(|(address, region)| {
            let piece = Piece { address, bytes: region.bytes };
            let heap = self.heap_of(&piece)?.handle;
            self.regions.insert(address, region);
            Some(Entered { heap, piece, name: region.name, is_resized: false })
        });
        United { ended, heap: None, again }
    }

    /// What the last one who divided a piece has found around it.
    fn end_division(&mut self, piece: Piece) -> Option<Around> {
        let key = (piece.address, piece.bytes);
        let divisions = self.divided.get_mut(&key)?;
        let last = divisions.pop();
        if divisions.is_empty() {
            self.divided.remove(&key);
        }
        last
    }

    /// Ends the regions that begin within a piece.
    fn end_regions(&mut self, piece: Piece) -> Vec<usize> {
        let within: Vec<u64> = self.regions.range(piece.address..piece.end()).map(|(at, _)| *at).collect();
        for at in &within {
            self.regions.remove(at);
        }
        within.into_iter().map(|at| at as usize).collect()
    }

    /// A block goes out. `None` where no heap is known around it.
    pub(super) fn enter(&mut self, piece: Piece, name: Option<&'static CStr>) -> Option<Entered> {
        let heap = self.heap_of(&piece)?.handle;
        let before = self.regions.insert(piece.address, Region { bytes: piece.bytes, name });
        Some(Entered { heap, piece, name, is_resized: before.is_some() })
    }

    /// A block has come back. `false` if it was no region.
    pub(super) fn leave(&mut self, address: u64) -> bool {
        self.regions.remove(&address).is_some()
    }

    /// The pieces that lie in heaps.
    pub(super) fn ranges_of_known(&self, pieces: &[Piece]) -> Vec<VirtualRange> {
        pieces.iter().filter(|piece| self.knows(**piece)).map(Piece::range).collect()
    }

    /// The name of the tag with that number.
    pub(super) fn name(&mut self, number: u32, path: impl FnOnce() -> String) -> Option<&'static CStr> {
        if let Some(name) = self.names.get(&number) {
            return Some(name);
        }
        let name: &'static CStr = Box::leak(printable(&path())?.into_boxed_c_str());
        self.names.insert(number, name);
        Some(name)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const HEAP: Piece = Piece { address: 0x10000, bytes: 0x1000 };

    fn piece(address: u64, bytes: u64) -> Piece {
        Piece { address, bytes }
    }

    fn with_heap() -> Pieces {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.divide(HEAP), Divided::Heap);
        pieces.add_heap(HEAP, 7);
        pieces
    }

    #[test]
    fn a_block_that_is_carved_is_no_region_meanwhile() {
        let mut pieces = with_heap();
        let slab = piece(0x10000, 0x400);
        assert_eq!(pieces.enter(slab, None).map(|it| (it.heap, it.is_resized)), Some((7, false)));
        // It begins where the heap does.
        assert_eq!(pieces.divide(slab), Divided::Within(Some(0x10000)));
        assert!(pieces.enter(piece(0x10000, 100), None).is_some());
        assert!(pieces.enter(piece(0x10100, 100), None).is_some());
        let united = pieces.unite(slab);
        assert_eq!((united.ended, united.heap), (vec![0x10000, 0x10100], None));
        assert_eq!(united.again.map(|again| again.piece), Some(slab));
        assert!(pieces.leave(0x10000) && !pieces.leave(0x10000));
        assert_eq!(pieces.unite(HEAP).heap, Some(7));
        assert!(pieces.regions.is_empty() && pieces.heaps.is_empty() && pieces.divided.is_empty());
    }

    #[test]
    fn a_whole_heap_may_be_carved_again() {
        let mut pieces = with_heap();
        assert!(pieces.enter(HEAP, None).is_some());
        assert_eq!(pieces.divide(HEAP), Divided::Within(Some(HEAP.address)));
        assert!(pieces.unite(HEAP).again.is_some(), "the inner one ends first");
        assert_eq!(pieces.unite(HEAP).heap, Some(7));
    }

    #[test]
    fn one_piece_may_be_carved_by_several() {
        let mut pieces = with_heap();
        for _ in 0..3 {
            assert!(pieces.enter(HEAP, None).is_some());
            assert_eq!(pieces.divide(HEAP), Divided::Within(Some(HEAP.address)));
        }
        for _ in 0..3 {
            let United { heap, again, .. } = pieces.unite(HEAP);
            assert_eq!((heap, again.map(|again| again.piece)), (None, Some(HEAP)));
            assert!(pieces.leave(HEAP.address));
        }
        assert_eq!(pieces.unite(HEAP).heap, Some(7));
        assert!(pieces.regions.is_empty() && pieces.heaps.is_empty() && pieces.divided.is_empty());
    }

    #[test]
    fn what_lies_in_no_heap_is_not_told() {
        let mut pieces = with_heap();
        assert!(pieces.enter(piece(0x9000, 8), None).is_none());
        assert!(pieces.enter(piece(0x10ff8, 16), None).is_none(), "it ends outside");
        assert!(pieces.enter(piece(0x11000, 8), None).is_none());
        assert!(!pieces.leave(0x11000));
    }

    #[test]
    fn a_tag_has_one_name() {
        let mut pieces = with_heap();
        let name = pieces.name(3, || "outer;in\u{e4}r".to_owned());
        assert_eq!(name, Some(c"outer;in_r"));
        assert_eq!(pieces.name(3, || unreachable!("it is known")), name);
        let entered = pieces.enter(piece(0x10100, 100), name);
        assert_eq!(entered.and_then(|entered| entered.name), name);
    }

    #[test]
    fn nothing_is_said_of_what_lies_in_no_heap() {
        let pieces = with_heap();
        let known = pieces.ranges_of_known(&[piece(0x9000, 8), piece(0x10100, 8), piece(0x10ff8, 16)]);
        assert_eq!(
            known.iter().map(|range| (range.address, range.bytes)).collect::<Vec<_>>(),
            [(0x10100, 8)]
        );
    }
}
