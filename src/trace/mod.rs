//! Traces of allocations, and logs.
//!
//! A [`Trace`] lists the allocations and frees of a program: which block, when, on which stream, by which thread. It is plain
//! data: nothing here allocates from a resource.
//!
//! [`RmmCsv`] reads the rows of a log in RMM's format, [`Trace::from_rmm_csv`] matches them into events, and [`TraceEvents`] does
//! so one at a time. A malformed line is an error that names the line and the reason. A log that was cut off is read as far as it
//! goes, and a [`Cut`] says where it ends. [`RmmCsvWriter`] writes such a log, as [`Logging`](crate::adaptor::Logging) does while
//! a program runs.

#![forbid(unsafe_code)]

mod action;
mod apart;
mod columns;
mod cut;
mod event;
mod event_columns;
mod moment;
mod refusal;
mod rmm_csv;
mod rmm_csv_writer;
mod row;
mod row_format;
#[expect(clippy::module_inception, reason = "file = type")]
mod trace;
mod trace_events;
mod unpacked;

pub use action::Action;
pub use cut::Cut;
pub use event::{Event, EventKind};
pub use moment::Moment;
pub use refusal::Refusal;
pub use rmm_csv::RmmCsv;
pub use rmm_csv_writer::RmmCsvWriter;
pub use row::Row;
pub(crate) use row_format::{Fields, LONGEST_TAG, RowFormat};
pub use trace::Trace;
pub use trace_events::TraceEvents;
pub use unpacked::Unpacked;
