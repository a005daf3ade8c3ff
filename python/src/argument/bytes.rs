//! Counts of bytes: integers, and text such as `1.5 GiB`.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A count of bytes, given as an integer or as text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Bytes(pub(crate) usize);

/// The units, in lower case, and what each multiplies.
const UNITS: [(&str, u128); 12] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("pb", 1_000_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
];

impl<'py> FromPyObject<'_, 'py> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = object.cast::<PyString>() {
            return parse(&text.to_cow()?).map(Self);
        }
        // NumPy's integers are none of Python's.
        if object.hasattr("__index__")? {
            return object.extract().map(Self);
        }
        let kind = object.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "a count of bytes is an int or a str, such as '1.5 GiB', and not {kind}"
        )))
    }
}

/// Reads a count of bytes: digits, perhaps a fraction, perhaps blanks and a unit.
fn parse(text: &str) -> PyResult<usize> {
    let refused =
        || PyValueError::new_err(format!("Could not parse '{text}' as a count of bytes, such as '1.5 GiB'"));
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (whole, rest) = text.split_at(digits_end);
    if whole.is_empty() {
        return Err(refused());
    }
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest.split_at(end)
        }
        None => ("", rest),
    };
    if fraction.is_empty() && rest.len() + whole.len() < text.len() {
        return Err(refused());
    }
    let unit = rest.trim_start_matches([' ', '\t']).to_ascii_lowercase();
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?;
    let too_large = || PyOverflowError::new_err(format!("'{text}' is more bytes than an address can name"));
    let whole: u128 = whole.parse().map_err(|_| too_large())?;
    let bytes = whole
        .checked_mul(*factor)
        .and_then(|bytes| bytes.checked_add(part(fraction, *factor)))
        .ok_or_else(too_large)?;
    usize::try_from(bytes).map_err(|_| too_large())
}

/// The whole bytes in a decimal fraction of a unit. Digits beyond the twentieth are less than a byte of the largest unit.
fn part(fraction: &str, factor: u128) -> u128 {
    let digits = &fraction[..fraction.len().min(20)];
    let numerator: u128 = digits.parse().unwrap_or(0);
    let denominator = 10_u128.pow(digits.len() as u32);
    // At most 10^20 times 2^50, which is less than 2^128.
    numerator * factor / denominator
}

/// Reads a count of bytes: an int, or text such as `"1.5 GiB"`.
///
/// >>> import alluvion
/// >>> alluvion.parse_bytes("1.5 KiB")
/// 1536
#[pyfunction]
#[pyo3(signature = (size, /))]
pub(crate) fn parse_bytes(size: Bytes) -> usize {
    size.0
}
