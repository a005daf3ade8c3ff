//! `footprint`: what pools take for workloads that are made up, beside models of peers.

use std::path::PathBuf;

use alluvion::source::Null;
use alluvion::trace::{EventKind, Trace};
use alluvion::{Pool, PoolConfig, Resource};

use super::expandable_segments::{ExpandableSegments, ModelBlock};
use super::figure::{Figure, Report};
use super::made_up::MadeUp;
use super::rmm_pool::RmmPool;
use crate::counted::Counted;
use crate::failure::Failure;
use crate::null_pages::NullPages;
use crate::replay::{Lanes, Log, log_order};
use crate::rig::{Driver, Rig};
use crate::workload::Block;

/// A pool of ours, and the peer that it is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pair {
    /// A pool that takes segments, and a model of RMM's pool.
    Segments,
    /// A pool over pages, and a model of PyTorch's expandable segments.
    Pages,
}

impl Pair {
    const ALL: [Self; 2] = [Self::Segments, Self::Pages];

    fn stack(self) -> &'static str {
        match self {
            Self::Segments => "pool",
            Self::Pages => "pool-mapped",
        }
    }

    /// As the peers' programs name it.
    fn peer(self) -> &'static str {
        match self {
            Self::Segments => "rmm",
            Self::Pages => "torch_expandable",
        }
    }

    /// One workload through the pool over no memory, and through the model.
    pub(super) fn compare(self, rig: &Rig, trace: &Trace) -> Result<Footprint, Failure> {
        let (ours, calls) = match self {
            Self::Segments => ours(rig, trace, Null::new(&rig.device))?,
            Self::Pages => ours(rig, trace, NullPages::new(&rig.device))?,
        };
        let peer = match self {
            Self::Segments => rmm(trace).paged_bytes(),
            Self::Pages => expandable(trace).mapped_bytes(),
        };
        Ok(Footprint { pair: self, peak_live_bytes: trace.peak_live_bytes(), ours, peer, calls })
    }
}

/// What two pools take for one workload, in whole pages of the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Footprint {
    pair: Pair,
    peak_live_bytes: u64,
    ours: u64,
    peer: u64,
    /// To the upstream, for memory or with it.
    calls: usize,
}

impl Footprint {
    /// Ours over the peer's.
    pub(super) fn ratio(&self) -> f64 {
        self.ours as f64 / self.peer as f64
    }

    fn over_live(&self, bytes: u64) -> f64 {
        bytes as f64 / self.peak_live_bytes as f64
    }

    fn figure(&self, program: &str, trace: &Trace) -> Figure {
        Figure::Footprint {
            program: program.to_owned(),
            events: trace.events.len(),
            streams: trace.streams,
            peak_live_bytes: self.peak_live_bytes,
            ours_over_live: self.over_live(self.ours),
            peer: self.pair.peer(),
            peer_over_live: self.over_live(self.peer),
            ratio: self.ratio(),
            calls: self.calls,
        }
    }
}

/// How many of them are at or below the peer's, and those that are farthest above.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Score {
    pub(super) workloads: usize,
    pub(super) at_or_below: usize,
    pub(super) highest: f64,
    pub(super) highest_over_live: f64,
}

impl Score {
    pub(super) fn add(&mut self, footprint: &Footprint) {
        self.workloads += 1;
        self.at_or_below += usize::from(footprint.ours <= footprint.peer);
        self.highest = self.highest.max(footprint.ratio());
        self.highest_over_live = self.highest_over_live.max(footprint.over_live(footprint.ours));
    }
}

/// The workloads of so many seeds, from `first_seed` on, and then the logs.
pub(super) fn run(
    first_seed: u64,
    workloads: u64,
    most_events: usize,
    logs: &[PathBuf],
    report: &mut Report,
) -> Result<(), Failure> {
    // All are read before the first is measured: the last may be malformed.
    let logs = logs.iter().map(|path| Log::open(path)).collect::<Result<Vec<_>, Failure>>()?;
    let rig = Rig::open(Driver::Null)?;
    let mut scores = Pair::ALL.map(|pair| (pair, Score::default()));
    for seed in first_seed..first_seed.saturating_add(workloads) {
        let workload = MadeUp::new(seed).most_events(most_events);
        let trace = workload.trace();
        for (pair, score) in &mut scores {
            let footprint = pair.compare(&rig, &trace)?;
            score.add(&footprint);
            report.begin(pair.stack());
            report.print(&footprint.figure(&workload.to_string(), &trace))?;
        }
    }
    for (pair, Score { workloads, at_or_below, highest, highest_over_live }) in scores {
        if workloads > 0 {
            report.begin(pair.stack());
            let peer = pair.peer();
            report.print(&Figure::Footprints { peer, workloads, at_or_below, highest, highest_over_live })?;
        }
    }
    for Log { name, trace } in &logs {
        for pair in Pair::ALL {
            report.begin(pair.stack());
            report.print(&pair.compare(&rig, trace)?.figure(name, trace))?;
        }
    }
    Ok(())
}

fn ours<U: Resource>(rig: &Rig, trace: &Trace, source: U) -> Result<(u64, usize), Failure> {
    let upstream = Counted::new(source);
    let pool = Pool::new(&upstream, PoolConfig::default())?;
    let lanes = Lanes::on_one(trace, &rig.device, &pool)?;
    let mut live: Vec<Option<Block<'_, _>>> = Vec::new();
    live.resize_with(trace.blocks as usize, || None);
    log_order(&trace.events, &lanes, &mut live, |_, error| Err(Failure::from(error)))?;
    Ok((upstream.peak_bytes() as u64, upstream.calls()))
}

