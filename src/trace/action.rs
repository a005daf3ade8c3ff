//! `Action`: the action of a row of a log.

/// The action of a row of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `allocate`: a block was handed out.
    Allocate,
    /// `allocate failure`: an allocation failed.
    AllocateFailure,
    /// `free`: a block was given back.
    Free,
}
