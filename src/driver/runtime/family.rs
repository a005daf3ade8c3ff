//! `Runtime`: the vendors' libraries that one driver speaks to.

use core::fmt;

use super::symbols;
use super::table::{self, Table};

/// A vendor's runtime library: the shape of the calls is the same, and names and numbers differ.
///
/// ```
/// use alluvion::driver::runtime::Runtime;
///
/// assert_eq!(Runtime::named("hip"), Some(Runtime::Hip));
/// assert!(Runtime::Hip.libraries().contains(&"libamdhip64.so.7"));
/// assert!(Runtime::Hip.functions().any(|name| name == "hipMallocFromPoolAsync"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum Runtime {
    /// NVIDIA's CUDA runtime, 12.0 or later.
    Cudart,
    /// AMD's HIP, of ROCm 5.5 or later.
    Hip,
    /// MetaX's MACA.
    Maca,
}

impl Runtime {
    /// Every one of them; `runtime as usize` indexes it.
    pub const ALL: &'static [Self] = &[Self::Cudart, Self::Hip, Self::Maca];

    /// The name that a driver of it has: `cudart`, `hip`, `maca`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.table().name
    }

    /// The runtime of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|runtime| runtime.name() == name)
    }

    /// The files that are looked for, in this order: a bare name where the dynamic linker looks. Before them the bare names are looked
    /// for in the folder `lib` of the vendor's toolkit, if `ROCM_PATH` or `MACA_PATH` says where that is.
    #[must_use]
    pub const fn libraries(self) -> &'static [&'static str] {
        self.table().libraries
    }

    /// The functions that are looked for. Which of them a library may lack, its driver says:
    /// [`RuntimeDriver::missing`](super::RuntimeDriver::missing).
    pub fn functions(self) -> impl Iterator<Item = &'static str> {
        symbols::all(self).map(|named| named.name)
    }

    /// Returns `true` if the tests of this crate have run on hardware through this library. For the others, names and numbers are as
    /// the vendor's headers and public programs have them, and nobody has tried them yet.
    #[must_use]
    pub const fn has_run_on_hardware(self) -> bool {
        // docs/gpu-report.md has the runs.
        matches!(self, Self::Cudart)
    }

    pub(super) const fn table(self) -> &'static Table {
        match self {
            Self::Cudart => &table::CUDART,
            Self::Hip => &table::HIP,
            Self::Maca => &table::MACA,
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
