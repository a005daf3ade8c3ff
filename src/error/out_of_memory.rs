//! `OutOfMemory`: what a suballocator knows when it has tried everything.

use core::fmt;

use super::{Error, SnapshotFile};
use crate::driver::MemoryInfo;
use crate::order::StreamId;
use crate::size::{GRAIN, Size};

/// What a suballocator knew when it had nothing left to try: what its handlers see, and what
/// [`Error::out_of_memory_report`] tells.
///
/// The figures are of about one moment: other threads go on while they are gathered. Displayed, it is one line.
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::error::Cause;
/// use alluvion::{Layout, PoolConfig, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().maximum(1 << 20))?;
/// let error = pool.allocate(Layout::from_bytes(2 << 20)?, stream.as_ref()).unwrap_err();
/// let report = error.out_of_memory_report().expect("a pool says why");
/// assert_eq!((report.cause, report.maximum_bytes, report.live_bytes), (Cause::Limit, Some(1 << 20), 0));
/// assert!(report.to_string().starts_with("2 MiB wanted on stream 0.1: more than may be had; live 0 B"));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The bytes that were asked for.
    pub requested_bytes: usize,
    /// The alignment that was asked for.
    pub align: usize,
    /// The stream that asked, unless the call was a synchronous one.
    pub stream: Option<StreamId>,
    /// How often everything has been tried for this request, from 1: more where a handler freed something, and it was not
    /// enough.
    pub attempt: u32,
    /// In blocks that are out.
    pub live_bytes: usize,
    /// Free, and usable by the stream that asked.
    pub free_bytes: usize,
    /// Free, but behind work that is not known to be over.
    pub pending_bytes: usize,
    /// Taken from the upstream and not given back: what is live, free and pending.
    pub reserved_bytes: usize,
    /// The largest block that the stream that asked could get now.
    pub largest_bytes: usize,
    /// What the suballocator may have at most, if it has a limit.
    pub maximum_bytes: Option<usize>,
    /// What the upstream says that it has, free and in all, if it was asked and knows.
    pub upstream_memory: Option<MemoryInfo>,
    /// What the upstream said when it refused; `None` if it was not asked, because of the limit.
    pub upstream_error: Option<Error>,
    /// Where a snapshot of this moment is, if the configuration asks for one: once the request has failed.
    pub snapshot_file: Option<SnapshotFile>,
    /// Why there was no memory, as far as the figures tell.
    pub cause: Cause,
}

/// Why there was no memory: part of the [report](OutOfMemory).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The request, on top of what is live, is more than the limit; or it is by itself more than the upstream has in all.
    Limit,
    /// There are enough free bytes, but not in one piece; or pieces that are free, and cannot be given back, stand in the way
    /// of growth.
    Fragmentation,
    /// There are enough free bytes, but some are behind work that could not be waited for: a stream captures, is lost, or may
    /// not wait.
    Pending,
    /// The upstream has no more, and what it gave is live here.
    Full,
    /// The upstream has no more, and others have more of it than this suballocator.
    Others,
}

impl OutOfMemory {
    /// Sets the cause to what the figures say.
    pub(crate) fn explained(self) -> Self {
        Self { cause: Cause::of(&self), ..self }
    }
}

