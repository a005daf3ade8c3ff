//! `Columns`: the columns of a log.

use super::{Action, Row};

/// The columns of a log, in the order in which RMM writes them.
const NAMES: [&str; 6] = ["Thread", "Time", "Action", "Pointer", "Size", "Stream"];

/// Optional columns. RMM skips columns that it does not know.
const MORE_NAMES: [&str; 3] = ["Tag", "Reserved", "Device"];

/// The position of each of `NAMES` in a row, those of the present `MORE_NAMES`, and the number of columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    places: [usize; 6],
    more_places: [Option<usize>; 3],
    count: usize,
}

impl Columns {
    /// The columns of a heading: in any order, and others may be among them.
    pub(super) fn of_heading(heading: &str) -> Result<Self, String> {
        let place_of = |name: &str| heading.split(',').position(|column| column.trim() == name);
        let mut places = [0; 6];
        for (place, name) in places.iter_mut().zip(NAMES) {
            *place = place_of(name).ok_or_else(|| {
                format!("the heading has no column {name}: a log begins with {}", NAMES.join(","))
            })?;
        }
        Ok(Self { places, more_places: MORE_NAMES.map(place_of), count: heading.split(',').count() })
    }

    pub(super) fn row(&self, line: usize, text: &str) -> Result<Row, String> {
        let (mut fields, mut more) = ([""; 6], [""; 3]);
        let (mut rest, mut count) = (Some(text), 0);
        while let Some(left) = rest {
            // A field has about ten bytes: too few for a search by words to pay off.
            let end = left.as_bytes().iter().position(|byte| *byte == b',');
            let (field, after) = end.map_or((left, None), |end| (&left[..end], Some(&left[end + 1..])));
            let is_usual = self.places.get(count) == Some(&count);
            let which =
                if is_usual { Some(count) } else { self.places.iter().position(|place| *place == count) };
            if let Some(which) = which {
                fields[which] = field.trim_ascii();
            } else if let Some(which) = self.more_places.iter().position(|place| *place == Some(count)) {
                more[which] = field.trim_ascii();
            }
            (rest, count) = (after, count + 1);
        }
        if count != self.count {
            return Err(format!("it has {count} columns where the heading has {}", self.count));
        }
        let [thread, time, action, pointer, size, stream] = fields;
        let [tag, reserved, device] = more;
        Ok(Row {
            line,
            thread: thread.parse().map_err(|_| wrong("Thread", thread, "a number"))?,
            microseconds: microseconds(time).ok_or_else(|| wrong("Time", time, "a time, HH:MM:SS.ffffff"))?,
            action: action_of(action)
                .ok_or_else(|| wrong("Action", action, "one of allocate, allocate failure, free"))?,
            address: address(pointer)
                .ok_or_else(|| wrong("Pointer", pointer, "an address, 0x and sixteen digits at most"))?,
            bytes: size.parse().map_err(|_| wrong("Size", size, "a number of bytes"))?,
            stream: address(stream).ok_or_else(|| {
                wrong("Stream", stream, "the handle of a stream, 0x and sixteen digits at most")
            })?,
            device: match device {
                "" => None,
                ordinal => Some(ordinal_of(ordinal).ok_or_else(|| wrong("Device", ordinal, DEVICE))?),
            },
            tag: tag.into(),
            reserved_bytes: match reserved {
                "" => None,
                bytes => Some(bytes.parse().map_err(|_| wrong("Reserved", bytes, "a number of bytes"))?),
            },
        })
    }
}

/// What a device is, in words.
pub(super) const DEVICE: &str = "the number of a device, below 4096";

/// No machine has as many devices: a larger number is a mistake. Whoever replays a log makes a machine of as many.
pub(super) const MOST_DEVICES: u32 = 4096;

/// The number of a device.
pub(super) fn ordinal_of(field: &str) -> Option<u32> {
    field.parse().ok().filter(|&ordinal| ordinal < MOST_DEVICES)
}

pub(super) fn wrong(name: &str, field: &str, wanted: &str) -> String {
    // A field may be as long as a line.
    let shown: String = field.chars().take(40).collect();
    format!("{name} is `{}` and not {wanted}", shown.escape_debug())
}

fn action_of(field: &str) -> Option<Action> {
    match field {
        "allocate" => Some(Action::Allocate),
        "allocate failure" => Some(Action::AllocateFailure),
        "free" => Some(Action::Free),
        _ => None,
    }
}

/// `0x302000000`, `0`, or `(nil)`, as `%p` prints null.
pub(super) fn address(field: &str) -> Option<u64> {
    match field.strip_prefix("0x") {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None => matches!(field, "0" | "(nil)").then_some(0),
    }
}

/// `HH:MM:SS.ffffff` in microseconds since midnight; `HH:MM:SS:ffffff`, as RMM 0.16 had it.
fn microseconds(field: &str) -> Option<u64> {
    let (clock, fraction) = field.split_once('.').or_else(|| field.rsplit_once(':'))?;
    let mut parts = clock.split(':').map(|part| digits(part, 2));
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + digits(fraction, 6)?)
}

/// A number of exactly that many digits.
fn digits(field: &str, count: usize) -> Option<u64> {
    (field.len() == count && field.bytes().all(|byte| byte.is_ascii_digit())).then(|| field.parse().ok())?
}
