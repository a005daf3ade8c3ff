//! `Apart`: a trace that is taken apart by its devices.

use core::ops::Range;
use std::collections::HashMap;

use super::{Event, Moment, Refusal, Trace};

/// A trace that is taken apart by its devices: the parts of some of them, which follow each other.
pub(super) struct Apart<'t> {
    of: &'t Trace,
    first: u32,
    parts: Vec<Part>,
}

impl<'t> Apart<'t> {
    /// `devices` are indices into the ordinals of the trace.
    pub(super) fn of(of: &'t Trace, devices: Range<u32>) -> Self {
        let first = devices.start;
        Self { of, first, parts: devices.map(|device| Part::of(of, device)).collect() }
    }

    /// The parts of what the iterator has, which are the events of the trace. It is gone through once.
    pub(super) fn take(mut self, events: impl Iterator<Item = (&'t Event, &'t Moment)>) -> Vec<Trace> {
        let of = self.of;
        let mut refusals = of.refusals.iter().peekable();
        for (at, (event, moment)) in events.enumerate() {
            while let Some(refusal) = refusals.next_if(|refusal| refusal.after_events <= at) {
                self.refuse(refusal);
            }
            if let Some(part) = self.part(of.device_of(event)) {
                part.add(event, moment);
            }
        }
        refusals.for_each(|refusal| self.refuse(refusal));
        self.parts.into_iter().map(|part| part.end(of)).collect()
    }

    fn part(&mut self, device: u32) -> Option<&mut Part> {
        self.parts.get_mut(device.checked_sub(self.first)? as usize)
    }

    fn refuse(&mut self, refusal: &Refusal) {
        // What is refused on a stream that the trace does not list is of no device.
        let device = self.of.stream_devices.get(refusal.stream as usize);
        if let Some(part) = device.and_then(|&device| self.part(device)) {
            part.refuse(refusal);
        }
    }
}

/// The part of one device, which numbers its blocks, streams, threads and tags anew.
struct Part {
    trace: Trace,
    blocks: Renumbered,
    streams: Renumbered,
    threads: Renumbered,
    tags: Renumbered,
}

impl Part {
    fn of(of: &Trace, device: u32) -> Self {
        let mut tags = Renumbered::default();
        // No tag is the first of every trace.
        tags.number(0);
        Self {
            trace: Trace {
                device_ordinals: vec![of.device_ordinals[device as usize]],
                devices: 1,
                cut: of.cut.clone(),
                ..Trace::default()
            },
            blocks: Renumbered::default(),
            streams: Renumbered::default(),
            threads: Renumbered::default(),
            tags,
        }
    }

    fn add(&mut self, event: &Event, moment: &Moment) {
        self.trace.events.push(Event {
            block: self.blocks.number(event.block),
            stream: self.streams.number(event.stream),
            thread: self.threads.number(event.thread),
            ..*event
        });
        self.trace.moments.push(Moment { tag: self.tags.number(moment.tag), ..*moment });
    }

    fn refuse(&mut self, refusal: &Refusal) {
        self.trace.refusals.push(Refusal {
            after_events: self.trace.events.len(),
            stream: self.streams.number(refusal.stream),
            thread: self.threads.number(refusal.thread),
            moment: Moment { tag: self.tags.number(refusal.moment.tag), ..refusal.moment },
            ..*refusal
        });
    }

    fn end(self, of: &Trace) -> Trace {
        let Self { trace, blocks, streams, threads, tags } = self;
        Trace {
            tags: tags.names(&of.tags),
            stream_handles: streams.names(&of.stream_handles),
            stream_devices: vec![0; streams.old.len()],
            thread_numbers: threads.names(&of.thread_numbers),
            blocks: blocks.old.len() as u32,
            streams: streams.old.len() as u32,
            threads: threads.old.len() as u32,
            failures: trace.refusals.len(),
            ..trace
        }
    }
}

/// Numbers that are given anew, in the order in which they first appear.
#[derive(Default)]
struct Renumbered {
    /// By the old ones. A list as long as the old ones are many would cost each device what all of them have.
    new: HashMap<u32, u32>,
    /// By the new ones.
    old: Vec<u32>,
}

impl Renumbered {
    fn number(&mut self, old: u32) -> u32 {
        let next = self.old.len() as u32;
        *self.new.entry(old).or_insert_with(|| {
            self.old.push(old);
            next
        })
    }

    /// The names of those that appeared.
    fn names<N: Clone>(&self, of_old: &[N]) -> Vec<N> {
        self.old.iter().map(|&old| of_old[old as usize].clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of sixteen devices costs a look at its own events, and not at those of the others.
    #[test]
    fn a_trace_of_many_devices_is_gone_through_once() {
        let mut log = "Thread,Time,Action,Pointer,Size,Stream,Device\n".to_owned();
        for row in 0..320 {
            log += &format!("1,00:00:00.{row:06},allocate,{:#x},300,0,{}\n", (row + 1) << 12, row % 16);
        }
        let trace = Trace::from_rmm_csv(log.as_bytes()).expect("the log is well formed");
        let mut looks = 0;
        let events = trace.events.iter().zip(&trace.moments).inspect(|_| looks += 1);
        let parts = Apart::of(&trace, 0..16).take(events);
        assert_eq!(parts, trace.by_device());
        assert_eq!((parts.len(), looks), (16, 320));
        assert!(parts.iter().all(|part| part.events.len() == 20));
    }
}
