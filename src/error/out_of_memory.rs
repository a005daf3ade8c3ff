//! `OutOfMemory`: the report of a resource that refused a request for memory.

use core::fmt;
use std::sync::Arc;

use super::{Error, Member, SnapshotFile};
use crate::driver::{DriverError, MemoryInfo};
use crate::order::StreamId;
use crate::size::{GRAIN, Size};

/// The name of a limit, shared by its reports.
pub(crate) type LimitName = Arc<str>;

/// The report of a resource that refused a request for memory: the request, and the figures of that moment. Handlers get it, and
/// [`Error::out_of_memory_report`] returns it, for every resource of the crate.
///
/// The figures are of about one moment: other threads go on while they are read. `Display` prints one line.
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::error::Cause;
/// use alluvion::{Layout, PoolConfig, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let resource = Cuda::new(&sim.device(0)).limiting(1 << 20).pool(PoolConfig::default())?;
/// let error = resource.allocate(Layout::from_bytes(2 << 20)?, stream.as_ref()).unwrap_err();
/// let report = error.out_of_memory_report().expect("every resource of the crate says why");
/// assert_eq!((report.refused_by, report.cause, report.live_bytes), ("Pool", Cause::TooLarge, 0));
/// let limit = report.chain().last().expect("the pool stands over a limit");
/// assert_eq!((limit.refused_by, limit.maximum_bytes), ("Limiting", Some(1 << 20)));
/// assert_eq!(
///     report.to_string(),
///     "Pool of gpu 0 refused 2 MiB on stream 0.1: more than can ever be had; live 0 B, free 0 B, pending 0 B, largest 0 B, reserved 0 B; \
///      the upstream has 1 MiB free of 1 MiB; it said: out of memory: Limiting refused 2 MiB: more than can ever be had; live 0 B, \
///      limit 1 MiB",
/// );
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// A resource of your own reports as the crate's do:
///
/// ```
/// use alluvion::{Error, error::OutOfMemory};
///
/// let mut report = OutOfMemory::new("Shelf", 8 << 20);
/// (report.live_bytes, report.maximum_bytes) = (60 << 20, Some(64 << 20));
/// let error = Error::from(report.explained());
/// assert_eq!(
///     error.to_string(),
///     "out of memory: Shelf refused 8 MiB: more than the limit leaves; live 60 MiB, limit 64 MiB",
/// );
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The layer or the source that refused, as `describe` calls it: `Pool`, `Limiting`, `Cuda`.
    pub refused_by: &'static str,
    /// The name of the limit that refused, if it has one: that of its [`Allowance`](crate::adaptor::Allowance).
    pub name: Option<Arc<str>>,
    /// The number of the device whose memory was wanted, if the resource that refused knows it.
    pub device: Option<u32>,
    /// The bytes that were asked for.
    pub requested_bytes: usize,
    /// The alignment that was asked for.
    pub align: usize,
    /// The stream that asked, unless the call was a synchronous one.
    pub stream: Option<StreamId>,
    /// The number of attempts for this request, from 1: more than one if a handler freed memory, and it was not enough.
    pub attempt: u32,
    /// The bytes of live blocks. Of a source, all memory that is not free, whichever program uses it.
    pub live_bytes: usize,
    /// Free, and usable by the stream that asked.
    pub free_bytes: usize,
    /// Free, but still behind work that is not known to be over.
    pub pending_bytes: usize,
    /// Taken from the upstream and not given back: live, free and pending bytes.
    pub reserved_bytes: usize,
    /// The largest block that the stream that asked could get now.
    pub largest_bytes: usize,
    /// The limit, if there is one. Where all blocks have one size, that size, for a larger request.
    pub maximum_bytes: Option<usize>,
    /// The processes that share the limit, if it is [shared](crate::adaptor::Allowance::shared) and they left no room;
    /// [`live_bytes`](Self::live_bytes) are those of all of them.
    pub members: Vec<Member>,
    /// The free and total memory of the upstream, if it was asked and knows. Of a source, that of the device or the host.
    pub upstream_memory: Option<MemoryInfo>,
    /// The error of the upstream; `None` if it was not asked, because of the limit. Of a source, the error of the driver.
    pub upstream_error: Option<Error>,
    /// The file with a snapshot of this moment, if the configuration asks for one: set once the request has failed.
    pub snapshot_file: Option<SnapshotFile>,
    /// Why there was no memory, as far as the figures tell.
    pub cause: Cause,
    /// A suballocator refused, so the line contains its free bytes.
    pub(crate) is_of_suballocator: bool,
    /// The limit is shared by a file that is there no longer.
    pub(crate) is_without_file: bool,
}

