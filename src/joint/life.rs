//! `Life`: what processes know each other by.

/// A process, as what others write of it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) process: u32,
    /// In ticks of the system's clock; 0 where nobody can say.
    pub(crate) started: u64,
    pub(crate) kin: KinMark,
}

/// What its children, of whatever degree, are known by; [`NONE`](Self::NONE) where nobody can tell them from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KinMark(pub(crate) u64);

impl KinMark {
    #[allow(dead_code, reason = "where no file can be shared nobody is asked for a mark")]
    pub(crate) const NONE: Self = Self(0);
}
