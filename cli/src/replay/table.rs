//! `Entry`: an outcome, as it is printed.

use core::fmt::Write;

use alluvion::recipe::Recipe;
use serde_json::{Value, json};

use super::outcome::Share;
use super::{Log, Outcome, Threads, recipe_name};
use crate::failure::Failure;

/// An outcome, with what it is about.
pub(crate) struct Entry<'r> {
    pub(crate) log: &'r Log,
    pub(crate) recipe: &'r Recipe,
    pub(crate) outcome: Outcome,
    pub(crate) driver: &'static str,
    pub(crate) threads: Threads,
}

impl Entry<'_> {
    /// One line, for machines to read.
    pub(crate) fn json(&self) -> Result<String, Failure> {
        let (outcome, trace) = (&self.outcome, &self.log.trace);
        let mut entry = json!({
            "trace": self.log.name,
            "resource": self.recipe.to_string(),
            "driver": self.driver,
            "threads": self.threads.name(),
            "events": trace.events.len(),
            "streams": trace.streams,
            "log_threads": trace.threads,
            "ns_per_event": outcome.ns_per_event,
            "first_ns_per_event": outcome.first_ns_per_event,
            "peak_live": outcome.total.peak_live_bytes,
            "peak_reserved": outcome.total.peak_reserved_bytes,
            "ratio": outcome.total.ratio(),
            "failures": outcome.total.failures,
            "upstream_calls": outcome.total.upstream_calls,
            "devices": outcome.devices.iter().map(of_device).collect::<Vec<_>>(),
        });
        if let Some(charged) = outcome.charged_ns {
            entry["charged_ns"] = Value::from(charged);
        }
        if let Some((event, error)) = &outcome.first_failure {
            entry["first_failure"] = json!({ "event": event, "error": error.to_string() });
        }
        let line = serde_json::to_string(&entry);
        line.map(|line| line + "\n").map_err(|error| Failure::while_doing("writing the figures", error))
    }

    /// The row of all devices, and one of each if there are several.
    fn rows(&self) -> Vec<[String; COLUMNS]> {
        let outcome = &self.outcome;
        let events = self.log.trace.events.len() as f64;
        let charged =
            outcome.charged_ns.map_or_else(|| "-".into(), |ns| format!("{:.1}", ns as f64 / events));
        let mut rows = vec![row(
            recipe_name(self.recipe),
            format!("{:.1}", outcome.ns_per_event),
            charged,
            &outcome.total,
        )];
        if outcome.devices.len() > 1 {
            rows.extend(outcome.devices.iter().map(|(ordinal, share)| {
                // One clock runs for all of them.
                row(format!("  gpu {ordinal}"), "-".into(), "-".into(), share)
            }));
        }
        rows
    }
}

fn row(name: String, ns: String, charged: String, share: &Share) -> [String; COLUMNS] {
    [
        name,
        ns,
        charged,
        mib(share.peak_reserved_bytes),
        format!("{:.3}", share.ratio()),
        share.failures.to_string(),
        share.upstream_calls.to_string(),
    ]
}

fn of_device((ordinal, share): &(u32, Share)) -> Value {
    json!({
        "device": ordinal,
        "events": share.events,
        "peak_live": share.peak_live_bytes,
        "peak_reserved": share.peak_reserved_bytes,
        "ratio": share.ratio(),
        "failures": share.failures,
        "upstream_calls": share.upstream_calls,
    })
}

pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

const COLUMNS: usize = 7;

const HEADING: [&str; COLUMNS] =
    ["resource", "ns/event", "charged/event", "peak reserved", "ratio", "failures", "upstream calls"];

/// The outcomes of one trace, side by side.
pub(crate) fn print_table(entries: &[Entry<'_>]) -> String {
    let mut text = String::new();
    let Some(first) = entries.first() else { return text };
    let trace = &first.log.trace;
    let live = entries.iter().map(|entry| entry.outcome.total.peak_live_bytes).max().unwrap_or_default();
    // Writing to a text cannot fail.
    let _ = writeln!(
        text,
        "{}: {}, {}{}, {}, {} live at the peak; {} on {}",
        first.log.name,
        count(trace.events.len(), "event"),
        if trace.devices > 1 {
            format!("{}, ", count(trace.devices as usize, "device"))
        } else {
            String::new()
        },
        count(trace.streams as usize, "stream"),
        count(trace.threads as usize, "thread"),
        mib(live),
        first.threads.name(),
        first.driver,
    );
    let rows: Vec<_> =
        core::iter::once(HEADING.map(str::to_owned)).chain(entries.iter().flat_map(Entry::rows)).collect();
    align(&rows, &mut text);
    text.push('\n');
    text
}

fn count(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The first column to the left, the others to the right.
pub(crate) fn align<const N: usize>(rows: &[[String; N]], text: &mut String) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = core::array::from_fn(width);
    for row in rows {
        let _ = write!(text, "  {:<width$}", row[0], width = widths[0]);
        for (field, width) in row.iter().zip(widths).skip(1) {
            let _ = write!(text, "  {field:>width$}");
        }
        text.push('\n');
    }
}
