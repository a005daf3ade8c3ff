//! `forward_resource!`: the methods that a wrapper does not change.

/// Writes the methods of [`Resource`](crate::Resource) that a wrapper does not change: they call those of the resource under it.
///
/// It stands in the `unsafe impl` of a wrapper, whose author promises to keep the contract. The same line also forwards methods
/// that later versions add.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use alluvion::source::Cuda;
/// use alluvion::{DevicePtr, Error, Layout, PoolConfig, Resource, ResourceExt, Sim, StreamRef};
///
/// /// Counts the requests that fail.
/// struct Refusals<U> {
///     upstream: U,
///     refused: AtomicU64,
/// }
///
/// // SAFETY: the blocks are the upstream's, whose id it has and which keeps the contract.
/// unsafe impl<U: Resource> Resource for Refusals<U> {
///     fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
///         self.upstream.allocate(layout, stream).inspect_err(|_| {
///             self.refused.fetch_add(1, Ordering::Relaxed);
///         })
///     }
///
///     alluvion::forward_resource!(upstream, except allocate);
/// }
///
/// let sim = Sim::new();
/// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().maximum(1 << 20))?;
/// let resource = Refusals { upstream: pool, refused: AtomicU64::new(0) };
/// assert!(resource.allocate_sync(Layout::from_bytes(2 << 20)?).is_err());
/// assert_eq!(resource.refused.load(Ordering::Relaxed), 1, "`allocate_sync` goes through `allocate`");
/// assert_eq!(resource.describe().to_string(), "Refusals > Pool(0 B) > Cuda(gpu 0)");
/// # Ok::<(), Error>(())
/// ```
///
/// # A layer
///
/// The argument is the name of the field that holds the upstream, or a closure to the upstream itself, not to a reference to it:
/// `|this| *this.shared`. After `except` come the methods that are written by hand. Then
///
/// - `fmt_layer` prints the name of the type, `upstream` returns the upstream, and all others call its methods;
/// - `layer` is not written, because the book of the layer below is not this layer's: see [`Layer`](crate::resource::Layer);
/// - `pages` is not written, because pages that are mapped past a layer are neither counted nor checked there;
/// - `sleeping` and `export` are not written, because a layer may hold more of a block than it hands out;
/// - `host_access` is not written, because a layer may hand out blocks of others, too: `forward_resource!(unchanged upstream)` writes
///   these three, for a layer that hands out its upstream's blocks, all of them and as they are;
/// - `except allocate` leaves `allocate_sync` and `allocate_at_once` out too, and `except deallocate` leaves `deallocate_sync` and
///   `deallocate_at_once` out: if these are not written by hand, the trait's defaults apply, which call the methods that are, or
///   answer "not at once". So no block bypasses a wrapper.
///
/// # A handle
///
/// `forward_resource!(handle |this| *this.shared)` forwards all methods, `fmt_layer`, `upstream`, `host_access`, `pages`, `sleeping`, `export`
/// and `layer` too: the wrapper is no layer of the stack, but a handle of the resource, like an [`Arc`](std::sync::Arc).
#[macro_export]
macro_rules! forward_resource {
    (handle |$this:ident| $target:expr $(, except $($except:ident),+ $(,)?)?) => {
        $crate::forward_resource!(@write [handle $this $target] [$($($except)+)?]);
    };
    (unchanged |$this:ident| $target:expr $(, except $($except:ident),+ $(,)?)?) => {
        $crate::forward_resource!(@write [unchanged $this $target] [$($($except)+)?]);
    };
    (unchanged $field:tt $(, except $($except:ident),+ $(,)?)?) => {
        $crate::forward_resource!(@write [unchanged this this.$field] [$($($except)+)?]);
    };
    (|$this:ident| $target:expr $(, except $($except:ident),+ $(,)?)?) => {
        $crate::forward_resource!(@write [layer $this $target] [$($($except)+)?]);
    };
    (@write $to:tt [$($except:ident)*]) => {
        $( $crate::forward_resource!(@known $except); )*
        $crate::forward_resource! { @each $to [$($except)*]
            allocate deallocate allocate_at_once deallocate_at_once allocate_sync deallocate_sync device id fmt_layer max_align host_access trim memory_info upstream pages sleeping export layer
        }
    };
    (@each $to:tt $except:tt $($method:ident)+) => {
        $( $crate::forward_resource!(@unless $method $except $to); )+
    };

    // The names that can stand after `except`.
    (@known allocate) => {};
    (@known deallocate) => {};
    (@known allocate_at_once) => {};
    (@known deallocate_at_once) => {};
    (@known allocate_sync) => {};
    (@known deallocate_sync) => {};
    (@known device) => {};
    (@known id) => {};
    (@known fmt_layer) => {};
    (@known max_align) => {};
    (@known host_access) => {};
    (@known trim) => {};
    (@known memory_info) => {};
    (@known upstream) => {};
    (@known pages) => {};
    (@known sleeping) => {};
    (@known export) => {};
    (@known layer) => {};
    (@known $unknown:ident) => {
        compile_error!(concat!(
            "`", stringify!($unknown), "` is no method of `Resource`, so `forward_resource!` cannot leave it out: ",
            "name `allocate`, `deallocate`, `allocate_at_once`, `deallocate_at_once`, `allocate_sync`, `deallocate_sync`, `device`, ",
            "`id`, `fmt_layer`, `max_align`, `host_access`, `trim`, `memory_info`, `upstream`, `pages`, `sleeping`, `export` or `layer`"
        ));
    };

    // A method is written unless a name of the list leaves it out.
    (@unless $method:ident [] $to:tt) => { $crate::forward_resource!(@method $method $to); };
    (@unless allocate [allocate $($rest:ident)*] $to:tt) => {};
    (@unless deallocate [deallocate $($rest:ident)*] $to:tt) => {};
    (@unless allocate_at_once [allocate $($rest:ident)*] $to:tt) => {};
    (@unless allocate_at_once [allocate_at_once $($rest:ident)*] $to:tt) => {};
    (@unless deallocate_at_once [deallocate $($rest:ident)*] $to:tt) => {};
    (@unless deallocate_at_once [deallocate_at_once $($rest:ident)*] $to:tt) => {};
    (@unless allocate_sync [allocate $($rest:ident)*] $to:tt) => {};
    (@unless allocate_sync [allocate_sync $($rest:ident)*] $to:tt) => {};
    (@unless deallocate_sync [deallocate $($rest:ident)*] $to:tt) => {};
    (@unless deallocate_sync [deallocate_sync $($rest:ident)*] $to:tt) => {};
    (@unless device [device $($rest:ident)*] $to:tt) => {};
    (@unless id [id $($rest:ident)*] $to:tt) => {};
    (@unless fmt_layer [fmt_layer $($rest:ident)*] $to:tt) => {};
    (@unless max_align [max_align $($rest:ident)*] $to:tt) => {};
    (@unless host_access [host_access $($rest:ident)*] $to:tt) => {};
    (@unless trim [trim $($rest:ident)*] $to:tt) => {};
    (@unless memory_info [memory_info $($rest:ident)*] $to:tt) => {};
    (@unless upstream [upstream $($rest:ident)*] $to:tt) => {};
    (@unless pages [pages $($rest:ident)*] $to:tt) => {};
    (@unless sleeping [sleeping $($rest:ident)*] $to:tt) => {};
    (@unless export [export $($rest:ident)*] $to:tt) => {};
    (@unless layer [layer $($rest:ident)*] $to:tt) => {};
    (@unless $method:ident [$other:ident $($rest:ident)*] $to:tt) => {
        $crate::forward_resource!(@unless $method [$($rest)*] $to);
    };

    (@method allocate [$kind:ident $this:ident $target:expr]) => {
        #[inline]
        fn allocate(
            &self,
            layout: $crate::Layout,
            stream: $crate::StreamRef<'_>,
        ) -> ::core::result::Result<$crate::DevicePtr, $crate::Error> {
            let $this = self;
            $crate::Resource::allocate(&$target, layout, stream)
        }
    };
    (@method deallocate [$kind:ident $this:ident $target:expr]) => {
        #[inline]
        unsafe fn deallocate(
            &self,
            block: $crate::DevicePtr,
            layout: $crate::Layout,
            stream: $crate::StreamRef<'_>,
        ) {
            let $this = self;
            // SAFETY: the caller's promises to a wrapper are promises to the resource under it: the author of the `unsafe impl`
            // says that the blocks are its.
            unsafe { $crate::Resource::deallocate(&$target, block, layout, stream) }
        }
    };
    (@method allocate_at_once [$kind:ident $this:ident $target:expr]) => {
        #[inline]
        fn allocate_at_once(
            &self,
            layout: $crate::Layout,
            stream: $crate::StreamRef<'_>,
        ) -> ::core::option::Option<$crate::DevicePtr> {
            let $this = self;
            $crate::Resource::allocate_at_once(&$target, layout, stream)
        }
    };
    (@method deallocate_at_once [$kind:ident $this:ident $target:expr]) => {
        #[inline]
        unsafe fn deallocate_at_once(
            &self,
            block: $crate::DevicePtr,
            layout: $crate::Layout,
            stream: $crate::StreamRef<'_>,
        ) -> bool {
            let $this = self;
            // SAFETY: as in `deallocate`.
            unsafe { $crate::Resource::deallocate_at_once(&$target, block, layout, stream) }
        }
    };
    (@method allocate_sync [$kind:ident $this:ident $target:expr]) => {
        #[inline]
        fn allocate_sync(
            &self,
            layout: $crate::Layout,
        ) -> ::core::result::Result<$crate::DevicePtr, $crate::Error> {
            let $this = self;
            $crate::Resource::allocate_sync(&$target, layout)
        }
    };
    (@method deallocate_sync [$kind:ident $this:ident $target:expr]) => {
        #[inline]
        unsafe fn deallocate_sync(&self, block: $crate::DevicePtr, layout: $crate::Layout) {
            let $this = self;
            // SAFETY: as in `deallocate`.
            unsafe { $crate::Resource::deallocate_sync(&$target, block, layout) }
        }
    };
    (@method device [$kind:ident $this:ident $target:expr]) => {
        #[inline]
        fn device(&self) -> &$crate::Device {
            let $this = self;
            $crate::Resource::device(&$target)
        }
    };
    (@method id [$kind:ident $this:ident $target:expr]) => {
        #[inline]
        fn id(&self) -> $crate::ResourceId {
            let $this = self;
            $crate::Resource::id(&$target)
        }
    };
    (@method fmt_layer [handle $this:ident $target:expr]) => {
        fn fmt_layer(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
            let $this = self;
            $crate::Resource::fmt_layer(&$target, f)
        }
    };
    (@method fmt_layer [$kind:ident $this:ident $target:expr]) => {
        fn fmt_layer(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
            f.write_str($crate::Describe::name_of::<Self>())
        }
    };
    (@method max_align [$kind:ident $this:ident $target:expr]) => {
        #[inline]
        fn max_align(&self) -> usize {
            let $this = self;
            $crate::Resource::max_align(&$target)
        }
    };
    (@method host_access [layer $this:ident $target:expr]) => {};
    (@method host_access [$kind:ident $this:ident $target:expr]) => {
        #[inline]
        fn host_access(&self) -> bool {
            let $this = self;
            $crate::Resource::host_access(&$target)
        }
    };
    (@method trim [$kind:ident $this:ident $target:expr]) => {
        fn trim(&self, keep_bytes: usize) -> ::core::result::Result<usize, $crate::Error> {
            let $this = self;
            $crate::Resource::trim(&$target, keep_bytes)
        }
    };
    (@method memory_info [$kind:ident $this:ident $target:expr]) => {
        fn memory_info(&self) -> ::core::result::Result<$crate::MemoryInfo, $crate::Error> {
            let $this = self;
            $crate::Resource::memory_info(&$target)
        }
    };
    (@method upstream [handle $this:ident $target:expr]) => {
        fn upstream(&self) -> ::core::option::Option<&dyn $crate::Resource> {
            let $this = self;
            $crate::Resource::upstream(&$target)
        }
    };
    (@method upstream [$kind:ident $this:ident $target:expr]) => {
        #[inline]
        fn upstream(&self) -> ::core::option::Option<&dyn $crate::Resource> {
            let $this = self;
            ::core::option::Option::Some(&$target)
        }
    };
    (@method pages [handle $this:ident $target:expr]) => {
        fn pages(&self) -> ::core::option::Option<&dyn $crate::resource::Pages> {
            let $this = self;
            $crate::Resource::pages(&$target)
        }
    };
    (@method pages [$kind:ident $this:ident $target:expr]) => {};
    (@method sleeping [layer $this:ident $target:expr]) => {};
    (@method sleeping [$kind:ident $this:ident $target:expr]) => {
        fn sleeping(&self) -> ::core::option::Option<&dyn $crate::resource::Sleeping> {
            let $this = self;
            $crate::Resource::sleeping(&$target)
        }
    };
    (@method export [layer $this:ident $target:expr]) => {};
    (@method export [$kind:ident $this:ident $target:expr]) => {
        unsafe fn export(
            &self,
            block: $crate::DevicePtr,
            layout: $crate::Layout,
        ) -> ::core::result::Result<$crate::resource::Export, $crate::Error> {
            let $this = self;
            // SAFETY: as in `deallocate`.
            unsafe { $crate::Resource::export(&$target, block, layout) }
        }
    };
    (@method layer [handle $this:ident $target:expr]) => {
        fn layer(&self) -> ::core::option::Option<$crate::resource::LayerBook<'_>> {
            let $this = self;
            $crate::Resource::layer(&$target)
        }
    };
    (@method layer [$kind:ident $this:ident $target:expr]) => {};

    // Last, because a field can have any name.
    ($field:tt $(, except $($except:ident),+ $(,)?)?) => {
        $crate::forward_resource!(@write [layer this this.$field] [$($($except)+)?]);
    };
}
