//! Streams: handles, and the lanes behind them.

use std::collections::HashMap;
use std::thread::{self, ThreadId};

use super::clock::LaneId;
use super::hazard::{HazardKind, StreamLabel};
use super::lane::LaneKind;
use super::machine::SimMachine;
use crate::driver::{Code, RawStream, StreamFlags};

/// The least and the greatest priority, as of an H200.
pub(super) const PRIORITY_RANGE: (i32, i32) = (0, -5);

/// The first handle that is handed out: far from the special values, and not a valid address.
const FIRST_HANDLE: u64 = 0x5715_0000;

/// The first internal handle of a per-thread stream, which programs never see.
const FIRST_PER_THREAD: u64 = 1 << 62;

/// The first internal handle of a legacy stream, which programs never see either.
const FIRST_LEGACY: u64 = 1 << 63;

/// A stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimStream {
    /// The machine's own handle: the special handles stand for several streams.
    pub(super) handle: u64,
    pub(super) ordinal: u32,
    pub(super) lane: LaneId,
    /// Never used twice.
    pub(super) id: u64,
}

impl SimStream {
    pub(super) const fn is_legacy(&self) -> bool {
        self.handle >= FIRST_LEGACY
    }
}

/// Every stream of the machine.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: HashMap<u64, SimStream>,
    /// Handles of destroyed streams, last in first out: the next stream gets the value of the last one destroyed.
    recycled: Vec<u64>,
    per_thread: HashMap<(ThreadId, u32), u64>,
    handles: u64,
}

impl Streams {
    pub(super) fn add_legacy(&mut self, ordinal: u32, lane: LaneId, id: u64) {
        let handle = FIRST_LEGACY + u64::from(ordinal);
        self.streams.insert(handle, SimStream { handle, ordinal, lane, id });
    }

    pub(super) fn by_handle(&self, handle: u64) -> Option<&SimStream> {
        self.streams.get(&handle)
    }

    /// The number of streams that the program has made and not destroyed.
    pub(super) fn live(&self) -> usize {
        self.streams.keys().filter(|&&handle| handle < FIRST_PER_THREAD).count()
    }

    /// Every stream that the program has made and not destroyed.
    pub(super) fn iter_live(&self) -> impl Iterator<Item = (RawStream, &SimStream)> {
        let made = self.streams.iter().filter(|&(&handle, _)| handle < FIRST_PER_THREAD);
        made.map(|(&handle, stream)| (RawStream(handle), stream))
    }
}

impl SimMachine {
    /// A number that no stream of any process has, so that a hazard names one stream.
    pub(super) fn next_stream_id(&mut self) -> u64 {
        self.stream_ids += 1;
        self.stream_ids
    }

    pub(super) fn create_stream(&mut self, ordinal: u32, flags: StreamFlags) -> RawStream {
        let id = self.next_stream_id();
        let kind = if flags.blocking { LaneKind::Blocking } else { LaneKind::Independent };
        let lane = self.lanes.add(self.process.id, ordinal, kind, StreamLabel::Stream { ordinal, id });
        let handle = self.process.streams.recycled.pop().unwrap_or_else(|| {
            self.process.streams.handles += 1;
            FIRST_HANDLE + self.process.streams.handles * 0x40
        });
        self.process.streams.streams.insert(handle, SimStream { handle, ordinal, lane, id });
        RawStream(handle)
    }

    pub(super) fn destroy_stream(&mut self, ordinal: u32, raw: RawStream) -> Result<(), Code> {
        if raw.0 <= RawStream::PER_THREAD.0 {
            return Err(Code::INVALID_HANDLE);
        }
        let stream = self.stream(ordinal, raw)?;
        self.process.streams.streams.remove(&raw.0);
        self.process.streams.recycled.push(raw.0);
        self.forget_capture_of(raw.0);
        self.lanes.retire(stream.lane);
        Ok(())
    }

    /// The stream of a handle, on this device and for the calling thread.
    pub(super) fn stream(&mut self, ordinal: u32, raw: RawStream) -> Result<SimStream, Code> {
        let handle = self.handle_of(ordinal, raw);
        match self.process.streams.streams.get(&handle) {
            Some(stream) if stream.ordinal == ordinal => Ok(*stream),
            Some(stream) => {
                let words = format!(
                    "stream {} belongs to gpu {} and was used on gpu {ordinal}",
                    stream.id, stream.ordinal
                );
                Err(self.refuse(HazardKind::StaleHandle, words, Code::INVALID_HANDLE))
            }
            None => {
                let words = format!("{raw:?} is no stream, or was destroyed before it was used");
                Err(self.refuse(HazardKind::StaleHandle, words, Code::INVALID_HANDLE))
            }
        }
    }

    /// The queue of a stream, if it is one.
    pub(super) fn lane_of(&mut self, ordinal: u32, raw: RawStream) -> Option<LaneId> {
        let handle = self.handle_of(ordinal, raw);
        self.process.streams.by_handle(handle).map(|stream| stream.lane)
    }

    fn handle_of(&mut self, ordinal: u32, raw: RawStream) -> u64 {
        match raw {
            RawStream(0) | RawStream::LEGACY => FIRST_LEGACY + u64::from(ordinal),
            RawStream::PER_THREAD => self.per_thread(ordinal),
            RawStream(handle) if handle < FIRST_PER_THREAD => handle,
            RawStream(_) => 0,
        }
    }

    /// As [`stream`](Self::stream), also for a stream of another device, unless it is a default stream.
    pub(super) fn stream_of_any_device(&mut self, ordinal: u32, raw: RawStream) -> Result<SimStream, Code> {
        let known = if raw.is_default() { None } else { self.process.streams.by_handle(raw.0) };
        self.stream(known.map_or(ordinal, |stream| stream.ordinal), raw)
    }

    /// The device of a stream that is none of the default streams.
    pub(super) fn ordinal_of_stream(&mut self, raw: RawStream) -> Result<u32, Code> {
        if raw.is_default() {
            return Err(Code::INVALID_HANDLE);
        }
        match self.process.streams.by_handle(raw.0).filter(|stream| stream.handle < FIRST_PER_THREAD) {
            Some(stream) => Ok(stream.ordinal),
            None => {
                let words = format!("{raw:?} is no stream, or was destroyed before it was used");
                Err(self.refuse(HazardKind::StaleHandle, words, Code::INVALID_HANDLE))
            }
        }
    }

    fn per_thread(&mut self, ordinal: u32) -> u64 {
        let key = (thread::current().id(), ordinal);
        if let Some(&handle) = self.process.streams.per_thread.get(&key) {
            return handle;
        }
        let id = self.next_stream_id();
        let handle = FIRST_PER_THREAD + id;
        let lane = self.lanes.add(
            self.process.id,
            ordinal,
            LaneKind::Blocking,
            StreamLabel::PerThread { ordinal, id },
        );
        self.process.streams.streams.insert(handle, SimStream { handle, ordinal, lane, id });
        self.process.streams.per_thread.insert(key, handle);
        handle
    }
}
