//! Streams, events and frontiers on the simulated machine.

#[path = "../support/plain_environment.rs"]
mod plain_environment;
#[path = "../support/stream_contract/mod.rs"]
mod stream_contract;

mod captures_by_others;
mod meddling;
mod open_ends;
mod streams;