/// Why there was no memory: part of the [report](OutOfMemory).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The request alone is more than the limit, or more than the upstream has in total. No handler is asked, and no memory is
    /// released: it would not help.
    TooLarge,
    /// The request, on top of what is live, is more than the limit.
    Limit,
    /// There are enough free bytes, but not in one piece; or free pieces that cannot be given back prevent growth.
    Fragmentation,
    /// There are enough free bytes, but some are behind work that could not be waited for: a stream captures, is lost, or must not
    /// wait.
    Pending,
    /// The upstream has no more, and the memory that it gave is live here.
    Full,
    /// The upstream has no more, and other users of it have more than this suballocator.
    Others,
    /// The suballocator is [frozen](crate::suballoc::SuballocBook::freeze): what it has is all that it will have.
    Frozen,
}

impl OutOfMemory {
    /// A report that the resource `refused_by` has refused `bytes`; all other fields are unknown.
    #[must_use]
    pub fn new(refused_by: &'static str, bytes: usize) -> Self {
        Self {
            refused_by,
            name: None,
            device: None,
            requested_bytes: bytes,
            align: GRAIN,
            stream: None,
            attempt: 1,
            live_bytes: 0,
            free_bytes: 0,
            pending_bytes: 0,
            reserved_bytes: 0,
            largest_bytes: 0,
            maximum_bytes: None,
            members: Vec::new(),
            upstream_memory: None,
            upstream_error: None,
            snapshot_file: None,
            cause: Cause::Full,
            is_of_suballocator: false,
            is_without_file: false,
        }
    }

    /// A report of a request that is larger than a layout can be.
    pub(crate) fn too_large(refused_by: &'static str, bytes: usize, align: usize) -> Self {
        Self { align, cause: Cause::TooLarge, ..Self::new(refused_by, bytes) }
    }

    /// Sets the cause from the figures.
    #[must_use]
    pub fn explained(self) -> Self {
        Self { cause: Cause::of(&self), ..self }
    }

    /// Sets the cause where the members of a shared limit have left no room: what is free may be guaranteed to others.
    pub(crate) fn refused_to_a_member(self) -> Self {
        let is_too_large = self.maximum_bytes.is_some_and(|maximum| self.requested_bytes > maximum);
        Self { cause: if is_too_large { Cause::TooLarge } else { Cause::Limit }, ..self }
    }

    /// This report, and those of the layers below that refused: the last one refused first.
    pub fn chain(&self) -> impl Iterator<Item = &Self> {
        core::iter::successors(Some(self), |report| report.upstream_error.as_ref()?.out_of_memory_report())
    }

    /// Returns `true` if the request alone is more than can ever be had.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.cause == Cause::TooLarge
    }
}

impl Cause {
    /// The first of these that holds.
    fn of(report: &OutOfMemory) -> Self {
        let wanted = report.requested_bytes.checked_next_multiple_of(GRAIN).unwrap_or(usize::MAX);
        let maximum = report.maximum_bytes.unwrap_or(usize::MAX);
        let upstream_total = report.upstream_memory.map_or(usize::MAX, |memory| memory.total_bytes);
        // `memory_info` of a resource may describe other memory than that of its blocks, so the cause that the resource set wins.
        let is_said = |error: &Error| match error.out_of_memory_report() {
            Some(report) => report.is_hopeless(),
            None => error.call().is_some(),
        };
        if wanted > maximum || wanted > upstream_total && report.upstream_error.as_ref().is_some_and(is_said)
        {
            return Self::TooLarge;
        }
        // Live bytes stay, whatever else is given back.
        if wanted > maximum.saturating_sub(report.live_bytes) || wanted > upstream_total {
            return Self::Limit;
        }
        if wanted <= report.free_bytes {
            return Self::Fragmentation;
        }
        if wanted <= report.free_bytes.saturating_add(report.pending_bytes) {
            return Self::Pending;
        }
        // The limit prevented growth, though live bytes alone do not reach it: free pieces that could not be given back do.
        if wanted > maximum.saturating_sub(report.reserved_bytes) {
            return Self::Fragmentation;
        }
        let others = report.upstream_memory.map_or(0, |memory| {
            memory.total_bytes.saturating_sub(memory.free_bytes).saturating_sub(report.reserved_bytes)
        });
        if report.is_of_suballocator && others > report.reserved_bytes { Self::Others } else { Self::Full }
    }

