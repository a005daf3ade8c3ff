//! What can `Vec` use?
//!
//! [`OnHost`] is the one door from a resource to `Allocator`, and it opens for memory that the host may touch and for no
//! other: a `Vec` over device memory does not compile. [`PinnedAlloc`] is that door with a name and no type parameter, and
//! [`NewDelete`] is the ordinary heap, for code that is generic over allocators.
//!
//! [`Vec`], [`Box`], [`HashMap`] and [`HashSet`] are the collections that take them, under the one name that has the right
//! version: those of the standard library take no allocator on a stable compiler, and those of another allocator-api2 take none
//! of these.
//!
//! ```
//! use alluvion::host::{Box, HashMap, Vec};
//! use alluvion::{PinnedAlloc, Sim};
//!
//! let pinned = PinnedAlloc::new(&Sim::new().device(0))?;
//! let mut prices = Vec::new_in(pinned.clone());
//! prices.extend([1.5, 2.5]);
//! let zeros = Box::new_in([0_u8; 64], pinned.clone());
//! let mut stock = HashMap::new_in(pinned);
//! stock.insert("apples", prices);
//! assert_eq!((stock["apples"].len(), zeros.len()), (2, 64));
//! # Ok::<(), alluvion::Error>(())
//! ```
//!
//! All three allocators implement the `Allocator` of allocator-api2 0.2, which hashbrown and bumpalo use, with the feature
//! `allocator-api2-04` that of 0.4, and with the feature `nightly` the standard library's. That one and the feature
//! `nightly` of allocator-api2 exclude each other, because there the trait of 0.2 is the standard library's.

mod allocator;
mod blocks;
mod new_delete;
mod on_host;
mod pinned_alloc;
mod pinned_vec;

/// What [`Vec`], [`Box`], [`HashMap`] and [`HashSet`] take: the trait of allocator-api2 0.2.
#[doc(no_inline)]
pub use allocator_api2::alloc::Allocator;
/// The `Box` of allocator-api2 0.2, which takes an allocator.
#[doc(no_inline)]
pub use allocator_api2::boxed::Box;
/// The `Vec` of allocator-api2 0.2, which takes an allocator.
#[doc(no_inline)]
pub use allocator_api2::vec::Vec;
/// The maps and sets of hashbrown 0.17, which take an allocator.
#[doc(no_inline)]
pub use hashbrown::{HashMap, HashSet};
pub use new_delete::NewDelete;
pub use on_host::OnHost;
pub use pinned_alloc::PinnedAlloc;
pub use pinned_vec::PinnedVec;
