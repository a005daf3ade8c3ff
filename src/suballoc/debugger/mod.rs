//! `Roll`: the suballocators that live, where a debugger finds them.
//!
//! A debugger reads memory and calls nothing: the program may have ended in a core dump. It knows no type of ours either, because
//! release builds have no debug information and installed libraries no symbols. So all that it needs is in plain words:
//!
//! - a static in an ELF section of its own, which is found in any program and library, stripped or not: one for each copy of the
//!   crate that the process has;
//! - from there a table with the address of a [`Record`] for each suballocator;
//! - a [`Plan`], which says where in the crate's own data the fields are that the debugger follows.
//!
//! The tables of blocks and caches are the suballocators' own, and are not written a second time: an allocation and its free pay
//! nothing. `gdb/alluvion.py` reads all of it.
//!
//! A program may be stopped between any two instructions. So a table grows by a copy, to which a pointer leads before the old one
//! goes, and a place in it is one word.

#![expect(unsafe_code, reason = "puts a static into a section of its own")]

mod lead;
mod plan;
mod record;
mod row;
mod text;

pub(super) use lead::Lead;
pub(super) use plan::Plan;
pub(super) use record::{Kind, Record};
pub(super) use row::{NO_STREAM, Row, Trail};
pub(super) use text::Text;

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::Global;

/// Of [`Roll`], [`Record`], [`Row`], [`Trail`] and [`Plan`]. A script that knows another one says so, and reads nothing.
const VERSION: u32 = 1;

/// The places of the table at first: a process has a few suballocators.
const FIRST: usize = 16;

/// Where a debugger begins.
#[repr(C)]
struct Roll {
    /// So that the section of somebody else is not taken for this one.
    magic: [u8; 16],
    version: u32,
    record_bytes: u32,
    table: TableHead,
}

/// The table, for a debugger.
#[repr(C)]
struct TableHead {
    /// The first place.
    at: Lead,
    // Not of `sync`: no protocol depends on it, and a debugger stops all threads.
    count: AtomicUsize,
}

impl TableHead {
    const fn empty() -> Self {
        Self { at: Lead::nowhere(), count: AtomicUsize::new(0) }
    }
}

#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".alluvion"))]
static ROLL: Roll = Roll {
    magic: *b"alluvion's roll\0",
    version: VERSION,
    record_bytes: size_of::<Record>() as u32,
    table: TableHead::empty(),
};

/// The table: for each suballocator the address of its record, and 0 for a vacant place.
struct Table {
    places: Vec<AtomicUsize>,
    vacant: Vec<usize>,
}

static TABLE: Global<Table> = Global::new(Table::empty(), look_after_fork);

extern "C" fn look_after_fork() {
    TABLE.look_after_fork();
}

impl Table {
    const fn empty() -> Self {
        Self { places: Vec::new(), vacant: Vec::new() }
    }

    // Release, in all of it: what a word leads to was written before, for whoever stops the program in between.

    fn enter(&mut self, record: usize, head: &TableHead) -> usize {
        if let Some(place) = self.vacant.pop() {
            self.places[place].store(record, Ordering::Release);
            return place;
        }
        if self.places.len() == self.places.capacity() {
            let mut longer = Vec::with_capacity((2 * self.places.len()).max(FIRST));
            // Relaxed: they are written under the lock, which this thread has.
            longer.extend(self.places.iter().map(|place| AtomicUsize::new(place.load(Ordering::Relaxed))));
            head.at.lead_to(longer.as_ptr());
            self.places = longer;
        }
        self.places.push(AtomicUsize::new(record));
        head.count.store(self.places.len(), Ordering::Release);
        self.places.len() - 1
    }

    fn leave(&mut self, place: usize) {
        self.places[place].store(0, Ordering::Release);
        self.vacant.push(place);
    }
}

/// A place in the table, vacant again when this is dropped: before the record goes.
#[derive(Debug)]
pub(super) struct Listed {
    place: Option<usize>,
}

impl Listed {
    /// Enters a record, which stays at its address. Not in a child of a fork that came while another thread had the table, and not
    /// in models, which have no process to look at.
    pub(super) fn of(record: &Record) -> Self {
        let address = core::ptr::from_ref(record).addr();
        let enter = || TABLE.lock().map(|mut table| table.enter(address, &ROLL.table));
        Self { place: if cfg!(loom) { None } else { enter() } }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(place) = self.place
            && let Some(mut table) = TABLE.lock()
        {
            table.leave(place);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_vacant_again_when_its_record_goes() {
        let (mut table, head) = (Table::empty(), TableHead::empty());
        let taken: Vec<usize> = (1..=100).map(|record| table.enter(record, &head)).collect();
        assert_eq!(taken, (0..100).collect::<Vec<_>>());
        for place in [7, 99, 0] {
            table.leave(place);
        }
        let shown = |table: &Table| -> Vec<usize> {
            table.places.iter().map(|place| place.load(Ordering::Relaxed)).collect()
        };
        assert_eq!(
            shown(&table),
            (1..=100).map(|record| record * usize::from(![1, 8, 100].contains(&record))).collect::<Vec<_>>()
        );
        assert_eq!([(); 4].map(|()| table.enter(500, &head)), [0, 99, 7, 100]);
        assert_eq!(head.count.load(Ordering::Relaxed), 101);
        assert_eq!(head.at.address(), table.places.as_ptr().addr());
    }

    /// Suballocators that come and go leave nothing in the table.
    #[test]
    #[cfg(feature = "sim")]
    fn who_goes_is_not_on_the_roll() {
        use crate::source::Cuda;
        use crate::{PoolConfig, ResourceExt, Sim};

        let sim = Sim::new();
        let pools = || [(); 64].map(|()| Cuda::new(&sim.device(0)).pool(PoolConfig::default()));
        drop(pools());
        let most = ROLL.table.count.load(Ordering::Relaxed);
        // Other tests of this program have suballocators, too.
        (0..64).for_each(|_| drop(pools()));
        let count = ROLL.table.count.load(Ordering::Relaxed);
        assert!(count < most + 64 * 32, "{count} places after {most}");
    }
}
