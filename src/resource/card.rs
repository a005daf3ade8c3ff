//! `Card`: what a layer or a source is called, and what it can be told. A recipe and its help are made of these.

/// What a layer or a source is called, and what it can be told. It stands beside what it is about.
pub(crate) struct Card {
    /// In kebab case: the method that puts the layer over another resource is called the same.
    pub(crate) name: &'static str,
    /// What it is, in a sentence.
    pub(crate) about: &'static str,
    /// The arguments that it takes, in their order.
    pub(crate) parameters: &'static [Parameter],
}

/// An argument that an ingredient takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: ArgumentKind,
    pub(crate) about: &'static str,
    pub(crate) is_needed: bool,
}

/// What an argument has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    Size,
    Count,
    Flag,
    /// One of these.
    Word(&'static [&'static str]),
    /// One of these, or a size.
    WordOrSize(&'static [&'static str]),
    /// One of these, or a whole number.
    WordOrCount(&'static [&'static str]),
    /// Whatever is written there, as the name of a file.
    Text,
    /// A recipe of its own.
    Recipe,
}

impl Parameter {
    /// What every source has.
    pub(crate) const GPU: Self = Self::new(
        "gpu",
        ArgumentKind::Count,
        "the number of the device; the one that the stack is built on if left out",
    );

    pub(crate) const fn new(name: &'static str, kind: ArgumentKind, about: &'static str) -> Self {
        Self { name, kind, about, is_needed: false }
    }

    /// One that cannot be left out.
    pub(crate) const fn needed(name: &'static str, kind: ArgumentKind, about: &'static str) -> Self {
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

impl ArgumentKind {
    /// What an argument has to be, in words.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Size => "a size".into(),
            Self::Count => "a whole number".into(),
            Self::Flag => "true or false".into(),
            Self::Word(words) => any_of(words, None),
            Self::WordOrSize(words) => any_of(words, Some("a size")),
            Self::WordOrCount(words) => any_of(words, Some("a whole number")),
            Self::Text => "a text".into(),
            Self::Recipe => "a recipe".into(),
        }
    }

    /// The same in the shortest form, for a list of arguments.
    pub(crate) fn short(self) -> String {
        match self {
            Self::Size => "SIZE".into(),
            Self::Count => "N".into(),
            Self::Flag => "true|false".into(),
            Self::Word(words) => words.join("|"),
            Self::WordOrSize(words) => format!("{}|SIZE", words.join("|")),
            Self::WordOrCount(words) => format!("{}|N", words.join("|")),
            Self::Text => "TEXT".into(),
            Self::Recipe => "RECIPE".into(),
        }
    }
}

fn any_of(words: &[&str], last: Option<&str>) -> String {
    let mut all: Vec<&str> = words.iter().copied().chain(last).collect();
    let end = all.pop().unwrap_or_default();
    if all.is_empty() { end.into() } else { format!("{} or {end}", all.join(", ")) }
}
