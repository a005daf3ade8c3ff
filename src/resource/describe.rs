//! `Describe`: a stack of resources on one line.

use core::fmt;

use crate::resource::Resource;

/// A stack of resources as text, outermost first: `Stats(1.2 GiB) > Pool(4 GiB) > CudaAsync(gpu 0)`.
///
/// `{}` prints one line, `{:#}` one line for each layer.
///
/// ```
/// use alluvion::{Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// assert_eq!(Cuda::new(&sim.device(0)).describe().to_string(), "Cuda(gpu 0)");
/// ```
#[derive(Clone, Copy)]
pub struct Describe<'a> {
    resource: &'a dyn Resource,
}

impl<'a> Describe<'a> {
    /// Describes an erased resource; others have [`describe`](crate::ResourceExt::describe).
    #[must_use]
    pub fn new(resource: &'a dyn Resource) -> Self {
        Self { resource }
    }

    /// The name of a type, without its module and its parameters, as [`forward_resource!`](crate::forward_resource) prints a
    /// layer.
    ///
    /// ```
    /// use alluvion::{Describe, Pool, source::Cuda};
    ///
    /// assert_eq!(Describe::name_of::<Pool<Cuda>>(), "Pool");
    /// ```
    #[must_use]
    pub fn name_of<T: ?Sized>() -> &'static str {
        let path = core::any::type_name::<T>();
        let path = path.split_once('<').map_or(path, |(path, _)| path);
        path.rsplit_once("::").map_or(path, |(_, name)| name)
    }
}

impl fmt::Display for Describe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if f.alternate() { "\n> " } else { " > " };
        self.resource.fmt_layer(f)?;
        let mut upstream = self.resource.upstream();
        while let Some(resource) = upstream {
            f.write_str(separator)?;
            resource.fmt_layer(f)?;
            upstream = resource.upstream();
        }
        Ok(())
    }
}

impl fmt::Debug for Describe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
