//! Names as tools take them.

use std::ffi::CString;

/// The longest name that `compute-sanitizer` takes: names are printable letters of one byte, 1 to 49 of them.
const LONGEST_NAME: usize = 49;

/// A text as tools take it: the last letters of it, because those name what is innermost. `None` if nothing is left.
pub(super) fn printable(text: &str) -> Option<CString> {
    let letters: Vec<u8> =
        text.chars().map(|letter| if matches!(letter, ' '..='~') { letter as u8 } else { b'_' }).collect();
    let last = letters.len().saturating_sub(LONGEST_NAME);
    CString::new(&letters[last..]).ok().filter(|name| !name.is_empty())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_printable() {
        assert_eq!(printable("a\nb\u{1f600}"), Some(c"a_b_".to_owned()));
        assert_eq!(printable(""), None);
        let long = printable(&format!("{}end", "x".repeat(100))).expect("there is something");
        assert!(long.as_bytes().len() == 49 && long.as_bytes().ends_with(b"end"));
    }
}
