//! Tables of functions that several libraries have: one type for all, and a name in each.

#![expect(unsafe_code, reason = "declares what finding a function needs")]

/// A function's name in each library. An empty one: that library has no such function.
#[derive(Clone, Copy, Debug)]
pub(in crate::driver) struct Names {
    #[cfg(feature = "cuda")]
    pub(in crate::driver) libcuda: &'static str,
    #[cfg(feature = "runtime")]
    pub(in crate::driver) cudart: &'static str,
    #[cfg(feature = "runtime")]
    pub(in crate::driver) hip: &'static str,
    #[cfg(feature = "runtime")]
    pub(in crate::driver) maca: &'static str,
}

/// A library whose functions are found by name.
pub(in crate::driver) trait FindFunctions {
    /// One function; `None` if the library does not have it.
    ///
    /// # Safety
    ///
    /// The library is there and what it is said to be, and `F` is the type of that function in every version that has it by that name.
    unsafe fn find<F: Copy>(&mut self, names: &Names) -> Option<F>;
}

/// Names in libcuda, cudart, HIP and MACA. Three: cudart's is libcuda's own, a function of the driver behind it.
macro_rules! names {
    ([$libcuda:literal, $cudart:literal, $hip:literal, $maca:literal]) => {
        $crate::driver::vendor::functions::Names {
            #[cfg(feature = "cuda")]
            libcuda: $libcuda,
            #[cfg(feature = "runtime")]
            cudart: $cudart,
            #[cfg(feature = "runtime")]
            hip: $hip,
            #[cfg(feature = "runtime")]
            maca: $maca,
        }
    };
    ([$of_driver:literal, $hip:literal, $maca:literal]) => {
        names!([$of_driver, $of_driver, $hip, $maca])
    };
}

/// A table of functions, each of which a library may lack. Each returns a status; handles of pools are `usize`, as wide as the pointers
/// that they are, and those of memory 64 bits; an address is `u64`.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $($name:ident = $names:tt($($argument:ty),*);)+ }) => {
        $(#[$doc])*
        pub(in crate::driver) struct $table {
            $(pub(in crate::driver) $name: Option<unsafe extern "C" fn($($argument),*) -> c_uint>,)+
        }

        impl $table {
            #[cfg(feature = "runtime")]
            pub(in crate::driver) const NAMES: &'static [$crate::driver::vendor::functions::Names] = &[$(names!($names)),+];

            /// Finds those that there are.
            ///
            /// # Safety
            ///
            /// The library is one that the names are for.
            pub(in crate::driver) unsafe fn find(
                library: &mut impl $crate::driver::vendor::functions::FindFunctions,
            ) -> Self {
                Self {
                    $($name: {
                        // SAFETY: the caller's promise; and the type is that of the function in every version that the name is for.
                        unsafe { library.find(&names!($names)) }
                    },)+
                }
            }
        }
    };
}

pub(super) use {functions, names};
