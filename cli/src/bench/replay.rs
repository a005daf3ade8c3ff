//! `replay`: what a program allocated and freed.

use std::path::Path;

use alluvion::trace::Trace;
use alluvion::{Error, Resource};

use super::figure::{Figure, Report};
use super::stack::{Source, Stack, Subject};
use crate::failure::Failure;
use crate::replay::{Lanes, Log, log_order};
use crate::timing::median;
use crate::workload::Block;

/// A trace that is replayed, with its name.
#[derive(Debug)]
pub(crate) struct Replayed {
    name: String,
    trace: Trace,
    peak_live_bytes: u64,
}

impl Replayed {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let Log { name, trace } = Log::open(path)?;
        // The peers' programs read traces in a form that ends so, and their figures carry that name.
        Ok(Self { name: format!("{name}.evt"), peak_live_bytes: trace.peak_live_bytes(), trace })
    }

    /// Prints what the trace is.
    pub(super) fn announce(&self, report: &mut Report) -> Result<(), Failure> {
        report.print(&Figure::Trace {
            trace: self.name.clone(),
            events: self.trace.events.len(),
            streams: self.trace.streams,
            peak_live_bytes: self.peak_live_bytes,
        })
    }

    pub(super) fn run<S: Stack<U>, U: Source>(
        &self,
        subject: &Subject<'_, S, U>,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let figure = subject.with_resource(0, |resource, upstream| {
            let device = &subject.rig.device;
            let lanes = Lanes::on_one(&self.trace, device, resource)?;
            let mut live: Vec<Option<Block<'_, S::Resource<'_>>>> = Vec::new();
            live.resize_with(self.trace.blocks as usize, || None);
            let first_ns = self.round(&lanes, &mut live)?;
            device.synchronize()?;
            let footprint = S::footprint(resource, upstream)?;
            let mut steady = Vec::new();
            for _ in 0..subject.either(5, 1) {
                steady.push(self.round(&lanes, &mut live)?);
                device.synchronize()?;
            }
            Ok(Figure::Replay {
                trace: self.name.clone(),
                first_ns,
                steady_ns: median(steady),
                footprint_bytes: footprint as u64,
                ratio: footprint as f64 / self.peak_live_bytes as f64,
            })
        })?;
        report.print(&figure)
    }

    /// Nanoseconds an event. The first that fails ends it.
    fn round<'r, R: Resource>(
        &self,
        lanes: &Lanes<'r, R>,
        live: &mut [Option<Block<'r, R>>],
    ) -> Result<f64, Failure> {
        let events = &self.trace.events;
        let ns = log_order(events, lanes, live, |at, error| Err(self.failed(at, &error)))?;
        Ok(ns / events.len() as f64)
    }

    #[cold]
    fn failed(&self, at: usize, error: &Error) -> Failure {
        Failure::Failed(format!("{}: event {at} of {}: {error}", self.name, self.trace.events.len()))
    }
}