fn rmm(trace: &Trace) -> RmmPool {
    let mut pool = RmmPool::default();
    let mut addresses = vec![0; trace.blocks as usize];
    for event in &trace.events {
        let address = &mut addresses[event.block as usize];
        match event.kind {
            EventKind::Allocate => *address = pool.allocate(event.bytes, event.stream),
            EventKind::Free => pool.free(*address, event.bytes, event.stream),
        }
    }
    pool
}

fn expandable(trace: &Trace) -> ExpandableSegments {
    let mut model = ExpandableSegments::default();
    let mut blocks = vec![ModelBlock::default(); trace.blocks as usize];
    for event in &trace.events {
        let block = &mut blocks[event.block as usize];
        match event.kind {
            EventKind::Allocate => *block = model.allocate(event.bytes, event.stream),
            EventKind::Free => model.free(*block),
        }
    }
    model
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn trace(name: &str) -> Trace {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/traces");
        Log::open(&folder.join(format!("{name}.csv.gz"))).expect("the trace is there").trace
    }

    /// What RMM 26.10's own pool took for them, in MiB.
    const MEASURED: [(&str, f64); 7] = [
        ("etl", 687.6),
        ("rnn", 780.3),
        ("serve_gpt", 588.9),
        ("serve_streams", 1570.5),
        ("streams", 3974.4),
        ("train_gpt", 18846.4),
        ("train_resnet", 3480.0),
    ];

    fn rig() -> Rig {
        Rig::open(Driver::Null).expect("a simulated device has streams")
    }

    /// The hundred workloads from that seed on.
    fn is_at_or_below_rmm_s_on_95_of_100_and_never_far_above(first_seed: u64) {
        let (rig, mut score) = (rig(), Score::default());
        for seed in first_seed..first_seed + 100 {
            let trace = MadeUp::new(seed).trace();
            score.add(&Pair::Segments.compare(&rig, &trace).expect("nothing fails over no memory"));
        }
        assert!(score.at_or_below >= 95 && score.highest <= 1.3, "{score:?}");
    }

    #[test]
    fn a_pool_takes_little_on_the_workloads_that_its_rules_were_chosen_on() {
        is_at_or_below_rmm_s_on_95_of_100_and_never_far_above(0);
    }

    #[test]
    fn a_pool_takes_little_on_workloads_that_its_rules_were_not_chosen_on() {
        is_at_or_below_rmm_s_on_95_of_100_and_never_far_above(1000);
    }

    /// No rule was chosen on them.
    #[test]
    fn a_pool_takes_no_more_than_rmm_s_on_every_log() {
        let rig = rig();
        for (name, _) in MEASURED {
            let footprint = Pair::Segments.compare(&rig, &trace(name)).expect("nothing fails over no memory");
            assert!(footprint.ratio() <= 1.0, "{name}: {footprint:?}");
        }
    }

    #[test]
    fn the_model_takes_what_rmm_takes() {
        for (name, mib) in MEASURED {
            let modelled = rmm(&trace(name)).reserved_bytes() as f64 / f64::from(1 << 20);
            assert!((modelled - mib).abs() < 0.06, "{name}: {modelled} MiB where RMM takes {mib}");
        }
    }

    /// What PyTorch 2.11's allocator took for them with `expandable_segments:True`, in MiB.
    const EXPANDABLE: [(&str, f64); 7] = [
        ("etl", 432.0),
        ("rnn", 674.0),
        ("serve_gpt", 430.0),
        ("serve_streams", 1812.0),
        ("streams", 2338.0),
        ("train_gpt", 14364.0),
        ("train_resnet", 3146.0),
    ];

    #[test]
    fn the_model_takes_what_expandable_segments_take() {
        for (name, mib) in EXPANDABLE {
            let modelled = expandable(&trace(name)).mapped_bytes() as f64 / f64::from(1 << 20);
            assert!((modelled - mib).abs() < 0.06, "{name}: {modelled} MiB where PyTorch takes {mib}");
        }
    }

    fn score_of_pages(first_seed: u64) -> Score {
        let (rig, mut score) = (rig(), Score::default());
        for seed in first_seed..first_seed + 100 {
            let trace = MadeUp::new(seed).trace();
            score.add(&Pair::Pages.compare(&rig, &trace).expect("nothing fails over no memory"));
        }
        score
    }

    /// Short of 95: on the others a pool holds 2% more on average, mostly one page where there are few. Above 1.3 times the
    /// live peak are programs that have less than 16 MiB, of which a page is a large part.
    #[test]
    fn a_pool_over_pages_takes_little_on_workloads_that_its_rules_were_not_chosen_on() {
        let score = score_of_pages(1000);
        assert!(
            score.at_or_below >= 80 && score.highest <= 1.3 && score.highest_over_live <= 2.2,
            "{score:?}"
        );
    }

    /// The better of expandable segments and the driver's pool on each, but for train_gpt, where that takes 1.07.
    #[test]
    fn a_pool_over_pages_takes_no_more_than_the_better_peer_on_every_log_but_one() {
        let rig = rig();
        let most = [1.15, 1.26, 1.08, 1.15, 1.63, 1.11, 1.011];
        for ((name, _), most) in MEASURED.into_iter().zip(most) {
            let footprint = Pair::Pages.compare(&rig, &trace(name)).expect("nothing fails over no memory");
            assert!(footprint.over_live(footprint.ours) <= most, "{name}: {footprint:?}");
        }
    }
}
