//! How are bytes counted, and written for people?

use core::fmt;

/// Blocks begin at multiples of so many bytes, and suballocators hand out multiples of it: the alignment that `cuMemAlloc` promises.
pub(crate) const GRAIN: usize = 256;

/// Prints bytes in the largest unit that they fill, with one decimal if it is not whole: `8 MiB`, `1.2 GiB`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size(pub(crate) usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(usize, &str); 4] =
            [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match UNITS.into_iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) if self.0.is_multiple_of(unit) => write!(f, "{} {name}", self.0 / unit),
            Some((unit, name)) => write!(f, "{:.1} {name}", self.0 as f64 / unit as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_say_them() {
        let cases =
            [(0, "0 B"), (1023, "1023 B"), (8 << 20, "8 MiB"), (1536 << 20, "1.5 GiB"), (1 << 40, "1 TiB")];
        for (bytes, said) in cases {
            assert_eq!(Size(bytes).to_string(), said);
        }
    }
}
