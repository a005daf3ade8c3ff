//! `Parts`: the parts of a log that its devices have.

use std::collections::HashMap;
use std::io::BufRead;

use alluvion::Error;
use alluvion::trace::{Event, Moment, Refusal, Trace, TraceEvents};

use super::recording::Recording;

/// A log, apart by devices as it is read: blocks, streams, threads and tags of each are numbered by themselves.
///
/// A log of one device keeps the numbers that it has as a whole, and nothing is kept for numbering it.
#[derive(Debug)]
pub(super) struct Parts {
    /// In the order in which the devices appear. Devices without an event may be missing at the end.
    parts: Vec<Part>,
    /// Of each block of the log, its number in its part; none while there is one device.
    blocks: Vec<u32>,
    /// How many failures of the log are in their parts.
    refused: usize,
    /// How many streams, threads and tags were known while there was one device.
    known: [usize; 3],
    is_split: bool,
}

/// What a log that is of several devices leaves out of all parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// Frees of blocks that were not allocated in the log.
    pub(super) strays: usize,
}

impl Left {
    pub(super) fn note(self) -> Option<String> {
        let (frees, they) = match self.strays {
            0 => return None,
            1 => ("1 free in the log, of any of its devices, is of a block that was".to_owned(), "it is"),
            many => (format!("{many} frees in the log, of all devices, are of blocks that were"), "they are"),
        };
        Some(format!("{frees} allocated before the log began; {they} not shown."))
    }
}

impl Parts {
    /// Reads a log in RMM's format: a recording for each device, in the order of their numbers, and one for a log without rows.
    pub(super) fn read(text: impl BufRead) -> Result<(Vec<Recording>, Left), String> {
        let (parts, rest) = Self::gather(text)?;
        Ok(parts.end(rest))
    }

    fn gather(text: impl BufRead) -> Result<(Self, Trace), String> {
        let told = |error: Error| error.to_string();
        let mut events = TraceEvents::new(text).map_err(told)?;
        let mut parts = Self {
            parts: vec![Part::default()],
            blocks: Vec::new(),
            refused: 0,
            known: [0; 3],
            is_split: false,
        };
        loop {
            let event = events.next().transpose().map_err(told)?;
            parts.see(events.rest());
            let Some((event, moment)) = event else { break };
            parts.add(events.rest(), event, moment)?;
        }
        Ok((parts, events.into_rest()))
    }

    /// Takes in what the log says beside its events.
    fn see(&mut self, rest: &Trace) {
        if rest.devices > 1 && !self.is_split {
            self.split(rest);
        }
        if !self.is_split {
            self.known = [rest.stream_handles.len(), rest.thread_numbers.len(), rest.tags.len()];
        }
        for refusal in &rest.refusals[self.refused..] {
            let part = self.part(device_of(rest, refusal.stream));
            part.recording.begin(refusal.moment.microseconds);
            if self.is_split {
                let part = self.part(device_of(rest, refusal.stream));
                part.refuse(*refusal);
            }
        }
        self.refused = rest.refusals.len();
    }

    /// The second device has come: what there is has the numbers of the first.
    fn split(&mut self, rest: &Trace) {
        self.is_split = true;
        let first = &mut self.parts[0];
        // No log has more blocks than a block's number counts.
        self.blocks = (0..first.recording.bytes.len() as u32).collect();
        let [streams, threads, tags] = self.known.map(Renumbered::same);
        (first.streams, first.threads, first.tags) = (streams, threads, tags);
        // No tag is the first of every recording.
        first.tags.number(0);
        // Those of the first device, each where it was.
        first.refusals = rest.refusals[..self.refused].to_vec();
    }

    fn add(&mut self, rest: &Trace, event: Event, moment: Moment) -> Result<(), String> {
        if !self.is_split {
            return self.parts[0].recording.add(event, moment);
        }
        let device = device_of(rest, event.stream);
        let at = event.block as usize;
        if at == self.blocks.len() {
            let next = self.part(device).recording.bytes.len() as u32;
            self.blocks.push(next);
        }
        let block = self.blocks[at];
        let part = self.part(device);
        let event = Event {
            block,
            stream: part.streams.number(event.stream),
            thread: part.threads.number(event.thread),
            ..event
        };
        let moment = Moment { tag: part.tags.number(moment.tag), ..moment };
        part.recording.add(event, moment)
    }

