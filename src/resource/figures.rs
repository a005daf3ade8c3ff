//! `Figures`: the figures that a layer has counted.

use core::fmt;

/// One figure of a layer, at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure<'f> {
    /// The name, in the style of Prometheus: `alluvion_live_bytes`.
    pub name: &'f str,
    /// Whether it is a gauge or a counter.
    pub kind: FigureKind,
    /// A description in one sentence.
    pub help: &'f str,
    /// The labels that distinguish it from others of that name.
    pub labels: &'f [(&'f str, &'f str)],
    /// The value.
    pub value: FigureValue,
}

/// Whether a figure is a gauge or a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FigureKind {
    /// It goes up and down.
    Gauge,
    /// It only goes up, until the program ends. By custom its name ends in `_total`.
    Counter,
}

/// The value of a figure.
///
/// ```
/// use alluvion::resource::FigureValue;
///
/// assert_eq!(FigureValue::from(1_u64 << 60).to_string(), "1152921504606846976");
/// assert_eq!(FigureValue::from(0.25).to_string(), "0.25");
/// assert_eq!(FigureValue::from(f64::INFINITY).to_string(), "+Inf");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FigureValue {
    /// A whole number, written in full.
    Integer(u64),
    /// Any other number.
    Float(f64),
}

/// Collects the figures of a layer: see [`Layer::figures`](super::Layer::figures).
///
/// ```
/// use alluvion::resource::Figures;
///
/// let mut lines = Vec::new();
/// let mut take = |figure: &alluvion::resource::Figure<'_>| {
///     lines.push(format!("{}{:?} {}", figure.name, figure.labels, figure.value));
/// };
/// let mut to = Figures::new(&[("gpu", "0")], &mut take);
/// to.gauge("jobs", "Jobs that run.", 3_u64);
/// to.labelled(&[("kind", "join")], |to| to.counter("queries_total", "Queries so far.", 7_u64));
/// assert_eq!(lines[0], r#"jobs[("gpu", "0")] 3"#);
/// assert_eq!(lines[1], r#"queries_total[("gpu", "0"), ("kind", "join")] 7"#);
/// ```
pub struct Figures<'t> {
    labels: &'t [(&'t str, &'t str)],
    take: &'t mut dyn FnMut(&Figure<'_>),
}

impl<'t> Figures<'t> {
    /// Passes each figure to `take`, with these labels before its own.
    pub fn new(labels: &'t [(&'t str, &'t str)], take: &'t mut dyn FnMut(&Figure<'_>)) -> Self {
        Self { labels, take }
    }

    /// Adds a figure that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Into<FigureValue>) {
        self.add(name, FigureKind::Gauge, help, value.into());
    }

    /// Adds a figure that only goes up. By custom its name ends in `_total`.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Into<FigureValue>) {
        self.add(name, FigureKind::Counter, help, value.into());
    }

    /// Runs `body`, which adds figures that have these labels, too.
    pub fn labelled(&mut self, labels: &[(&str, &str)], body: impl FnOnce(&mut Figures<'_>)) {
        let labels = [self.labels, labels].concat();
        body(&mut Figures { labels: &labels, take: &mut *self.take });
    }

    fn add(&mut self, name: &str, kind: FigureKind, help: &str, value: FigureValue) {
        (self.take)(&Figure { name, kind, help, labels: self.labels, value });
    }
}

impl fmt::Debug for Figures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figures").field("labels", &self.labels).finish_non_exhaustive()
    }
}

impl From<u64> for FigureValue {
    fn from(number: u64) -> Self {
        Self::Integer(number)
    }
}

impl From<usize> for FigureValue {
    fn from(number: usize) -> Self {
        Self::Integer(number as u64)
    }
}

impl From<i64> for FigureValue {
    fn from(number: i64) -> Self {
        u64::try_from(number).map_or(Self::Float(number as f64), Self::Integer)
    }
}

impl From<f64> for FigureValue {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl fmt::Display for FigureValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Integer(number) => write!(f, "{number}"),
            Self::Float(number) if number == f64::INFINITY => f.write_str("+Inf"),
            Self::Float(number) if number == f64::NEG_INFINITY => f.write_str("-Inf"),
            Self::Float(number) => write!(f, "{number}"),
        }
    }
}
