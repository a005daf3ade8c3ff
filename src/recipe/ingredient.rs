//! `Ingredient`: what may stand in a recipe. The table of all of them is here.

use core::fmt::{self, Write};

use super::under::Under;
use super::value::Kind;
use super::{Call, adaptors, sources, suballocators};
use crate::device::Device;
use crate::error::Error;

/// What may stand in a recipe: a layer or a source, by its name.
///
/// ```
/// let pool = alluvion::recipe::ingredients().find(|ingredient| ingredient.name() == "pool").expect("there is one");
/// assert!(!pool.is_source());
/// assert_eq!(pool.parameters()[0].name(), "initial");
/// ```
pub struct Ingredient {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) parameters: &'static [Parameter],
    pub(super) make: Make,
}

/// An argument that an ingredient takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) about: &'static str,
    pub(super) is_needed: bool,
}

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
        self.name
    }

    /// What it is, in a sentence.
    #[must_use]
    pub const fn about(&self) -> &'static str {
        self.about
    }

    /// Whether it stands at the end.
    #[must_use]
    pub const fn is_source(&self) -> bool {
        matches!(self.make, Make::Source(_) | Make::Inaccessible(_))
    }

    /// The arguments that it takes, in their order.
    #[must_use]
    pub const fn parameters(&self) -> &'static [Parameter] {
        self.parameters
    }
}

impl Parameter {
    pub(super) const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, kind, about, is_needed: false }
    }

    /// One that cannot be left out.
    pub(super) const fn needed(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self { name, kind, about, is_needed: true }
    }

    /// Its name, in kebab case.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What it decides, and what it is when it is left out.
    #[must_use]
    pub const fn about(&self) -> &'static str {
        self.about
    }

    /// What it has to be: `a size`, `true or false`.
    #[must_use]
    pub fn expects(&self) -> String {
        self.kind.name()
    }

    /// Whether it cannot be left out.
    #[must_use]
    pub const fn is_needed(&self) -> bool {
        self.is_needed
    }
}

impl fmt::Debug for Ingredient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingredient").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Everything that may stand in a recipe: the layers, then the sources.
pub fn ingredients() -> impl Iterator<Item = &'static Ingredient> + Clone {
    adaptors::ALL.iter().chain(suballocators::ALL).chain(sources::ALL)
}

/// What may stand in a recipe, for people to read.
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
            let arguments: Vec<String> = ingredient
                .parameters
                .iter()
                .map(|parameter| format!("{}={}", parameter.name, parameter.kind.short()))
                .collect();
            let arguments =
                if arguments.is_empty() { String::new() } else { format!("({})", arguments.join(", ")) };
            let _ = writeln!(help, "  {}{arguments}\n      {}", ingredient.name, ingredient.about);
            for parameter in ingredient.parameters {
                let _ = writeln!(help, "      {:<13} {}", parameter.name, parameter.about);
            }
        }
    }
    help.push_str("SIZE is a number of bytes or has a unit, as 4096, 64k, 1GiB and 1GB do; 50% is a part of what is free then.\n");
    help
}
