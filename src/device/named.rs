//! Machines and devices by the names that people write: `cudart`, `hip:0`.

use super::{Device, Machine};
use crate::environment;
use crate::error::{Error, ErrorKind};

/// The variable that says which driver a program uses.
const VARIABLE: &str = "ALLUVION_DRIVER";

impl Machine {
    /// The names that [`named`](Self::named) knows, those that are built in or not.
    pub const NAMES: &'static [&'static str] = &["cuda", "cudart", "hip", "maca"];

    /// The machine of the driver with that name: [`cuda`](Self::cuda), [`cudart`](Self::cudart), [`hip`](Self::hip),
    /// [`maca`](Self::maca).
    ///
    /// ```
    /// let error = alluvion::Machine::named("cuad").unwrap_err();
    /// assert!(error.to_string().contains("cuda, cudart, hip, maca"));
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for another name; `Unsupported` if the crate is built without that driver; those of the driver.
    pub fn named(name: &str) -> Result<Self, Error> {
        match name {
            #[cfg(feature = "cuda")]
            "cuda" => Self::cuda(),
            #[cfg(feature = "runtime")]
            "cudart" => Self::cudart(),
            #[cfg(feature = "runtime")]
            "hip" => Self::hip(),
            #[cfg(feature = "runtime")]
            "maca" => Self::maca(),
            _ if Self::NAMES.contains(&name) => Err(Error::unsupported(
                "this driver",
                "the crate is built without it",
                "build it with the feature `cuda`, or `runtime` for the others",
            )),
            _ => Err(Error::invalid_argument_that(format!(
                "there is no driver `{name}`: it is one of {}",
                Self::NAMES.join(", ")
            ))),
        }
    }

    /// The machine that the variable `ALLUVION_DRIVER` names, and that of CUDA where it is not set, or empty. A process with more
    /// rights than its parent does not read it.
    ///
    /// ```
    /// match alluvion::Machine::of_environment() {
    ///     Ok(machine) => println!("{} devices", machine.devices().count()),
    ///     // No driver, or no GPU: use a simulated machine.
    ///     Err(error) => assert!(error.is_no_device()),
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`named`](Self::named).
    pub fn of_environment() -> Result<Self, Error> {
        let name = environment::variable(VARIABLE).map(|name| name.to_string_lossy().trim().to_owned());
        match name.filter(|name| !name.is_empty()) {
            None => Self::named("cuda"),
            Some(name) => Self::named(&name).map_err(|error| match error.kind() {
                ErrorKind::InvalidArgument => of_variable(&error),
                _ => error,
            }),
        }
    }
}

#[cold]
fn of_variable(error: &Error) -> Error {
    Error::invalid_argument_that(format!("{VARIABLE}: {}", error.reason()))
}

impl Device {
    /// A device by its driver and its number: `hip:0`, `cudart:1`. Without a driver, as `1`, it is one of
    /// [`Machine::of_environment`]; without a number, as `hip`, it is device 0.
    ///
    /// ```
    /// use alluvion::Device;
    ///
    /// assert!(Device::named("hip:first").is_err());
    /// assert!(Device::named("cuad:0").unwrap_err().to_string().contains("there is no driver `cuad`"));
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for what is no such name; `NoDevice` if there are fewer; as [`Machine::named`].
    pub fn named(name: &str) -> Result<Self, Error> {
        let (machine, number) = match name.split_once(':') {
            Some((driver, number)) => (Some(driver), number),
            None if name.starts_with(|letter: char| letter.is_ascii_digit()) => (None, name),
            None => (Some(name), "0"),
        };
        let ordinal: u32 = number.parse().map_err(|_| {
            Error::invalid_argument_that(format!("`{number}` is no number of a device, in `{name}`"))
        })?;
        match machine {
            Some(driver) => Machine::named(driver),
            None => Machine::of_environment(),
        }?
        .device(ordinal)
    }
}
