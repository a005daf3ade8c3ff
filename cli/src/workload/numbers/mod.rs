//! The random numbers that the peers' programs draw, bit for bit: what libstdc++ makes of the C++ standard.
//!
//! So every program here does the same operations in the same order as the peers', and pays the same for drawing
//! them.

mod minstd_rand0;
mod mt19937_64;
mod uniform;

pub(super) use minstd_rand0::MinstdRand0;
pub(super) use mt19937_64::Mt19937_64;
pub(super) use uniform::Uniform;
