//! `BlockWatch`: is told which parts of the memory are blocks that a layer has handed out.

use core::cell::Cell;
use core::fmt::Debug;

use super::RawStream;

/// Is told of blocks that layers of this crate carve out of memory of the driver: see
/// [`Driver::block_watch`](super::Driver::block_watch).
///
/// Whoever tells it owns the memory that it tells of: a block that goes out is told of before anybody else knows it, and one that comes
/// back before anybody else may get it. No lock of this crate is held. A call costs no simulated time, and is none of the driver's
/// calls. `layer` is the name of who tells, for people.
///
/// ```
/// use alluvion::driver::{Driver, FillValue, RawStream};
/// use alluvion::sim::{HazardKind, SimConfig, SimDriver};
///
/// let driver = SimDriver::new(SimConfig::default());
/// let slab = driver.allocate_device(0, 4096)?;
/// let watch = driver.block_watch().expect("a simulated machine has one");
/// assert!(watch.divide(slab, 4096));
/// watch.enter("own", 0, slab, 1000, None);
/// // SAFETY: the slab is live, and nothing else uses it.
/// unsafe { driver.fill_async(0, slab, FillValue::U8(7), 1001, RawStream::LEGACY) }?;
/// assert_eq!(driver.take_hazards()[0].kind(), HazardKind::OutOfBounds);
/// assert!(watch.leave("own", 0, slab, 1000, None));
/// watch.unite(slab, 4096);
/// # Ok::<(), alluvion::driver::DriverError>(())
/// ```
pub trait BlockWatch: Debug + Send + Sync {
    /// Memory is carved from now on: nothing of it may be used but the blocks that go out. A block that it is a part of is none
    /// meanwhile. Returns `false` if it is no memory of the driver; then nothing is noted.
    fn divide(&self, address: u64, bytes: usize) -> bool;

    /// Memory is carved no longer. No block of it is out any more, and what it was a part of is a block again.
    fn unite(&self, address: u64, bytes: usize);

    /// A block goes out: for work that comes after this point of the stream, or for all work. Of memory that is not carved nothing is
    /// noted.
    fn enter(&self, layer: &str, ordinal: u32, address: u64, bytes: usize, stream: Option<RawStream>);

    /// A block comes back: every use of it has been submitted. Returns `false` if the memory is carved and no block begins there: it is
    /// free already, or was never one.
    fn leave(&self, layer: &str, ordinal: u32, address: u64, bytes: usize, stream: Option<RawStream>)
    -> bool;

    /// A layer has refused to free this: no block of these bytes is out there. Of memory that is not carved, too.
    fn refuse(&self, layer: &str, ordinal: u32, address: u64, bytes: usize, stream: Option<RawStream>);
}

thread_local! {
    static IN_OWN_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Submits work of a layer on memory that is its own, and no block: fences around one, contents that sleep.
pub(crate) fn own_work<T>(submit: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            IN_OWN_WORK.set(self.0);
        }
    }
    let _back = Back(IN_OWN_WORK.replace(true));
    submit()
}

/// Returns `true` while this thread submits work of a layer.
#[cfg(feature = "sim")]
pub(crate) fn in_own_work() -> bool {
    IN_OWN_WORK.get()
}
