//! What holds for the parsers whatever they are given. The fuzzers of `fuzz/` call these, too.

use alluvion::recipe::Recipe;
use alluvion::trace::{EventKind, Trace};
use alluvion::{Error, ErrorKind};

/// A line is a recipe that prints as itself, or an error with a place in the line. Returns whether it is a recipe.
pub(crate) fn recipe(line: &str) -> bool {
    match line.parse::<Recipe>() {
        Ok(recipe) => {
            let plain = recipe.to_string();
            let again: Recipe =
                plain.parse().unwrap_or_else(|error| panic!("{plain:?} of {line:?}: {error}"));
            assert_eq!(again, recipe, "{line:?}");
            assert_eq!(again.to_string(), plain, "{line:?}");
            assert!(recipe.ingredients().count() <= 32);
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Malformed, "{line:?}: {error}");
            let (row, column) =
                (error.line().expect("it has a line"), error.column().expect("it has a column"));
            let shown = line.split('\n').nth(row - 1).expect("it is a line of the text");
            assert!((1..=shown.chars().count() + 1).contains(&column), "{line:?}: {error}");
            is_short(&error);
            // The carets stand under the line, and nothing moves them.
            let said = error.to_string();
            let lines: Vec<&str> = said.split('\n').collect();
            assert_eq!(lines.len(), 3, "{said:?}");
            assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{said:?}");
            assert!(lines[2].trim_start().chars().all(|c| c == '^'), "{said:?}");
            false
        }
    }
}

/// Bytes are a trace whose numbers hold, or an error with a line. Returns whether they are a trace.
pub(crate) fn trace(log: &[u8]) -> bool {
    match Trace::from_rmm_csv(log) {
        Ok(trace) => {
            assert_eq!(trace.events.len(), trace.moments.len());
            assert_eq!(trace.stream_handles.len(), trace.streams as usize);
            assert_eq!(trace.thread_numbers.len(), trace.threads as usize);
            assert_eq!(trace.refusals.len(), trace.failures);
            let mut sizes = vec![None; trace.blocks as usize];
            for (event, moment) in trace.events.iter().zip(&trace.moments) {
                assert!(event.stream < trace.streams && event.thread < trace.threads);
                assert!((moment.tag as usize) < trace.tags.len());
                assert!(event.bytes > 0);
                let size = &mut sizes[event.block as usize];
                match event.kind {
                    EventKind::Allocate => {
                        assert!(size.replace(event.bytes).is_none(), "no number comes twice");
                    }
                    EventKind::Free => assert_eq!(size.take(), Some(event.bytes), "what is freed is live"),
                }
            }
            let _ = trace.peak_live_bytes();
            true
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Malformed), "{error}");
            let lines = log.split(|byte| *byte == b'\n').count();
            assert!(error.line().is_some_and(|line| (1..=lines + 1).contains(&line)), "{error}");
            is_short(&error);
            false
        }
    }
}

/// No input is thrown back whole.
fn is_short(error: &Error) {
    assert!(error.to_string().chars().count() < 800, "{error}");
}
