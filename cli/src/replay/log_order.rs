//! `log_order`: what a program allocated and freed, on one thread.

use std::time::Instant;

use alluvion::trace::{Event, EventKind};
use alluvion::{Error, Resource};

use super::Lanes;
use crate::timing::ns_since;
use crate::workload::Block;

/// All events in the order of the log. Returns nanoseconds; what is still live in the end is given back after the clock
/// stopped. `refused` is told of each allocation that fails, and says whether to go on: if not, what is live stays in `live`.
pub(crate) fn log_order<'r, R: Resource, E>(
    events: &[Event],
    lanes: &Lanes<'r, R>,
    live: &mut [Option<Block<'r, R>>],
    mut refused: impl FnMut(usize, Error) -> Result<(), E>,
) -> Result<f64, E> {
    let start = Instant::now();
    for (at, event) in events.iter().enumerate() {
        let lane = lanes.lane(event.stream);
        let stream = lane.stream.as_ref();
        let block = &mut live[event.block as usize];
        match event.kind {
            EventKind::Allocate => match Block::take(lane.resource, event.bytes as usize, stream) {
                Ok(taken) => *block = Some(taken),
                Err(error) => refused(at, error)?,
            },
            EventKind::Free => {
                if let Some(block) = block.take() {
                    block.give_back(stream);
                }
            }
        }
    }
    let ns = ns_since(start);
    lanes.give_back(live.iter_mut().filter_map(Option::take));
    Ok(ns)
}
