//! `Columns`: numbers as a page takes them, typed arrays in the order of x86.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Columns of numbers behind each other, each at a multiple of eight bytes, with a table that says what is where.
///
/// Packed, they are the length of the heading (u32), the heading (JSON, filled up with spaces), and the columns.
#[derive(Debug, Default)]
pub(super) struct Columns {
    table: Map<String, Value>,
    bytes: Vec<u8>,
}

impl Columns {
    fn add(&mut self, name: &str, kind: &str, count: usize, numbers: impl Iterator<Item = u8>) {
        let at = self.bytes.len();
        self.bytes.extend(numbers);
        self.table.insert(name.to_owned(), json!({ "type": kind, "at": at, "count": count }));
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    pub(super) fn add_u16(&mut self, name: &str, numbers: &[u16]) {
        self.add(name, "u16", numbers.len(), numbers.iter().flat_map(|number| number.to_le_bytes()));
    }

    /// In one, two or four bytes each, whatever the largest needs.
    pub(super) fn add_u32(&mut self, name: &str, numbers: &[u32]) {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        let count = numbers.len();
        match numbers.iter().max() {
            None | Some(..=0xff) => self.add(name, "u8", count, bytes.step_by(4)),
            Some(..=0xffff) => {
                self.add(
                    name,
                    "u16",
                    count,
                    numbers.iter().flat_map(|number| (*number as u16).to_le_bytes()),
                );
            }
            _ => self.add(name, "u32", count, bytes),
        }
    }

    /// As two columns, the lower halves and the upper ones; those are left out if they are all 0.
    pub(super) fn add_u64(&mut self, name: &str, numbers: &[u64]) {
        let half = |shift: u32| numbers.iter().map(|number| (number >> shift) as u32).collect::<Vec<_>>();
        self.add_u32(&format!("{name}.low"), &half(0));
        let high = half(32);
        if high.iter().any(|number| *number > 0) {
            self.add_u32(&format!("{name}.high"), &high);
        }
    }

    /// Packs them behind `heading`, to which it adds the table.
    pub(super) fn pack(self, heading: &impl Serialize) -> io::Result<Vec<u8>> {
        let mut heading = serde_json::to_value(heading)?;
        heading["columns"] = Value::Object(self.table);
        let mut words = serde_json::to_vec(&heading)?;
        let end = (4 + words.len()).next_multiple_of(8);
        words.resize(end - 4, b' ');
        let length = u32::try_from(words.len())
            .map_err(|_| io::Error::other("names and tags take more than 4 GiB"))?;
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(&length.to_le_bytes())?;
        packed.write_all(&words)?;
        packed.write_all(&self.bytes)?;
        packed.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn columns_are_as_narrow_as_their_numbers_and_lie_at_multiples_of_eight() {
        let mut columns = Columns::default();
        columns.add_u32("small", &[1, 2, 255]);
        columns.add_u32("wider", &[1, 256]);
        columns.add_u64("long", &[7, (5 << 32) + 1]);
        columns.add_u64("short", &[7]);
        columns.add_u16("none", &[]);
        let packed = columns.pack(&json!({ "title": "a" })).unwrap();
        let mut bytes = Vec::new();
        GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
        let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
        let heading: Value = serde_json::from_slice(&bytes[4..4 + length]).unwrap();
        assert_eq!((4 + length) % 8, 0);
        let column = |kind: &str, at: u32, count: u32| json!({ "type": kind, "at": at, "count": count });
        assert_eq!(
            heading,
            json!({ "title": "a", "columns": {
                "small": column("u8", 0, 3),
                "wider": column("u16", 8, 2),
                "long.low": column("u8", 16, 2),
                "long.high": column("u8", 24, 2),
                "short.low": column("u8", 32, 1),
                "none": column("u16", 40, 0),
            }})
        );
        assert_eq!(bytes[4 + length..][..12], [1, 2, 255, 0, 0, 0, 0, 0, 1, 0, 0, 1]);
    }
}