impl Cause {
    /// The first of these that holds; each excludes what those before it would mean.
    fn of(report: &OutOfMemory) -> Self {
        let wanted = report.requested_bytes.checked_next_multiple_of(GRAIN).unwrap_or(usize::MAX);
        let maximum = report.maximum_bytes.unwrap_or(usize::MAX);
        let upstream_total = report.upstream_memory.map_or(usize::MAX, |memory| memory.total_bytes);
        // Whatever is given back, what is live stays.
        if wanted > maximum.saturating_sub(report.live_bytes) || wanted > upstream_total {
            return Self::Limit;
        }
        if wanted <= report.free_bytes {
            return Self::Fragmentation;
        }
        if wanted <= report.free_bytes.saturating_add(report.pending_bytes) {
            return Self::Pending;
        }
        // The limit forbade to grow, and what is live does not reach it: free pieces that could not be given back do.
        if wanted > maximum.saturating_sub(report.reserved_bytes) {
            return Self::Fragmentation;
        }
        let others = report.upstream_memory.map_or(0, |memory| {
            memory.total_bytes.saturating_sub(memory.free_bytes).saturating_sub(report.reserved_bytes)
        });
        if others > report.reserved_bytes { Self::Others } else { Self::Full }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Limit => "more than may be had",
            Self::Fragmentation => "enough is free, but not in one piece",
            Self::Pending => "enough is free, but behind work that could not be waited for",
            Self::Full => "all is in use here, and the upstream has no more",
            Self::Others => "the upstream has no more, and others have most of it",
        }
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} wanted", Size(self.requested_bytes))?;
        if self.align > GRAIN {
            write!(f, ", aligned to {},", Size(self.align))?;
        }
        if let Some(stream) = self.stream {
            write!(f, " on stream {stream}")?;
        }
        if self.attempt > 1 {
            write!(f, " at attempt {}", self.attempt)?;
        }
        write!(
            f,
            ": {}; live {}, free {}, pending {}, largest {}, reserved {}",
            self.cause.words(),
            Size(self.live_bytes),
            Size(self.free_bytes),
            Size(self.pending_bytes),
            Size(self.largest_bytes),
            Size(self.reserved_bytes),
        )?;
        if let Some(maximum) = self.maximum_bytes {
            write!(f, ", limit {}", Size(maximum))?;
        }
        if let Some(memory) = self.upstream_memory {
            write!(f, "; the upstream has {} free of {}", Size(memory.free_bytes), Size(memory.total_bytes))?;
        }
        if let Some(error) = &self.upstream_error {
            write!(f, "; it said: {error}")?;
        }
        if let Some(file) = &self.snapshot_file {
            write!(f, "; {file}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// 100 MiB reserved, of which 40 are free, 10 are pending, and 50 are live; 8 MiB wanted.
    fn report() -> OutOfMemory {
        OutOfMemory {
            requested_bytes: 8 * MIB,
            align: 256,
            stream: None,
            attempt: 1,
            live_bytes: 50 * MIB,
            free_bytes: 40 * MIB,
            pending_bytes: 10 * MIB,
            reserved_bytes: 100 * MIB,
            largest_bytes: MIB,
            maximum_bytes: None,
            upstream_memory: None,
            upstream_error: None,
            snapshot_file: None,
            cause: Cause::Full,
        }
    }

    fn cause(requested_mib: usize, maximum_mib: Option<usize>, device_mib: Option<(usize, usize)>) -> Cause {
        let memory = |(free, total)| MemoryInfo { free_bytes: free * MIB, total_bytes: total * MIB };
        let report = OutOfMemory {
            requested_bytes: requested_mib * MIB,
            maximum_bytes: maximum_mib.map(|maximum| maximum * MIB),
            upstream_memory: device_mib.map(memory),
            ..report()
        };
        report.explained().cause
    }

    #[test]
    fn what_is_live_and_the_request_are_held_against_the_limit() {
        assert_eq!(cause(51, Some(100), None), Cause::Limit);
        assert_eq!(cause(50, Some(100), None), Cause::Pending);
        assert_eq!(cause(101, None, Some((0, 100))), Cause::Limit, "more than the device has");
        let one_byte_more =
            OutOfMemory { requested_bytes: 50 * MIB + 1, maximum_bytes: Some(100 * MIB), ..report() };
        assert_eq!(one_byte_more.explained().cause, Cause::Limit);
        let all = OutOfMemory { requested_bytes: usize::MAX, maximum_bytes: Some(100 * MIB), ..report() };
        assert_eq!(all.explained().cause, Cause::Limit);
    }

    #[test]
    fn enough_in_pieces_is_fragmentation_and_enough_later_is_pending() {
        assert_eq!(cause(8, None, None), Cause::Fragmentation);
        assert_eq!(cause(40, Some(1000), Some((0, 1000))), Cause::Fragmentation);
        assert_eq!(cause(41, None, None), Cause::Pending);
        assert_eq!(cause(50, None, None), Cause::Pending);
        assert_eq!(cause(51, None, None), Cause::Full);
    }

    #[test]
    fn pieces_that_stand_in_the_way_of_growth_are_fragmentation() {
        // 50 live, 50 free or pending, at most 120: 60 would fit beside what is live.
        assert_eq!(cause(60, Some(120), None), Cause::Fragmentation);
        assert_eq!(cause(60, Some(160), None), Cause::Full, "the limit did not forbid it");
    }

    #[test]
    fn who_has_more_of_the_upstream_is_to_blame() {
        assert_eq!(cause(60, None, Some((10, 200))), Cause::Full, "others have 90");
        assert_eq!(cause(60, None, Some((10, 300))), Cause::Others, "others have 190");
        // Nothing is known about others.
        assert_eq!(cause(60, None, None), Cause::Full);
    }

    #[test]
    fn it_reads_as_one_line() {
        assert_eq!(
            report().explained().to_string(),
            "8 MiB wanted: enough is free, but not in one piece; live 50 MiB, free 40 MiB, pending 10 MiB, largest 1 MiB, \
             reserved 100 MiB"
        );
        let full = OutOfMemory {
            requested_bytes: 60 * MIB,
            align: 4096,
            stream: Some(StreamId::new(3, 5)),
            attempt: 2,
            maximum_bytes: Some(200 * MIB),
            upstream_memory: Some(MemoryInfo { free_bytes: 0, total_bytes: 150 * MIB }),
            upstream_error: Some(Error::out_of_memory(60 * MIB)),
            ..report()
        };
        assert_eq!(
            full.explained().to_string(),
            "60 MiB wanted, aligned to 4 KiB, on stream 3.5 at attempt 2: all is in use here, and the upstream has no more; \
             live 50 MiB, free 40 MiB, pending 10 MiB, largest 1 MiB, reserved 100 MiB, limit 200 MiB; the upstream has 0 B \
             free of 150 MiB; it said: out of memory: 62914560 bytes wanted"
        );
    }
}
