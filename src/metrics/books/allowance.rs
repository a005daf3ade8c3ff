//! What an allowance has to say.

use super::Labels;
use crate::adaptor::Allowance;
use crate::metrics::{Kind, Metrics};

/// With those above it: a request is refused because of any of them.
pub(super) fn add(to: &mut Metrics, labels: &Labels<'_>, allowance: &Allowance) {
    for allowance in core::iter::successors(Some(allowance), |allowance| allowance.parent()) {
        let path = path_of(allowance);
        labels.with(|labels| add_one(to, &[labels, &[("allowance", &path)]].concat(), allowance));
    }
}

/// `gpu/queries`: what an allowance is called, after those that it is under.
fn path_of(allowance: &Allowance) -> String {
    let upwards = core::iter::successors(Some(allowance), |allowance| allowance.parent());
    let mut names: Vec<&str> = upwards.map(Allowance::name).collect();
    names.reverse();
    names.join("/")
}

fn add_one(to: &mut Metrics, labels: &[(&str, &str)], allowance: &Allowance) {
    let mut gauge = |name, help, bytes: usize| to.add(name, Kind::Gauge, help, labels, bytes);
    gauge("alluvion_allowance_limit_bytes", "The most bytes that may be out.", allowance.limit_bytes());
    gauge("alluvion_allowance_used_bytes", "Bytes that are out.", allowance.used_bytes());
    gauge("alluvion_allowance_peak_bytes", "The most bytes that were ever out.", allowance.peak_bytes());
    if let Some(bytes) = allowance.soft_bytes() {
        gauge("alluvion_allowance_soft_bytes", "So many bytes may be out before observers are told.", bytes);
    }
    let mut counter = |name, help, count: u64| to.add(name, Kind::Counter, help, labels, count);
    counter("alluvion_allowance_refusals_total", "Requests refused because of it.", allowance.refusals());
    counter(
        "alluvion_allowance_crossings_total",
        "Times that the soft limit was crossed.",
        allowance.crossings(),
    );
}
