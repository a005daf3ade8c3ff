//! The core beside plain data: after random calls, after all short programs, and in the cases that were hard to decide.

mod bounds;
mod decisions;
mod model;
mod programs;
mod ranges;
mod verify;
