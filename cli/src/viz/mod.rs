//! `alluvion viz`: a page that shows what memory did.

mod address_space;
mod columns;
#[cfg(feature = "program")]
mod command;
mod holes;
mod page;
mod picture;
mod recorded;
mod replayed;
mod snapshot;

use std::fs;
use std::path::{Path, PathBuf};

use alluvion::recipe::Recipe;
use alluvion::trace::Trace;

use crate::failure::Failure;
use crate::input::{Input, refuse_overwriting};
#[cfg(feature = "program")]
pub(crate) use command::Viz;
use picture::Picture;

/// A page to draw: of which file, where to, and how.
#[derive(Debug)]
pub(crate) struct Drawing {
    /// A log or a snapshot.
    pub(crate) file: PathBuf,
    pub(crate) output: PathBuf,
    /// With the log's own addresses, and only what it says.
    pub(crate) recorded: bool,
    /// The stack to replay through, outermost layer first.
    pub(crate) resource: Option<String>,
}

impl Drawing {
    /// As it comes: no option is given.
    pub(crate) fn of(file: &Path, output: &Path) -> Self {
        Self { file: file.into(), output: output.into(), recorded: false, resource: None }
    }

    /// Writes the page, and says what it is.
    pub(crate) fn draw(self) -> Result<String, Failure> {
        refuse_overwriting(&self.file, &self.output, "page")?;
        let recipe = self.recipe()?;
        let failed = |error: &dyn core::fmt::Display| Failure::of_file(&self.output, error);
        let (page, what) = match Input::read(&self.file)? {
            Input::Trace(trace) => {
                let picture = self.picture_of(trace, recipe)?;
                (page::of_picture(&picture), plural(picture.trace.events.len(), "event"))
            }
            Input::Snapshot(snapshot) if recipe.is_none() && !self.recorded => {
                let still = snapshot::draw(&self.file, snapshot);
                (page::of_snapshot(&still), plural(still.bytes.len(), "block"))
            }
            Input::Snapshot(_) => {
                return Err(Failure::usage("a snapshot is one moment: nothing can be replayed"));
            }
        };
        let page = page.map_err(|error| failed(&error))?;
        fs::write(&self.output, &page).map_err(|error| failed(&error))?;
        let (output, kib) = (self.output.display(), page.len().div_ceil(1 << 10));
        Ok(format!("{output}: {what}, {kib} KiB"))
    }

    /// The stack to replay through, if one is asked for.
    fn recipe(&self) -> Result<Option<Recipe>, Failure> {
        let Some(line) = &self.resource else { return Ok(None) };
        let recipe: Recipe = line.parse().map_err(|error| Failure::usage(format!("--resource: {error}")))?;
        match recipe.source() {
            None => Ok(Some(recipe)),
            Some(source) => Err(Failure::usage(format!(
                "--resource: leave the source out (`{source}`): the page shows what the layers take from the memory of a \
                 simulated GPU"
            ))),
        }
    }

    fn picture_of(&self, trace: Trace, recipe: Option<Recipe>) -> Result<Picture, Failure> {
        if u32::try_from(trace.events.len()).is_err() {
            return Err(Failure::of_file(&self.file, "it has more than 4294967295 events"));
        }
        let says_reserved = trace.moments.iter().any(|moment| moment.reserved_bytes.is_some());
        match recipe {
            Some(recipe) => replayed::draw(&self.file, trace, &recipe),
            None if self.recorded || says_reserved || trace.events.is_empty() => {
                Ok(recorded::draw(&self.file, trace))
            }
            None => replayed::draw(&self.file, trace, &"pool".parse()?),
        }
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// `1 block`, `2 blocks`.
fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// What a log leaves out.
fn notes_about(trace: &Trace) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(cut) = &trace.cut {
        notes.push(format!("The log is not whole: {cut}."));
    }
    if trace.failures > 0 {
        notes.push(format!(
            "{} failed when the log was written: a cross shows how far each would have raised the curve.",
            plural(trace.failures, "allocation")
        ));
    }
    if trace.strays > 0 {
        let (of, they) = match trace.strays {
            1 => ("is of a block that was", "it is"),
            _ => ("are of blocks that were", "they are"),
        };
        notes.push(format!(
            "{} {of} allocated before the log began; {they} not shown.",
            plural(trace.strays, "free")
        ));
    }
    notes
}
