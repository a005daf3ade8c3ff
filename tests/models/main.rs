//! Random programs against plain data: the bytes that come out, the books, and no hazard under any schedule.

#[path = "../support/every_source.rs"]
mod every_source;
#[path = "../support/raw_block.rs"]
mod raw_block;
#[path = "../support/soak.rs"]
mod soak;
#[path = "../support/trials.rs"]
mod trials;

mod containers;
mod pool_program;
mod pool_schedules;
mod pool_soak;
mod pools;
mod resources;
mod streams;
mod suballocators;
