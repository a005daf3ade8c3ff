//! What does a device allocate from by default?
//!
//! Each device has a *current resource*: containers allocate from it unless they are given another. The methods are
//! those of [`Device`]. [`PerDevice::set_current_resources`](crate::compose::PerDevice::set_current_resources) sets them for all
//! devices at once.

mod current_resource;
mod current_resources;

use current_resource::CurrentResource;
pub use current_resources::CurrentResources;

use crate::device::{Device, Machine};
use crate::error::Error;
use crate::resource::AnyResource;

impl Device {
    /// The resource that containers on this device allocate from by default.
    ///
    /// Until one is set it is a [`CudaAsync`](crate::source::CudaAsync) where the device has memory pools, else a
    /// [`Cuda`](crate::source::Cuda), made at the first call. Inside [`with_current_resource`](Self::with_current_resource)
    /// it is, on that thread, the one given there.
    ///
    /// The environment variable `ALLUVION_RESOURCE` says otherwise, if it is set: a [recipe](crate::recipe), as
    /// `pool(initial=1GiB) | cuda-async`, from which the initial resource of every device is made. It is read once a device,
    /// and not in a process with raised privileges, as that of a program with the set-user-id bit: a recipe may name files to be
    /// written.
    ///
    /// The answer is owned: it stays good whatever is set afterwards.
    ///
    /// # Errors
    ///
    /// Those of making the initial resource. What is wrong with the recipe of the environment is told with its place.
    /// `Unsupported` where it is asked for by what is called while it is made, as a listener of `tracing` or a driver of one's own;
    /// and where another thread has been making it for a minute.
    pub fn current_resource(&self) -> Result<AnyResource, Error> {
        self.attached::<CurrentResource>().resource(self)
    }

    /// Sets the current resource and returns the one before. Blocks that are live go back to the resource that they came
    /// from: each container holds it.
    ///
    /// ```
    /// use alluvion::{AnyResource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let device = sim.device(0);
    /// let before = device.set_current_resource(AnyResource::new(Cuda::new(&device)))?;
    /// assert_eq!(device.current_resource()?.describe().to_string(), "Cuda(gpu 0)");
    /// device.set_current_resource(before)?;
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` if the resource belongs to another device; those of making the initial resource.
    pub fn set_current_resource(&self, resource: AnyResource) -> Result<AnyResource, Error> {
        self.attached::<CurrentResource>().set(self, resource)
    }

    /// Puts the initial resource back and returns the one before. If the initial one has no handles any more, it is
    /// made anew.
    ///
    /// # Errors
    ///
    /// Those of making the initial resource.
    pub fn reset_current_resource(&self) -> Result<AnyResource, Error> {
        self.attached::<CurrentResource>().reset(self)
    }

    /// Runs `body` with another current resource, on this thread only, and puts the one before back however it ends.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` if the resource belongs to another device; `Unsupported` from the destructors of an ending thread.
    /// `body` is not run then.
    pub fn with_current_resource<T>(
        &self,
        resource: AnyResource,
        body: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        current_resource::with_resource(self, resource, body)
    }
}

impl Machine {
    /// Puts back the initial resource of every device, and drops what was set.
    ///
    /// A resource that is set as current keeps its machine alive, and the machine keeps it. [`Sim`](crate::Sim) lets go of them
    /// when it is dropped; a machine over a driver of your own leaks unless you call this.
    pub fn reset_current_resources(&self) {
        self.release_attachments();
    }
}
