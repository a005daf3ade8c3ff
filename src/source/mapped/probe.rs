//! The trial of a configuration: a page that is created to be exported as asked, and mapped for every peer.

#![expect(unsafe_code, reason = "maps and unmaps a page for the trial")]

use super::MappedCore;
use crate::driver::{Call, DriverError, HandleType};
use crate::error::Error;
use crate::source::peers::{self, is_refusal};

impl MappedCore {
    /// Creates and maps one page, and undoes it, where the configuration asks for anything that a device may lack. Only a call that
    /// does it tells whether two devices may access each other's mapped memory.
    pub(super) fn try_config(&self) -> Result<(), Error> {
        if self.accessors.len() == 1 && self.config.exported_as() == HandleType::NONE {
            return Ok(());
        }
        self.try_a_page()
    }

    /// Creates a page, maps it, and takes both back.
    pub(super) fn try_a_page(&self) -> Result<(), Error> {
        let (range, block) = self.apart(self.unit).map_err(|error| self.not_exported(error))?;
        // SAFETY: page and range were made just now: the page has no address, and nothing is mapped in the range, which is as
        // long as the page.
        match unsafe { self.map_for_all(block.page, range) } {
            Ok(()) => {
                // SAFETY: it was mapped just now, and no work uses it.
                unsafe { self.free(range, block) };
                Ok(())
            }
            Err((accessor, error)) => {
                // SAFETY: the page has no address, because mapping it failed.
                unsafe { self.release_unmapped(range, block) };
                Err(self.not_accessible(accessor, error))
            }
        }
    }

    /// The error of the trial for one accessor.
    fn not_accessible(&self, accessor: u32, error: DriverError) -> Error {
        if error.call != Call::MemorySetAccess || accessor == self.ordinal() {
            return Error::of_driver(error, self.unit);
        }
        peers::refused(&self.device, accessor, error)
    }

    /// The error of a page that could not be created for the trial.
    fn not_exported(&self, error: Error) -> Error {
        let is_refused = error.call() == Some(Call::MemoryCreate) && error.code().is_some_and(is_refusal);
        if !is_refused || self.config.exported_as() == HandleType::NONE {
            return error;
        }
        Error::unsupported(
            "memory that is exported as asked",
            "the device creates none with these handle types",
            "leave out `handle_types`, or ask for those in `Capabilities::page_handle_types`",
        )
    }
}
