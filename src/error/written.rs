//! How an [`Error`] is written.

use core::fmt;

use super::detail::Detail;
use super::{Error, ErrorKind};
use crate::driver::{Code, DriverError};
use crate::size::Size;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(on_device @ Detail::OnDevice(..)) = self.detail.as_deref() {
            return on_device.fmt(f);
        }
        let (first, second) = (self.first, self.second);
        match self.kind {
            _ if self.column().is_some() => {
                write!(f, "{}: ", self.kind.name_at_a_place())?;
                if let Some(Detail::Pointed(pointed)) = self.detail()
                    && let Some(variable) = pointed.variable()
                {
                    write!(f, "{variable}, ")?;
                }
                write!(f, "line {first}, column {second}")?;
            }
            ErrorKind::OutOfMemory if self.out_of_memory_report().is_some() => {
                f.write_str("out of memory")?;
            }
            ErrorKind::OutOfMemory => {
                write!(f, "out of memory: {:#} wanted", Size(first))?;
                if second != usize::MAX {
                    write!(f, ", the limit is {:#}", Size(second))?;
                }
            }
            ErrorKind::SizeOverflow => write!(
                f,
                "size overflow: {first} elements of {second} bytes are more than an allocation can hold"
            )?,
            ErrorKind::InvalidAlignment => write!(f, "invalid alignment: {first} is not a power of two")?,
            ErrorKind::UnsupportedAlignment => {
                write!(f, "unsupported alignment: {first} wanted, the resource honours up to {second}")?;
            }
            ErrorKind::DeviceMismatch if self.detail.is_some() => f.write_str("device mismatch")?,
            ErrorKind::DeviceMismatch => {
                write!(f, "device mismatch: gpu {first} was given something of gpu {second}")?;
            }
            ErrorKind::OutOfRange => write!(f, "out of range: index {first} in {second} elements")?,
            ErrorKind::LengthMismatch => {
                write!(f, "length mismatch: {first} elements wanted, {second} given")?;
            }
            ErrorKind::InvalidArgument => f.write_str("invalid argument")?,
            ErrorKind::Unsupported => f.write_str("unsupported")?,
            ErrorKind::NoDevice if self.call.is_some() => f.write_str("no such device")?,
            ErrorKind::NoDevice => {
                write!(f, "no such device: gpu {first}, and the machine has {second}")?;
            }
            ErrorKind::NoDriver => f.write_str("no driver")?,
            ErrorKind::Capture => f.write_str("illegal during a graph capture")?,
            ErrorKind::ContextLost => {
                f.write_str("context lost by an earlier error, nothing works on this device any more")?;
            }
            ErrorKind::ShutDown => {
                f.write_str("the driver has shut down, or belongs to the parent process")?;
            }
            ErrorKind::InUse if self.detail.is_some() => f.write_str("in use")?,
            ErrorKind::InUse => write!(f, "in use: {first} blocks are still out")?,
            ErrorKind::Asleep => f.write_str("asleep")?,
            ErrorKind::Stale => f.write_str("stale")?,
            ErrorKind::OwnProcess => f.write_str("shared by this process")?,
            ErrorKind::Misuse => f.write_str("misuse")?,
            ErrorKind::Malformed if first == 0 => f.write_str("malformed")?,
            ErrorKind::Malformed => write!(f, "malformed: line {first}")?,
            ErrorKind::Unreadable if first == 0 => f.write_str("unreadable")?,
            ErrorKind::Unreadable => write!(f, "unreadable: line {first}")?,
            ErrorKind::Unwritable => f.write_str("unwritable")?,
            ErrorKind::Driver => f.write_str("driver error")?,
            ErrorKind::Foreign => f.write_str("foreign error")?,
        }
        match self.detail.as_deref() {
            // The kind names it already.
            Some(Detail::Unsupported(said)) if self.kind == ErrorKind::NoDriver => {
                write!(f, ": {}; {}", said.why, said.instead)?;
            }
            Some(detail) => write!(f, ": {detail}")?,
            None => {}
        }
        // The report of a suballocator ends with the error of its upstream, including the call and its code. An error at a
        // position in a text has them in its message.
        let is_said = self.out_of_memory_report().is_some() || self.column().is_some();
        if let Some(call) = self.call.filter(|_| !is_said) {
            write!(f, " ({})", DriverError::new(call, Code(self.code)))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.kind)
    }
}
