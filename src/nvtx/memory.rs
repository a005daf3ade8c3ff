//! Tells the tool which memory may be accessed.
//!
//! Who calls this owns the memory that he tells of: a block that goes out is entered before anybody else knows it, and one that comes
//! back leaves before anybody else may get it. So what is told of one address comes in its order, although no lock is held while the
//! tool's code runs.

#![expect(unsafe_code, reason = "calls the functions that the tool has put into the slots")]

use core::ffi::{CStr, c_void};
use core::mem::transmute;
use core::ptr;

use super::abi::{
    HeapDescription, HeapRegister, HeapUnregister, MarkInitialized, NameBatch, RangesBatch, RegionName,
    RegionsName, RegionsRegister, RegionsResize, RegionsUnregister, RegisterBatch, UnregisterBatch,
    VirtualRange,
};
use super::name::printable;
pub(crate) use super::piece::Piece;
use super::pieces::{Divided, Entered, Pieces, United};
use super::{load, slots};
use crate::sync::{Global, assert_no_lock_is_held};

static PIECES: Global<Option<Pieces>> = Global::new(None, in_child);

extern "C" fn in_child() {
    PIECES.look_after_fork();
}

/// `None` in a child of a fork that came while another thread held the lock: it tells nothing anyway.
fn with_pieces<T>(look: impl FnOnce(&mut Pieces) -> T) -> Option<T> {
    PIECES.lock().map(|mut pieces| look(pieces.get_or_insert_with(Pieces::default)))
}

/// Returns `true` if a tool wants to hear of memory.
#[inline]
pub(crate) fn listens() -> bool {
    load::heard() & load::MEMORY != 0
}

/// Returns `true` if a piece lies in a heap that the tool knows.
pub(crate) fn knows(piece: Piece) -> bool {
    listens() && with_pieces(|pieces| pieces.knows(piece)) == Some(true)
}

/// Memory is carved from now on: nothing of it may be accessed but what is entered. `name` is that of who carves it. Where it lies in no
/// heap it is a new one, if `may_be_heap`, which is asked without a lock. Returns whether the tool knows of it.
pub(crate) fn divide(piece: Piece, name: &str, may_be_heap: impl FnOnce() -> bool) -> bool {
    if !listens() {
        return false;
    }
    match with_pieces(|pieces| pieces.divide(piece)) {
        Some(Divided::Heap) => {
            let handle =
                if may_be_heap() { register_heap(piece, &printable(name).unwrap_or_default()) } else { 0 };
            if handle != 0 {
                with_pieces(|pieces| pieces.add_heap(piece, handle));
            }
            handle != 0
        }
        Some(Divided::Within(around)) => {
            unregister(around.map(|around| around as usize).as_slice());
            true
        }
        None => false,
    }
}

/// Memory is carved no longer. What was entered in it has left.
pub(crate) fn unite(piece: Piece) {
    if !listens() {
        return;
    }
    let Some(United { ended, heap, again }) = with_pieces(|pieces| pieces.unite(piece)) else { return };
    unregister(&ended);
    if let Some(heap) = heap {
        unregister_heap(heap);
    }
    register(again.as_slice());
}

/// A block goes out. `tag` is the number of its tag, 0 for none, and `path` writes it.
pub(crate) fn enter(piece: Piece, tag: u32, path: impl FnOnce() -> String) {
    if !listens() || piece.bytes == 0 {
        return;
    }
    let entered = with_pieces(|pieces| {
        let name = if tag == 0 { None } else { pieces.name(tag, path) };
        pieces.enter(piece, name)
    });
    register(entered.flatten().as_slice());
}

/// A block has come back.
pub(crate) fn leave(address: u64) {
    if listens() && with_pieces(|pieces| pieces.leave(address)) == Some(true) {
        unregister(&[address as usize]);
    }
}

/// Pieces of blocks were written by work of that stream which the tool does not count, because they were no region then. Of use to a
/// tool that looks for reads of what was not written.
pub(crate) fn vouch(pieces: &[Piece], stream: usize) {
    if !listens() {
        return;
    }
    let known = with_pieces(|known| known.ranges_of_known(pieces)).unwrap_or_default();
    let call = if known.is_empty() { None } else { function(slots::MARK_INITIALIZED) };
    let Some(call) = call else { return };
    let batch = RangesBatch::new(&known);
    // SAFETY: the tool has put a function of this type into this slot.
    let call = unsafe { transmute::<*mut c_void, MarkInitialized>(call) };
    // SAFETY: the batch and its ranges live during the call, and the stream does, whose number it is.
    unsafe { call(load::domain(), ptr::with_exposed_provenance_mut(stream), 0, &raw const batch) };
}

