//! `RowFormat`: how a row of a log is written.

use super::Action;

/// The microseconds of a second, and the seconds of a day.
const SECOND: u64 = 1_000_000;
const DAY: u64 = 24 * 60 * 60 * SECOND;

/// The longest path of tags that is written, so that no line is longer than a reader accepts.
pub(crate) const LONGEST_TAG: usize = 2048;

/// The columns of a written log: RMM's six, and the optional ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowFormat {
    /// A column `Device`.
    pub(crate) devices: bool,
    /// A column `Tag`.
    pub(crate) tags: bool,
    /// A column `Reserved`.
    pub(crate) reserved: bool,
}

/// The fields of a row, borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    pub(crate) thread: u64,
    /// Since midnight.
    pub(crate) microseconds: u64,
    pub(crate) action: Action,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) stream: u64,
    pub(crate) device: Option<u32>,
    pub(crate) tag: &'a str,
    pub(crate) reserved_bytes: Option<u64>,
}

impl RowFormat {
    pub(crate) fn heading(self, into: &mut Vec<u8>) {
        into.extend_from_slice(b"Thread,Time,Action,Pointer,Size,Stream");
        if self.devices {
            into.extend_from_slice(b",Device");
        }
        if self.tags {
            into.extend_from_slice(b",Tag");
        }
        if self.reserved {
            into.extend_from_slice(b",Reserved");
        }
        into.push(b'\n');
    }

    /// By hand and not by `write!`, which takes four times as long: this limits the number of events per second that a log can
    /// take.
    pub(crate) fn row(self, fields: &Fields<'_>, into: &mut Vec<u8>) {
        decimal(into, fields.thread);
        into.push(b',');
        time(into, fields.microseconds);
        into.extend_from_slice(match fields.action {
            Action::Allocate => b",allocate,".as_slice(),
            Action::AllocateFailure => b",allocate failure,",
            Action::Free => b",free,",
        });
        match fields.address {
            // A null pointer as C prints it, and as C++ prints it: RMM's columns differ.
            0 => into.extend_from_slice(b"(nil)"),
            address => hexadecimal(into, address),
        }
        into.push(b',');
        decimal(into, fields.bytes);
        into.push(b',');
        match fields.stream {
            0 => into.push(b'0'),
            stream => hexadecimal(into, stream),
        }
        if self.devices {
            into.push(b',');
            if let Some(ordinal) = fields.device {
                decimal(into, ordinal.into());
            }
        }
        if self.tags {
            into.push(b',');
            into.extend_from_slice(fields.tag.as_bytes());
        }
        if self.reserved {
            into.push(b',');
            if let Some(bytes) = fields.reserved_bytes {
                decimal(into, bytes);
            }
        }
        into.push(b'\n');
    }
}

/// Returns `true` if a time of day can be written: a leap second is the last that can.
pub(crate) fn is_time_of_day(microseconds: u64) -> bool {
    microseconds < DAY + SECOND
}

/// `HH:MM:SS.ffffff`.
fn time(into: &mut Vec<u8>, microseconds: u64) {
    // A time after the end of the day lies in its leap second, 23:59:60.
    let within = microseconds.min(DAY - 1);
    let leap = microseconds / DAY;
    let seconds = within / SECOND;
    digits(into, seconds / 3600, 2);
    into.push(b':');
    digits(into, seconds / 60 % 60, 2);
    into.push(b':');
    digits(into, seconds % 60 + leap, 2);
    into.push(b'.');
    digits(into, microseconds % SECOND, 6);
}

/// Writes a number in exactly `count` digits.
fn digits(into: &mut Vec<u8>, mut number: u64, count: usize) {
    let start = into.len();
    into.resize(start + count, b'0');
    for digit in into[start..].iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
}

fn decimal(into: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    into.extend_from_slice(&digits[at..]);
}

fn hexadecimal(into: &mut Vec<u8>, number: u64) {
    into.extend_from_slice(b"0x");
    let count = 16 - number.leading_zeros() / 4;
    for at in (0..count).rev() {
        into.push(b"0123456789abcdef"[(number >> (4 * at) & 15) as usize]);
    }
}
