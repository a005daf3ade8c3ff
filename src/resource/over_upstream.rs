//! The access markers and `Debug` of a layer over an upstream.

/// Implements the access markers of a layer whose blocks are those of its upstream, or pieces of them. Also its `Debug`, which
/// prints the layer as `describe` does.
///
/// Not public, unlike `forward_resource!`: the markers rest on a promise about the blocks, and a use of this macro does not say
/// `unsafe`.
///
/// `over DeviceAccessible` is for a layer that lets the device access the blocks, and so needs an upstream that allows it.
macro_rules! blocks_of_upstream {
    ($layer:ident) => {
        $crate::resource::blocks_of_upstream!($layer, over Resource);
    };
    ($layer:ident, over $access:ident) => {
        // SAFETY: the blocks are the upstream's, or pieces of them.
        unsafe impl<U: $crate::resource::DeviceAccessible> $crate::resource::DeviceAccessible for $layer<U> {}
        // SAFETY: the blocks are the upstream's, or pieces of them.
        unsafe impl<U: $crate::resource::HostAccessible + $crate::resource::$access> $crate::resource::HostAccessible
            for $layer<U>
        {
        }

        impl<U: $crate::resource::Shareable> $crate::resource::Shareable for $layer<U> {}

        impl<U: $crate::resource::$access> core::fmt::Debug for $layer<U> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{}", $crate::resource::Describe::new(self))
            }
        }
    };
}

pub(crate) use blocks_of_upstream;
