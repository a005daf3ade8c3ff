//! `Value`: an argument, read.

use core::fmt;

use super::Recipe;
use super::amount::Amount;
use super::devices::Devices;
use crate::resource::card::ArgumentKind;

/// An argument, read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Size(Amount),
    Count(u64),
    Times(f64),
    Flag(bool),
    Word(&'static str),
    Devices(Devices),
    Text(Box<str>),
    Recipe(Recipe),
}

impl ArgumentKind {
    /// Reads an argument that is no recipe; otherwise says what is wrong with it.
    pub(super) fn read(self, text: &str) -> Result<Value, String> {
        let count = || text.parse().map(Value::Count);
        let size = || Amount::parse(text).map(Value::Size);
        let word = |words: &[&'static str]| {
            words.iter().find(|word| word.eq_ignore_ascii_case(text)).map(|word| Value::Word(word))
        };
        match self {
            Self::Size => size().map_err(str::to_owned),
            Self::Count => count().map_err(|_| self.wanted()),
            Self::Flag => match text.to_ascii_lowercase().as_str() {
                "true" | "on" | "yes" => Ok(Value::Flag(true)),
                "false" | "off" | "no" => Ok(Value::Flag(false)),
                _ => Err(self.wanted()),
            },
            Self::Word(words) => word(words).ok_or_else(|| self.wanted()),
            Self::WordOrSize(words) => match word(words) {
                Some(value) => Ok(value),
                None if text.starts_with(|c: char| c.is_ascii_digit()) => size().map_err(str::to_owned),
                None => Err(self.wanted()),
            },
            Self::WordOrCount(words) => word(words).map_or_else(|| count().map_err(|_| self.wanted()), Ok),
            Self::TimesOrSize => match text.parse::<f64>() {
                Ok(times) if (1.0..=100.0).contains(&times) => Ok(Value::Times(times)),
                Ok(times) if times < 1.0 => Err(self.wanted()),
                // It would print as a number, which is none of the two.
                _ => match size().map_err(str::to_owned)? {
                    Value::Size(Amount::Bytes(0..=100)) => Err(self.wanted()),
                    size => Ok(size),
                },
            },
            Self::Devices => Devices::parse(text).map(Value::Devices).ok_or_else(|| self.wanted()),
            Self::Text => Ok(Value::Text(text.into())),
            Self::Recipe => Err(self.wanted()),
        }
    }

    fn wanted(self) -> String {
        format!("it is not {}", self.name())
    }
}

/// The characters that a text may have without quotes.
pub(super) fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '~' | '+' | '@' | '%')
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(amount) => amount.fmt(f),
            Self::Count(count) => count.fmt(f),
            Self::Times(times) => times.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::Word(word) => f.write_str(word),
            Self::Devices(devices) => devices.fmt(f),
            Self::Text(text) if !text.is_empty() && text.chars().all(is_plain) => f.write_str(text),
            Self::Text(text) => {
                f.write_str("\"")?;
                for c in text.chars() {
                    if matches!(c, '"' | '\\') {
                        f.write_str("\\")?;
                    }
                    write!(f, "{c}")?;
                }
                f.write_str("\"")
            }
            Self::Recipe(recipe) => recipe.fmt(f),
        }
    }
}
