//! What do drivers over vendors' libraries have in common?
//!
//! The libraries copy one interface, CUDA's: its structures and numbers are in `abi`, and `answer`, `exported` and `plain_allocation` have
//! its oddities. Functions that both drivers call by one text are one table, `functions`. Over that, and over what a driver says of its
//! library as a [`LibraryDriver`], each of `pages`, `pools`, `pinned`, `migration` and `address_range` is one text for all.

pub(super) mod abi;
pub(super) mod address_range;
pub(super) mod answer;
pub(super) mod exported;
pub(super) mod functions;
pub(super) mod host_call;
mod library_driver;
pub(super) mod migration;
pub(super) mod numa;
pub(super) mod pages;
pub(super) mod pinned;
pub(super) mod plain_allocation;
pub(super) mod pools;

pub(super) use library_driver::LibraryDriver;

/// Methods of [`Driver`](super::Driver), or of [`Sharing`](super::Sharing), that a room answers: each by its function of the same name.
macro_rules! answered_in {
    ($room:ident:) => {};
    ($room:ident: fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty; $($rest:tt)*) => {
        fn $name(&self, $($argument: $type),*) -> DriverResult<$answer> {
            $room::$name(self, $($argument),*)
        }
        answered_in! { $room: $($rest)* }
    };
    ($room:ident: unsafe fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty; $($rest:tt)*) => {
        unsafe fn $name(&self, $($argument: $type),*) -> DriverResult<$answer> {
            // SAFETY: the promises of the function are those of the method that it answers, which the caller makes.
            unsafe { $room::$name(self, $($argument),*) }
        }
        answered_in! { $room: $($rest)* }
    };
}

pub(super) use answered_in;
