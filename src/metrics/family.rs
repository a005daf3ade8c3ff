//! `Family`: the samples of one figure.

use core::fmt;
use std::collections::BTreeMap;

use crate::resource::{FigureKind, FigureValue};

/// The samples of one figure.
#[derive(Clone, Debug)]
pub(super) struct Family {
    name: String,
    kind: FigureKind,
    help: String,
    /// By their labels, as they are written.
    samples: BTreeMap<String, FigureValue>,
}

impl Family {
    pub(super) fn new(name: &str, kind: FigureKind, help: &str) -> Self {
        Self { name: clean(name, true), kind, help: help.to_owned(), samples: BTreeMap::new() }
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name == clean(name, true)
    }

    /// Two samples with the same labels are one: the later.
    pub(super) fn set(&mut self, labels: &[(&str, &str)], value: FigureValue) {
        self.samples.insert(written(labels), value);
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, help, samples } = self;
        let kind = match kind {
            FigureKind::Gauge => "gauge",
            FigureKind::Counter => "counter",
        };
        write!(f, "# HELP {name} ")?;
        escape(f, help, false)?;
        writeln!(f, "\n# TYPE {name} {kind}")?;
        for (labels, value) in samples {
            writeln!(f, "{name}{labels} {value}")?;
        }
        Ok(())
    }
}

/// `{layer="Pool",device="0"}`, or nothing.
fn written(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    let mut names: Vec<String> = Vec::new();
    for (name, value) in labels {
        let name = clean(name, false);
        // Readers of the page refuse a name that occurs twice.
        if names.contains(&name) {
            continue;
        }
        text.push(if names.is_empty() { '{' } else { ',' });
        text.push_str(&name);
        text.push_str("=\"");
        // Writing to a string does not fail.
        let _ = escape(&mut text, value, true);
        text.push('"');
        names.push(name);
    }
    if !names.is_empty() {
        text.push('}');
    }
    text
}

/// The characters of a name. That of a label has no colon.
fn clean(name: &str, colon: bool) -> String {
    let is_good = |at: usize, c: char| {
        c.is_ascii_alphabetic() || c == '_' || (c == ':' && colon) || (c.is_ascii_digit() && at > 0)
    };
    let clean: String =
        name.chars().enumerate().map(|(at, c)| if is_good(at, c) { c } else { '_' }).collect();
    if clean.is_empty() { "_".to_owned() } else { clean }
}

fn escape(to: &mut impl fmt::Write, text: &str, quote: bool) -> fmt::Result {
    for character in text.chars() {
        match character {
            '\\' => to.write_str("\\\\")?,
            '\n' => to.write_str("\\n")?,
            '"' if quote => to.write_str("\\\"")?,
            // A page is looked at in terminals, which such a character would steer.
            steers if steers.is_control() => write!(to, "\\\\{}", &steers.escape_unicode().to_string()[1..])?,
            _ => to.write_char(character)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_a_terminal_is_written_as_text() {
        let mut family = Family::new("live", FigureKind::Gauge, "Of a \u{1b}[31mtag.");
        family.set(&[("tag", "red\u{1b}[31m\r\u{9b}é\\")], FigureValue::Integer(7));
        let page = family.to_string();
        assert!(page.contains(r#"live{tag="red\\u{1b}[31m\\u{d}\\u{9b}é\\"} 7"#), "{page}");
        assert!(page.contains(r"# HELP live Of a \\u{1b}[31mtag."), "{page}");
        assert!(page.chars().all(|c| c == '\n' || !c.is_control()), "{page}");
    }
}
