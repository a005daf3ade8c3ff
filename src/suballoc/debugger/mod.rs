//! The suballocators that live, where a debugger finds them.
//!
//! A debugger reads memory and calls nothing: the program may have ended in a core dump. It knows no type of ours either, because
//! release builds have no debug information and installed libraries no symbols. So all that it needs is in plain words:
//!
//! - a static in an ELF section of its own, which is found in any program and library, stripped or not: one for each copy of the
//!   crate that the process has;
//! - from there an array with the address of a [`Record`] for each suballocator;
//! - a [`Plan`], which says where in the crate's own data the fields are that the debugger follows.
//!
//! The tables of blocks and caches are the suballocators' own, and are not written a second time: an allocation and its free pay
//! nothing. `gdb/alluvion.py` reads all of it.
//!
//! A program may be stopped between any two instructions. So an array grows by a copy, to which a pointer leads before the old one
//! goes, and a place in it is one word.

#![expect(unsafe_code, reason = "puts a static into a section of its own")]

mod plan;
mod record;
mod shown;
mod shown_address;
mod text;

pub(super) use plan::Plan;
pub(super) use record::{Kind, Record};
pub(super) use shown::{NO_STREAM, ShownArray, ShownCache};
pub(super) use shown_address::ShownAddress;
pub(super) use text::Text;

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::Global;

/// Of [`Root`], [`Record`], [`ShownArray`], [`ShownCache`] and [`Plan`]. A script that knows another one says so, and reads nothing.
const VERSION: u32 = 1;

/// Where a debugger begins.
#[repr(C)]
struct Root {
    /// So that the section of somebody else is not taken for this one.
    magic: [u8; 16],
    version: u32,
    record_bytes: u32,
    /// The addresses of the records; 0 for a vacant place.
    records: ShownArray,
}

#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".alluvion"))]
static ROOT: Root = Root {
    magic: *b"alluvion's root\0",
    version: VERSION,
    record_bytes: size_of::<Record>() as u32,
    records: ShownArray::empty(),
};

/// For each suballocator the address of its record, and 0 for a vacant place.
struct Records {
    places: Vec<AtomicUsize>,
    vacant: Vec<usize>,
}

static RECORDS: Global<Records> = Global::new(Records::empty(), look_after_fork);

extern "C" fn look_after_fork() {
    RECORDS.look_after_fork();
}

impl Records {
    const fn empty() -> Self {
        Self { places: Vec::new(), vacant: Vec::new() }
    }

    // Release, here and in `leave`: what a word leads to was written before, for whoever stops the program in between.

    fn enter(&mut self, record: usize, shown: &ShownArray) -> usize {
        if let Some(place) = self.vacant.pop() {
            self.places[place].store(record, Ordering::Release);
            return place;
        }
        shown.push(&mut self.places, AtomicUsize::new(record));
        self.places.len() - 1
    }

    fn leave(&mut self, place: usize) {
        self.places[place].store(0, Ordering::Release);
        self.vacant.push(place);
    }
}

/// A place among the records, vacant again when this is dropped: before the record goes.
#[derive(Debug)]
pub(super) struct Listed {
    place: Option<usize>,
}

impl Listed {
    /// Enters a record, which stays at its address. Not in a child of a fork that came while another thread had the lock, and not
    /// in models, which have no process to look at.
    pub(super) fn of(record: &Record) -> Self {
        let address = core::ptr::from_ref(record).addr();
        let enter = || RECORDS.lock().map(|mut records| records.enter(address, &ROOT.records));
        Self { place: if cfg!(loom) { None } else { enter() } }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(place) = self.place
            && let Some(mut records) = RECORDS.lock()
        {
            records.leave(place);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_vacant_again_when_its_record_goes() {
        let (mut records, root) = (Records::empty(), ShownArray::empty());
        let taken: Vec<usize> = (1..=100).map(|record| records.enter(record, &root)).collect();
        assert_eq!(taken, (0..100).collect::<Vec<_>>());
        for place in [7, 99, 0] {
            records.leave(place);
        }
        let shown = |records: &Records| -> Vec<usize> {
            records.places.iter().map(|place| place.load(Ordering::Relaxed)).collect()
        };
        assert_eq!(
            shown(&records),
            (1..=100).map(|record| record * usize::from(![1, 8, 100].contains(&record))).collect::<Vec<_>>()
        );
        assert_eq!([(); 4].map(|()| records.enter(500, &root)), [0, 99, 7, 100]);
        assert_eq!(root.count.load(Ordering::Relaxed), 101);
        assert_eq!(root.at.address(), records.places.as_ptr().addr());
    }

    /// Suballocators that come and go leave nothing among the records.
    #[test]
    #[cfg(feature = "sim")]
    fn who_goes_is_not_among_the_records() {
        use crate::source::Cuda;
        use crate::{PoolConfig, ResourceExt, Sim};

        let sim = Sim::new();
        let pools = || [(); 64].map(|()| Cuda::new(&sim.device(0)).pool(PoolConfig::default()));
        drop(pools());
        let most = ROOT.records.count.load(Ordering::Relaxed);
        // Other tests of this program have suballocators, too.
        (0..64).for_each(|_| drop(pools()));
        let count = ROOT.records.count.load(Ordering::Relaxed);
        assert!(count < most + 64 * 32, "{count} places after {most}");
    }
}
