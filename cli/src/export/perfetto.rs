//! Chrome's trace events in JSON, which Perfetto opens.
//!
//! Each event is written when it comes, on a line of its own: what is kept is what is out. A device is a process with the
//! counters, the segments and the failures; each thread of a stream is one with the blocks that it allocated there. One device
//! comes after the other: readers sort by time.

use std::collections::HashMap;
use std::io::{self, Write};

use alluvion::trace::Trace;
use serde_json::json;

use super::output::unwritten;
use crate::failure::Failure;
use crate::playback::{Playback, Step, What};

/// Writes the logs of one or several devices, in the order of their numbers.
pub(super) fn write_traces(playbacks: &[Playback<'_>], to: &mut impl Write) -> Result<(), Failure> {
    to.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n").map_err(unwritten)?;
    let start = playbacks.iter().filter_map(|playback| first_moment(playback.trace())).min().unwrap_or(0);
    let mut taken = Taken::default();
    for playback in playbacks {
        let mut timeline = Timeline::begin(playback.trace(), start, taken, &mut *to).map_err(unwritten)?;
        playback.run(|step| timeline.add(&step).map_err(unwritten))?;
        taken = timeline.end().map_err(unwritten)?;
    }
    to.write_all(b"\n]}\n").map_err(unwritten)
}

/// When the first happens of what a log has.
fn first_moment(trace: &Trace) -> Option<u64> {
    let refused = trace.refusals.first().map(|refusal| refusal.moment.microseconds);
    let event = trace.moments.first().map(|moment| moment.microseconds);
    event.into_iter().chain(refused).min()
}

/// The numbers that the devices before have taken.
#[derive(Default)]
struct Taken {
    processes: u64,
    blocks: u64,
    /// How many segments of each address there have been: addresses come again.
    segments: HashMap<u64, u64>,
}

/// Writes the events of one device.
struct Timeline<'t, W> {
    trace: &'t Trace,
    to: W,
    /// The number of the process that stands for the device.
    device: u64,
    taken: Taken,
    /// Of each path of tags, as a string of JSON.
    names: Vec<String>,
    /// The number of the process of each stream and thread.
    lanes: HashMap<(u32, u32), u64>,
    /// The blocks that are out: their lane and tag.
    live: HashMap<u32, (u64, u32)>,
    /// The time of the first event of any device, from which all are counted.
    start: u64,
    now: u64,
    /// The counters as they were written last.
    counters: Option<[u64; 3]>,
}

