//! `alluvion viz`: a page that shows what memory did.

mod address_space;
mod columns;
#[cfg(feature = "program")]
mod command;
mod frame;
mod holes;
mod narrow;
mod page;
mod parts;
mod picture;
mod recorded;
mod recording;
mod replayed;
mod snapshot;
mod summary;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use alluvion::recipe::Recipe;
use alluvion::trace::Trace;

use crate::failure::Failure;
use crate::input::{self, Opened, refuse_overwriting};
#[cfg(feature = "program")]
pub(crate) use command::Viz;
use frame::Page;
use parts::{Left, Parts};
use picture::Picture;
use recording::Recording;
use summary::{Span, Summary};

/// A page to draw: of which file, where to, and how.
#[derive(Debug)]
pub(crate) struct Drawing {
    /// A log or a snapshot.
    pub(crate) file: PathBuf,
    pub(crate) output: PathBuf,
    /// With the log's own addresses, and only what it says.
    pub(crate) recorded: bool,
    /// The device whose part of a log is drawn, if it is of several and not all are.
    pub(crate) gpu: Option<u32>,
    /// The stack to replay through, outermost layer first.
    pub(crate) resource: Option<String>,
}

impl Drawing {
    /// As it comes: no option is given.
    pub(crate) fn of(file: &Path, output: &Path) -> Self {
        Self { file: file.into(), output: output.into(), recorded: false, gpu: None, resource: None }
    }

    /// Writes the page, and says what it is.
    pub(crate) fn draw(self) -> Result<String, Failure> {
        refuse_overwriting(&self.file, &self.output, "page")?;
        let recipe = self.recipe()?;
        let failed = |error: &dyn core::fmt::Display| Failure::of_file(&self.output, error);
        let (page, what) = match Opened::new(&self.file)? {
            Opened::Log(text) => {
                let (logs, left) = Parts::read(text).map_err(|why| Failure::of_file(&self.file, why))?;
                input::tell_of_cut(&self.file, &logs[0].rest);
                self.page_of(logs, left, recipe.as_ref())?
            }
            Opened::Snapshot(_) if self.gpu.is_some() => {
                return Err(Failure::usage("a snapshot is of one device: leave out --gpu"));
            }
            Opened::Snapshot(snapshot) if recipe.is_none() && !self.recorded => {
                let still = snapshot::draw(&self.file, *snapshot);
                let page = page::of_snapshot(&still).map_err(|error| failed(&error))?;
                (page, plural(still.bytes.len(), "block"))
            }
            Opened::Snapshot(_) => {
                return Err(Failure::usage("a snapshot is one moment: nothing can be replayed"));
            }
        };
        let written = File::create(&self.output).and_then(|file| {
            let mut file = BufWriter::new(file);
            let bytes = page.write(&mut file)?;
            file.flush()?;
            Ok(bytes)
        });
        let (output, kib) =
            (self.output.display(), written.map_err(|error| failed(&error))?.div_ceil(1 << 10));
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

    /// The page of the devices of a log, and what it is of. One after the other is drawn and packed, and what it took given back.
    fn page_of(
        &self,
        mut logs: Vec<Recording>,
        left: Left,
        recipe: Option<&Recipe>,
    ) -> Result<(Page, String), Failure> {
        let failed = |error: &dyn core::fmt::Display| Failure::of_file(&self.output, error);
        let ordinals = || logs.iter().flat_map(|log| log.rest.device_ordinals.iter().copied());
        if let Some(gpu) = self.gpu {
            let Some(at) = logs.iter().position(|log| log.rest.device_ordinals.contains(&gpu)) else {
                return Err(Failure::of_file(&self.file, input::lacks(gpu, ordinals())));
            };
            logs = vec![logs.swap_remove(at)];
        }
        if logs.len() == 1 {
            let picture = self.picture_of(logs.remove(0), recipe)?;
            let page = page::of_picture(&picture).map_err(|error| failed(&error))?;
            return Ok((page, plural(picture.log.len(), "event")));
        }
        let spans: Vec<_> = logs.iter().filter_map(Recording::span).collect();
        let span = Span {
            from: spans.iter().map(|(from, _)| *from).min().unwrap_or(0),
            to: spans.iter().map(|(_, to)| *to).max().unwrap_or(0),
        };
        let (events, devices) = (logs.iter().map(Recording::len).sum(), logs.len());
        let mut page = page::of_devices(name_of(&self.file));
        for log in logs {
            let ordinal = log.rest.device_ordinals[0];
            let mut picture = self.picture_of(log, recipe)?;
            picture.notes.extend(left.note());
            let summary = Summary::of(&picture, ordinal, span);
            page.add_device(&picture, summary, span).map_err(|error| failed(&error))?;
        }
        Ok((page, format!("{} of {devices} devices", plural(events, "event"))))
    }

    fn picture_of(&self, log: Recording, recipe: Option<&Recipe>) -> Result<Picture, Failure> {
        let says_reserved = !log.reserved.is_empty();
        match recipe {
            Some(recipe) => replayed::draw(&self.file, log, recipe),
            None if self.recorded || says_reserved || log.len() == 0 => Ok(recorded::draw(&self.file, log)),
            None => replayed::draw(&self.file, log, &"pool".parse()?),
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
