//! `Devices`: devices of a machine, named in a recipe.

use core::fmt;

/// Devices of a machine, beside the one that a stack is built on. So one line is right for each of them: `peers=0+1` names the
/// other one on either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Devices {
    All,
    /// Those that can reach the memory.
    Reachable,
    /// By their numbers, in the order of the line.
    Those(Vec<u32>),
}

impl Devices {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "all" => Some(Self::All),
            "reachable" => Some(Self::Reachable),
            numbers => {
                numbers.split('+').map(|number| number.parse().ok()).collect::<Option<_>>().map(Self::Those)
            }
        }
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Reachable => f.write_str("reachable"),
            Self::Those(ordinals) => {
                let mut before = "";
                for ordinal in ordinals {
                    write!(f, "{before}{ordinal}")?;
                    before = "+";
                }
                Ok(())
            }
        }
    }
}
