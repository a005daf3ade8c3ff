//! How bytes are counted, and written for people.

use core::fmt;

/// The granularity of addresses and sizes in suballocators: the alignment that `cuMemAlloc` promises.
pub(crate) const GRAIN: usize = 256;

/// Prints bytes in the largest unit that they fill, with one decimal if they are not whole: `8 MiB`, `1.2 GiB`. With `{:#}` the
/// exact bytes follow a rounded number: `1.2 GiB (1288490189 B)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size(pub(crate) usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(usize, &str); 4] =
            [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        // A number that would be rounded up to 1024 of a unit is written as 1.0 of the next.
        let fills = |unit: usize| self.0 >= unit || self.0 as f64 >= unit as f64 * (1.0 - 0.05 / 1024.0);
        match UNITS.into_iter().find(|(unit, _)| fills(*unit)) {
            Some((unit, name)) if self.0.is_multiple_of(unit) => write!(f, "{} {name}", self.0 / unit),
            Some((unit, name)) => {
                write!(f, "{:.1} {name}", self.0 as f64 / unit as f64)?;
                // Exact if ten times the number is whole: one decimal says it all.
                let is_exact = self.0.checked_mul(10).is_some_and(|tenfold| tenfold.is_multiple_of(unit));
                if f.alternate() && !is_exact { write!(f, " ({} B)", self.0) } else { Ok(()) }
            }
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_say_them() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1 << 10, "1 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            ((1 << 20) - 100, "1023.9 KiB"),
            (8 << 20, "8 MiB"),
            ((8 << 20) + 1, "8.0 MiB"),
            (1536 << 20, "1.5 GiB"),
            (1 << 40, "1 TiB"),
        ];
        for (bytes, said) in cases {
            assert_eq!(Size(bytes).to_string(), said);
        }
    }

    #[test]
    fn a_rounded_number_can_be_followed_by_the_exact_one() {
        let cases = [
            (1023, "1023 B"),
            (8 << 20, "8 MiB"),
            (1536 << 20, "1.5 GiB"),
            ((8 << 20) + 256, "8.0 MiB (8388864 B)"),
            ((1 << 30) - 1, "1.0 GiB (1073741823 B)"),
            (usize::MAX, "16777216.0 TiB (18446744073709551615 B)"),
        ];
        for (bytes, said) in cases {
            assert_eq!(format!("{:#}", Size(bytes)), said);
        }
    }
}
