//! `Pointed`: an error at a position in a text.

use core::fmt;
use core::ops::Range;

use super::Error;

/// An error at a position in a text.
#[derive(Clone, Debug)]
pub(super) struct Pointed {
    /// The environment variable that holds the text, unless the caller passed it.
    found_in: Option<&'static str>,
    why: String,
    /// The line with the position, shortened if it is long, and the position in it, in characters.
    line: String,
    place: Range<usize>,
    /// The error that occurred there, unless the text itself is wrong.
    pub(super) of: Option<Error>,
}

/// The most characters of a line that are shown before and after the position.
const MOST_BEFORE: usize = 60;
const MOST_BEHIND: usize = 40;

/// The most carets under a position.
const MOST_CARETS: usize = 40;

impl Pointed {
    /// The same, for a text that the variable holds.
    pub(super) fn found_in(&self, variable: &'static str) -> Self {
        Self { found_in: Some(variable), ..self.clone() }
    }

    /// `place` is in bytes, at boundaries of characters. Also returns line and column, in characters, counted from 1.
    pub(super) fn new(
        text: &str,
        place: Range<usize>,
        why: String,
        of: Option<Error>,
    ) -> (Self, usize, usize) {
        let is_boundary = |at: &usize| text.is_char_boundary(*at);
        let start = (0..=place.start.min(text.len())).rev().find(is_boundary).unwrap_or(0);
        let end = (start..=place.end.clamp(start, text.len())).rev().find(is_boundary).unwrap_or(start);
        let begin = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let number = text[..start].matches('\n').count() + 1;
        let before = text[begin..start].chars().count();
        let rest = text[start..].split('\n').next().unwrap_or_default();
        let width = text[start..end].chars().take_while(|c| *c != '\n').count();

        let skipped = before.saturating_sub(MOST_BEFORE);
        let shown = width.min(MOST_CARETS);
        let mut line = String::from(if skipped > 0 { "…" } else { "" });
        line.extend(text[begin..start].chars().skip(skipped).map(plain));
        let at = line.chars().count();
        line.extend(rest.chars().take(shown + MOST_BEHIND).map(plain));
        if rest.chars().nth(shown + MOST_BEHIND).is_some() {
            line.push('…');
        }
        (Self { found_in: None, why, line, place: at..at + shown.max(1), of }, number, before + 1)
    }
}

/// Replaces characters that move the cursor, which would misplace the carets.
fn plain(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

impl Pointed {
    /// The environment variable that holds the text, if one does.
    pub(super) fn variable(&self) -> Option<&'static str> {
        self.found_in
    }
}

impl fmt::Display for Pointed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n  {}", self.why, self.line)?;
        write!(f, "  {:at$}{:^<width$}", "", "", at = self.place.start, width = self.place.len())
    }
}
