//! The program `alluvion`: looks at what memory resources for GPUs do, and what they cost.
//!
//! The library is for programs that write a page of their own log at once: [`write_page`]. They need none of the program:
//! `alluvion-cli = { version = "0.1", default-features = false }`.

#![cfg_attr(
    not(feature = "program"),
    expect(
        dead_code,
        unused_imports,
        reason = "a page needs a part of what the commands of the program share"
    )
)]

#[cfg(feature = "program")]
mod bench;
#[cfg(feature = "program")]
mod command_line;
#[cfg(feature = "program")]
mod counted;
#[cfg(feature = "program")]
mod doctor;
#[cfg(feature = "program")]
mod export;
mod failure;
mod input;
mod note;
#[cfg(feature = "program")]
mod null_pages;
mod playback;
#[cfg(feature = "program")]
mod replay;
#[cfg(feature = "program")]
mod rig;
mod snapshot_file;
#[cfg(feature = "program")]
mod timing;
#[cfg(feature = "program")]
mod trace_file;
#[cfg(feature = "program")]
mod tune;
mod viz;
mod workload;

use std::path::Path;

#[cfg(feature = "program")]
pub use command_line::{run, run_with};
use failure::Failure;

/// Draws a log or a snapshot as a page for a browser, as `alluvion viz FILE -o PAGE` does. Returns what the program would print.
/// Where a log ends that was cut is said on the standard error stream, and on the page.
///
/// # Examples
///
/// ```
/// use alluvion::adaptor::LogConfig;
/// use alluvion::source::CudaAsync;
/// use alluvion::{DeviceVec, Resource, ResourceExt, Sim};
///
/// # let folder = std::env::temp_dir().join(format!("alluvion-page-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let (log, page) = (folder.join("log.csv"), folder.join("page.html"));
/// let device = Sim::new().device(0);
/// let stack = CudaAsync::new(&device)?.logging(LogConfig::default().create(&log)?);
/// drop(DeviceVec::from_slice_in(&[1_u32, 2, 3], device.stream()?.as_ref(), &stack)?);
/// stack.book().flush()?;
///
/// let printed = alluvion_cli::write_page(&log, &page)?;
/// assert!(printed.contains("page.html: 2 events"), "{printed}");
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// What cannot be read or written, in words.
pub fn write_page(file: &Path, page: &Path) -> Result<String, String> {
    viz::Drawing::of(file, page).draw().map_err(Failure::into_words)
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