    fn part(&mut self, device: usize) -> &mut Part {
        while self.parts.len() <= device {
            let mut part = Part::default();
            part.tags.number(0);
            self.parts.push(part);
        }
        &mut self.parts[device]
    }

    fn end(mut self, rest: Trace) -> (Vec<Recording>, Left) {
        if !self.is_split {
            let Part { mut recording, .. } = self.parts.swap_remove(0);
            recording.rest = rest;
            return (vec![recording], Left::default());
        }
        // Devices whose rows are frees of what was there before.
        self.part((rest.devices as usize).saturating_sub(1));
        let parts = self.parts.into_iter().zip(&rest.device_ordinals);
        let mut recordings: Vec<_> = parts.map(|(part, &ordinal)| part.end(&rest, ordinal)).collect();
        recordings.sort_by_key(|recording| recording.rest.device_ordinals[0]);
        (recordings, Left { strays: rest.strays })
    }
}

fn device_of(rest: &Trace, stream: u32) -> usize {
    rest.stream_devices[stream as usize] as usize
}

/// What one device has of the log.
#[derive(Debug, Default)]
struct Part {
    recording: Recording,
    streams: Renumbered,
    threads: Renumbered,
    tags: Renumbered,
    refusals: Vec<Refusal>,
}

impl Part {
    fn refuse(&mut self, refusal: Refusal) {
        self.refusals.push(Refusal {
            after_events: self.recording.len(),
            stream: self.streams.number(refusal.stream),
            thread: self.threads.number(refusal.thread),
            moment: Moment { tag: self.tags.number(refusal.moment.tag), ..refusal.moment },
            ..refusal
        });
    }

    fn end(self, of: &Trace, ordinal: u32) -> Recording {
        let Self { mut recording, streams, threads, tags, refusals } = self;
        recording.rest = Trace {
            tags: tags.names(&of.tags),
            stream_handles: streams.names(&of.stream_handles),
            stream_devices: vec![0; streams.old.len()],
            device_ordinals: vec![ordinal],
            thread_numbers: threads.names(&of.thread_numbers),
            blocks: recording.bytes.len() as u32,
            streams: streams.old.len() as u32,
            devices: 1,
            threads: threads.old.len() as u32,
            failures: refusals.len(),
            refusals,
            cut: of.cut.clone(),
            ..Trace::default()
        };
        recording
    }
}

/// Numbers that are given anew, in the order in which they first appear.
#[derive(Debug, Default)]
struct Renumbered {
    /// By the old ones. A list as long as the old ones are many would cost each device what all of them have.
    new: HashMap<u32, u32>,
    /// By the new ones.
    old: Vec<u32>,
}

impl Renumbered {
    /// So many numbers that stay what they are.
    fn same(count: usize) -> Self {
        let old: Vec<_> = (0..count as u32).collect();
        Self { new: old.iter().map(|&number| (number, number)).collect(), old }
    }

    fn number(&mut self, old: u32) -> u32 {
        let next = self.old.len() as u32;
        *self.new.entry(old).or_insert_with(|| {
            self.old.push(old);
            next
        })
    }

    fn names<N: Clone>(&self, of_old: &[N]) -> Vec<N> {
        self.old.iter().map(|&old| of_old[old as usize].clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand names of the first device, and one row of the last name for each of a hundred others: these have one name each.
    #[test]
    fn a_device_costs_what_it_has_and_not_what_all_have() {
        const NAMES: usize = 1000;
        let mut log = "Thread,Time,Action,Pointer,Size,Stream,Device,Tag\n".to_owned();
        for name in 0..NAMES {
            log +=
                &format!("{name},00:00:00.000001,allocate,{:#x},1,{:#x},0,t{name}\n", name << 12, name + 1);
        }
        for device in 1..=100 {
            log += &format!("{0},00:00:00.000001,allocate,0x100,1,0x1,{device},t{0}\n", NAMES - 1);
        }
        let (parts, _) = Parts::gather(log.as_bytes()).expect("the log is well formed");
        let cost = |part: &Part| part.streams.new.len() + part.threads.new.len() + part.tags.new.len();
        assert!(cost(&parts.parts[0]) >= 3 * NAMES);
        let of_others: usize = parts.parts[1..].iter().map(cost).sum();
        // A stream, a thread, the tag, and that of no name.
        assert_eq!((parts.parts.len(), of_others), (101, 100 * 4));
    }
}
