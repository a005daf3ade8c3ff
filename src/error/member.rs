//! `Member`: a process that shares a limit with others.

use core::fmt;

use crate::size::Size;

/// A process that shares a limit with others, or that has a guarantee there and does not run: see
/// [`Allowance::shared`](crate::adaptor::Allowance::shared). The figures are those of one moment.
///
/// Displayed, it is a part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its number, as it knows it itself: in another container it may be another one. `None` if no process runs there.
    pub process: Option<u32>,
    /// The bytes that it has taken.
    pub used_bytes: usize,
    /// The bytes that are kept for it, whether or not it has taken them.
    pub guaranteed_bytes: usize,
    /// It is the part that this process has, through the allowance that was asked.
    pub is_this_process: bool,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name.as_str(), self.process) {
            ("", Some(process)) => write!(f, "process {process}")?,
            ("", None) => f.write_str("nobody")?,
            (name, Some(process)) => write!(f, "`{name}`, process {process},")?,
            (name, None) => write!(f, "`{name}`, which does not run,")?,
        }
        write!(f, " has {:#}", Size(self.used_bytes))?;
        if self.guaranteed_bytes > 0 {
            write!(f, " and a guarantee of {:#}", Size(self.guaranteed_bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_a_part_of_a_line() {
        let mut member = Member {
            name: String::new(),
            process: Some(12),
            used_bytes: 5 << 20,
            guaranteed_bytes: 0,
            is_this_process: false,
        };
        assert_eq!(member.to_string(), "process 12 has 5 MiB");
        member.name = "server".into();
        member.guaranteed_bytes = 8 << 20;
        assert_eq!(member.to_string(), "`server`, process 12, has 5 MiB and a guarantee of 8 MiB");
        (member.process, member.used_bytes) = (None, 0);
        assert_eq!(member.to_string(), "`server`, which does not run, has 0 B and a guarantee of 8 MiB");
    }
}
