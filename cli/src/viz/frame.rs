//! `Page`: one file with everything in it.

use std::io::{self, Write};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::summary::Summary;

const FRAME: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");

/// In the order in which they build on each other. The page has them in one function, so that they see each other and
/// nothing else sees them.
const SCRIPTS: [&str; 17] = [
    include_str!("page/units.js"),
    include_str!("page/data.js"),
    include_str!("page/pyramid.js"),
    include_str!("page/failures.js"),
    include_str!("page/model.js"),
    include_str!("page/axis.js"),
    include_str!("page/palette.js"),
    include_str!("page/chart.js"),
    include_str!("page/lanes.js"),
    include_str!("page/map.js"),
    include_str!("page/holders.js"),
    include_str!("page/histogram.js"),
    include_str!("page/search.js"),
    include_str!("page/app.js"),
    include_str!("page/devices.js"),
    include_str!("page/probe.js"),
    include_str!("page/start.js"),
];

/// A page, ready to be written.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) title: String,
    /// In the order of their pieces; none on a page of one.
    pub(super) devices: Vec<Summary>,
    pub(super) pieces: Vec<Vec<u8>>,
}

impl Page {
    /// Writes everything into the frame. Returns how many bytes that were.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<u64> {
        let mut length = 0;
        let mut write = |text: &str| {
            length += text.len() as u64;
            to.write_all(text.as_bytes())
        };
        let mut rest = FRAME;
        // The frame is ours, and a test sees to it that each of them is in it once, in this order.
        for mark in ["{{title}}", "{{style}}", "{{data}}", "{{script}}"] {
            let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
            write(before)?;
            match mark {
                "{{title}}" => write(&escaped(&self.title))?,
                "{{style}}" => write(STYLE)?,
                "{{data}}" => {
                    if !self.devices.is_empty() {
                        // Numbers and names of ours: nothing in it ends the script.
                        write("<script type=\"application/json\" id=\"devices-data\">")?;
                        write(&serde_json::to_string(&self.devices)?)?;
                        write("</script>\n")?;
                    }
                    for piece in &self.pieces {
                        write("<script type=\"application/octet-stream\" class=\"data\">")?;
                        write(&BASE64_STANDARD.encode(piece))?;
                        write("</script>\n")?;
                    }
                }
                _ => SCRIPTS.into_iter().try_for_each(&mut write)?,
            }
            rest = after;
        }
        write(rest)?;
        Ok(length)
    }
}

/// As text of HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_has_a_place_for_each_part() {
        let mut last = 0;
        for mark in ["{{title}}", "{{style}}", "{{data}}", "{{script}}"] {
            assert_eq!(FRAME.matches(mark).count(), 1, "{mark}");
            let at = FRAME.find(mark).unwrap();
            assert!(at > last, "{mark} comes after the others");
            last = at;
        }
    }

    #[test]
    fn nothing_ends_the_script_or_the_style_early_and_nothing_is_fetched() {
        for part in SCRIPTS.into_iter().chain([STYLE]) {
            assert!(!part.contains("</") && !part.contains("<!--"));
            assert!(!part.contains("http:") && !part.contains("https:") && !part.contains("@import"));
        }
    }

    #[test]
    fn a_title_is_text() {
        assert_eq!(escaped("<b> & \"x\""), "&lt;b&gt; &amp; &quot;x&quot;");
    }
}
