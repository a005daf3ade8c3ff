//! Who may touch the blocks of a layer.

/// What follows from a layer's blocks being those of its upstream, or pieces of them: who may touch them. And its `Debug`,
/// which is what it is called in the description of a stack.
///
/// It is not public, as `forward_resource!` is: that the blocks are the upstream's is a promise, and here nobody writes `unsafe`.
///
/// `over DeviceAccessible` is for a layer that has the device touch the blocks, and so is a resource over no other.
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

        impl<U: $crate::resource::$access> core::fmt::Debug for $layer<U> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{}", $crate::resource::Describe::new(self))
            }
        }
    };
}

pub(crate) use blocks_of_upstream;
