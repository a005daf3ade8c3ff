//! `SleepConfig`: what sleeps, and what is kept of it.

use std::sync::Arc;

use crate::error::Error;
use crate::resource::{AnyResource, DeviceAccessible, DevicePtr, HostAccessible, Kept, Tagged};
use crate::tag::{BlockTags, Tag};

/// What sleeps, and what is kept of it: see [`Pool::sleep`](crate::Pool::sleep), set by chaining. By default everything sleeps, and
/// nothing is kept.
///
/// ```
/// use alluvion::source::Pinned;
/// use alluvion::suballoc::SleepConfig;
/// use alluvion::tag::{Tag, with_tag};
/// use alluvion::{PoolConfig, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// // A pool keeps the pinned memory for the next time: to pin takes as long as to copy.
/// let host = Pinned::new(&sim.device(0))?.pool(PoolConfig::default())?;
/// let weights = with_tag("weights", Tag::current);
/// let config = SleepConfig::default().keep_in(&host).tag(weights);
/// # let _ = config;
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "a configuration does nothing until something sleeps by it"]
pub struct SleepConfig<'k> {
    pub(crate) keep: Kept<'k>,
    tag: Option<Tag>,
    tags: Option<&'k (dyn BlockTags + Sync)>,
}

/// The blocks that sleep.
#[derive(Clone, Copy)]
pub(crate) enum Chosen<'c> {
    All,
    /// Those with a tag. Where nobody is named who knows the tags, the ledger does.
    Tagged(Tagged<'c>),
    One(DevicePtr),
}

impl<'k> SleepConfig<'k> {
    /// Keeps the contents in memory of the host, and restores them on waking. The memory comes from `host` by synchronous calls: a
    /// [`Pinned`](crate::source::Pinned), or a pool over it, by value or by a borrow.
    pub fn keep_in(mut self, host: impl HostAccessible + DeviceAccessible + Send + Sync + 'k) -> Self {
        self.keep = Kept::in_host(Arc::new(host));
        self
    }

    /// As [`keep_in`](Self::keep_in), with a stack whose type is forgotten: that of `pool | pinned`, or of `managed`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a stack whose blocks the host does not reach.
    pub fn keep_in_stack(mut self, host: AnyResource) -> Result<Self, Error> {
        self.keep = Kept::in_stack(host)?;
        Ok(self)
    }

    /// Only blocks that carry this tag sleep, or one within it. The rest of the pool goes on.
    ///
    /// The pool knows the tags of its blocks if it is [checked](crate::PoolConfig::checked); else [`tags_of`](Self::tags_of)
    /// names who does. Single containers ignore it.
    pub fn tag(mut self, tag: Tag) -> Self {
        self.tag = Some(tag);
        self
    }

    /// The record that knows the tags of the blocks: the book of a [`Tracking`](crate::adaptor::Tracking) that stands over the
    /// pool.
    pub fn tags_of(mut self, tags: &'k (dyn BlockTags + Sync)) -> Self {
        self.tags = Some(tags);
        self
    }

    /// The tag that sleeps, if not everything does.
    pub(crate) fn tagged(&self) -> Option<Tagged<'k>> {
        self.tag.map(|tag| Tagged { tag, by: self.tags })
    }
}

impl core::fmt::Debug for SleepConfig<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SleepConfig")
            .field("keep", &self.keep)
            .field("tag", &self.tag)
            .finish_non_exhaustive()
    }
}
