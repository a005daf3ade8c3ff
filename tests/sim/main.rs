//! The simulated machine: schedules, captures, failures, and the hazards that it reports.

mod capture;
mod driver_pool;
mod explore;
mod faults;
mod hazards;
mod machine;
mod pages;
mod schedule;
mod verdict;
