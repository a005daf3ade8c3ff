//! `Holdings`: the live blocks, and where they were allocated.

use core::cmp::Reverse;
use core::fmt::{self, Display};
use core::time::Duration;

use hashbrown::HashMap;

use super::call_stack::{CallSite, CallStack};
use crate::error::Misuse;
use crate::resource::DevicePtr;
use crate::size::Size;
use crate::stream::StreamId;
use crate::tag::Tag;

/// The most rows of a kind that are displayed.
const ROWS: usize = 10;

/// A block that is out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Holding {
    /// Its address.
    pub address: DevicePtr,
    /// The requested bytes.
    pub bytes: usize,
    /// The requested alignment.
    pub align: usize,
    /// The stream that it was allocated on, unless the call was a synchronous one.
    pub stream: Option<StreamId>,
    /// The tag of the allocating thread.
    pub tag: Tag,
    /// The number of the allocating thread, which no other thread has or will have.
    pub thread: usize,
    /// When it was allocated, since the register was made.
    pub at: Duration,
    pub(super) stack: Option<CallStack>,
}

impl Holding {
    /// Where the program asked for it: the innermost call that is neither this crate's nor the standard library's. `None` if
    /// its stack was not captured (see [`CallStacks`](super::CallStacks)), or has no symbols.
    ///
    /// Reads symbols, which takes milliseconds the first time.
    #[must_use]
    pub fn call_site(&self) -> Option<CallSite> {
        self.stack.as_ref()?.site()
    }

    /// All calls that led to it, the innermost first, if its stack was captured.
    #[must_use]
    pub fn call_stack(&self) -> Vec<CallSite> {
        self.stack.as_ref().map(CallStack::calls).unwrap_or_default()
    }
}

/// The live blocks under one label.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Share {
    /// A tag or a call site, as text; empty for what has none.
    pub label: String,
    /// The bytes of its blocks.
    pub bytes: usize,
    /// How many blocks there are.
    pub blocks: usize,
}

/// The live blocks at one moment, the oldest first, and the wrong frees until then. A copy, which does not change.
///
/// Displayed, it is a report: the most bytes by tag and by call site, and the largest blocks.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Holdings {
    /// The blocks.
    pub blocks: Vec<Holding>,
    /// The first wrong frees, up to 64.
    pub misuses: Vec<Misuse>,
    /// How many wrong frees there were.
    pub misuse_count: u64,
}

impl Holdings {
    /// Returns `true` if there are no live blocks and no wrong frees.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.blocks.is_empty() && self.misuse_count == 0
    }

    /// The bytes of all blocks.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.iter().fold(0, |bytes, block| bytes.saturating_add(block.bytes))
    }

    /// At most `count` blocks, the largest first.
    #[must_use]
    pub fn largest(&self, count: usize) -> Vec<&Holding> {
        let mut blocks: Vec<_> = self.blocks.iter().collect();
        // Stable: of equal ones the oldest first.
        blocks.sort_by_key(|block| Reverse(block.bytes));
        blocks.truncate(count);
        blocks
    }

    /// The live blocks under each tag, the most bytes first.
    #[must_use]
    pub fn by_tag(&self) -> Vec<Share> {
        shares(&self.blocks, |block| block.tag, |tag| tag.to_string())
    }

    /// The live blocks of each call site, the most bytes first. Blocks without a captured stack have no label.
    #[must_use]
    pub fn by_call_site(&self) -> Vec<Share> {
        // Each stack is looked up once, and several stacks may have one site.
        let label = |stack: &Option<CallStack>| {
            stack.as_ref().and_then(CallStack::site).map_or_else(String::new, |site| site.to_string())
        };
        let mut known = HashMap::new();
        for block in &self.blocks {
            known.entry(&block.stack).or_insert_with_key(|stack| label(stack));
        }
        shares(&self.blocks, |block| known[&block.stack].as_str(), |site| (*site).to_owned())
    }
}

fn shares<'h, L: Copy + Eq + core::hash::Hash>(
    blocks: &'h [Holding],
    label: impl Fn(&'h Holding) -> L,
    text: impl Fn(&L) -> String,
) -> Vec<Share> {
    let mut sums = HashMap::<L, (usize, usize)>::new();
    for block in blocks {
        let (bytes, blocks) = sums.entry(label(block)).or_default();
        *bytes = bytes.saturating_add(block.bytes);
        *blocks += 1;
    }
    let share = |(label, (bytes, blocks))| Share { label: text(&label), bytes, blocks };
    let mut shares: Vec<_> = sums.into_iter().map(share).collect();
    shares.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.label.cmp(&other.label)));
    shares
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// At most `ROWS` of them, and how many there are beside.
fn rows<T>(
    f: &mut fmt::Formatter<'_>,
    heading: &str,
    items: &[T],
    row: impl Fn(&T) -> String,
) -> fmt::Result {
    write!(f, "\n{heading}")?;
    for item in items.iter().take(ROWS) {
        write!(f, "\n  {}", row(item))?;
    }
    if items.len() > ROWS {
        write!(f, "\n  and {} more", items.len() - ROWS)?;
    }
    Ok(())
}

impl Display for Holdings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = plural(self.blocks.len(), "block");
        write!(f, "{} outstanding in {blocks}", Size(self.bytes()))?;
        let share = |share: &Share| {
            let label = if share.label.is_empty() { "(none)" } else { &share.label };
            format!("{:>10} in {:<12} {label}", Size(share.bytes).to_string(), plural(share.blocks, "block"))
        };
        let by_tag = self.by_tag();
        if by_tag.iter().any(|share| !share.label.is_empty()) {
            rows(f, "by tag:", &by_tag, share)?;
        }
        let by_site = self.by_call_site();
        if by_site.iter().any(|share| !share.label.is_empty()) {
            rows(f, "by call site:", &by_site, share)?;
        }
        if !self.blocks.is_empty() {
            rows(f, "largest:", &self.largest(self.blocks.len()), |block| block.to_string())?;
        }
        if self.misuse_count > 0 {
            let wrong = plural(usize::try_from(self.misuse_count).unwrap_or(usize::MAX), "wrong free");
            rows(f, &format!("{wrong}, first:"), &self.misuses, ToString::to_string)?;
        }
        Ok(())
    }
}

/// On one line, without its call stack.
impl Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, bytes, stream, tag, thread, at, .. } = self;
        write!(f, "{:>10} at {address}", Size(*bytes).to_string())?;
        match stream {
            Some(stream) => write!(f, ", stream {stream}")?,
            None => f.write_str(", no stream")?,
        }
        write!(f, ", thread {thread}, at {:.3} s", at.as_secs_f64())?;
        if *tag != Tag::NONE {
            write!(f, ", {tag}")?;
        }
        Ok(())
    }
}
