//! Streams, and when memory may be reused.
//!
//! A [`Stream`] is a queue of work. Memory that is freed on one stream may be used on it again at once, and on another one only
//! after a wait. The crate keeps that dependency with the block: a free adds a [`Stamp`], which is the id of a stream and its
//! current [`Epoch`], and costs no driver call. The stamps of a block are its [`Frontier`]. Only when another stream wants the
//! block is an event recorded, once, which covers everything freed on the first stream so far.
//!
//! The words, used everywhere in this sense:
//!
//! - *submitted*: the driver call that queues the work has returned;
//! - *over*, *done*: the device has finished the work, and the crate has asked;
//! - *covered*: an event was recorded after it;
//! - *reusable on a stream*: the stream's next work comes after it;
//! - *quiescent*: over on every stream of every device.

mod branch;
mod device_streams;
mod event;
mod lent;
mod on_stream;
mod poll;
mod raw_stream_table;
mod raw_streams;
mod reach;
mod registered;
mod stream;
mod stream_pool;
mod thread;

pub use event::Event;
pub use on_stream::OnStream;
pub use raw_streams::RawStreams;
pub use stream::{Stream, StreamKind, StreamRef};
pub use stream_pool::StreamPool;
pub use thread::PerThreadStream;

pub use crate::driver::StreamFlags;
pub(crate) use crate::order::Places;
pub use crate::order::{Epoch, Frontier, Stamp, StreamId};
pub(crate) use crate::sync::ThreadToken;
