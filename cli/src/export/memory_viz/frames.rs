//! `Frames`: who did it, as PyTorch says it.

use std::collections::HashMap;
use std::io::{self, Write};

use super::super::pickle::{Memo, Pickle};

/// Who did something: a path of tags, and the thread if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Who<'a> {
    /// Names from the outermost scope on, with semicolons between them.
    pub(super) tag: &'a str,
    /// The number that the operating system had given it.
    pub(super) thread: Option<u64>,
}

/// The lists of frames that have been written. Each is written once.
#[derive(Debug, Default)]
pub(super) struct Frames<'a> {
    written: HashMap<Who<'a>, Memo>,
}

impl<'a> Frames<'a> {
    /// Writes `frames`: a list, the innermost first, of dictionaries with name, file and line.
    pub(super) fn write<W: Write>(&mut self, pickle: &mut Pickle<W>, who: Who<'a>) -> io::Result<()> {
        pickle.string("frames")?;
        if let Some(&memo) = self.written.get(&who) {
            return pickle.again(memo);
        }
        let memo = pickle.begin_remembered_list()?;
        let names: Vec<_> = if who.tag.is_empty() { Vec::new() } else { who.tag.split(';').collect() };
        for (depth, name) in names.iter().enumerate().rev() {
            frame(pickle, name, "tag", depth as u64 + 1)?;
        }
        match who.thread {
            Some(thread) => frame(pickle, "run", "thread", thread)?,
            // Without a frame the viewer says that it was allocated before the recording began.
            None if names.is_empty() => frame(pickle, "untagged", "snapshot", 0)?,
            None => {}
        }
        pickle.end_list()?;
        self.written.insert(who, memo);
        Ok(())
    }
}

/// One frame. The viewer shows `filename:line:name`.
fn frame<W: Write>(pickle: &mut Pickle<W>, name: &str, filename: &str, line: u64) -> io::Result<()> {
    pickle.item()?;
    pickle.begin_dict()?;
    pickle.text_entry("name", name)?;
    pickle.text_entry("filename", filename)?;
    pickle.entry("line", line)?;
    pickle.end_dict()
}
