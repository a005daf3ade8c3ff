//! An upstream for the models of suballocators.

#![allow(clippy::disallowed_types, reason = "the book is no part of the model")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex as Unmodelled, MutexGuard, PoisonError};

use alluvion::driver::RawStream;
use alluvion::resource::{Page, Pages};
use alluvion::{Device, DeviceAccessible, DevicePtr, Error, Layout, Resource, ResourceId, StreamRef};
use loom::sync::Mutex;

use crate::mock::WorkSet;
use crate::{Rig, Work};

/// Hands out addresses that it has never handed out before, up to a capacity, and keeps a book of who uses them.
///
/// What is carved out of its segments is entered by [`Site`](crate::Site). A segment comes back once, when no block of it
/// is live, behind all work that used it.
#[derive(Clone, Debug)]
pub struct Ground {
    rig: Rig,
    id: ResourceId,
    /// The lock is a driver's own: between two calls there is a moment in which others run.
    room: Arc<Mutex<usize>>,
    book: Arc<Unmodelled<Book>>,
    /// The unit of its pages; 0 if it has segments only.
    page_bytes: usize,
    /// A page may be mapped at several addresses.
    has_aliases: bool,
}

#[derive(Debug, Default)]
struct Book {
    /// Where each segment that is out, or page that is mapped, begins, and its length.
    segments: BTreeMap<u64, u64>,
    /// The same of the blocks that are live.
    live: BTreeMap<u64, u64>,
    /// What has been used, by what: beginning, length, work.
    uses: Vec<(u64, u64, Work)>,
    /// The same, by the bytes of pages, whatever their addresses.
    uses_of_pages: Vec<(u64, u64, Work)>,
    /// The ranges that are reserved, likewise.
    ranges: BTreeMap<u64, u64>,
    /// The pages that are there, by number: the length, and where each is mapped.
    pages: BTreeMap<u64, (u64, Vec<u64>)>,
    next: u64,
    taken: usize,
    returned: usize,
    refused: usize,
    out_bytes: usize,
    most_out_bytes: usize,
}

fn meet(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0 < other.0 + other.1 && other.0 < one.0 + one.1
}

impl Book {
    /// The bytes of pages that are mapped at some addresses: a number that no two bytes share.
    fn bytes_of_pages(&self, address: u64, bytes: u64) -> Vec<(u64, u64)> {
        let all = self
            .pages
            .iter()
            .flat_map(|(number, (length, places))| places.iter().map(move |at| (number, length, at)));
        let parts = all.filter(|(_, length, at)| meet((**at, **length), (address, bytes)));
        let parts = parts.map(|(number, length, &at)| {
            let (from, to) = (at.max(address), (at + length).min(address + bytes));
            ((number << 32) + (from - at), to - from)
        });
        parts.collect()
    }
}

impl Ground {
    /// Has so many bytes, and refuses to have more out.
    #[must_use]
    pub fn new(rig: &Rig, capacity: usize) -> Self {
        let book = Book { next: 1 << 40, ..Book::default() };
        Self {
            rig: rig.clone(),
            id: ResourceId::unique(),
            room: Arc::new(Mutex::new(capacity)),
            book: Arc::new(Unmodelled::new(book)),
            page_bytes: 0,
            has_aliases: false,
        }
    }

    /// As [`new`](Self::new), in pages of so many bytes, which are taken and returned as segments are.
    #[must_use]
    pub fn in_pages(rig: &Rig, capacity: usize, page_bytes: usize) -> Self {
        Self { page_bytes, ..Self::new(rig, capacity) }
    }

    /// The same, in pages that may have several addresses.
    #[must_use]
    pub fn with_aliases(self) -> Self {
        Self { has_aliases: true, ..self }
    }

