//! `Pickle`: writes what Python's `pickle.load` reads.
//!
//! Protocol 2, in the few operations that PyTorch's viewer knows too: its own reader of pickles, in MemoryViz.js, has of
//! integers BININT, BININT1, BININT2 and LONG1, of strings BINUNICODE and SHORT_BINUNICODE, and neither objects nor
//! functions. Values are written as they come, so that a file may be larger than the memory.

use std::collections::HashMap;
use std::io::{self, Write};

const PROTO: u8 = 0x80;
const STOP: u8 = b'.';
const MARK: u8 = b'(';
const EMPTY_DICT: u8 = b'}';
const SETITEMS: u8 = b'u';
const EMPTY_LIST: u8 = b']';
const APPENDS: u8 = b'e';
const TUPLE2: u8 = 0x86;
const NEWTRUE: u8 = 0x88;
const NEWFALSE: u8 = 0x89;
const BININT: u8 = b'J';
const BININT1: u8 = b'K';
const BININT2: u8 = b'M';
const LONG1: u8 = 0x8a;
const BINUNICODE: u8 = b'X';
const BINPUT: u8 = b'q';
const LONG_BINPUT: u8 = b'r';
const BINGET: u8 = b'h';
const LONG_BINGET: u8 = b'j';

/// So many items are appended to a list at once, as Python's own writer does. The viewer passes them to a function of
/// JavaScript, and that takes some ten thousand.
const BATCH: usize = 1000;

/// A value that was written before, and can be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memo(u32);

/// Writes one value, piece by piece. What is begun must be ended, and after a key comes its value.
#[derive(Debug)]
pub(super) struct Pickle<W> {
    to: W,
    strings: HashMap<Box<str>, Memo>,
    memos: u32,
    /// How many items each open list has got in its last batch.
    lists: Vec<usize>,
}

impl<W: Write> Pickle<W> {
    pub(super) fn begin(mut to: W) -> io::Result<Self> {
        to.write_all(&[PROTO, 2])?;
        Ok(Self { to, strings: HashMap::new(), memos: 0, lists: Vec::new() })
    }

    /// Ends the file.
    pub(super) fn end(mut self) -> io::Result<W> {
        self.to.write_all(&[STOP])?;
        Ok(self.to)
    }

    pub(super) fn begin_dict(&mut self) -> io::Result<()> {
        self.to.write_all(&[EMPTY_DICT, MARK])
    }

    pub(super) fn end_dict(&mut self) -> io::Result<()> {
        self.to.write_all(&[SETITEMS])
    }

    pub(super) fn begin_list(&mut self) -> io::Result<()> {
        self.lists.push(0);
        self.to.write_all(&[EMPTY_LIST, MARK])
    }

    /// What is written next is an item of the list that was begun last.
    pub(super) fn item(&mut self) -> io::Result<()> {
        match self.lists.last_mut() {
            Some(count) if *count == BATCH => {
                *count = 1;
                self.to.write_all(&[APPENDS, MARK])
            }
            Some(count) => {
                *count += 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) fn end_list(&mut self) -> io::Result<()> {
        self.lists.pop();
        self.to.write_all(&[APPENDS])
    }

    /// Writes a string, in full the first time: there are few that are different.
    pub(super) fn string(&mut self, text: &str) -> io::Result<()> {
        if let Some(&memo) = self.strings.get(text) {
            return self.again(memo);
        }
        let bytes = u32::try_from(text.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a string of more than 4 GiB"))?;
        self.to.write_all(&[BINUNICODE])?;
        self.to.write_all(&bytes.to_le_bytes())?;
        self.to.write_all(text.as_bytes())?;
        let memo = self.remember()?;
        self.strings.insert(text.into(), memo);
        Ok(())
    }

    pub(super) fn integer(&mut self, number: u64) -> io::Result<()> {
        let bytes = number.to_le_bytes();
        match number {
            0..=0xff => self.to.write_all(&[BININT1, bytes[0]]),
            0x100..=0xffff => self.to.write_all(&[BININT2, bytes[0], bytes[1]]),
            0x1_0000..=0x7fff_ffff => {
                self.to.write_all(&[BININT])?;
                self.to.write_all(&bytes[..4])
            }
            _ => {
                // As many bytes as it takes, and one bit for the sign.
                let used = (64 - number.leading_zeros() as usize) / 8 + 1;
                self.to.write_all(&[LONG1, used as u8])?;
                self.to.write_all(&bytes[..used.min(8)])?;
                if used > 8 { self.to.write_all(&[0]) } else { Ok(()) }
            }
        }
    }

    pub(super) fn boolean(&mut self, is: bool) -> io::Result<()> {
        self.to.write_all(&[if is { NEWTRUE } else { NEWFALSE }])
    }

    /// A pair of zeros: what PyTorch calls its pool that belongs to nobody.
    pub(super) fn no_pool(&mut self) -> io::Result<()> {
        self.to.write_all(&[BININT1, 0, BININT1, 0, TUPLE2])
    }

    pub(super) fn entry(&mut self, key: &str, number: u64) -> io::Result<()> {
        self.string(key)?;
        self.integer(number)
    }

    pub(super) fn text_entry(&mut self, key: &str, text: &str) -> io::Result<()> {
        self.string(key)?;
        self.string(text)
    }

    /// Remembers the value that was just written.
    fn remember(&mut self) -> io::Result<Memo> {
        let memo = Memo(self.memos);
        self.memos = memo.0.checked_add(1).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "more different values than 4 billion")
        })?;
        self.name(memo, BINPUT, LONG_BINPUT)?;
        Ok(memo)
    }

