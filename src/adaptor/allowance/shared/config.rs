//! `SharedConfig`: a limit by its name, and who this process is to the others.

use std::path::{Path, PathBuf};

use super::table::LONGEST_NAME;
use crate::error::Error;
use crate::joint;

/// The settings of a limit that processes share by its name: see [`Allowance::shared`](super::super::Allowance::shared).
///
/// ```no_run
/// // It writes a file below `/dev/shm`, which stays.
/// use alluvion::adaptor::{Allowance, SharedConfig};
///
/// let card = SharedConfig::new("gpu0", 20 << 30).guarantee("server", 8 << 30).guarantee("trainer", 4 << 30);
/// let server = Allowance::shared(&card.member("server"))?;
/// assert_eq!(server.name(), "gpu0");
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SharedConfig {
    pub(super) name: String,
    pub(super) limit_bytes: u64,
    pub(super) directory: PathBuf,
    pub(super) member: String,
    pub(super) guarantees: Vec<(String, u64)>,
}

impl SharedConfig {
    /// A limit with this name, of so many bytes for all processes together.
    ///
    /// The name has letters, digits and `._-`, 64 at most, and does not begin with a dot. The processes of each user have names
    /// of their own.
    pub fn new(name: &str, limit_bytes: usize) -> Self {
        Self {
            name: name.to_owned(),
            limit_bytes: limit_bytes as u64,
            directory: PathBuf::from(joint::DIRECTORY),
            member: String::new(),
            guarantees: Vec::new(),
        }
    }

    /// The name of this process among those that share the limit, which reports and figures show: 64 bytes at most. A name with a
    /// [guarantee](Self::guarantee) is one process's at a time.
    pub fn member(mut self, name: &str) -> Self {
        name.clone_into(&mut self.member);
        self
    }

    /// Keeps `bytes` for the process of that name, this one or another, whether it runs or not. What it takes beyond that it
    /// shares with all.
    ///
    /// The guarantee stays in the file. Another number of bytes, from whoever opens the limit next, takes its place while no
    /// process of that name runs; 0 ends it.
    pub fn guarantee(mut self, member: &str, bytes: usize) -> Self {
        self.guarantees.push((member.to_owned(), bytes as u64));
        self
    }

    /// The directory of the file; `/dev/shm` unless set. The file is in a directory there that is this user's alone, `alluvion-` and the
    /// user's number. On a file system of a network nothing is shared between its machines.
    ///
    /// Where systemd removes a user's files in `/dev/shm` when the last session of that user ends, as it does unless `RemoveIPC=no`, the
    /// processes that share the limit go on sharing it, and those that come later have another one; a refusal says so. Services of the
    /// system, and users with lingering, are left alone.
    pub fn directory(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = directory.as_ref().to_owned();
        self
    }

    pub(in super::super) fn name(&self) -> &str {
        &self.name
    }

    pub(in super::super) fn limit_bytes(&self) -> usize {
        self.limit_bytes as usize
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::invalid_argument_that(why));
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let name = &self.name;
        if name.is_empty()
            || name.len() > LONGEST_NAME
            || name.starts_with('.')
            || !name.chars().all(is_letter)
        {
            return wrong(format!(
                "the name of a shared limit has letters, digits and `._-`, 1 to {LONGEST_NAME} of them and no dot first: not {name:?}"
            ));
        }
        if self.limit_bytes == 0 {
            return wrong(format!("the shared limit `{name}` is of 0 bytes"));
        }
        let of_guarantees = self.guarantees.iter().map(|(member, _)| member);
        for member in of_guarantees.clone().chain((!self.member.is_empty()).then_some(&self.member)) {
            if member.is_empty() || member.len() > LONGEST_NAME || member.contains(char::is_control) {
                return wrong(format!(
                    "the name of a member of a shared limit has 1 to {LONGEST_NAME} bytes, on one line: not {member:?}"
                ));
            }
        }
        for (at, member) in of_guarantees.enumerate() {
            if self.guarantees[..at].iter().any(|(earlier, _)| earlier == member) {
                return wrong(format!(
                    "two guarantees for the member `{member}` of the shared limit `{name}`"
                ));
            }
        }
        Ok(())
    }
}
