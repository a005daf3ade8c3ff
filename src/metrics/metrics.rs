//! `Metrics`: the figures of stacks, as a page for Prometheus.

use core::fmt;

use super::books;
use super::family::{Family, Kind, Value};
use crate::resource::Resource;
use crate::suballoc::Status;

/// The figures of stacks of resources: a page in the text format that Prometheus reads, version 0.0.4.
///
/// The figures are those of the moment when a stack is added. Nothing of it is kept, so a page is made anew each time that
/// somebody asks.
///
/// # Examples
///
/// ```
/// use alluvion::metrics::Metrics;
/// use alluvion::{DeviceVec, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?;
/// let numbers = DeviceVec::<u8, _>::uninit_in(1 << 20, &stream, &pool)?;
///
/// let mut page = Metrics::new();
/// page.add_stack("scratch", &pool);
/// let line = "alluvion_live_bytes{resource=\"scratch\",device=\"0\",depth=\"0\",layer=\"Pool\"} 1048576\n";
/// assert!(page.to_string().contains(line));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// In the order in which they first came.
    families: Vec<Family>,
}

impl Metrics {
    /// What to call the page in the answer to a request: `Content-Type`.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// An empty page.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the figures of every layer of a stack. `name` tells it from others on the page: of two with one name and one
    /// device, the later is there.
    ///
    /// Asks the driver how much memory there is. Where it does not answer, that is left out.
    pub fn add_stack(&mut self, name: &str, resource: &dyn Resource) {
        books::add(self, name, resource);
    }

    /// Adds the figures of one suballocator, with labels of your own: of a status that you have already, or from elsewhere.
    ///
    /// ```
    /// use alluvion::metrics::Metrics;
    /// use alluvion::{PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().initial(1 << 20))?;
    /// let mut page = Metrics::new();
    /// page.add_status(&[("shard", "7")], &pool.status());
    /// assert!(page.to_string().contains("alluvion_reserved_bytes{shard=\"7\"} 1048576\n"));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn add_status(&mut self, labels: &[(&str, &str)], status: &Status) {
        books::add_status(self, labels, status);
    }

    /// Adds a figure of your own. The first that is called `name` decides on kind and help; of two with the same labels the
    /// later is there. Characters that names may not have become `_`.
    ///
    /// ```
    /// use alluvion::metrics::{Kind, Metrics};
    ///
    /// let mut page = Metrics::new();
    /// page.add("queries_total", Kind::Counter, "Queries so far.", &[("kind", "join")], 7_u64);
    /// assert_eq!(
    ///     page.to_string(),
    ///     "# HELP queries_total Queries so far.\n# TYPE queries_total counter\nqueries_total{kind=\"join\"} 7\n"
    /// );
    /// ```
    pub fn add(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        labels: &[(&str, &str)],
        value: impl Into<Value>,
    ) {
        let value = value.into();
        match self.families.iter_mut().find(|family| family.is_called(name)) {
            Some(family) => family.set(labels, value),
            None => {
                let mut family = Family::new(name, kind, help);
                family.set(labels, value);
                self.families.push(family);
            }
        }
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.families.iter().try_for_each(|family| write!(f, "{family}"))
    }
}
