//! A log, replayed: where its blocks would lie in a resource of one's choice.

use std::collections::HashMap;
use std::path::Path;

use alluvion::recipe::Recipe;
use alluvion::source::Cuda;
use alluvion::suballoc::SuballocBook;
use alluvion::trace::EventKind;
use alluvion::{Error, Resource, ResourceExt};

use super::picture::{Laid, NOWHERE, Origin, Picture, Reserved, Sample, Segment};
use super::recording::Recording;
use crate::failure::Failure;
use crate::playback::{Playback, Sightings, Watched, What};
use crate::workload::Block;

/// How often a suballocator is asked how it is. Each answer takes some 10 µs, and 8 bytes of the page; this is four times as
/// often as screens have pixels side by side.
const SAMPLES: usize = 16_384;

/// Replays a log through a stack on a simulated GPU, and draws it.
pub(super) fn draw(path: &Path, mut log: Recording, recipe: &Recipe) -> Result<Picture, Failure> {
    let sim = Playback::machine_for(log.peak_live_bytes);
    let device = sim.machine().device(0)?;
    let sightings = Sightings::default();
    let resource = recipe.over_device(Watched::new(Cuda::new(&device), &sightings))?;
    let mut segments = Taken::default();
    segments.see(0, &sightings);
    let streams = (0..log.rest.streams).map(|_| device.stream()).collect::<Result<Vec<_>, Error>>()?;
    // Those of the log are not shown.
    let mut addresses = core::mem::take(&mut log.addresses);
    addresses.fill(NOWHERE);
    let mut live: HashMap<u32, Block<'_, _>> = HashMap::new();
    let (mut samples, mut failed) = (Vec::new(), None);
    let mut failures = 0_usize;
    let stride = (log.len() / SAMPLES).max(1);
    for (step, event) in log.steps().enumerate() {
        let stream = streams[log.streams.at(step) as usize].as_ref();
        let block = event.block as usize;
        match event.kind {
            EventKind::Allocate => match Block::take(&resource, log.bytes.at(block) as usize, stream) {
                Ok(taken) => {
                    addresses[block] = taken.address();
                    live.insert(event.block, taken);
                }
                Err(error) => {
                    failures += 1;
                    failed.get_or_insert((step, error));
                }
            },
            EventKind::Free => {
                if let Some(block) = live.remove(&event.block) {
                    block.give_back(stream);
                }
            }
        }
        segments.see(step as u32, &sightings);
        if (step.is_multiple_of(stride) || step + 1 == log.len())
            && let Some(stock) = resource.find::<SuballocBook>()
        {
            samples.push(Sample { step: step as u32, cached_bytes: stock.status().cached_bytes as u64 });
        }
    }
    let origin = Origin::Replayed { resource: described(&resource) };
    let segments = segments.all;
    for block in live.into_values() {
        // There is a block, so there is a stream.
        block.give_back(streams[0].as_ref());
    }
    let mut notes = super::notes_about(&log.rest);
    if let Some((step, error)) = failed {
        notes.push(format!(
            "{} failed in the replay; the first at event {}: {error}.",
            super::plural(failures, "allocation"),
            step + 1
        ));
    }
    let laid = Laid { addresses, reserved: reserved_by(&segments), segments, samples };
    Ok(Picture::new(super::name_of(path), origin, notes, log, laid))
}

/// The stack as it is described, without who watches its source.
fn described(resource: &impl Resource) -> String {
    resource.describe().to_string().replace("Watched > ", "")
}

/// What was taken from the source so far.
#[derive(Debug, Default)]
struct Taken {
    all: Vec<Segment>,
    /// Where in `all` those are that have not been given back, by their addresses.
    out: HashMap<u64, usize>,
}

impl Taken {
    /// What has been seen since the last time was the work of this step.
    fn see(&mut self, step: u32, sightings: &Sightings) {
        for seen in sightings.take() {
            match seen {
                What::SegmentTaken { address, bytes } => {
                    self.out.insert(address, self.all.len());
                    self.all.push(Segment { address, bytes, born: step, died: u32::MAX });
                }
                What::SegmentGiven { address, .. } => {
                    if let Some(at) = self.out.remove(&address) {
                        self.all[at].died = step;
                    }
                }
                What::Allocated { .. } | What::Freed { .. } | What::Failed { .. } => {}
            }
        }
    }
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
        let reserved =
            reserved_by(&[segment(100, 0, 7), segment(50, 3, u32::MAX), segment(200, 7, u32::MAX)]);
        let step = |step, bytes| Reserved { step, bytes };
        assert_eq!(reserved, [step(0, 100), step(3, 150), step(7, 250)]);
    }
}