impl<'t, W: Write> Timeline<'t, W> {
    fn begin(trace: &'t Trace, start: u64, mut taken: Taken, mut to: W) -> io::Result<Self> {
        let names = trace.tags.iter().map(|tag| match &**tag {
            "" => r#""untagged""#.to_owned(),
            tag => json!(tag).to_string(),
        });
        let names = names.collect();
        // The first has no comma before it, and so all others can have one.
        if taken.processes > 0 {
            to.write_all(b",\n")?;
        }
        taken.processes += 1;
        let device = taken.processes;
        let ordinal = trace.device_ordinals.first().copied().unwrap_or_default();
        write!(to, r#"{{"ph":"M","pid":{device},"name":"process_name","args":{{"name":"gpu {ordinal}"}}}}"#)?;
        Ok(Self {
            trace,
            to,
            device,
            taken,
            names,
            lanes: HashMap::new(),
            live: HashMap::new(),
            start,
            now: 0,
            counters: None,
        })
    }

    fn add(&mut self, step: &Step) -> io::Result<()> {
        self.now = step.microseconds.saturating_sub(self.start);
        let (ts, device) = (self.now, self.device);
        match step.what {
            What::SegmentTaken { address, bytes } => {
                let count = self.taken.segments.entry(address).or_default();
                *count += 1;
                write!(
                    self.to,
                    ",\n{{\"ph\":\"b\",\"cat\":\"segment\",\"id\":\"{address:#x}.{count}\",\"pid\":{device},\"tid\":0,\
                     \"ts\":{ts},\"name\":\"segment\",\"args\":{{\"address\":\"{address:#x}\",\"bytes\":{bytes}}}}}"
                )?;
            }
            What::SegmentGiven { address, .. } => {
                let count = self.taken.segments.get(&address).copied().unwrap_or_default();
                write!(
                    self.to,
                    ",\n{{\"ph\":\"e\",\"cat\":\"segment\",\"id\":\"{address:#x}.{count}\",\"pid\":{device},\"tid\":0,\
                     \"ts\":{ts},\"name\":\"segment\"}}"
                )?;
            }
            What::Allocated { block, address, bytes } => {
                let lane = self.lane(step)?;
                self.live.insert(block, (lane, step.tag));
                let (name, thread) = (&self.names[step.tag as usize], self.thread(step));
                let block = self.taken.blocks + u64::from(block);
                write!(
                    self.to,
                    ",\n{{\"ph\":\"b\",\"cat\":\"block\",\"id\":{block},\"pid\":{lane},\"tid\":{thread},\"ts\":{ts},\
                     \"name\":{name},\"args\":{{\"address\":\"{address:#x}\",\"bytes\":{bytes}}}}}"
                )?;
            }
            What::Freed { block, .. } => {
                if let Some((lane, tag)) = self.live.remove(&block) {
                    let (name, thread) = (&self.names[tag as usize], self.thread(step));
                    let (stream, block) = (self.stream(step), self.taken.blocks + u64::from(block));
                    write!(
                        self.to,
                        ",\n{{\"ph\":\"e\",\"cat\":\"block\",\"id\":{block},\"pid\":{lane},\"tid\":{thread},\
                         \"ts\":{ts},\"name\":{name},\"args\":{{\"freed on stream\":\"{stream:#x}\"}}}}"
                    )?;
                }
            }
            What::Failed { bytes } => {
                let (name, stream, thread) =
                    (&self.names[step.tag as usize], self.stream(step), self.thread(step));
                write!(
                    self.to,
                    ",\n{{\"ph\":\"i\",\"s\":\"g\",\"pid\":{device},\"tid\":0,\"ts\":{ts},\"name\":\"out of memory\",\
                     \"args\":{{\"bytes\":{bytes},\"for\":{name},\"stream\":\"{stream:#x}\",\"thread\":{thread}}}}}"
                )?;
            }
        }
        self.count(step)
    }

    /// Writes the counters that have changed.
    fn count(&mut self, step: &Step) -> io::Result<()> {
        let now = [step.live_bytes, step.cached_bytes(), step.reserved_bytes];
        let before = self.counters.replace(now);
        let ordinal = self.trace.device_ordinals.first().copied().unwrap_or_default();
        for (at, name) in ["live", "cached", "reserved"].into_iter().enumerate() {
            let bytes = now[at];
            if before.is_none_or(|before| before[at] != bytes) {
                write!(
                    self.to,
                    ",\n{{\"ph\":\"C\",\"pid\":{},\"tid\":0,\"ts\":{},\"name\":\"gpu {ordinal} {name}\",\
                     \"args\":{{\"bytes\":{bytes}}}}}",
                    self.device, self.now
                )?;
            }
        }
        Ok(())
    }

    /// The number of the process for what this stream and thread allocate. The first time, it is given a name.
    fn lane(&mut self, step: &Step) -> io::Result<u64> {
        let key = (step.stream, step.thread);
        if let Some(&lane) = self.lanes.get(&key) {
            return Ok(lane);
        }
        self.taken.processes += 1;
        let lane = self.taken.processes;
        self.lanes.insert(key, lane);
        let (stream, thread) = (self.stream(step), self.thread(step));
        write!(
            self.to,
            ",\n{{\"ph\":\"M\",\"pid\":{lane},\"name\":\"process_name\",\
             \"args\":{{\"name\":\"stream {stream:#x}, thread {thread}\"}}}}"
        )?;
        Ok(lane)
    }

    fn stream(&self, step: &Step) -> u64 {
        self.trace.stream_handles[step.stream as usize]
    }

    fn thread(&self, step: &Step) -> u64 {
        self.trace.thread_numbers[step.thread as usize]
    }

    /// What is still out ends with the log.
    fn end(mut self) -> io::Result<Taken> {
        let mut live: Vec<_> = self.live.iter().collect();
        live.sort_unstable();
        for (block, (lane, tag)) in live {
            let block = self.taken.blocks + u64::from(*block);
            write!(
                self.to,
                ",\n{{\"ph\":\"e\",\"cat\":\"block\",\"id\":{block},\"pid\":{lane},\"tid\":0,\"ts\":{},\"name\":{},\
                 \"args\":{{\"freed\":false}}}}",
                self.now, self.names[*tag as usize]
            )?;
        }
        self.taken.blocks += u64::from(self.trace.blocks);
        Ok(self.taken)
    }
}
