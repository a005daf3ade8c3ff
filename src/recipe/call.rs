//! `Call`: what the maker of an ingredient is given.

use super::Recipe;
use super::amount::Amount;
use super::devices::Devices;
use super::place::Place;
use super::step::{Argument, Step};
use super::value::Value;
use crate::device::Device;
use crate::error::Error;
use crate::resource::{Layout, Resource};

/// An ingredient as it was written down, for the function that makes it: the arguments by their names, and errors that point
/// at them.
pub(crate) struct Call<'r> {
    pub(super) text: &'r str,
    pub(super) step: &'r Step,
}

impl Call<'_> {
    fn argument(&self, name: &str) -> Option<&Argument> {
        let at = self.step.ingredient.parameters().iter().position(|parameter| parameter.name() == name);
        debug_assert!(at.is_some(), "{} has no argument {name}", self.step.ingredient.name());
        self.step.arguments.get(at?)?.as_ref()
    }

    /// Returns `true` if the argument is not left out.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.argument(name).is_some()
    }

    /// The bytes of a size. A part is of what `resource` says is free, rounded down to units of 256.
    pub(super) fn bytes(&self, name: &str, resource: &dyn Resource) -> Result<Option<usize>, Error> {
        let Some(argument) = self.argument(name) else { return Ok(None) };
        match argument.value {
            Value::Size(Amount::Bytes(bytes)) => Ok(Some(bytes)),
            Value::Size(Amount::Percent(percent)) => {
                let free = resource.memory_info()?.free_bytes as u128;
                let part = free * u128::from(percent) / 100;
                let units = usize::try_from(part).unwrap_or(usize::MAX) / Layout::MIN_ALIGN;
                Ok(Some(units * Layout::MIN_ALIGN))
            }
            _ => Ok(None),
        }
    }

    pub(super) fn count(&self, name: &str) -> Option<u64> {
        match self.argument(name)?.value {
            Value::Count(count) => Some(count),
            _ => None,
        }
    }

    pub(super) fn times(&self, name: &str) -> Option<f64> {
        match self.argument(name)?.value {
            Value::Times(times) => Some(times),
            _ => None,
        }
    }

    /// A number for a field of the host's size.
    pub(super) fn number<N: TryFrom<u64>>(&self, name: &str) -> Result<Option<N>, Error> {
        let Some(count) = self.count(name) else { return Ok(None) };
        N::try_from(count).map(Some).map_err(|_| self.wrong(name, "it is larger than it can be"))
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        match self.argument(name)?.value {
            Value::Flag(flag) => Some(flag),
            _ => None,
        }
    }

    pub(super) fn word(&self, name: &str) -> Option<&'static str> {
        match self.argument(name)?.value {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match &self.argument(name)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The devices of a list, for memory of `device`, which is none of them.
    pub(super) fn devices(&self, name: &str, device: &Device) -> Result<Vec<Device>, Error> {
        let Some(Argument { value: Value::Devices(devices), .. }) = self.argument(name) else {
            return Ok(Vec::new());
        };
        let machine = device.machine();
        Ok(match devices {
            Devices::All => machine.devices().filter(|other| other != device).collect(),
            Devices::Reachable => device.peers()?,
            Devices::Those(ordinals) => {
                let named = ordinals.iter().filter(|ordinal| **ordinal != device.ordinal());
                named.map(|&ordinal| machine.device(ordinal)).collect::<Result<_, _>>()?
            }
        })
    }

    /// The bytes of a size that cannot be left out.
    pub(super) fn needed_bytes(&self, name: &str, resource: &dyn Resource) -> Result<usize, Error> {
        self.bytes(name, resource)?.ok_or_else(|| self.wrong(name, "it is left out"))
    }

    /// A recipe that cannot be left out.
    pub(super) fn needed_recipe(&self, name: &str) -> Result<&Recipe, Error> {
        match self.argument(name).map(|argument| &argument.value) {
            Some(Value::Recipe(recipe)) => Ok(recipe),
            _ => Err(self.wrong(name, "it is left out")),
        }
    }

    /// The value of an argument breaks a rule.
    #[cold]
    pub(super) fn wrong(&self, name: &str, why: &'static str) -> Error {
        let place = self.argument(name).map_or(&self.step.name, |argument| &argument.place);
        let error = Error::invalid_argument("the value", why, "see `recipe::help`");
        Error::pointing(self.text, place.0.clone(), why.into(), Some(error))
    }

    /// Points at the ingredient, where its maker has refused.
    #[cold]
    pub(super) fn refused(&self, error: Error) -> Error {
        self.place().refused(self.text, error)
    }

    /// The ingredient with its arguments.
    fn place(&self) -> Place {
        let end = self.step.arguments.iter().flatten().map(|argument| argument.place.0.end).max();
        let name = &self.step.name.0;
        Place(name.start..end.unwrap_or(name.end))
    }
}
