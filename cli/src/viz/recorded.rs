//! What a log says itself.

use std::path::Path;

use alluvion::trace::{EventKind, Trace};

use super::picture::{Laid, Origin, Picture, Reserved};

/// Draws a log as it stands: its own addresses, and what was reserved if it says that.
pub(super) fn draw(path: &Path, trace: Trace) -> Picture {
    let mut addresses = vec![None; trace.blocks as usize];
    let mut reserved: Vec<Reserved> = Vec::new();
    for (step, (event, moment)) in trace.events.iter().zip(&trace.moments).enumerate() {
        if event.kind == EventKind::Allocate {
            // Null is what a log has for an address that it does not know.
            addresses[event.block as usize] = (moment.address != 0).then_some(moment.address);
        }
        if let Some(bytes) = moment.reserved_bytes
            && reserved.last().is_none_or(|last| last.bytes != bytes)
        {
            reserved.push(Reserved { step: step as u32, bytes });
        }
    }
    let mut notes = super::notes_about(&trace);
    notes.push(
        "The log does not say where segments began and ended: the address map takes as held what any block of the \
         log ever touched."
            .to_owned(),
    );
    let origin = Origin::Recorded { knows_reserved: !reserved.is_empty() };
    let laid = Laid { addresses, segments: Vec::new(), reserved, samples: Vec::new() };
    let mut picture = Picture::new(super::name_of(path), origin, notes, trace, laid);
    let covered = picture.covered.len();
    if covered > 0 {
        let (have, their, them) = match covered {
            1 => ("has", "its address was", "it"),
            _ => ("have", "their addresses were", "them"),
        };
        picture.notes.push(format!(
            "{} {have} no free in the log before {their} handed out again: the map shows {them} until then, the curve to \
             the end.",
            super::plural(covered, "block")
        ));
    }
    picture
}