    /// How often a segment was taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.book().taken
    }

    /// How often one came back.
    #[must_use]
    pub fn returned(&self) -> usize {
        self.book().returned
    }

    /// How often it had not so much.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.book().refused
    }

    /// The most that was out at a time, until the calls that gave it back returned.
    #[must_use]
    pub fn most_out_bytes(&self) -> usize {
        self.book().most_out_bytes
    }

    /// Succeeds if every segment has come back.
    ///
    /// # Panics
    ///
    /// If one has not.
    pub fn assert_whole(&self) {
        let book = self.book();
        assert!(book.segments.is_empty(), "{:x?} has not come back", book.segments);
        assert!(book.ranges.is_empty() && book.pages.is_empty(), "{:x?}, {:x?}", book.ranges, book.pages);
        assert_eq!(book.taken, book.returned);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block has gone out.
    pub(crate) fn enter(&self, address: u64, bytes: u64) {
        let mut book = self.book();
        let mut end = address;
        // Pages lie side by side.
        while let Some((at, length)) = book.segments.range(..=end).next_back()
            && end < at + length
            && end < address + bytes
        {
            end = at + length;
        }
        let whole = end >= address + bytes;
        assert!(whole, "{address:#x} is in no segment");
        let other = book.live.iter().find(|(at, length)| meet((**at, **length), (address, bytes)));
        assert_eq!(other, None, "{address:#x} is live already");
        let live = book.live.iter().flat_map(|(at, length)| book.bytes_of_pages(*at, *length));
        let mine = book.bytes_of_pages(address, bytes);
        let other = live.into_iter().find(|other| mine.iter().any(|mine| meet(*mine, *other)));
        assert_eq!(other, None, "the memory at {address:#x} is live at another address");
        book.live.insert(address, bytes);
    }

    /// A block comes back.
    pub(crate) fn leave(&self, address: u64) {
        assert!(self.book().live.remove(&address).is_some(), "{address:#x} is not live");
    }

    /// Some work uses a block, on a stream that follows so much. All that ever used these bytes must come before it.
    pub(crate) fn note_use(&self, address: u64, bytes: u64, work: Work, followed: WorkSet) {
        self.assert_behind(address, bytes, followed, &format_args!("{work:?}"));
        let mut book = self.book();
        book.uses.push((address, bytes, work));
        let mine = book.bytes_of_pages(address, bytes);
        let used = |(at, length, _): &&(u64, u64, Work)| mine.iter().any(|mine| meet((*at, *length), *mine));
        let used: Vec<Work> = book.uses_of_pages.iter().filter(used).map(|(_, _, work)| *work).collect();
        book.uses_of_pages.extend(mine.into_iter().map(|(at, length)| (at, length, work)));
        drop(book);
        for earlier in used {
            assert!(
                self.rig.mock.is_before(followed, earlier),
                "{work:?} may overtake {earlier:?} on a page"
            );
        }
    }

    fn assert_behind(&self, address: u64, bytes: u64, followed: WorkSet, who: &dyn fmt::Debug) {
        let used = |(at, length, _): &&(u64, u64, Work)| meet((*at, *length), (address, bytes));
        let used: Vec<Work> = self.book().uses.iter().filter(used).map(|(_, _, work)| *work).collect();
        for earlier in used {
            assert!(self.rig.mock.is_before(followed, earlier), "{who:?} may overtake {earlier:?}");
        }
    }

    /// Succeeds if everything that used these bytes is over.
    pub(crate) fn assert_over(&self, address: u64, bytes: u64) {
        self.assert_behind(address, bytes, WorkSet::default(), &format_args!("the host"));
    }

    fn take_back(&self, block: DevicePtr, layout: Layout, stream: Option<RawStream>) {
        if std::thread::panicking() {
            // The model has failed already, and says how.
            return;
        }
        let (address, bytes) = (block.address(), layout.bytes() as u64);
        let followed = stream.map_or_else(WorkSet::default, |stream| self.rig.mock.before(stream));
        self.take_away(address, bytes, followed);
        self.give_back(layout.bytes());
    }

    /// Memory goes from its addresses.
    fn take_away(&self, address: u64, bytes: u64, followed: WorkSet) {
        self.assert_behind(address, bytes, followed, &format_args!("the upstream"));
        let mut book = self.book();
        assert_eq!(book.segments.remove(&address), Some(bytes), "the segment at {address:#x} comes back");
        let live = book.live.iter().find(|(at, length)| meet((**at, **length), (address, bytes)));
        assert_eq!(live, None, "a block of the segment at {address:#x} is live");
    }

    fn give_back(&self, bytes: usize) {
        *self.room.lock().unwrap() += bytes;
        let mut book = self.book();
        book.returned += 1;
        book.out_bytes -= bytes;
    }

    /// Returns the book, in which the bytes are entered.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    fn take_room(&self, bytes: usize) -> Result<MutexGuard<'_, Book>, Error> {
        let is_there = {
            let mut room = self.room.lock().unwrap();
            let left = room.checked_sub(bytes);
            *room = left.unwrap_or(*room);
            left.is_some()
        };
        let mut book = self.book();
        if !is_there {
            book.refused += 1;
            return Err(Error::out_of_memory(bytes));
        }
        book.taken += 1;
        book.out_bytes += bytes;
        book.most_out_bytes = book.most_out_bytes.max(book.out_bytes);
        Ok(book)
    }
}

