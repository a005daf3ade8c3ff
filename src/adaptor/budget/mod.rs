//! `Budget`: a limit that other resources share.

use super::allowance::LimitWatch;
use super::watched::Watched;
use super::{Allowance, Reservation};
use crate::error::Error;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{AnyResource, DevicePtr, Layout, Resource};
use crate::stream::OnStream;

/// Limits the live bytes by an [`Allowance`], which other resources, on any device, may share, and
/// [other processes](Allowance::shared).
///
/// As [`Limiting`](super::Limiting), which has an allowance of its own: room is taken before the upstream is asked,
/// from the allowance and from all above it, or from none. Over a resource with [`pages`](Resource::pages) it counts its
/// pages.
///
/// # Stream ordering
///
/// As the upstream's. A block counts until the call that frees it, whatever work is still before the free.
///
/// # Thread safety
///
/// As the upstream's, and as the [`Allowance`](Allowance#thread-safety)'s: the limit is exact, also between resources,
/// and all threads count in the same words. So put it under a pool where threads are many.
///
/// # Examples
///
/// ```
/// use alluvion::adaptor::Allowance;
/// use alluvion::source::{CudaAsync, Pinned};
/// use alluvion::{DeviceVec, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
/// let query = Allowance::new("query", 1 << 20);
/// let on_device = CudaAsync::new(&device)?.budget(query.child("device", 1 << 20));
/// let on_host = Pinned::new(&device)?.budget(query.clone());
/// let scratch = DeviceVec::<u8, _>::zeroed_in(768 << 10, &stream, &on_device)?;
/// let error = DeviceVec::<u8, _>::zeroed_in(512 << 10, &stream, &on_host).unwrap_err();
/// assert_eq!(error.limit_name(), Some("query"));
/// assert_eq!(on_device.describe().to_string(), "Budget(device, 1 MiB) > CudaAsync(gpu 0)");
/// # Ok::<(), alluvion::Error>(())
/// ```
pub type Budget<U = AnyResource> = Watched<LimitWatch<true>, U>;

static_assertions::assert_impl_all!(Budget<crate::source::Cuda>: Send, Sync, crate::resource::DeviceAccessible);
static_assertions::assert_not_impl_any!(Budget<crate::source::Cuda>: Clone, crate::resource::HostAccessible);
static_assertions::assert_impl_all!(Budget<crate::source::Pinned>: crate::resource::HostAccessible);

impl Budget {
    pub(crate) const CARD: Card = Card {
        name: "budget",
        about: "A limit with a name, and a soft limit whose crossings are counted.",
        parameters: &[
            Parameter::needed("hard", ArgumentKind::Size, "the limit"),
            Parameter::new("soft", ArgumentKind::Size, "the soft limit; none if left out"),
            Parameter::new("name", ArgumentKind::Text, "the name in errors; budget if left out"),
            Parameter::new(
                "shared",
                ArgumentKind::Text,
                "the name of a limit that processes share, of `hard` in all; not beside name",
            ),
            Parameter::new(
                "member",
                ArgumentKind::Text,
                "the name of this process among those that share it",
            ),
            Parameter::new("guaranteed", ArgumentKind::Size, "so much of it is kept for the member"),
        ],
    };
}

impl<U> Budget<U> {
    /// A layer over `upstream`, limited by `allowance`.
    #[must_use]
    pub fn new(upstream: U, allowance: Allowance) -> Self {
        Self::over(upstream, LimitWatch(allowance))
    }
}

impl<U: Resource> Budget<U> {
    /// A block from reserved bytes: it cannot be refused because other threads were faster.
    ///
    /// The reservation shrinks by the block. The block is freed as any other, and its bytes go back to the allowance.
    ///
    /// ```
    /// use alluvion::adaptor::Allowance;
    /// use alluvion::{Layout, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let jobs = Cuda::new(&sim.device(0)).budget(Allowance::new("jobs", 1 << 20));
    /// let mut mine = jobs.book().reserve(1 << 20)?;
    /// let layout = Layout::from_bytes(256 << 10)?;
    /// assert!(jobs.allocate(layout, stream.as_ref()).is_err(), "all is set aside");
    /// let block = jobs.allocate_within(&mut mine, layout, &stream)?;
    /// assert_eq!((mine.bytes(), jobs.book().used_bytes()), (768 << 10, 1 << 20));
    /// // SAFETY: the block came from `jobs` with this layout, and nothing uses it.
    /// unsafe { jobs.deallocate(block, layout, stream.as_ref()) };
    /// assert_eq!(jobs.book().used_bytes(), 768 << 10);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a reservation of another allowance; `OutOfMemory` for more than is left of it; as the upstream
    /// says. The reservation is as it was then.
    pub fn allocate_within<'s>(
        &self,
        reservation: &mut Reservation,
        layout: Layout,
        stream: impl OnStream<'s>,
    ) -> Result<DevicePtr, Error> {
        let stream = stream.stream_ref();
        if !reservation.allowance().is_same(self.book()) {
            return Err(Error::invalid_argument(
                "a reservation of another allowance",
                "its bytes would go back to this one",
                "reserve from `Budget::book`",
            ));
        }
        reservation.spend(layout)?;
        self.upstream().allocate(layout, stream).inspect_err(|_| reservation.put_back(layout))
    }
}

#[cfg(all(test, feature = "testing", not(loom)))]
mod tests {
    use super::*;
    use crate::device::Sim;
    use crate::source::Null;
    use crate::testing::Faulty;

    #[test]
    fn a_reservation_is_as_it_was_when_nothing_came_of_it() {
        let sim = Sim::new();
        let (device, stream) = (sim.device(0), sim.device(0).stream().unwrap());
        let allowance = Allowance::new("all", 4096);
        let resource = Budget::new(Faulty::nth(Null::new(&device), 1), allowance.clone());
        let mut reservation = allowance.reserve(2048).unwrap();
        let layout = |bytes| Layout::from_bytes(bytes).unwrap();
        let error = resource.allocate_within(&mut reservation, layout(1000), stream.as_ref()).unwrap_err();
        assert!(error.is_out_of_memory() && reservation.bytes() == 2048);
        let error = resource.allocate_within(&mut reservation, layout(2049), stream.as_ref()).unwrap_err();
        assert_eq!((error.limit(), reservation.bytes()), (Some(2048), 2048));
        resource.allocate_within(&mut reservation, layout(1000), stream.as_ref()).unwrap();
        assert_eq!((reservation.bytes(), allowance.used_bytes()), (1024, 2048));
        let mut foreign = Allowance::new("all", 4096).reserve(2048).unwrap();
        let error = resource.allocate_within(&mut foreign, layout(1000), stream.as_ref()).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::InvalidArgument);
        drop(reservation);
        assert_eq!(allowance.used_bytes(), 1024, "the block is out");
    }
}