    const fn words(self, is_of_suballocator: bool) -> &'static str {
        match self {
            Self::TooLarge => "more than can ever be had",
            Self::Limit => "more than the limit leaves",
            Self::Fragmentation => "enough is free, but not in one piece",
            Self::Pending => "enough is free, but behind work that could not be waited for",
            Self::Full if is_of_suballocator => "all is in use here, and the upstream has no more",
            Self::Full => "there is no more",
            Self::Others => "the upstream has no more, and others have most of it",
            Self::Frozen => "it is frozen, and takes no more memory",
        }
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.refused_by)?;
        if let Some(name) = self.name.as_deref().filter(|name| *name != self.refused_by) {
            write!(f, " `{name}`")?;
        }
        if let Some(device) = self.device {
            write!(f, " of gpu {device}")?;
        }
        write!(f, " refused {:#}", Size(self.requested_bytes))?;
        if self.align > GRAIN {
            write!(f, ", aligned to {},", Size(self.align))?;
        }
        if let Some(stream) = self.stream {
            write!(f, " on stream {stream}")?;
        }
        if self.attempt > 1 {
            write!(f, " at attempt {}", self.attempt)?;
        }
        write!(f, ": {}", self.cause.words(self.is_of_suballocator))?;
        if self.is_of_suballocator {
            write!(
                f,
                "; live {}, free {}, pending {}, largest {}, reserved {}",
                Size(self.live_bytes),
                Size(self.free_bytes),
                Size(self.pending_bytes),
                Size(self.largest_bytes),
                Size(self.reserved_bytes),
            )?;
        } else if self.maximum_bytes.is_some() {
            // Compared with the limit, so exact.
            write!(f, "; live {:#}", Size(self.live_bytes))?;
        }
        if let Some(maximum) = self.maximum_bytes {
            write!(f, ", limit {:#}", Size(maximum))?;
        }
        for member in self.members.iter().filter(|member| !member.is_this_process) {
            write!(f, "; {member}")?;
        }
        if self.is_without_file {
            f.write_str("; somebody has removed its file, and who joins it now has a limit beside this one")?;
        }
        if let Some(memory) = self.upstream_memory {
            let whose = if self.is_of_suballocator { "the upstream has " } else { "" };
            write!(f, "; {whose}{} free of {}", Size(memory.free_bytes), Size(memory.total_bytes))?;
        }
        if let Some(error) = &self.upstream_error {
            let whose =
                if self.upstream_memory.is_some() && self.is_of_suballocator { "it" } else { "the upstream" };
            match (error.call(), error.code()) {
                // The driver knows no more of the request than this report.
                (Some(call), Some(code))
                    if error.out_of_memory_report().is_none() && error.is_out_of_memory() =>
                {
                    write!(f, "; the driver said: {}", DriverError::new(call, code))?;
                }
                _ => write!(f, "; {whose} said: {error}")?,
            }
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
    use crate::driver::{Call, Code};

    const MIB: usize = 1 << 20;

    /// 100 MiB reserved, of which 40 are free, 10 are pending, and 50 are live; 8 MiB wanted.
    fn report() -> OutOfMemory {
        OutOfMemory {
            live_bytes: 50 * MIB,
            free_bytes: 40 * MIB,
            pending_bytes: 10 * MIB,
            reserved_bytes: 100 * MIB,
            largest_bytes: MIB,
            is_of_suballocator: true,
            ..OutOfMemory::new("Pool", 8 * MIB)
        }
    }

    fn of_driver(mib: usize) -> Error {
        Error::of_driver(DriverError::new(Call::AllocateDevice, Code::OUT_OF_MEMORY), mib * MIB)
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
        assert_eq!(cause(101, Some(100), None), Cause::TooLarge);
        assert_eq!(
            cause(101, None, Some((0, 100))),
            Cause::Limit,
            "more than the device has, if it is the device's"
        );
        let of_device = OutOfMemory {
            requested_bytes: 101 * MIB,
            upstream_memory: Some(MemoryInfo { free_bytes: 0, total_bytes: 100 * MIB }),
            upstream_error: Some(of_driver(101)),
            ..report()
        };
        assert_eq!(of_device.clone().explained().cause, Cause::TooLarge);
        let over_it = |cause| OutOfMemory {
            upstream_error: Some(Error::from(OutOfMemory { cause, ..of_device.clone() })),
            ..of_device.clone()
        };
        assert_eq!(over_it(Cause::TooLarge).explained().cause, Cause::TooLarge);
        assert_eq!(over_it(Cause::Full).explained().cause, Cause::Limit);
        let one_byte_more =
            OutOfMemory { requested_bytes: 50 * MIB + 1, maximum_bytes: Some(100 * MIB), ..report() };
        assert_eq!(one_byte_more.explained().cause, Cause::Limit);
        let all = OutOfMemory { requested_bytes: usize::MAX, maximum_bytes: Some(100 * MIB), ..report() };
        assert_eq!(all.explained().cause, Cause::TooLarge);
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
            "Pool refused 8 MiB: enough is free, but not in one piece; live 50 MiB, free 40 MiB, pending 10 MiB, largest 1 MiB, \
             reserved 100 MiB"
        );
        let of_source = OutOfMemory {
            device: Some(3),
            upstream_memory: Some(MemoryInfo { free_bytes: 0, total_bytes: 150 * MIB }),
            upstream_error: Some(of_driver(60)),
            ..OutOfMemory::new("Cuda", 60 * MIB)
        };
        assert_eq!(
            of_source.clone().explained().to_string(),
            "Cuda of gpu 3 refused 60 MiB: there is no more; 0 B free of 150 MiB; the driver said: cuMemAlloc: out of memory (2)"
        );
        let full = OutOfMemory {
            device: Some(3),
            requested_bytes: 60 * MIB - 1,
            align: 4096,
            stream: Some(StreamId::new(3, 5)),
            attempt: 2,
            maximum_bytes: Some(200 * MIB),
            upstream_memory: of_source.upstream_memory,
            upstream_error: Some(Error::from(of_source.explained())),
            ..report()
        };
        assert_eq!(
            full.explained().to_string(),
            "Pool of gpu 3 refused 60.0 MiB (62914559 B), aligned to 4 KiB, on stream 3.5 at attempt 2: all is in use here, and the \
             upstream has no more; live 50 MiB, free 40 MiB, pending 10 MiB, largest 1 MiB, reserved 100 MiB, limit 200 MiB; the \
             upstream has 0 B free of 150 MiB; it said: out of memory: Cuda of gpu 3 refused 60 MiB: there is no more; 0 B free of \
             150 MiB; the driver said: cuMemAlloc: out of memory (2)"
        );
        let limit = |refused_by, bytes| OutOfMemory {
            name: Some("jobs".into()),
            live_bytes: 768,
            maximum_bytes: Some(1 << 20),
            ..OutOfMemory::new(refused_by, bytes)
        };
        assert_eq!(
            limit("Budget", 1 << 20).explained().to_string(),
            "Budget `jobs` refused 1 MiB: more than the limit leaves; live 768 B, limit 1 MiB"
        );
        assert_eq!(
            limit("jobs", (1 << 20) + 1).explained().to_string(),
            "jobs refused 1.0 MiB (1048577 B): more than can ever be had; live 768 B, limit 1 MiB"
        );
    }

    #[test]
    fn a_chain_leads_to_who_began_it() {
        let below = |report: OutOfMemory, by| OutOfMemory {
            upstream_error: Some(Error::from(report)),
            ..OutOfMemory::new(by, 8)
        };
        let report = below(below(OutOfMemory::new("Cuda", 8), "Limiting"), "Pool");
        assert!(report.chain().map(|report| report.refused_by).eq(["Pool", "Limiting", "Cuda"]));
    }
}
