//! `Amount`: a size, as people write it.

use core::fmt;

/// A size: so many bytes, or a part of what is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    Bytes(usize),
    Percent(u8),
}

/// The units, by their names in lower case. One letter counts as the unit of two does.
const UNITS: [(&[&str], u64); 9] = [
    (&["", "b"], 1),
    (&["k", "ki", "kib"], 1 << 10),
    (&["m", "mi", "mib"], 1 << 20),
    (&["g", "gi", "gib"], 1 << 30),
    (&["t", "ti", "tib"], 1 << 40),
    (&["kb"], 1_000),
    (&["mb"], 1_000_000),
    (&["gb"], 1_000_000_000),
    (&["tb"], 1_000_000_000_000),
];

/// No number that means bytes has more digits before its point, and no fraction of a TiB needs more behind it.
const MOST_DIGITS: usize = 20;

impl Amount {
    /// Reads `1GiB`, `1.5 g`, `4096` or `50%`; otherwise says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        const NOT_A_SIZE: &str = "it is not a size, such as 1GiB, 64k, 4096 or 50%";
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(fraction) || (number.ends_with('.')) {
            return Err(NOT_A_SIZE);
        }
        if whole.len() > MOST_DIGITS || fraction.len() > MOST_DIGITS {
            return Err("it has more digits than any size");
        }
        let unit = unit.trim_start();
        if unit == "%" {
            let percent = fraction.is_empty().then(|| whole.parse().ok()).flatten();
            return percent
                .filter(|percent| *percent <= 100)
                .map(Self::Percent)
                .ok_or("a part of what is free is a whole number from 0% to 100%");
        }
        let unit = unit.to_ascii_lowercase();
        let Some((_, scale)) = UNITS.iter().find(|(names, _)| names.contains(&unit.as_str())) else {
            return Err(
                "there is no such unit; there are B, KiB, MiB, GiB, TiB (or k, m, g, t), kB, MB, GB, TB and %",
            );
        };
        const TOO_LARGE: &str = "it is more than an allocation can have";
        let scale = u128::from(*scale);
        // At most 20 digits and 40 bits: both products fit in 128 bits.
        let whole: u128 = whole.parse().map_err(|_| TOO_LARGE)?;
        let part = match fraction {
            "" => 0,
            digits => {
                let tenths = 10_u128.pow(u32::try_from(digits.len()).map_err(|_| TOO_LARGE)?);
                let scaled = digits.parse::<u128>().map_err(|_| TOO_LARGE)? * scale;
                if scaled % tenths != 0 {
                    return Err("it is not a whole number of bytes");
                }
                scaled / tenths
            }
        };
        let bytes = usize::try_from(whole * scale + part).ok().filter(|bytes| *bytes <= isize::MAX as usize);
        bytes.map(Self::Bytes).ok_or(TOO_LARGE)
    }
}

impl fmt::Display for Amount {
    /// In the largest unit that it is a whole number of.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WHOLE: [(usize, &str); 4] =
            [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match *self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Bytes(bytes) => {
                match WHOLE.into_iter().find(|(unit, _)| bytes != 0 && bytes.is_multiple_of(*unit)) {
                    Some((unit, name)) => write!(f, "{}{name}", bytes / unit),
                    None => write!(f, "{bytes}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            ("7B", 7),
            ("64k", 64 << 10),
            ("64KiB", 64 << 10),
            ("64 kib", 64 << 10),
            ("20kB", 20_000),
            ("512MiB", 512 << 20),
            ("1.5g", 3 << 29),
            ("0.5KiB", 512),
            ("1GiB", 1 << 30),
            ("1GB", 1_000_000_000),
            ("2TiB", 2 << 40),
            ("9223372036854775807", isize::MAX as usize),
        ];
        for (text, bytes) in cases {
            assert_eq!(Amount::parse(text), Ok(Amount::Bytes(bytes)), "{text}");
        }
        assert_eq!(Amount::parse("100%"), Ok(Amount::Percent(100)));
        assert_eq!(Amount::parse("0 %"), Ok(Amount::Percent(0)));
    }

    #[test]
    fn what_is_no_size_is_told_why() {
        let cases = [
            ("", "not a size"),
            ("GiB", "not a size"),
            ("-1", "not a size"),
            ("1..2", "not a size"),
            ("1.", "not a size"),
            (".5k", "not a size"),
            ("1.2.3", "not a size"),
            ("1Gib1", "no such unit"),
            ("1x", "no such unit"),
            ("1.5", "not a whole number"),
            ("0.3k", "not a whole number"),
            ("101%", "from 0% to 100%"),
            ("1.5%", "from 0% to 100%"),
            ("9223372036854775808", "more than an allocation"),
            ("99999999999999999999TiB", "more than an allocation"),
            ("111111111111111111111", "more digits"),
            ("0.000000000000000000000001g", "more digits"),
        ];
        for (text, why) in cases {
            let error = Amount::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn they_print_as_they_are_read() {
        for bytes in [0, 1, 1000, 1024, 1536 << 20, 3 << 40, isize::MAX as usize] {
            let amount = Amount::Bytes(bytes);
            assert_eq!(Amount::parse(&amount.to_string()), Ok(amount));
        }
        assert_eq!(Amount::Bytes(1536 << 20).to_string(), "1536MiB");
    }
}
