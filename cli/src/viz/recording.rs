//! `Recording`: a log in columns.

use core::mem;
use std::io::{self, BufRead};
use std::vec;

use alluvion::trace::{Event, EventKind, Moment, Trace, TraceEvents};
use alluvion::{Error, Layout};

use super::narrow::Narrow;
use super::picture::{NOWHERE, Reserved};
use crate::input::of_device;

/// A log in columns, each as narrow as its numbers: some 15 bytes for an event, where a [`Trace`] takes 64.
#[derive(Debug)]
pub(super) struct Recording {
    /// Of each event: 0 if it allocates, because blocks are numbered as they come; else how far back its block is.
    pub(super) back: Narrow,
    /// Since the event before. Rows of two threads may stand in another order than their times: then none.
    pub(super) microseconds: Narrow,
    pub(super) streams: Narrow,
    pub(super) threads: Narrow,
    /// Of each block.
    pub(super) bytes: Narrow,
    pub(super) tags: Narrow,
    /// Where each block was, or [`NOWHERE`] if the log does not say.
    pub(super) addresses: Vec<u64>,
    /// The steps that changed what was reserved, if the log says that.
    pub(super) reserved: Vec<Reserved>,
    /// When it begins, since midnight.
    pub(super) first_microseconds: u64,
    pub(super) peak_live_bytes: u64,
    /// The parts of a log other than its events.
    pub(super) rest: Trace,
}

/// The events of a log: as they are read, or of one that was read.
enum Events<B> {
    Read(Box<TraceEvents<B>>),
    Part { events: vec::IntoIter<Event>, moments: vec::IntoIter<Moment>, rest: Box<Trace> },
}

impl Events<io::Empty> {
    fn of(mut trace: Trace) -> Self {
        let (events, moments) = (mem::take(&mut trace.events), mem::take(&mut trace.moments));
        Self::Part { events: events.into_iter(), moments: moments.into_iter(), rest: Box::new(trace) }
    }
}

impl<B: BufRead> Events<B> {
    fn next(&mut self) -> Option<Result<(Event, Moment), Error>> {
        match self {
            Self::Read(events) => events.next(),
            Self::Part { events, moments, .. } => events.next().zip(moments.next()).map(Ok),
        }
    }

    /// When the first allocation failed of those that came before.
    fn first_refused(&self) -> Option<u64> {
        let refusals = match self {
            Self::Read(events) => &events.rest().refusals,
            Self::Part { rest, .. } => &rest.refusals,
        };
        refusals
            .first()
            .filter(|refusal| refusal.after_events == 0)
            .map(|refusal| refusal.moment.microseconds)
    }

    fn into_rest(self) -> Trace {
        match self {
            Self::Read(events) => events.into_rest(),
            Self::Part { rest, .. } => *rest,
        }
    }
}

/// One event of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) kind: EventKind,
    pub(super) block: u32,
}

impl Recording {
    /// Of a log in RMM's format, or of the part that one device has.
    pub(super) fn read(text: impl BufRead, gpu: Option<u32>) -> Result<Self, String> {
        let told = |error: Error| error.to_string();
        if gpu.is_some() {
            let trace = of_device(Trace::from_rmm_csv(text).map_err(told)?, gpu)?;
            return Self::of(Events::of(trace));
        }
        let mut read = Self::of(Events::Read(Box::new(TraceEvents::new(text).map_err(told)?)))?;
        read.rest = of_device(read.rest, None)?;
        Ok(read)
    }

    fn of(mut events: Events<impl BufRead>) -> Result<Self, String> {
        let mut read = Self {
            back: Narrow::default(),
            microseconds: Narrow::default(),
            streams: Narrow::default(),
            threads: Narrow::default(),
            bytes: Narrow::default(),
            tags: Narrow::default(),
            addresses: Vec::new(),
            reserved: Vec::new(),
            first_microseconds: 0,
            peak_live_bytes: 0,
            rest: Trace::default(),
        };
        let (mut newest, mut live) = (None, 0_u64);
        while let Some(event) = events.next() {
            let (event, moment) = event.map_err(|error| error.to_string())?;
            let step =
                u32::try_from(read.len()).map_err(|_| "it has more than 4294967295 events".to_owned())?;
            let before = *newest.get_or_insert_with(|| {
                read.first_microseconds = events.first_refused().unwrap_or(moment.microseconds);
                read.first_microseconds
            });
            let held = event.bytes.next_multiple_of(Layout::MIN_ALIGN as u64);
            match event.kind {
                EventKind::Allocate => {
                    read.back.push(0);
                    read.bytes.push(event.bytes);
                    read.tags.push(moment.tag.into());
                    // Null is what a log has for an address that it does not know.
                    read.addresses.push(if moment.address == 0 { NOWHERE } else { moment.address });
                    live = live.saturating_add(held);
                    read.peak_live_bytes = read.peak_live_bytes.max(live);
                }
                EventKind::Free => {
                    read.back.push(read.bytes.len() as u64 - u64::from(event.block));
                    live = live.saturating_sub(held);
                }
            }
            read.microseconds.push(moment.microseconds.saturating_sub(before));
            newest = Some(before.max(moment.microseconds));
            read.streams.push(event.stream.into());
            read.threads.push(event.thread.into());
            if let Some(bytes) = moment.reserved_bytes
                && read.reserved.last().is_none_or(|last| last.bytes != bytes)
            {
                read.reserved.push(Reserved { step, bytes });
            }
        }
        read.rest = events.into_rest();
        if newest.is_none() {
            let refused = read.rest.refusals.first();
            read.first_microseconds = refused.map_or(0, |refusal| refusal.moment.microseconds);
        }
        Ok(read)
    }

    /// How many events there are.
    pub(super) const fn len(&self) -> usize {
        self.back.len()
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        let mut known = 0;
        (0..self.len()).map(move |at| match self.back.at(at) {
            0 => {
                known += 1;
                Step { kind: EventKind::Allocate, block: known - 1 }
            }
            back => Step { kind: EventKind::Free, block: known - back as u32 },
        })
    }
}
