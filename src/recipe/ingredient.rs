//! `Ingredient`: what may stand in a recipe. The table of all of them is here.

use core::fmt::{self, Write};

use super::under::Under;
use super::{Call, adaptors, auto, sources, suballocators};
use crate::device::Device;
use crate::error::Error;
use crate::resource::card::Card;
pub use crate::resource::card::Parameter;

/// A layer or a source that a recipe may name.
///
/// ```
/// let pool = alluvion::recipe::ingredients().find(|ingredient| ingredient.name() == "pool").expect("there is one");
/// assert!(!pool.is_source());
/// assert_eq!(pool.parameters()[0].name(), "initial");
/// ```
pub struct Ingredient {
    pub(super) card: Card,
    pub(super) make: Make,
}

/// No line of the help is longer.
const WIDTH: usize = 130;

/// How an ingredient is made.
#[derive(Clone, Copy)]
pub(super) enum Make {
    Layer(fn(Under, &Call<'_>) -> Result<Under, Error>),
    Source(fn(&Device, &Call<'_>) -> Result<Under, Error>),
    /// A source whose blocks the device may not touch.
    Inaccessible(fn(&Device, &Call<'_>) -> Result<Under, Error>),
}

impl Ingredient {
    /// Its name, in kebab case.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.card.name
    }

    /// Its description, in a sentence.
    #[must_use]
    pub const fn about(&self) -> &'static str {
        self.card.about
    }

    /// Whether it stands at the end.
    #[must_use]
    pub const fn is_source(&self) -> bool {
        matches!(self.make, Make::Source(_) | Make::Inaccessible(_))
    }

    /// The arguments that it takes, in their order.
    #[must_use]
    pub const fn parameters(&self) -> &'static [Parameter] {
        self.card.parameters
    }
}

impl fmt::Debug for Ingredient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingredient").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// Everything that may stand in a recipe: the layers, then the sources.
pub fn ingredients() -> impl Iterator<Item = &'static Ingredient> + Clone {
    adaptors::ALL.iter().chain(suballocators::ALL).chain(auto::ALL).chain(sources::ALL)
}

/// All layers and sources of recipes, for people to read.
///
/// ```
/// let help = alluvion::recipe::help();
/// assert!(help.contains("pool(initial=SIZE, maximum=SIZE"), "{help}");
/// ```
#[must_use]
pub fn help() -> String {
    let mut help = String::new();
    for (heading, is_source) in [("Layers:", false), ("Sources, at the end:", true)] {
        // Writing to a text cannot fail.
        let _ = writeln!(help, "{heading}");
        for ingredient in ingredients().filter(|ingredient| ingredient.is_source() == is_source) {
            let Card { name, about, parameters } = ingredient.card;
            let arguments: Vec<String> = parameters
                .iter()
                .map(|parameter| format!("{}={}", parameter.name, parameter.kind.short()))
                .collect();
            let mut line = format!("  {name}");
            for (at, argument) in arguments.iter().enumerate() {
                let before = if at == 0 { "(" } else { ", " };
                let behind = if at + 1 == arguments.len() { ")" } else { "" };
                if line.len() + before.len() + argument.len() + behind.len() >= WIDTH {
                    let _ = writeln!(help, "{line}{}", before.trim_end());
                    line = format!("      {argument}{behind}");
                } else {
                    let _ = write!(line, "{before}{argument}{behind}");
                }
            }
            let _ = writeln!(help, "{line}\n      {about}");
            for parameter in parameters {
                let _ = writeln!(help, "      {:<13} {}", parameter.name, parameter.about);
            }
        }
    }
    help.push_str("DEVICES are all others of the machine, those that are reachable, or numbers, as 0+1.\n");
    help.push_str("SIZE is a number of bytes or has a unit, as 4096, 64k, 1GiB and 1GB do; 50% is a part of what is free then.\n");
    help
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// `fixed-size` is `FixedSize`.
    fn type_of(name: &str) -> String {
        let word = |word: &str| word[..1].to_uppercase() + &word[1..];
        name.split('-').map(word).collect()
    }

    /// What the pages say in their own words has every layer in it.
    #[test]
    fn no_layer_is_missing_where_layers_are_listed() {
        let readme = include_str!("../../README.md");
        let (adaptors, suballocators) =
            (include_str!("../adaptor/mod.rs"), include_str!("../suballoc/mod.rs"));
        for (layers, room) in [(adaptors::ALL, adaptors), (suballocators::ALL, suballocators)] {
            for layer in layers {
                let called = type_of(layer.name());
                assert!(readme.contains(&format!("`{called}`")), "README.md does not list `{called}`");
                assert!(
                    room.contains(&format!("//! | [`{called}`] |")),
                    "no table of the room lists [`{called}`]"
                );
            }
        }
    }

    #[test]
    fn no_source_is_missing_where_sources_are_listed() {
        for source in sources::ALL {
            let called = type_of(source.name());
            let room = include_str!("../source/mod.rs");
            assert!(
                room.lines().any(|line| line.starts_with("//! | ") && line.contains(&format!("`{called}`"))),
                "{called}"
            );
        }
    }

    #[test]
    fn every_name_is_there_once_and_every_argument_of_it() {
        let names: Vec<&str> = ingredients().map(Ingredient::name).collect();
        for (at, ingredient) in ingredients().enumerate() {
            assert!(!names[..at].contains(&ingredient.name()), "{}", ingredient.name());
            assert!(ingredient.about().ends_with('.') && ingredient.about().starts_with(char::is_alphabetic));
            let parameters: Vec<&str> = ingredient.parameters().iter().map(Parameter::name).collect();
            for (at, parameter) in parameters.iter().enumerate() {
                assert!(!parameters[..at].contains(parameter), "{} has two {parameter}", ingredient.name());
            }
            let is_on_device = parameters.contains(&Parameter::GPU.name());
            assert_eq!(is_on_device, ingredient.is_source(), "{}", ingredient.name());
        }
    }
}
