//! `Tag`: what an allocation is for.

use core::cell::Cell;
use core::fmt;
use std::collections::HashMap;

use crate::nvtx;
use crate::sync::Global;

/// The most different tags; further ones are called `…`. Names are kept for ever, so a program that makes one up for each request
/// must not fill the memory.
const MOST: usize = 1 << 16;

/// What an allocation is for: a name that a scope of the program gives to the allocations made in it.
///
/// Scopes nest, and a tag knows the one around it. A tag is a number: cheap to copy, compare and keep.
///
/// ```
/// use alluvion::tag::{Tag, with_tag};
///
/// let tag = with_tag("query", || with_tag("join", Tag::current));
/// assert_eq!((tag.name(), tag.to_string()), ("join", "query;join".to_owned()));
/// assert_eq!(tag.parent().map(Tag::name), Some("query"));
/// assert_eq!(Tag::current(), Tag::NONE);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(u32);

static_assertions::assert_eq_size!(Tag, u32);

/// A record of the tags of live blocks: that of a [`Tracking`](crate::adaptor::Tracking), or one of your own.
///
/// ```
/// use alluvion::tag::{BlockTags, Tag, with_tag};
/// use alluvion::{DeviceVec, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
///
/// struct Mine(Vec<(u64, Tag)>);
///
/// impl BlockTags for Mine {
///     fn block_tags(&self) -> Vec<(u64, Tag)> {
///         self.0.clone()
///     }
/// }
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?;
/// let numbers = DeviceVec::<f32, _>::zeroed_in(1000, stream.as_ref(), &pool)?;
/// let mine = Mine(vec![(numbers.as_device_ptr().address(), with_tag("join", Tag::current))]);
/// let mut snapshot = pool.snapshot();
/// snapshot.label_by(&mine);
/// assert_eq!(snapshot.blocks[0].tag.name(), "join");
/// # Ok::<(), alluvion::Error>(())
/// ```
pub trait BlockTags {
    /// The address and the tag of each live block, in any order.
    fn block_tags(&self) -> Vec<(u64, Tag)>;
}

thread_local! {
    // No destructor, so it can be read while the thread's other locals are being dropped.
    static CURRENT: Cell<Tag> = const { Cell::new(Tag::NONE) };
}

/// Runs `body`, and labels its allocations on this thread `name`, within the label that is there already.
///
/// Names stand in rows of logs and in paths, so line ends, commas and semicolons in them become `_`.
///
/// In a child of a fork that came while another thread looked a name up, all names are lost: tags are [`Tag::NONE`] from then on.
///
/// ```
/// use alluvion::tag::{Tag, with_tag};
///
/// let sum = with_tag("join", || {
///     assert_eq!(Tag::current().name(), "join");
///     1 + 1
/// });
/// assert_eq!(sum, 2);
/// ```
pub fn with_tag<T>(name: &str, body: impl FnOnce() -> T) -> T {
    /// Restores the tag that was there before, however `body` ends.
    struct RestoreTag(Tag);
    impl Drop for RestoreTag {
        fn drop(&mut self) {
            self.0.make_current();
        }
    }
    let around = CURRENT.get();
    let _restore = RestoreTag(around);
    around.within(name).make_current();
    body()
}

impl Tag {
    /// No tag: that of allocations outside of all scopes.
    pub const NONE: Self = Self(0);

    /// The tag of the innermost scope of this thread.
    #[must_use]
    #[inline]
    pub fn current() -> Self {
        CURRENT.get()
    }

    /// Makes this the tag of the thread, and returns the one before, for scopes that no closure can bound: put it back at their end.
    /// Elsewhere [`with_tag`] is safer, which cannot forget that.
    ///
    /// ```
    /// use alluvion::tag::Tag;
    ///
    /// let before = Tag::current().within("join").make_current();
    /// assert_eq!(Tag::current().name(), "join");
    /// before.make_current();
    /// assert_eq!(Tag::current(), Tag::NONE);
    /// ```
    #[expect(clippy::must_use_candidate, reason = "the tag before is for who puts it back")]
    pub fn make_current(self) -> Self {
        let before = CURRENT.replace(self);
        if nvtx::hears_ranges() && before != self {
            tell(before, self);
        }
        before
    }

    /// The tag of scopes within each other, as it is written: with semicolons between their names.
    ///
    /// ```
    /// use alluvion::tag::Tag;
    ///
    /// let tag = Tag::of_path("load;join");
    /// assert_eq!(tag, Tag::NONE.within("load").within("join"));
    /// assert_eq!(tag.to_string(), "load;join");
    /// ```
    #[must_use]
    pub fn of_path(path: &str) -> Self {
        path.split(';').fold(Self::NONE, |around, name| around.within(name))
    }

