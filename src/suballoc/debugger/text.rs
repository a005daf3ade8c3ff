//! `Text`: a line of text in a place of fixed length.

use core::fmt::{self, Display, Write};

use crate::contain::contain;

/// The longest: seven layers or so. The rest is cut off.
const LONGEST: usize = 140;

/// A line of text that a debugger reads where it lies.
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::suballoc) struct Text {
    length: u32,
    bytes: [u8; LONGEST],
}

impl Text {
    pub(in crate::suballoc) const EMPTY: Self = Self { length: 0, bytes: [0; LONGEST] };

    /// What such code writes, which may be a user's: if it panics, the text ends there.
    pub(in crate::suballoc) fn of(written: impl Display) -> Self {
        let mut text = Self::EMPTY;
        let _ = contain(|| write!(text, "{written}"));
        text
    }

    /// A text of the crate's own, which may be written under a lock.
    pub(in crate::suballoc) fn plain(written: &str) -> Self {
        let mut text = Self::EMPTY;
        // An error says that it was cut off.
        let _ = text.write_str(written);
        text
    }
}

impl Write for Text {
    fn write_str(&mut self, written: &str) -> fmt::Result {
        let length = self.length as usize;
        let fits = written.floor_char_boundary(LONGEST - length);
        self.bytes[length..length + fits].copy_from_slice(&written.as_bytes()[..fits]);
        self.length += fits as u32;
        if fits == written.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn read(text: &Text) -> &str {
        str::from_utf8(&text.bytes[..text.length as usize]).expect("it ends with a letter")
    }

    #[test]
    fn a_text_is_cut_off_at_the_end_of_a_letter() {
        assert_eq!(read(&Text::of("Pool > Cuda(gpu 0)")), "Pool > Cuda(gpu 0)");
        for indent in 0..4 {
            let long = "x".repeat(indent) + &"€".repeat(LONGEST);
            for cut in [Text::of(&long), Text::plain(&long)] {
                let cut = read(&cut);
                assert!(long.starts_with(cut) && (LONGEST - 2..=LONGEST).contains(&cut.len()), "{cut}");
            }
        }
    }

    #[test]
    fn a_text_of_code_that_panics_ends_there() {
        struct Rude;
        impl Display for Rude {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("Pool > ")?;
                std::panic::resume_unwind(Box::new("on purpose"))
            }
        }
        assert_eq!(read(&Text::of(Rude)), "Pool > ");
    }
}
