//! What a layer over another resource does not change.

/// The methods of [`Resource`](super::Resource) that say where a layer stands. It has a field `upstream`.
macro_rules! stand_on_upstream {
    () => {
        #[inline]
        fn device(&self) -> &$crate::device::Device {
            self.upstream.device()
        }

        #[inline]
        fn upstream(&self) -> Option<&dyn $crate::resource::Resource> {
            Some(&self.upstream)
        }
    };
}

/// What follows from a layer's blocks being those of its upstream, or pieces of them: who may touch them. And its `Debug`,
/// which is what it is called in the description of a stack.
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
                write!(f, "{}", $crate::resource::Resource::describe(self))
            }
        }
    };
}

pub(crate) use {blocks_of_upstream, stand_on_upstream};
