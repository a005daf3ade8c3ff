//! `Lanes`: where the calls of each stream of a log go.

use core::ptr;

use alluvion::trace::Trace;
use alluvion::{Device, Error, Resource, Stream};

use crate::workload::Block;

/// Where the calls of each stream of a log go: the stack of its device, and a stream of that device.
pub(crate) struct Lanes<'r, R> {
    /// By the number of the stream in the log.
    lanes: Vec<Lane<'r, R>>,
    /// The first lane of each stack.
    firsts: Vec<usize>,
}

/// Where the calls of one stream of a log go.
pub(crate) struct Lane<'r, R> {
    pub(crate) resource: &'r R,
    pub(crate) stream: Stream,
}

impl<'r, R: Resource> Lanes<'r, R> {
    /// A stream for each of the log, all over one resource, whatever devices the log is of.
    pub(crate) fn on_one(trace: &Trace, device: &Device, resource: &'r R) -> Result<Self, Error> {
        Self::of(trace, |_| (device, resource))
    }

    /// A stream for each of the log, over the resource of its device. `place` is asked by the index of the device in the log.
    pub(crate) fn of<'p>(trace: &Trace, place: impl Fn(usize) -> (&'p Device, &'r R)) -> Result<Self, Error> {
        // A trace that is made by hand, of one device, need not name it.
        let device_of = |stream: usize| trace.stream_devices.get(stream).copied().unwrap_or_default();
        let lanes = (0..trace.streams as usize).map(|stream| {
            let (device, resource) = place(device_of(stream) as usize);
            Ok(Lane { resource, stream: device.stream()? })
        });
        let lanes = lanes.collect::<Result<Vec<_>, Error>>()?;
        let mut firsts: Vec<usize> = Vec::new();
        for (at, lane) in lanes.iter().enumerate() {
            if !firsts.iter().any(|&first| ptr::eq(lanes[first].resource, lane.resource)) {
                firsts.push(at);
            }
        }
        Ok(Self { lanes, firsts })
    }

    #[inline]
    pub(crate) fn lane(&self, stream: u32) -> &Lane<'r, R> {
        &self.lanes[stream as usize]
    }

    /// Gives back what is still live, each block on a stream of its device.
    pub(crate) fn give_back(&self, blocks: impl IntoIterator<Item = Block<'r, R>>) {
        for block in blocks {
            let mut firsts = self.firsts.iter().map(|&first| &self.lanes[first]);
            if let Some(lane) = firsts.find(|lane| ptr::eq(lane.resource, block.resource())) {
                block.give_back(lane.stream.as_ref());
            }
        }
    }
}