    /// As [`begin_list`](Self::begin_list), and remembers the list: it is one and the same, whatever comes into it later.
    pub(super) fn begin_remembered_list(&mut self) -> io::Result<Memo> {
        self.lists.push(0);
        self.to.write_all(&[EMPTY_LIST])?;
        let memo = self.remember()?;
        self.to.write_all(&[MARK])?;
        Ok(memo)
    }

    /// Writes what is remembered.
    pub(super) fn again(&mut self, memo: Memo) -> io::Result<()> {
        self.name(memo, BINGET, LONG_BINGET)
    }

    fn name(&mut self, Memo(number): Memo, short: u8, long: u8) -> io::Result<()> {
        match u8::try_from(number) {
            Ok(number) => self.to.write_all(&[short, number]),
            Err(_) => {
                self.to.write_all(&[long])?;
                self.to.write_all(&number.to_le_bytes())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Pickle<Vec<u8>>) -> io::Result<()>) -> Vec<u8> {
        let mut pickle = Pickle::begin(Vec::new()).unwrap();
        write(&mut pickle).unwrap();
        pickle.end().unwrap()
    }

    #[test]
    fn integers_are_as_short_as_they_can_be() {
        // What `pickle.dumps(number, 2)` of Python writes.
        for (number, bytes) in [
            (0, &b"\x80\x02K\x00."[..]),
            (255, b"\x80\x02K\xff."),
            (256, b"\x80\x02M\x00\x01."),
            (65_535, b"\x80\x02M\xff\xff."),
            (65_536, b"\x80\x02J\x00\x00\x01\x00."),
            (0x7fff_ffff, b"\x80\x02J\xff\xff\xff\x7f."),
            (0x8000_0000, b"\x80\x02\x8a\x05\x00\x00\x00\x80\x00."),
            (0x7f_ffff_ffff, b"\x80\x02\x8a\x05\xff\xff\xff\xff\x7f."),
            (0x80_0000_0000, b"\x80\x02\x8a\x06\x00\x00\x00\x00\x80\x00."),
            (u64::MAX, b"\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00."),
        ] {
            assert_eq!(written(|pickle| pickle.integer(number)), bytes, "{number}");
        }
    }

    #[test]
    fn a_string_is_written_once() {
        let list = written(|pickle| {
            pickle.begin_list()?;
            for _ in 0..2 {
                pickle.item()?;
                pickle.string("é")?;
            }
            pickle.end_list()
        });
        assert_eq!(list, b"\x80\x02](X\x02\x00\x00\x00\xc3\xa9q\x00h\x00e.");
    }

    #[test]
    fn lists_come_in_batches() {
        let list = written(|pickle| {
            pickle.begin_list()?;
            for _ in 0..BATCH + 1 {
                pickle.item()?;
                pickle.boolean(true)?;
            }
            pickle.end_list()
        });
        let batches = list.iter().filter(|byte| **byte == APPENDS).count();
        assert_eq!((batches, list.len()), (2, 2 + 2 + BATCH + 2 + 1 + 1 + 1));
    }

    #[test]
    fn more_than_256_values_can_be_named() {
        let bytes = written(|pickle| {
            pickle.begin_list()?;
            for number in 0..257 {
                pickle.item()?;
                pickle.string(&number.to_string())?;
            }
            pickle.item()?;
            pickle.string("256")?;
            pickle.end_list()
        });
        assert!(bytes.ends_with(b"X\x03\x00\x00\x00256r\x00\x01\x00\x00j\x00\x01\x00\x00e."));
    }
}
