//! `Reuse`: what a stream may take of what was freed on another.

/// What a stream may take of the memory that was freed on other streams. Each includes those before it.
///
/// What a stream has freed itself, and what it has already waited for, it may always take: that needs no driver call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reuse {
    /// Nothing, while the pool can grow. No stream ever waits for another, unless memory runs out.
    Own,
    /// What is over on the device, before the pool grows.
    Completed,
    /// What is over, before the pool grows; and when it cannot grow, anything: the stream waits, on the device.
    Wait,
}
