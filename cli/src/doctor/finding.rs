//! `Finding`: what was found out about one thing.

use alluvion::Error;
use alluvion::driver::{Code, DriverError};
use serde::Serialize;

/// What was found out about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    /// What it is, or why it is not.
    pub(super) detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

/// How it is with one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// It was tried, and it works.
    Ok,
    /// It is so, and there is nothing to try.
    Note,
    /// It is not there, and nobody says that it is; or the device has it, and this machine does not give it to everybody.
    Missing,
    /// It should work, and it does not.
    Failed,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Missing => "missing",
            Self::Failed => "failed",
        }
    }
}

impl Finding {
    pub(super) fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, detail: detail.into(), advice: None }
    }

    pub(super) fn note(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Note, detail: detail.into(), advice: None }
    }

    pub(super) fn missing(name: &'static str, why: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Missing, detail: why.into(), advice: Some(advice.into()) }
    }

    pub(super) fn failed(name: &'static str, trouble: &Trouble, advice: &str) -> Self {
        let advice = trouble.advice().unwrap_or(advice).to_owned();
        let verdict =
            if matches!(trouble, Trouble::Forbidden(_)) { Verdict::Missing } else { Verdict::Failed };
        Self { name, verdict, detail: trouble.to_string(), advice: Some(advice) }
    }

    /// The same, with something to do about it.
    pub(super) fn with_advice(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

/// Why something that was tried did not work.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// A call of the driver failed.
    Driver(DriverError),
    /// The library says so.
    Library(Error),
    /// A call failed that the driver permits only where somebody has seen to it.
    Forbidden(DriverError),
    /// No call failed, and yet it is not as it should be.
    Wrong(&'static str),
}

/// A lost context, or a driver that does not know what has happened to it.
fn is_beyond_help(code: Code) -> bool {
    code.is_sticky() || code == Code::UNKNOWN
}

impl Trouble {
    fn code(&self) -> Option<Code> {
        match self {
            Self::Driver(error) | Self::Forbidden(error) => Some(error.code),
            Self::Library(error) => error.code(),
            Self::Wrong(_) => None,
        }
    }

    /// Whether nothing else can be tried on the device.
    pub(super) fn is_the_end(&self) -> bool {
        self.code().is_some_and(|code| is_beyond_help(code) || code.is_shut_down())
    }

    /// Whether the machine is not set up for it, rather than broken.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self.code(), Some(Code::NOT_PERMITTED | Code::NOT_SUPPORTED))
    }

    /// What to do about it where the code alone tells.
    fn advice(&self) -> Option<&'static str> {
        let code = self.code()?;
        if is_beyond_help(code) {
            return Some(
                "look for Xid errors in the kernel's log (dmesg), then reset the GPU or restart the machine",
            );
        }
        Some(match code {
            Code::OUT_OF_MEMORY => "see with nvidia-smi which processes have the memory, and end one",
            Code::NOT_FOUND => "install a newer NVIDIA driver: this one lacks the function",
            Code::DEVICE_UNAVAILABLE => {
                "another process has the GPU for itself: see `nvidia-smi -q -d COMPUTE`"
            }
            _ => return None,
        })
    }
}

impl core::fmt::Display for Trouble {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Driver(error) | Self::Forbidden(error) => write!(f, "{error}"),
            Self::Library(error) => write!(f, "{error}"),
            Self::Wrong(words) => f.write_str(words),
        }
    }
}

impl From<DriverError> for Trouble {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}
