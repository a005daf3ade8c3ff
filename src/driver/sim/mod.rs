//! A simulated machine.
