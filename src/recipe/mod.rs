//! How is a stack written down?
//!
//! On one line, outermost first, as its type reads:
//!
//! ```
//! use alluvion::recipe::Recipe;
//! use alluvion::{DeviceVec, Sim};
//!
//! let sim = Sim::new();
//! let recipe: Recipe = "binning(1MiB, 4MiB, blocks=8) | pool(initial=64MiB, growth=doubling) | cuda-async".parse()?;
//! let resource = recipe.build(&sim.device(0))?;
//! let stream = sim.device(0).stream()?;
//! let numbers = DeviceVec::from_slice_in(&[1, 2, 3], &stream, resource)?;
//! # drop(numbers);
//! # Ok::<(), alluvion::Error>(())
//! ```
//!
//! # The grammar
//!
//! - A recipe is a row of ingredients with `|` between them: layers, and at the end a source. The source may be left out;
//!   then it is `cuda-async` where the device has memory pools, else `cuda`. So the empty recipe is that source alone.
//! - An ingredient is a name, and its arguments in parentheses if it has any. The name is that of the type in kebab case or
//!   in snake case: `cuda-async` and `cuda_async` are one.
//! - An argument is `name=value`, or a value alone in the place that [`help`] shows; those without a name come first.
//! - A *size* is a number and a unit: `1GiB`, `512MiB`, `64k` and `1.5g` count in powers of 1024, `1GB` and `20kB` in powers
//!   of 1000, and no unit means bytes. `50%` is that part of what is free when the layer is made. A *flag* is `true` or
//!   `false`. A text with anything but letters, digits and `._-/:~+@` in it stands in double quotes; a backslash takes the
//!   character after it as it is. *Devices* are `all` others of the machine, those that are `reachable`, or numbers, as `0+1`.
//!
//! # The ingredients
//!
//! | Ingredient | What it is |
//! |---|---|
//! | `logging` | Logs every allocation and free in RMM's format. |
//! | `stats` | Counts live and peak bytes and blocks, in total and by tag. |
//! | `tracking` | Records every live block, refuses wrong frees, and reports leaks. |
//! | `guard` | Finds writes beside a block and writes after its free; not over null. |
//! | `limiting` | Refuses requests that would make more bytes live than its limit. |
//! | `budget` | A limit with a name, and a soft limit whose crossings are counted. |
//! | `fallback` | Asks a second stack when the one under it is out of memory. |
//! | `aligned` | Aligns blocks to more than was asked for. |
//! | `prefetch` | Migrates managed memory to the device before it is used. |
//! | `pool` | Takes memory as it is needed, keeps what is freed, and serves every size from it. |
//! | `arena` | Takes a fixed amount when it is made, and gives streams large parts of it. |
//! | `fixed-size` | Serves every request with blocks of one size; larger requests fail. |
//! | `binning` | Serves small requests from bins, one for each power of two, and passes the others on. |
//! | `auto` | The best pool that the device can have: over mapped, else cuda-async, else cuda. |
//! | `cuda` | cuMemAlloc: a call to the driver for each block, and a free waits for the device. |
//! | `cuda-async` | A pool of the driver's own, stream-ordered. |
//! | `cuda-async-managed` | The driver's pool of managed memory, stream-ordered; needs CUDA 13.0. |
//! | `mapped` | Pages that are mapped into reserved addresses: a pool over it grows in place. |
//! | `managed` | cuMemAllocManaged: memory that moves between host and device. |
//! | `pinned` | Page-locked memory of the host that the device reaches. |
//! | `system` | Ordinary memory of the host, with HMM or ATS. |
//! | `null` | Addresses without memory, to measure the layers over it; no container takes it. |
//!
//! Their arguments, [`help`] tells, and [`ingredients`] lists. Types, names and places are checked when a line is parsed, values
//! when it is built; both point at the place:
//!
//! ```
//! use alluvion::recipe::Recipe;
//!
//! let error = "pool(initial=1GiB) | cuda-asinc".parse::<Recipe>().unwrap_err();
//! assert_eq!(error.column(), Some(22));
//! assert_eq!(
//!     error.to_string(),
//!     "malformed: line 1, column 22: nothing is called `cuda-asinc`; did you mean `cuda-async`?
//!   pool(initial=1GiB) | cuda-asinc
//!                        ^^^^^^^^^^",
//! );
//! ```
//!
//! No text makes the parser panic: a line has at most 4096 bytes and 32 ingredients, four recipes deep.

mod adaptors;
mod amount;
mod auto;
mod call;
mod devices;
mod ingredient;
mod nearest;
mod parser;
mod place;
#[expect(clippy::module_inception, reason = "file = type")]
mod recipe;
mod sources;
mod step;
mod suballocators;
mod under;
mod value;

use amount::Amount;
pub use auto::Auto;
pub(crate) use call::Call;
pub use ingredient::{Ingredient, Parameter, help, ingredients};
pub use recipe::Recipe;
pub(crate) use sources::default_source;

use crate::error::Error;

/// Reads a size as it stands in a recipe: `1GiB`, `64k`, `4096`. A part of what is free is none, because nothing says of what.
///
/// ```
/// assert_eq!(alluvion::recipe::parse_size("24GiB")?, 24 << 30);
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// # Errors
///
/// `Malformed`, with the reason.
pub fn parse_size(text: &str) -> Result<usize, Error> {
    let why = match Amount::parse(text.trim()) {
        Ok(Amount::Bytes(bytes)) => return Ok(bytes),
        Ok(Amount::Percent(_)) => "it is a part, and not a size",
        Err(why) => why,
    };
    Err(Error::malformed(1, why))
}
