//! The file: a header of 64 bytes; blocks, each at a multiple of 4 KiB; a table of the blocks behind the last one. All numbers have
//! their lowest byte first, on every machine.
//!
//! | bytes of the header | |
//! |---|---|
//! | 0 to 7 | `ALLUSAVE` |
//! | 8 to 15 | the version, 1 |
//! | 16 to 23 | where the table begins |
//! | 24 to 31 | its bytes; it ends the file |
//! | 32 to 39 | its checksum |
//! | 40 to 47 | the checksum of the bytes before |
//!
//! A row of the table is where the block begins, its bytes, its checksum, the bytes of its name, and the name.

use std::collections::HashSet;

use super::checksum::Checksum;

pub(super) const HEADER_BYTES: usize = 64;

/// What blocks begin at: a page of nearly every file system.
pub(super) const BLOCK_ALIGN: u64 = 4096;

/// The longest name: a path of tags fits, and a table of damaged lengths asks for no gigabytes.
pub(super) const MOST_NAME_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"ALLUSAVE";
const VERSION: u64 = 1;
const SUMMED: usize = 40;
const ROW_BYTES: usize = 32;

/// Where the table lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) table: u64,
    pub(super) table_bytes: u64,
    pub(super) table_sum: u64,
}

/// A block of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) sum: u64,
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        let numbers = [VERSION, self.table, self.table_bytes, self.table_sum];
        for (at, number) in numbers.into_iter().enumerate() {
            header[8 + 8 * at..16 + 8 * at].copy_from_slice(&number.to_le_bytes());
        }
        let sum = Checksum::of(&header[..SUMMED]);
        header[SUMMED..SUMMED + 8].copy_from_slice(&sum.to_le_bytes());
        header
    }

    /// The header of a file of `file_bytes`. The error says what is wrong with the file.
    pub(super) fn decode(header: &[u8; HEADER_BYTES], file_bytes: u64) -> Result<Self, String> {
        let number = |at: usize| number(header, at);
        if header[..8] != MAGIC {
            let is_begun = header.iter().all(|&byte| byte == 0);
            let why =
                if is_begun { "it was begun and never finished" } else { "it is no file of saved blocks" };
            return Err(why.to_owned());
        }
        if number(SUMMED) != Checksum::of(&header[..SUMMED]) {
            return Err("its header is damaged".to_owned());
        }
        if number(8) != VERSION {
            return Err(format!("it is of version {}, and this library reads version {VERSION}", number(8)));
        }
        let read = Self { table: number(16), table_bytes: number(24), table_sum: number(32) };
        match read.table.checked_add(read.table_bytes) {
            Some(end) if end == file_bytes => Ok(read),
            Some(end) if end > file_bytes => {
                Err(format!("it is cut short: {file_bytes} of {end} bytes are there"))
            }
            _ => Err(format!("it has {file_bytes} bytes, more than it was written with")),
        }
    }
}

pub(super) fn encode_table(rows: &[Row]) -> Vec<u8> {
    let mut table = Vec::new();
    for row in rows {
        for number in [row.offset, row.bytes, row.sum, row.name.len() as u64] {
            table.extend(number.to_le_bytes());
        }
        table.extend(row.name.as_bytes());
    }
    table
}

/// The error says that a table of this checksum is not that of the header.
pub(super) fn require_sum(sum: u64, header: Header) -> Result<(), String> {
    if sum == header.table_sum { Ok(()) } else { Err("the table of its blocks is damaged".to_owned()) }
}