    /// The name of the scope; empty for [`NONE`](Self::NONE).
    #[must_use]
    pub fn name(self) -> &'static str {
        self.index().and_then(|index| with_names(|names| names.known[index].name)).unwrap_or("")
    }

    /// The tag of the scope around it.
    #[must_use]
    pub fn parent(self) -> Option<Self> {
        let index = self.index()?;
        let parent = with_names(|names| names.known[index].parent)?;
        (parent != Self::NONE).then_some(parent)
    }

    /// The number of the tag, from 1 in the order in which tags were first used; 0 for [`NONE`](Self::NONE).
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// The tag with that [number](Self::number), which must exist.
    pub(crate) fn numbered(number: u32) -> Self {
        Self(number)
    }

    fn index(self) -> Option<usize> {
        (self.0 as usize).checked_sub(1)
    }

    /// The tag that is called `name`, within this one.
    ///
    /// ```
    /// use alluvion::tag::Tag;
    ///
    /// assert_eq!(Tag::NONE.within("query").within("join").to_string(), "query;join");
    /// ```
    #[must_use]
    pub fn within(self, name: &str) -> Self {
        with_names(|names| names.number(self, name)).unwrap_or(Self::NONE)
    }
}

/// One name within another.
struct Known {
    parent: Tag,
    name: &'static str,
}

#[derive(Default)]
struct Names {
    /// Indexed by the number of a tag, less one.
    known: Vec<Known>,
    numbers: HashMap<(Tag, &'static str), Tag>,
}

static NAMES: Global<Option<Names>> = Global::new(None, in_child);

/// `None` in a child of a fork that came while another thread held the lock: it has no names, and makes none.
fn with_names<T>(look: impl FnOnce(&mut Names) -> T) -> Option<T> {
    NAMES.lock().map(|mut names| look(names.get_or_insert_with(Names::default)))
}

extern "C" fn in_child() {
    NAMES.look_after_fork();
}

impl Names {
    fn number(&mut self, parent: Tag, name: &str) -> Tag {
        let clean;
        let mut name = name;
        if name.contains([',', ';', '\n', '\r']) {
            clean = name.replace([',', ';', '\n', '\r'], "_");
            name = &clean;
        }
        if let Some(known) = self.numbers.get(&(parent, name)) {
            return *known;
        }
        match self.known.len() {
            ..MOST => self.enter(parent, Box::leak(name.into())),
            MOST => self.enter(Tag::NONE, "…"),
            _ => Tag(MOST as u32 + 1),
        }
    }

    fn enter(&mut self, parent: Tag, name: &'static str) -> Tag {
        self.known.push(Known { parent, name });
        let tag = Tag(self.known.len() as u32);
        self.numbers.insert((parent, name), tag);
        tag
    }

    fn path(&self, tag: Tag) -> Vec<&'static str> {
        let mut path = Vec::new();
        let mut at = tag;
        while let Some(index) = at.index() {
            path.push(self.known[index].name);
            at = self.known[index].parent;
        }
        path.reverse();
        path
    }
}

/// Tells a tool that watches which scopes this thread has left and entered: each is a range of its own.
#[cold]
fn tell(before: Tag, now: Tag) {
    let paths = with_names(|names| (names.path(before), names.path(now)));
    let Some((before, now)) = paths else { return };
    let shared = before.iter().zip(&now).take_while(|(one, other)| one == other).count();
    nvtx::end_scopes(before.len() - shared);
    now[shared..].iter().for_each(|name| nvtx::begin_scope(name));
}

/// The path of names from the outermost scope, with semicolons between them.
impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not while the lock is held: the formatter may be foreign code.
        let path = with_names(|names| names.path(*self)).unwrap_or_default();
        f.pad(&path.join(";"))
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({self})")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use super::*;

    #[test]
    fn a_path_has_one_number() {
        let tag = || with_tag("outer", || with_tag("inner", Tag::current));
        assert_eq!(tag(), tag());
        assert_ne!(tag(), with_tag("inner", Tag::current));
        assert_eq!(tag().parent(), Some(with_tag("outer", Tag::current)));
        assert_eq!((Tag::NONE.name(), Tag::NONE.parent(), Tag::NONE.to_string()), ("", None, String::new()));
    }

    #[test]
    fn names_are_parts_of_rows_and_paths() {
        assert_eq!(with_tag("a,b;c\nd\re", Tag::current).to_string(), "a_b_c_d_e");
        assert_eq!(with_tag("", || with_tag("x", Tag::current)).to_string(), ";x");
    }

    #[test]
    fn a_panic_leaves_no_tag_behind() {
        let thrown = catch_unwind(AssertUnwindSafe(|| with_tag("torn", || resume_unwind(Box::new(())))));
        assert!(thrown.is_err() && Tag::current() == Tag::NONE);
    }

    #[test]
    fn threads_have_tags_of_their_own() {
        with_tag("here", || {
            let there = std::thread::spawn(Tag::current).join().expect("it does not panic");
            assert_eq!(there, Tag::NONE);
        });
    }

    #[test]
    fn names_run_out() {
        let mut names = Names::default();
        let tags: Vec<_> = (0..MOST + 3).map(|n| names.number(Tag::NONE, &n.to_string())).collect();
        assert_eq!(names.path(tags[MOST - 1]), [(MOST - 1).to_string()]);
        assert!(tags[MOST..].iter().all(|&tag| names.path(tag) == ["…"]));
        assert_eq!((names.known.len(), names.number(Tag::NONE, "7")), (MOST + 1, tags[7]));
    }
}
