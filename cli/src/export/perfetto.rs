//! Chrome's trace events in JSON, which Perfetto opens.
//!
//! Each event is written when it comes, on a line of its own: what is kept is what is out. The device is a process with the
//! counters, the segments and the failures; each thread of a stream is one with the blocks that it allocated there.

use std::collections::HashMap;
use std::io::{self, Write};

use alluvion::trace::Trace;
use serde_json::json;

use super::output::unwritten;
use crate::failure::Failure;
use crate::playback::{Playback, Step, What};

/// The number of the process that stands for the device.
const DEVICE: u64 = 1;

pub(super) fn write_trace(playback: &Playback<'_>, to: &mut impl Write) -> Result<(), Failure> {
    let mut timeline = Timeline::begin(playback.trace(), to).map_err(unwritten)?;
    playback.run(|step| timeline.add(&step).map_err(unwritten))?;
    timeline.end().map_err(unwritten)
}

/// Writes the events.
struct Timeline<'t, W> {
    trace: &'t Trace,
    to: W,
    /// Of each path of tags, as a string of JSON.
    names: Vec<String>,
    /// The number of the process of each stream and thread.
    lanes: HashMap<(u32, u32), u64>,
    /// The blocks that are out: their lane and tag.
    live: HashMap<u32, (u64, u32)>,
    /// How many segments of each address there have been: addresses come again.
    segments: HashMap<u64, u64>,
    /// The time of the first event, from which all are counted.
    start: Option<u64>,
    now: u64,
    /// The counters as they were written last.
    counters: Option<[u64; 3]>,
}

impl<'t, W: Write> Timeline<'t, W> {
    fn begin(trace: &'t Trace, mut to: W) -> io::Result<Self> {
        let names = trace.tags.iter().map(|tag| match &**tag {
            "" => r#""untagged""#.to_owned(),
            tag => json!(tag).to_string(),
        });
        let names = names.collect();
        to.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
        // It has no comma before it, and so all others can have one.
        let ordinal = trace.device_ordinals.first().copied().unwrap_or_default();
        write!(to, r#"{{"ph":"M","pid":{DEVICE},"name":"process_name","args":{{"name":"gpu {ordinal}"}}}}"#)?;
        Ok(Self {
            trace,
            to,
            names,
            lanes: HashMap::new(),
            live: HashMap::new(),
            segments: HashMap::new(),
            start: None,
            now: 0,
            counters: None,
        })
    }

    fn add(&mut self, step: &Step) -> io::Result<()> {
        self.now = step.microseconds - *self.start.get_or_insert(step.microseconds);
        let ts = self.now;
        match step.what {
            What::SegmentTaken { address, bytes } => {
                let count = self.segments.entry(address).or_default();
                *count += 1;
                write!(
                    self.to,
                    ",\n{{\"ph\":\"b\",\"cat\":\"segment\",\"id\":\"{address:#x}.{count}\",\"pid\":{DEVICE},\"tid\":0,\
                     \"ts\":{ts},\"name\":\"segment\",\"args\":{{\"address\":\"{address:#x}\",\"bytes\":{bytes}}}}}"
                )?;
            }
            What::SegmentGiven { address, .. } => {
                let count = self.segments.get(&address).copied().unwrap_or_default();
                write!(
                    self.to,
                    ",\n{{\"ph\":\"e\",\"cat\":\"segment\",\"id\":\"{address:#x}.{count}\",\"pid\":{DEVICE},\"tid\":0,\
                     \"ts\":{ts},\"name\":\"segment\"}}"
                )?;
            }
            What::Allocated { block, address, bytes } => {
                let lane = self.lane(step)?;
                self.live.insert(block, (lane, step.tag));
                let (name, thread) = (&self.names[step.tag as usize], self.thread(step));
                write!(
                    self.to,
                    ",\n{{\"ph\":\"b\",\"cat\":\"block\",\"id\":{block},\"pid\":{lane},\"tid\":{thread},\"ts\":{ts},\
                     \"name\":{name},\"args\":{{\"address\":\"{address:#x}\",\"bytes\":{bytes}}}}}"
                )?;
            }
            What::Freed { block, .. } => {
                if let Some((lane, tag)) = self.live.remove(&block) {
                    let (name, thread) = (&self.names[tag as usize], self.thread(step));
                    let stream = self.stream(step);
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
                    ",\n{{\"ph\":\"i\",\"s\":\"g\",\"pid\":{DEVICE},\"tid\":0,\"ts\":{ts},\"name\":\"out of memory\",\
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
                    ",\n{{\"ph\":\"C\",\"pid\":{DEVICE},\"tid\":0,\"ts\":{},\"name\":\"gpu {ordinal} {name}\",\
                     \"args\":{{\"bytes\":{bytes}}}}}",
                    self.now
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
        let lane = DEVICE + 1 + self.lanes.len() as u64;
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
    fn end(mut self) -> io::Result<()> {
        let mut live: Vec<_> = self.live.iter().collect();
        live.sort_unstable();
        for (block, (lane, tag)) in live {
            write!(
                self.to,
                ",\n{{\"ph\":\"e\",\"cat\":\"block\",\"id\":{block},\"pid\":{lane},\"tid\":0,\"ts\":{},\"name\":{},\
                 \"args\":{{\"freed\":false}}}}",
                self.now, self.names[*tag as usize]
            )?;
        }
        self.to.write_all(b"\n]}\n")
    }
}
