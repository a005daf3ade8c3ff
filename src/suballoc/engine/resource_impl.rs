//! The contract of resources over an engine, the same for every suballocator.

/// Implements `Resource`, access markers, `Debug` and the common calls for a suballocator with the fields `engine` and
/// `id`. `$layer` prints its layer.
macro_rules! resource_by_engine {
    ($name:ident, |$of:ident, $f:ident| $layer:expr) => {
        impl<U: Resource> $name<U> {
            /// The upstream.
            #[must_use]
            pub fn upstream(&self) -> &U {
                self.engine.upstream()
            }

            /// The figures of the suballocator. [`Status`] says which are exact and which are a moment old.
            ///
            /// A stream waits while its own cache is read, about a thousand blocks at most. A thread that needs the
            /// shared core waits for a few steps for each stream, for any number of free blocks.
            #[must_use]
            pub fn status(&self) -> Status {
                self.engine.status()
            }

            /// Every block at one moment. All threads that need the shared core wait meanwhile: a few nanoseconds a
            /// block.
            #[must_use]
            pub fn snapshot(&self) -> Snapshot {
                self.engine.snapshot()
            }

            /// The largest block that `stream` could get now, with no growth and without waiting.
            #[must_use]
            pub fn largest_bytes<'s>(&self, stream: impl OnStream<'s>) -> usize {
                self.engine.largest_bytes(stream.stream_ref())
            }

            /// Empties all caches, asks the driver which work is completed, and merges its memory. Does not wait. Call
            /// it at a safe point of a program, such as the end of an iteration.
            ///
            /// ```
            /// use alluvion::{DeviceVec, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
            ///
            /// let sim = Sim::new();
            /// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
            /// let pool = Cuda::new(&device).pool(PoolConfig::default().initial(4 << 20))?;
            /// drop(DeviceVec::<u8, _>::zeroed_in(1 << 20, &stream, &pool)?);
            /// assert_eq!(pool.largest_bytes(&stream), 3 << 20, "the rest lies in the cache of the stream");
            /// stream.synchronize()?;
            /// pool.defragment()?;
            /// assert_eq!(pool.largest_bytes(&stream), 4 << 20);
            /// # Ok::<(), alluvion::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// Those of the work itself.
            pub fn defragment(&self) -> Result<(), Error> {
                self.engine.book().defragment()
            }

            /// Frees a block as [`deallocate`](Resource::deallocate) does, if it is one. A block that was freed before,
            /// that the layout does not fit, or that is not of this resource is refused with an error that says which,
            /// and left alone.
            ///
            /// Without a ledger (see `checked` of the configuration) it looks through every cache, and notices a wrong
            /// size only if that is served by blocks of another length.
            ///
            /// ```
            /// use alluvion::{Layout, MisuseKind, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
            ///
            /// let sim = Sim::new();
            /// let stream = sim.device(0).stream()?;
            /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?;
            /// let layout = Layout::from_bytes(1000)?;
            /// let block = pool.allocate(layout, stream.as_ref())?;
            /// // SAFETY: nothing uses the block.
            /// unsafe { pool.try_deallocate(block, layout, &stream) }?;
            /// // SAFETY: as before.
            /// let error = unsafe { pool.try_deallocate(block, layout, &stream) }.unwrap_err();
            /// assert_eq!(error.misuse().map(|misuse| misuse.what), Some(MisuseKind::DoubleFree));
            /// # Ok::<(), alluvion::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// `Misuse`; `DeviceMismatch` for a stream of another device.
            ///
            /// # Safety
            ///
            /// If the block is live and of this resource, every use of it, its allocation included, is ordered before this
            /// point of `stream`.
            pub unsafe fn try_deallocate<'s>(
                &self,
                block: DevicePtr,
                layout: Layout,
                stream: impl OnStream<'s>,
            ) -> Result<(), Error> {
                // SAFETY: the caller's promise.
                unsafe { self.engine.try_deallocate(block, layout, stream.stream_ref()) }
            }
        }

        // SAFETY: the core hands out pieces of its upstream's segments that overlap no block which is out, aligned as asked;
        // a segment stays until nothing of it is out, or the suballocator ends. A block goes to a stream only if the stream's
        // next work comes after all that used it. Only the value itself has its id.
        unsafe impl<U: Resource> Resource for $name<U> {
            #[inline]
            fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
                self.engine.allocate(layout, crate::suballoc::engine::Requester::Stream(stream))
            }

            #[inline]
            unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
                // SAFETY: the caller's promises.
                unsafe { self.engine.deallocate(block, layout, Some(stream)) }
            }

            #[inline]
            fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
                self.engine.allocate_at_once(layout, stream)
            }

            #[inline]
            unsafe fn deallocate_at_once(
                &self,
                block: DevicePtr,
                layout: Layout,
                stream: StreamRef<'_>,
            ) -> bool {
                // SAFETY: the caller's promises.
                unsafe { self.engine.deallocate_at_once(block, layout, stream) }
            }

            #[inline]
            fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
                self.engine.allocate(layout, crate::suballoc::engine::Requester::Host)
            }

            #[inline]
            unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
                // SAFETY: the caller's promises.
                unsafe { self.engine.deallocate(block, layout, None) }
            }

            fn device(&self) -> &Device {
                self.engine.device()
            }

            fn id(&self) -> ResourceId {
                self.id
            }

            fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let ($of, $f) = (self, f);
                $layer
            }

            fn max_align(&self) -> usize {
                crate::suballoc::engine::MAX_ALIGN
            }

            fn host_access(&self) -> bool {
                self.engine.upstream().host_access()
            }

            fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
                self.engine.trim(keep_bytes)
            }

            fn memory_info(&self) -> Result<MemoryInfo, Error> {
                self.engine.memory_info()
            }

            fn upstream(&self) -> Option<&dyn Resource> {
                Some(self.engine.upstream())
            }

            fn sleeping(&self) -> Option<&dyn $crate::resource::Sleeping> {
                self.engine.sleeping()
            }

            unsafe fn export(
                &self,
                block: DevicePtr,
                layout: Layout,
            ) -> Result<$crate::resource::Export, Error> {
                // SAFETY: the caller's promises.
                unsafe { self.engine.export(block, layout) }
            }

            fn layer(&self) -> Option<LayerBook<'_>> {
                Some(LayerBook::of::<Self>(self.engine.book()))
            }
        }

        impl<U: Resource> Layer for $name<U> {
            type Book = crate::suballoc::SuballocBook;
            const NAME: Option<&'static str> = Some(stringify!($name));

            fn figures(book: &crate::suballoc::SuballocBook, to: &mut $crate::resource::Figures<'_>) {
                <crate::suballoc::SuballocBook as Layer>::figures(book, to);
            }
        }

        // SAFETY: its blocks are pieces of its upstream's.
        unsafe impl<U: DeviceAccessible> DeviceAccessible for $name<U> {}
        // SAFETY: its blocks are pieces of its upstream's.
        unsafe impl<U: HostAccessible> HostAccessible for $name<U> {}

        impl<U: $crate::resource::Shareable> $crate::resource::Shareable for $name<U> {}

        impl<U: Resource> fmt::Debug for $name<U> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.fmt_layer(f)
            }
        }
    };
}
pub(in crate::suballoc) use resource_by_engine;