/// The function in a slot. The tool's code is about to run, so no lock is held.
fn function(number: usize) -> Option<*mut c_void> {
    assert_no_lock_is_held();
    slots::MEMORY[number].function()
}

/// Returns the handle of a heap, 0 if the tool does not take it.
fn register_heap(piece: Piece, name: &CStr) -> usize {
    let Some(call) = function(slots::HEAP_REGISTER) else { return 0 };
    let range = piece.range();
    let description = HeapDescription::new(&range, name.as_ptr());
    // SAFETY: the tool has put a function of this type into this slot.
    let call = unsafe { transmute::<*mut c_void, HeapRegister>(call) };
    // SAFETY: the description, its range and its name live during the call.
    let handle = unsafe { call(load::domain(), &raw const description) };
    handle.expose_provenance()
}

fn unregister_heap(heap: usize) {
    let Some(call) = function(slots::HEAP_UNREGISTER) else { return };
    // SAFETY: the tool has put a function of this type into this slot.
    let call = unsafe { transmute::<*mut c_void, HeapUnregister>(call) };
    // SAFETY: the handle is one that the tool has returned, and is handed back once.
    unsafe { call(load::domain(), ptr::with_exposed_provenance_mut(heap)) };
}

/// Registers regions, or gives them another length, and names them: those of one heap in one call.
fn register(entered: &[Entered]) {
    let (resized, new): (Vec<Entered>, Vec<Entered>) = entered.iter().partition(|entered| entered.is_resized);
    resize(&resized.iter().map(|entered| entered.piece.range()).collect::<Vec<_>>());
    for of_one_heap in new.chunk_by(|one, next| one.heap == next.heap) {
        let Some(call) = function(slots::REGIONS_REGISTER) else { return };
        let ranges: Vec<VirtualRange> = of_one_heap.iter().map(|entered| entered.piece.range()).collect();
        let heap = ptr::with_exposed_provenance_mut(of_one_heap[0].heap);
        let batch = RegisterBatch::new(heap, &ranges);
        // SAFETY: the tool has put a function of this type into this slot.
        let call = unsafe { transmute::<*mut c_void, RegionsRegister>(call) };
        // SAFETY: the batch and its ranges live during the call; the handle is one that the tool has returned.
        unsafe { call(load::domain(), &raw const batch) };
    }
    let names: Vec<RegionName> = entered
        .iter()
        .filter_map(|entered| Some(RegionName::new(entered.piece.address as usize, entered.name?.as_ptr())))
        .collect();
    let call = if names.is_empty() { None } else { function(slots::REGIONS_NAME) };
    let Some(call) = call else { return };
    let batch = NameBatch::new(&names);
    // SAFETY: the tool has put a function of this type into this slot.
    let call = unsafe { transmute::<*mut c_void, RegionsName>(call) };
    // SAFETY: the batch and its elements live during the call, and the names for ever.
    unsafe { call(load::domain(), &raw const batch) };
}

fn resize(ranges: &[VirtualRange]) {
    let call = if ranges.is_empty() { None } else { function(slots::REGIONS_RESIZE) };
    let Some(call) = call else { return };
    let batch = RangesBatch::new(ranges);
    // SAFETY: the tool has put a function of this type into this slot.
    let call = unsafe { transmute::<*mut c_void, RegionsResize>(call) };
    // SAFETY: the batch and its ranges live during the call.
    unsafe { call(load::domain(), &raw const batch) };
}

fn unregister(addresses: &[usize]) {
    let call = if addresses.is_empty() { None } else { function(slots::REGIONS_UNREGISTER) };
    let Some(call) = call else { return };
    let batch = UnregisterBatch::new(addresses);
    // SAFETY: the tool has put a function of this type into this slot.
    let call = unsafe { transmute::<*mut c_void, RegionsUnregister>(call) };
    // SAFETY: the batch and its elements live during the call.
    unsafe { call(load::domain(), &raw const batch) };
}
