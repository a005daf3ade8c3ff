//! `Card`: the name and the arguments of a layer or a source. Recipes and their help are made from cards.

/// The name and the arguments of a layer or a source. It stands beside the type that it describes.
pub(crate) struct Card {
    /// The name, in kebab case: the same as that of the method that puts the layer over another resource.
    pub(crate) name: &'static str,
    /// A description of the layer in one sentence.
    pub(crate) about: &'static str,
    /// The arguments, in their order.
    pub(crate) parameters: &'static [Parameter],
}

/// An argument of an ingredient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: ArgumentKind,
    pub(crate) about: &'static str,
    pub(crate) is_needed: bool,
}

/// The kind of value that an argument takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    Size,
    Count,
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words, or a size.
    WordOrSize(&'static [&'static str]),
    /// One of these words, or a whole number.
    WordOrCount(&'static [&'static str]),
    /// How many times as much, such as 1.05, or a size, of more than 100 bytes.
    TimesOrSize,
    /// Devices of the machine.
    Devices,
    /// Any text, such as the name of a file.
    Text,
    /// Another recipe.
    Recipe,
}

impl Parameter {
    /// The argument that every source has.
    pub(crate) const GPU: Self = Self::new(
        "gpu",
        ArgumentKind::Count,
        "the number of the device; the one that the stack is built on if left out",
    );

    /// The argument that every source has whose memory other devices may access, too.
    pub(crate) const PEERS: Self = Self::new(
        "peers",
        ArgumentKind::Devices,
        "the other devices that may access the memory; none if left out",
    );

    /// The argument of sources whose memory other processes can open.
    pub(crate) const HANDLES: Self = Self::new(
        "handles",
        ArgumentKind::Word(&["fd", "fabric", "both"]),
        "how other processes can open its memory: by descriptors, by fabric handles, or both; not at all if left out",
    );

    pub(crate) const fn new(name: &'static str, kind: ArgumentKind, about: &'static str) -> Self {
        Self { name, kind, about, is_needed: false }
    }

    /// An argument that cannot be left out.
    pub(crate) const fn needed(name: &'static str, kind: ArgumentKind, about: &'static str) -> Self {
        Self { name, kind, about, is_needed: true }
    }

    /// The name of the argument, in kebab case.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The meaning of the argument, and its default.
    #[must_use]
    pub const fn about(&self) -> &'static str {
        self.about
    }

    /// The kind of value that it takes: `a size`, `true or false`.
    #[must_use]
    pub fn expects(&self) -> String {
        self.kind.name()
    }

    /// Returns `true` if it cannot be left out.
    #[must_use]
    pub const fn is_needed(&self) -> bool {
        self.is_needed
    }
}

impl ArgumentKind {
    /// The kind in words.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Size => "a size".into(),
            Self::Count => "a whole number".into(),
            Self::Flag => "true or false".into(),
            Self::Word(words) => any_of(words, None),
            Self::WordOrSize(words) => any_of(words, Some("a size")),
            Self::WordOrCount(words) => any_of(words, Some("a whole number")),
            Self::TimesOrSize => "a number from 1 to 100, such as 1.05, or a size".into(),
            Self::Devices => "all, reachable or numbers such as 0+1".into(),
            Self::Text => "a text".into(),
            Self::Recipe => "a recipe".into(),
        }
    }

    /// The kind in the shortest form, for a list of arguments.
    pub(crate) fn short(self) -> String {
        match self {
            Self::Size => "SIZE".into(),
            Self::Count => "N".into(),
            Self::Flag => "true|false".into(),
            Self::Word(words) => words.join("|"),
            Self::WordOrSize(words) => format!("{}|SIZE", words.join("|")),
            Self::WordOrCount(words) => format!("{}|N", words.join("|")),
            Self::TimesOrSize => "X|SIZE".into(),
            Self::Devices => "DEVICES".into(),
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
