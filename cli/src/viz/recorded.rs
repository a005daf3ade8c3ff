//! What a log says itself.

use std::path::Path;

use super::picture::{Laid, Origin, Picture};
use super::recording::Recording;

/// Draws a log as it stands: its own addresses, and what was reserved if it says that.
pub(super) fn draw(path: &Path, mut log: Recording) -> Picture {
    let mut notes = super::notes_about(&log.rest);
    notes.push(
        "The log does not say where segments began and ended: the address map takes as held what any block of the \
         log ever touched."
            .to_owned(),
    );
    let (addresses, reserved) = (core::mem::take(&mut log.addresses), core::mem::take(&mut log.reserved));
    let origin = Origin::Recorded { knows_reserved: !reserved.is_empty() };
    let laid = Laid { addresses, segments: Vec::new(), reserved, samples: Vec::new() };
    let mut picture = Picture::new(super::name_of(path), origin, notes, log, laid);
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