/// The rows of a table. The error says what is wrong with the file.
pub(super) fn decode_table(table: &[u8], header: Header) -> Result<Vec<Row>, String> {
    require_sum(Checksum::of(table), header)?;
    // The checksum fits, so the writer is to blame for whatever is wrong from here on.
    let (mut rows, mut names): (Vec<Row>, HashSet<String>) = Default::default();
    let mut left = table;
    while !left.is_empty() {
        let wrong = || format!("row {} of the table of its blocks makes no sense", rows.len());
        let (row, behind) = left.split_at_checked(ROW_BYTES).ok_or_else(wrong)?;
        let name_bytes = usize::try_from(number(row, 24)).map_err(|_| wrong())?;
        let (name, behind) = behind.split_at_checked(name_bytes).ok_or_else(wrong)?;
        let name = str::from_utf8(name).map_err(|_| wrong())?.to_owned();
        if name_bytes > MOST_NAME_BYTES || !names.insert(name.clone()) {
            return Err(wrong());
        }
        let (offset, bytes) = (number(row, 0), number(row, 8));
        if offset.checked_add(bytes).is_none_or(|end| end > header.table) {
            return Err(wrong());
        }
        rows.push(Row { name, offset, bytes, sum: number(row, 16) });
        left = behind;
    }
    Ok(rows)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> (Header, Vec<u8>) {
        let row =
            |name: &str, offset, bytes| Row { name: name.to_owned(), offset, bytes, sum: offset ^ bytes };
        let table = encode_table(&[row("weights", 4096, 100), row("", 8192, 0), row("gewürze", 8192, 4096)]);
        let header =
            Header { table: 12_288, table_bytes: table.len() as u64, table_sum: Checksum::of(&table) };
        (header, table)
    }

    #[test]
    fn what_is_written_is_read() {
        let (header, table) = written();
        assert_eq!(Header::decode(&header.encode(), header.table + header.table_bytes), Ok(header));
        let rows = decode_table(&table, header).expect("it is whole");
        assert_eq!(rows.iter().map(|row| &*row.name).collect::<Vec<_>>(), ["weights", "", "gewürze"]);
        assert_eq!(encode_table(&rows), table);
    }

    #[test]
    fn a_changed_bit_of_header_or_table_is_told() {
        let (header, table) = written();
        let (whole, file_bytes) = (header.encode(), header.table + header.table_bytes);
        for at in 0..SUMMED + 8 {
            let mut damaged = whole;
            damaged[at] ^= 4;
            assert!(Header::decode(&damaged, file_bytes).is_err(), "byte {at}");
        }
        for at in 0..table.len() {
            let mut damaged = table.clone();
            damaged[at] ^= 4;
            assert!(decode_table(&damaged, header).is_err(), "byte {at}");
        }
    }

    #[test]
    fn each_fault_of_a_file_has_its_words() {
        let (header, _) = written();
        let end = header.table + header.table_bytes;
        let why = |bytes: [u8; HEADER_BYTES], file_bytes| Header::decode(&bytes, file_bytes).unwrap_err();
        assert_eq!(
            why(header.encode(), end - 1),
            format!("it is cut short: {} of {end} bytes are there", end - 1)
        );
        assert!(why(header.encode(), end + 1).contains("more than it was written with"));
        assert_eq!(why([0; HEADER_BYTES], end), "it was begun and never finished");
        assert_eq!(why([7; HEADER_BYTES], end), "it is no file of saved blocks");
        let mut newer = header.encode();
        newer[8] = 2;
        let sum = Checksum::of(&newer[..SUMMED]);
        newer[SUMMED..SUMMED + 8].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(why(newer, end), "it is of version 2, and this library reads version 1");
        let far = Header { table: u64::MAX, table_bytes: 2, table_sum: 0 };
        assert!(Header::decode(&far.encode(), end).is_err(), "their sum overflows");
    }

    /// Whoever wrote the checksum wrote the rest: lengths that lead out of the file are refused, and ask for no memory.
    #[test]
    fn rows_that_make_no_sense_are_refused() {
        let refused = |table: &[u8]| {
            let header =
                Header { table: 8192, table_bytes: table.len() as u64, table_sum: Checksum::of(table) };
            decode_table(table, header).unwrap_err()
        };
        let row = |offset: u64, bytes: u64, name_bytes: u64, name: &[u8]| {
            let mut row: Vec<u8> =
                [offset, bytes, 0, name_bytes].iter().flat_map(|number| number.to_le_bytes()).collect();
            row.extend(name);
            row
        };
        for wrong in [
            row(4096, 4097, 1, b"a"),
            row(u64::MAX, 1, 1, b"a"),
            row(4096, 1, u64::MAX, b"a"),
            row(4096, 1, 2, b"a"),
            row(4096, 1, 1, b"\xff"),
            row(4096, 1, 4097, &[b'a'; 4097]),
            vec![0; 31],
        ] {
            assert_eq!(refused(&wrong), "row 0 of the table of its blocks makes no sense");
        }
        let twice = [row(4096, 1, 1, b"a"), row(4097, 1, 1, b"a")].concat();
        assert_eq!(refused(&twice), "row 1 of the table of its blocks makes no sense");
    }
}
