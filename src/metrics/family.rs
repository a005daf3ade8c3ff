//! `Family`: the samples of one figure.

use core::fmt;
use std::collections::BTreeMap;

/// Whether a figure goes up and down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It goes up and down.
    Gauge,
    /// It only goes up, until the program ends. By custom its name ends in `_total`.
    Counter,
}

/// A number.
///
/// ```
/// use alluvion::metrics::Value;
///
/// assert_eq!(Value::from(1_u64 << 60).to_string(), "1152921504606846976");
/// assert_eq!(Value::from(0.25).to_string(), "0.25");
/// assert_eq!(Value::from(f64::INFINITY).to_string(), "+Inf");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A whole number, written in full.
    Integer(u64),
    /// Any other.
    Float(f64),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Integer(number)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Integer(number as u64)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        u64::try_from(number).map_or(Self::Float(number as f64), Self::Integer)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Integer(number) => write!(f, "{number}"),
            Self::Float(number) if number == f64::INFINITY => f.write_str("+Inf"),
            Self::Float(number) if number == f64::NEG_INFINITY => f.write_str("-Inf"),
            Self::Float(number) => write!(f, "{number}"),
        }
    }
}

/// The samples of one figure.
#[derive(Clone, Debug)]
pub(super) struct Family {
    name: String,
    kind: Kind,
    help: String,
    /// By their labels, as they are written.
    samples: BTreeMap<String, Value>,
}

impl Family {
    pub(super) fn new(name: &str, kind: Kind, help: &str) -> Self {
        Self { name: clean(name, true), kind, help: help.to_owned(), samples: BTreeMap::new() }
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name == clean(name, true)
    }

    /// Two samples with the same labels are one: the later.
    pub(super) fn set(&mut self, labels: &[(&str, &str)], value: Value) {
        self.samples.insert(written(labels), value);
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, help, samples } = self;
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
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
        // A name twice is an error to whoever reads it.
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

/// What a name may be made of. A label's has no colon.
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
            _ => to.write_char(character)?,
        }
    }
    Ok(())
}
