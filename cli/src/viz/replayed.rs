//! A log, replayed: where its blocks would lie in a resource of one's choice.

use std::path::Path;
use std::sync::Arc;

use alluvion::source::Cuda;
use alluvion::suballoc::Stock;
use alluvion::trace::{EventKind, Trace};
use alluvion::{Error, PoolConfig, Resource};

use super::picture::{Laid, Origin, Picture, Reserved, Sample};
use super::segments::{Register, Segment, Segments};
use crate::failure::Failure;
use crate::rig::{Driver, Rig};
use crate::workload::Block;

/// How often a suballocator is asked how it is. Each answer takes 10 µs and 12 bytes of the page; no screen is wider.
const SAMPLES: usize = 4096;

/// Replays a trace through a pool on a simulated GPU, and draws it.
pub(super) fn draw(path: &Path, trace: Trace) -> Result<Picture, Failure> {
    let rig = Rig::open(Driver::Sim)?;
    let register = Arc::new(Register::default());
    let resource =
        Segments::new(Cuda::new(&rig.device), Arc::clone(&register)).pool(PoolConfig::default())?;
    let streams = (0..trace.streams).map(|_| rig.stream()).collect::<Result<Vec<_>, Error>>()?;
    let mut addresses = vec![None; trace.blocks as usize];
    let mut live: Vec<Option<Block<'_, _>>> = Vec::new();
    live.resize_with(addresses.len(), || None);
    let (mut samples, mut failed) = (Vec::new(), None);
    let mut failures = 0_u64;
    let stride = (trace.events.len() / SAMPLES).max(1);
    for (step, event) in trace.events.iter().enumerate() {
        register.begin(step as u32);
        let stream = streams[event.stream as usize].as_ref();
        let block = &mut live[event.block as usize];
        match event.kind {
            EventKind::Allocate => match Block::take(&resource, event.bytes as usize, stream) {
                Ok(taken) => {
                    addresses[event.block as usize] = Some(taken.address().address());
                    *block = Some(taken);
                }
                Err(error) => {
                    failures += 1;
                    failed.get_or_insert((step, error));
                }
            },
            EventKind::Free => {
                if let Some(block) = block.take() {
                    block.give_back(stream);
                }
            }
        }
        if (step.is_multiple_of(stride) || step + 1 == trace.events.len())
            && let Some(stock) = resource.find_layer::<Stock>()
        {
            let status = stock.status();
            samples.push(Sample {
                step: step as u32,
                cached_bytes: status.cached_bytes as u64,
                pending_bytes: status.pending_bytes as u64,
            });
        }
    }
    let origin = Origin::Replayed { resource: resource.describe().to_string() };
    let segments = register.segments();
    for block in live.into_iter().flatten() {
        // There is a block, so there is a stream.
        block.give_back(streams[0].as_ref());
    }
    drop(resource);
    let mut notes = super::notes_about(&trace);
    if let Some((step, error)) = failed {
        notes.push(format!("{failures} allocations failed in the replay; the first at event {step}: {error}."));
    }
    let laid = Laid { addresses, reserved: reserved_by(&segments), segments, samples };
    Ok(Picture::new(super::name_of(path), origin, notes, trace, laid))
}

/// What is reserved after each step that takes a segment or gives one back.
fn reserved_by(segments: &[Segment]) -> Vec<Reserved> {
    let mut changes: Vec<(u32, i128)> = Vec::new();
    for segment in segments {
        changes.push((segment.born, i128::from(segment.bytes)));
        if segment.died != u32::MAX {
            changes.push((segment.died, -i128::from(segment.bytes)));
        }
    }
    changes.sort_by_key(|(step, _)| *step);
    let mut reserved: Vec<Reserved> = Vec::new();
    let mut bytes = 0;
    for (step, change) in changes {
        bytes += change;
        let now = Reserved { step, bytes: u64::try_from(bytes).unwrap_or(0) };
        match reserved.last_mut() {
            Some(last) if last.step == step => *last = now,
            _ => reserved.push(now),
        }
    }
    reserved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_follows_the_segments() {
        let segment = |bytes, born, died| Segment { address: 0, bytes, born, died };
        let reserved = reserved_by(&[segment(100, 0, 7), segment(50, 3, u32::MAX), segment(200, 7, u32::MAX)]);
        let step = |step, bytes| Reserved { step, bytes };
        assert_eq!(reserved, [step(0, 100), step(3, 150), step(7, 250)]);
    }
}
