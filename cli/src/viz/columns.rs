//! `Columns`: numbers as a page takes them, typed arrays in the order of x86.

use core::ops::Range;
use std::borrow::Cow;
use std::io::{self, Write};
use std::num::NonZero;
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::narrow::Narrow;

/// Columns of numbers behind each other, each at a multiple of eight bytes, with a table that says what is where.
///
/// Packed, they are the length of the heading (u32), the heading (JSON, filled up with spaces), and the columns: cut into
/// pieces that are packed one by one, so that neither the program nor a browser has to hold all of it twice.
#[derive(Debug, Default)]
pub(super) struct Columns<'p> {
    table: Map<String, Value>,
    columns: Vec<Column<'p>>,
    end: usize,
}

/// A column: of each number those bytes that are left when it is shifted to the right by `shift` bits and cut off.
#[derive(Debug)]
struct Column<'p> {
    numbers: Numbers<'p>,
    shift: u32,
    width: usize,
}

#[derive(Debug)]
enum Numbers<'p> {
    One(&'p [u8]),
    Two(&'p [u16]),
    Four(Cow<'p, [u32]>),
    Eight(Cow<'p, [u64]>),
}

/// So many bytes are packed at a time: much more than gzip looks back, and little beside what there is.
const PIECE: usize = 1 << 20;

/// Five times as fast as the usual level, for pages that are a tenth longer.
const LEVEL: Compression = Compression::new(1);

impl<'p> Columns<'p> {
    fn add(&mut self, name: &str, width: usize, shift: u32, numbers: Numbers<'p>) {
        let kind = ["", "u8", "u16", "", "u32"][width];
        let count = numbers.len();
        self.table.insert(name.to_owned(), json!({ "type": kind, "at": self.end, "count": count }));
        self.end += (count * width).next_multiple_of(8);
        self.columns.push(Column { numbers, shift, width });
    }

    pub(super) fn add_u16(&mut self, name: &str, numbers: &'p [u16]) {
        self.add(name, 2, 0, Numbers::Two(numbers));
    }

    /// In one, two or four bytes each, whatever the largest needs.
    pub(super) fn add_u32(&mut self, name: &str, numbers: impl Into<Cow<'p, [u32]>>) {
        let numbers = numbers.into();
        let width = width_of(numbers.iter().max().copied().unwrap_or(0));
        self.add(name, width, 0, Numbers::Four(numbers));
    }

    /// As two columns, the lower halves and the upper ones; those are left out if they are all 0.
    pub(super) fn add_u64(&mut self, name: &str, numbers: impl Into<Cow<'p, [u64]>>) {
        let numbers = numbers.into();
        let most = |shift: u32| numbers.iter().map(|number| (number >> shift) as u32).max().unwrap_or(0);
        let (low, high) = (most(0), most(32));
        let name_of = |half: &str| format!("{name}.{half}");
        if high > 0 {
            let upper = Numbers::Eight(numbers.clone());
            self.add(&name_of("low"), width_of(low), 0, Numbers::Eight(numbers));
            self.add(&name_of("high"), width_of(high), 32, upper);
        } else {
            self.add(&name_of("low"), width_of(low), 0, Numbers::Eight(numbers));
        }
    }

    /// As `add_u32`. None of the numbers is so large that it takes more than four bytes.
    pub(super) fn add_narrow(&mut self, name: &str, numbers: &'p Narrow) {
        match numbers {
            Narrow::One(list) => self.add(name, 1, 0, Numbers::One(list)),
            Narrow::Two(list) => self.add(name, 2, 0, Numbers::Two(list)),
            Narrow::Four(list) => self.add(name, 4, 0, Numbers::Four(list.into())),
            Narrow::Eight(list) => self.add(name, 4, 0, Numbers::Eight(list.into())),
        }
    }

    /// As `add_u64`.
    pub(super) fn add_narrow_u64(&mut self, name: &str, numbers: &'p Narrow) {
        match numbers {
            Narrow::Eight(list) => self.add_u64(name, list),
            _ => self.add_narrow(&format!("{name}.low"), numbers),
        }
    }

    /// Packs them behind `heading`, to which it adds the table. Each piece is a file of gzip; unpacked, they are put behind each
    /// other.
    pub(super) fn pack(self, heading: &impl Serialize) -> io::Result<Vec<Vec<u8>>> {
        let mut heading = serde_json::to_value(heading)?;
        heading["columns"] = Value::Object(self.table);
        heading["bytes"] = self.end.into();
        let mut words = serde_json::to_vec(&heading)?;
        let end = (4 + words.len()).next_multiple_of(8);
        words.resize(end - 4, b' ');
        let length = u32::try_from(words.len())
            .map_err(|_| io::Error::other("names and tags take more than 4 GiB"))?;
        let mut packed = GzEncoder::new(Vec::new(), LEVEL);
        packed.write_all(&length.to_le_bytes())?;
        packed.write_all(&words)?;
        let mut pieces = vec![packed.finish()?];
        pieces.extend(pack_all(&self.columns)?);
        Ok(pieces)
    }
}

fn width_of(most: u32) -> usize {
    match most {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    }
}

/// A part of a column: its place, and which of its numbers.
type Part = (usize, Range<usize>);

/// Packs piece by piece, on as many threads as there are processors.
fn pack_all(columns: &[Column<'_>]) -> io::Result<Vec<Vec<u8>>> {
    let pieces = pieces_of(columns);
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(8).min(pieces.len().max(1));
    let packed = thread::scope(|scope| {
        let pieces = &pieces;
        let pack_some = |first: usize| {
            let some = pieces.iter().skip(first).step_by(threads);
            some.map(|parts| pack_piece(columns, parts)).collect::<Vec<_>>()
        };
        let others: Vec<_> = (1..threads).map(|first| scope.spawn(move || pack_some(first))).collect();
        let mut packed = vec![pack_some(0)];
        for other in others {
            packed.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        packed
    });
    let mut packed: Vec<_> = packed.into_iter().map(Vec::into_iter).collect();
    (0..pieces.len()).filter_map(|at| packed[at % threads].next()).collect()
}

/// Cuts columns into pieces: long ones into several, and short ones together.
fn pieces_of(columns: &[Column<'_>]) -> Vec<Vec<Part>> {
    let (mut pieces, mut piece, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (column, Column { numbers, width, .. }) in columns.iter().enumerate() {
        let mut from = 0;
        while from < numbers.len() {
            let to = numbers.len().min(from + (PIECE - bytes).div_ceil(*width));
            piece.push((column, from..to));
            bytes += (to - from) * width;
            from = to;
            if bytes >= PIECE {
                pieces.push(core::mem::take(&mut piece));
                bytes = 0;
            }
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

fn pack_piece(columns: &[Column<'_>], parts: &[Part]) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), LEVEL);
    let mut bytes = Vec::new();
    for (column, range) in parts {
        let column = &columns[*column];
        bytes.clear();
        column.write(range.clone(), &mut bytes);
        if range.end == column.numbers.len() {
            let end = column.numbers.len() * column.width;
            bytes.resize(bytes.len() + end.next_multiple_of(8) - end, 0);
        }
        packed.write_all(&bytes)?;
    }
    packed.finish()
}

impl Numbers<'_> {
    fn len(&self) -> usize {
        match self {
            Self::One(numbers) => numbers.len(),
            Self::Two(numbers) => numbers.len(),
            Self::Four(numbers) => numbers.len(),
            Self::Eight(numbers) => numbers.len(),
        }
    }
}

impl Column<'_> {
    fn write(&self, range: Range<usize>, bytes: &mut Vec<u8>) {
        match &self.numbers {
            Numbers::One(numbers) => bytes.extend_from_slice(&numbers[range]),
            Numbers::Two(numbers) => self.write_each(numbers[range].iter().copied().map(u64::from), bytes),
            Numbers::Four(numbers) => self.write_each(numbers[range].iter().copied().map(u64::from), bytes),
            Numbers::Eight(numbers) => self.write_each(numbers[range].iter().copied(), bytes),
        }
    }

    fn write_each(&self, numbers: impl Iterator<Item = u64>, bytes: &mut Vec<u8>) {
        let Self { shift, width, .. } = *self;
        for number in numbers {
            bytes.extend_from_slice(&(number >> shift).to_le_bytes()[..width]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    /// Unpacks the pieces one by one: the heading, and what comes behind it.
    fn unpacked(pieces: &[Vec<u8>]) -> (Value, Vec<u8>) {
        let mut bytes = Vec::new();
        for piece in pieces {
            GzDecoder::new(&piece[..]).read_to_end(&mut bytes).unwrap();
        }
        let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        assert_eq!((4 + length) % 8, 0);
        (serde_json::from_slice(&bytes[4..4 + length]).unwrap(), bytes.split_off(4 + length))
    }

    #[test]
    fn columns_are_as_narrow_as_their_numbers_and_lie_at_multiples_of_eight() {
        let mut columns = Columns::default();
        columns.add_u32("small", vec![1, 2, 255]);
        columns.add_u32("wider", vec![1, 256]);
        columns.add_u64("long", vec![7, (5 << 32) + 1]);
        columns.add_u64("short", vec![7]);
        columns.add_u16("none", &[]);
        let (heading, bytes) = unpacked(&columns.pack(&json!({ "title": "a" })).unwrap());
        let column = |kind: &str, at: u32, count: u32| json!({ "type": kind, "at": at, "count": count });
        assert_eq!(
            heading,
            json!({ "title": "a", "bytes": 40, "columns": {
                "small": column("u8", 0, 3),
                "wider": column("u16", 8, 2),
                "long.low": column("u8", 16, 2),
                "long.high": column("u8", 24, 2),
                "short.low": column("u8", 32, 1),
                "none": column("u16", 40, 0),
            }})
        );
        assert_eq!(bytes.len(), 40);
        assert_eq!(bytes[..12], [1, 2, 255, 0, 0, 0, 0, 0, 1, 0, 0, 1]);
        assert_eq!(bytes[16..][..17], [7, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn long_columns_are_cut_and_put_together_again() {
        let long: Vec<u32> = (0..700_000).map(|number| number * 5).collect();
        let wide: Vec<u64> = long.iter().map(|number| (u64::from(*number) << 20) + 3).collect();
        let mut narrow = Narrow::default();
        long.iter().for_each(|number| narrow.push(u64::from(number % 251)));
        let mut columns = Columns::default();
        columns.add_u32("odd", vec![1, 2, 3]);
        columns.add_u32("long", &long);
        columns.add_u64("wide", &wide);
        columns.add_narrow("narrow", &narrow);
        let pieces = columns.pack(&json!({})).unwrap();
        assert!(pieces.len() > 6, "{}", pieces.len());
        let (heading, bytes) = unpacked(&pieces);
        assert_eq!(heading["bytes"], bytes.len());
        let at = |name: &str| heading["columns"][name]["at"].as_u64().unwrap() as usize;
        for place in [0, 1, 255_999, 262_144, 699_999] {
            let word =
                |name: &str| u32::from_le_bytes(bytes[at(name) + place * 4..][..4].try_into().unwrap());
            let upper = u16::from_le_bytes(bytes[at("wide.high") + place * 2..][..2].try_into().unwrap());
            assert_eq!(word("long"), long[place]);
            assert_eq!(u64::from(word("wide.low")) + (u64::from(upper) << 32), wide[place]);
            assert_eq!(u64::from(bytes[at("narrow") + place]), u64::from(long[place] % 251));
        }
    }
}
