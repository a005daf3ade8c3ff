//! `Action`: what a row of a log says was done.

/// What a row of a log says was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `allocate`: a block was handed out.
    Allocate,
    /// `allocate failure`: a block was asked for, and there was none.
    AllocateFailure,
    /// `free`: a block was given back.
    Free,
}