// SAFETY: no block overlaps another, for no address is used twice, and nobody touches the memory.
unsafe impl Resource for Ground {
    fn allocate(&self, layout: Layout, _: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.allocate_sync(layout)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        self.take_back(block, layout, Some(stream.raw()));
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        let mut book = self.take_room(layout.bytes())?;
        let address = book.next;
        // A gap, so that no two segments are neighbours.
        book.next += 2 * layout.bytes() as u64;
        book.segments.insert(address, layout.bytes() as u64);
        DevicePtr::new(address).ok_or_else(|| Error::out_of_memory(layout.bytes()))
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        self.take_back(block, layout, None);
    }

    fn device(&self) -> &Device {
        &self.rig.device
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn pages(&self) -> Option<&dyn Pages> {
        (self.page_bytes > 0).then_some(self)
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ground")
    }
}

// SAFETY: as above.
unsafe impl DeviceAccessible for Ground {}

// SAFETY: as above: ranges are of addresses that nobody had, and the book says that no page overlaps another.
unsafe impl Pages for Ground {
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn may_alias(&self) -> bool {
        self.has_aliases
    }

    fn reserve(&self, bytes: usize) -> Result<DevicePtr, Error> {
        let mut book = self.book();
        let address = book.next;
        book.next += 2 * bytes as u64;
        book.ranges.insert(address, bytes as u64);
        DevicePtr::new(address).ok_or_else(|| Error::out_of_memory(bytes))
    }

    unsafe fn unreserve(&self, range: DevicePtr, bytes: usize) {
        let (mut book, range) = (self.book(), (range.address(), bytes as u64));
        assert_eq!(book.ranges.remove(&range.0), Some(range.1));
        let mapped = book.segments.iter().find(|(at, length)| meet((**at, **length), range));
        assert_eq!(mapped, None, "a range comes back with a page");
    }

    fn create(&self, bytes: usize) -> Result<Page, Error> {
        let mut book = self.take_room(bytes)?;
        let number = book.taken as u64;
        book.pages.insert(number, (bytes as u64, Vec::new()));
        Ok(Page::new(number, bytes))
    }

    unsafe fn release(&self, page: Page) {
        let removed = self.book().pages.remove(&page.number());
        assert_eq!(removed, Some((page.bytes() as u64, Vec::new())), "{page:?} is released");
        self.give_back(page.bytes());
    }

    unsafe fn map(&self, page: Page, at: DevicePtr) -> Result<(), Error> {
        // A driver has a lock of its own.
        drop(self.room.lock().unwrap());
        let (mut book, at, bytes) = (self.book(), at.address(), page.bytes() as u64);
        let taken = book.segments.iter().find(|(from, length)| meet((**from, **length), (at, bytes)));
        assert_eq!(taken, None, "{page:?} is mapped over another");
        let places = book.pages.get_mut(&page.number()).filter(|known| known.0 == bytes);
        let places = &mut places.expect("the page is there").1;
        assert!(places.is_empty() || self.has_aliases, "{page:?} is mapped at {places:x?}");
        places.push(at);
        book.segments.insert(at, bytes);
        Ok(())
    }

    unsafe fn unmap(&self, page: Page, at: DevicePtr) -> Result<(), Error> {
        drop(self.room.lock().unwrap());
        if std::thread::panicking() {
            return Ok(());
        }
        let (at, bytes) = (at.address(), page.bytes() as u64);
        self.take_away(at, bytes, WorkSet::default());
        let mut book = self.book();
        let places = book.pages.get_mut(&page.number()).map(|known| &mut known.1);
        let place = places.as_ref().and_then(|places| places.iter().position(|place| *place == at));
        let places = places.expect("the page is there");
        places.remove(place.expect("it is mapped there"));
        Ok(())
    }
}
