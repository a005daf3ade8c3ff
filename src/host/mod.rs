//! What can `Vec` use?
//!
//! [`OnHost`] is the one door from a resource to `Allocator`, and it opens for memory that the host may touch and for no
//! other: a `Vec` over device memory does not compile. [`PinnedAlloc`] is that door with a name and no type parameter, and
//! [`NewDelete`] is the ordinary heap, for code that is generic over allocators.
//!
//! All three implement the `Allocator` of allocator-api2 0.2, which hashbrown and bumpalo use, with the feature
//! `allocator-api2-04` that of 0.4, and with the feature `nightly` the standard library's. That one and the feature
//! `nightly` of allocator-api2 exclude each other, because there the trait of 0.2 is the standard library's.

mod allocator;
mod blocks;
mod new_delete;
mod on_host;
mod pinned_alloc;

pub use new_delete::NewDelete;
pub use on_host::OnHost;
pub use pinned_alloc::PinnedAlloc;
