//! `Metrics`: the figures of stacks, as a page for Prometheus.

use core::fmt;

use super::family::Family;
use crate::compose::PerDevice;
use crate::resource::{Figure, Figures, Resource};
use crate::resource::{FigureKind, FigureValue};
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
    /// The `Content-Type` of the page.
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
        let device = resource.device().ordinal().to_string();
        if let Ok(memory) = resource.memory_info() {
            self.add_figures(&[("resource", name), ("device", &device)], |to| {
                let free = "Bytes that the stack could still get, as far as it knows.";
                to.gauge("alluvion_memory_free_bytes", free, memory.free_bytes);
                let total = "Bytes of the memory that the stack draws on.";
                to.gauge("alluvion_memory_total_bytes", total, memory.total_bytes);
            });
        }
        let mut at = Some(resource);
        for depth in 0_usize.. {
            let Some(layer) = at else { break };
            at = layer.upstream();
            let (depth, called) = (depth.to_string(), name_of(layer));
            let labels = [("resource", name), ("device", &*device), ("depth", &*depth), ("layer", &*called)];
            self.add_figures(&labels, |to| {
                to.gauge("alluvion_layer", "1 for each layer of a stack.", 1_u64);
                if let Some(book) = layer.layer() {
                    book.figures(to);
                }
            });
        }
    }

    /// Adds the figures of the stacks of several devices, each as [`add_stack`](Self::add_stack) does: the label `device` tells
    /// them apart, and a sum over it is of all.
    ///
    /// ```
    /// use alluvion::metrics::Metrics;
    /// use alluvion::sim::SimConfig;
    /// use alluvion::{Recipe, Sim};
    ///
    /// let sim = Sim::with_config(SimConfig::default().devices(2));
    /// let recipe: Recipe = "pool(initial=1MiB) | cuda".parse()?;
    /// let mut page = Metrics::new();
    /// page.add_per_device("scratch", &recipe.per_device(sim.machine())?);
    /// for device in 0..2 {
    ///     let labels = format!("{{resource=\"scratch\",device=\"{device}\",depth=\"0\",layer=\"Pool\"}}");
    ///     assert!(page.to_string().contains(&format!("alluvion_reserved_bytes{labels} 1048576\n")));
    /// }
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn add_per_device<R: Resource>(&mut self, name: &str, stacks: &PerDevice<R>) {
        for (_, stack) in stacks {
            self.add_stack(name, stack);
        }
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
        self.add_figures(labels, |to| status.figures(to));
    }

    pub(crate) fn add_figures(&mut self, labels: &[(&str, &str)], say: impl FnOnce(&mut Figures<'_>)) {
        say(&mut Figures::new(labels, &mut |Figure { name, kind, help, labels, value }| {
            self.add(name, *kind, help, labels, *value);
        }));
    }

    /// Adds a figure of your own. The first that is called `name` decides on kind and help; of two with the same labels the
    /// later is there. Characters that names may not have become `_`.
    ///
    /// ```
    /// use alluvion::metrics::Metrics;
    /// use alluvion::resource::FigureKind;
    ///
    /// let mut page = Metrics::new();
    /// page.add("queries_total", FigureKind::Counter, "Queries so far.", &[("kind", "join")], 7_u64);
    /// assert_eq!(
    ///     page.to_string(),
    ///     "# HELP queries_total Queries so far.\n# TYPE queries_total counter\nqueries_total{kind=\"join\"} 7\n"
    /// );
    /// ```
    pub fn add(
        &mut self,
        name: &str,
        kind: FigureKind,
        help: &str,
        labels: &[(&str, &str)],
        value: impl Into<FigureValue>,
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

/// The name of a layer: `Pool` where it prints `Pool(8 MiB)`.
fn name_of(layer: &dyn Resource) -> String {
    struct Printed<'a>(&'a dyn Resource);
    impl fmt::Display for Printed<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt_layer(f)
        }
    }
    let mut name = String::new();
    // A layer that fails to print has the name that it got so far.
    let _ = fmt::write(&mut name, format_args!("{}", Printed(layer)));
    let end = name.find('(').unwrap_or(name.len());
    name.truncate(end);
    name
}
