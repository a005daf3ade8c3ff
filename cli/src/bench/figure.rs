//! `Figure`: what was measured, and how it is printed.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Failure;

/// One figure. Printed as the peers' programs print theirs, so that one script can put all side by side.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "workload", rename_all = "lowercase")]
pub(crate) enum Figure {
    Pair {
        live: usize,
        size: usize,
        ns: f64,
    },
    Random {
        num: usize,
        max_mib: usize,
        fails: usize,
        ms: f64,
    },
    Threads {
        threads: usize,
        mops: f64,
    },
    Cross {
        ns: f64,
    },
    Turns {
        streams: usize,
        ns: f64,
    },
    Replay {
        trace: String,
        first_ns: f64,
        steady_ns: f64,
        footprint_bytes: u64,
        ratio: f64,
    },
    Trace {
        trace: String,
        events: usize,
        streams: u32,
        peak_live_bytes: u64,
    },
    Footprint {
        program: String,
        events: usize,
        streams: u32,
        peak_live_bytes: u64,
        ours_over_live: f64,
        peer: &'static str,
        peer_over_live: f64,
        ratio: f64,
        calls: usize,
    },
    Footprints {
        peer: &'static str,
        workloads: usize,
        at_or_below: usize,
        highest: f64,
        highest_over_live: f64,
    },
    Sleep {
        what: &'static str,
        mib: usize,
        ms: f64,
    },
    #[serde(rename = "multi-stream")]
    MultiStream {
        streams: usize,
        kernels: usize,
        first_ns: f64,
        ns: f64,
    },
    #[serde(rename = "stream-pool")]
    StreamPool {
        what: &'static str,
        ns: f64,
    },
    Priming {
        initial_mib: usize,
        made_ms: f64,
        first_ns: f64,
        again_ns: f64,
    },
    Vectors {
        what: &'static str,
        elements: usize,
        ns: f64,
    },
    Host {
        operation: &'static str,
        ns: f64,
    },
    Layers {
        over: &'static str,
        stack: &'static str,
        ns: f64,
        added_ns: f64,
    },
    #[serde(rename = "layers-threads")]
    LayersThreads {
        over: &'static str,
        stack: &'static str,
        threads: usize,
        mops: f64,
        ratio: f64,
    },
}

const MIB: f64 = (1 << 20) as f64;

impl Figure {
    fn print(&self, allocator: &str, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Pair { live, size, ns } => {
                writeln!(out, "pair,{allocator},live={live} size={size},{ns:.1}")
            }
            Self::Random { num, max_mib, fails, ms } => {
                writeln!(out, "random,{allocator},num={num} max={max_mib}MiB fails={fails},{ms:.3}")
            }
            Self::Threads { threads, mops } => {
                writeln!(out, "threads,{allocator},T={threads},{mops:.3} Mops/s")
            }
            Self::Cross { ns } => {
                writeln!(out, "cross,{allocator},alloc/free alternating between two streams 1MiB,{ns:.1}")
            }
            Self::Turns { streams, ns } => writeln!(out, "turns,{allocator},streams={streams},{ns:.1}"),
            Self::Replay { trace, first_ns, steady_ns, footprint_bytes, ratio } => writeln!(
                out,
                "replay,{allocator},{trace} first={first_ns:.1} ns/ev steady={steady_ns:.1} ns/ev \
                 footprint={:.1} MiB,{ratio:.3}",
                *footprint_bytes as f64 / MIB
            ),
            Self::Trace { trace, events, streams, peak_live_bytes } => writeln!(
                out,
                "replay,{trace},events={events} streams={streams} peak_live={:.1} MiB,",
                *peak_live_bytes as f64 / MIB
            ),
            Self::Footprint {
                program,
                events,
                streams,
                peak_live_bytes,
                ours_over_live,
                peer,
                peer_over_live,
                ratio,
                calls,
            } => writeln!(
                out,
                "footprint,{allocator},{program} events={events} streams={streams} peak_live={:.1} MiB \
                 over_live={ours_over_live:.2} {peer}={peer_over_live:.2} calls={calls},{ratio:.3}",
                *peak_live_bytes as f64 / MIB
            ),
            Self::Footprints { peer, workloads, at_or_below, highest, highest_over_live } => writeln!(
                out,
                "footprint,{allocator},at or below {peer} on {at_or_below} of {workloads} highest={highest:.3} \
                 highest_over_live={highest_over_live:.3},"
            ),
            Self::Sleep { what, mib, ms } if mib % 1024 == 0 => {
                writeln!(out, "sleep,{what},{}GiB,{ms:.3}", mib / 1024)
            }
            Self::Sleep { what, mib, ms } => writeln!(out, "sleep,{what},{mib}MiB,{ms:.3}"),
            Self::MultiStream { streams, kernels, first_ns, ns } => {
                writeln!(
                    out,
                    "multi-stream,{allocator},streams={streams} kernels={kernels} first={first_ns:.1},{ns:.1}"
                )
            }
            Self::StreamPool { what, ns } => writeln!(out, "stream-pool,{what},{ns:.1}"),
            Self::Priming { initial_mib, made_ms, first_ns, again_ns } => writeln!(
                out,
                "priming,cuda-async,initial={initial_mib}MiB made={made_ms:.3}ms first={first_ns:.1},{again_ns:.1}"
            ),
            Self::Vectors { what, elements, ns } => {
                writeln!(out, "vectors,{allocator},{what} elements={elements},{ns:.1}")
            }
            Self::Host { operation, ns } => writeln!(out, "host,{operation},{ns:.1}"),
            Self::Layers { over, stack, ns, added_ns } => {
                writeln!(out, "layers,{over},{stack},{ns:.1} ns,{added_ns:+.1}")
            }
            Self::LayersThreads { over, stack, threads, mops, ratio } => {
                writeln!(out, "layers,{over} T={threads},{stack},{mops:.3} Mops/s,{ratio:.2}")
            }
        }
    }
}

/// A figure with what it is about, for machines to read.
#[derive(Serialize)]
struct Entry<'f> {
    #[serde(skip_serializing_if = "Option::is_none")]
    allocator: Option<&'f str>,
    driver: &'f str,
    #[serde(flatten)]
    figure: &'f Figure,
}

/// Prints figures as they come.
#[derive(Debug)]
pub(crate) struct Report {
    json: bool,
    driver: &'static str,
    /// `alluvion_pool`: the peers' tables name theirs in this way.
    allocator: Option<String>,
}

impl Report {
    pub(crate) fn new(json: bool, driver: &'static str) -> Self {
        Self { json, driver, allocator: None }
    }

    /// The figures that follow are about this stack.
    pub(crate) fn begin(&mut self, stack: &str) {
        self.allocator = Some(format!("alluvion_{}", stack.replace('-', "_")));
    }

    pub(crate) fn print(&mut self, figure: &Figure) -> Result<(), Failure> {
        let mut line = Vec::new();
        let allocator = self.allocator.as_deref();
        let written = if self.json {
            let entry = Entry { allocator, driver: self.driver, figure };
            serde_json::to_writer(&mut line, &entry).map_err(io::Error::from).and_then(|()| writeln!(line))
        } else {
            figure.print(allocator.unwrap_or_default(), &mut line)
        };
        // A line at once, and at once: runs are long, and somebody is watching.
        let mut out = io::stdout().lock();
        written.and_then(|()| out.write_all(&line)).and_then(|()| out.flush()).map_err(|error| {
            if error.kind() == io::ErrorKind::BrokenPipe {
                Failure::Unread
            } else {
                Failure::while_doing("writing the figures", error)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(figure: &Figure) -> String {
        let mut line = Vec::new();
        figure.print("alluvion_pool", &mut line).unwrap();
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn lines_are_those_of_the_peers() {
        let figures = [
            (Figure::Pair { live: 0, size: 256, ns: 30.04 }, "pair,alluvion_pool,live=0 size=256,30.0"),
            (
                Figure::Random { num: 1000, max_mib: 1, fails: 0, ms: 0.7041 },
                "random,alluvion_pool,num=1000 max=1MiB fails=0,0.704",
            ),
            (Figure::Threads { threads: 16, mops: 200.0 }, "threads,alluvion_pool,T=16,200.000 Mops/s"),
            (
                Figure::Cross { ns: 250.06 },
                "cross,alluvion_pool,alloc/free alternating between two streams 1MiB,250.1",
            ),
            (Figure::Turns { streams: 100, ns: 30.04 }, "turns,alluvion_pool,streams=100,30.0"),
            (
                Figure::Trace {
                    trace: "etl.evt".into(),
                    events: 8160,
                    streams: 1,
                    peak_live_bytes: 376 << 20,
                },
                "replay,etl.evt,events=8160 streams=1 peak_live=376.0 MiB,",
            ),
            (
                Figure::Replay {
                    trace: "etl.evt".into(),
                    first_ns: 243.4,
                    steady_ns: 185.2,
                    footprint_bytes: 400 << 20,
                    ratio: 1.0638,
                },
                "replay,alluvion_pool,etl.evt first=243.4 ns/ev steady=185.2 ns/ev footprint=400.0 MiB,1.064",
            ),
            (
                Figure::Footprint {
                    program: "heap of seed 7".into(),
                    events: 8000,
                    streams: 3,
                    peak_live_bytes: 100 << 20,
                    ours_over_live: 1.25,
                    peer: "rmm",
                    peer_over_live: 2.0,
                    ratio: 0.625,
                    calls: 12,
                },
                "footprint,alluvion_pool,heap of seed 7 events=8000 streams=3 peak_live=100.0 MiB \
                 over_live=1.25 rmm=2.00 calls=12,0.625",
            ),
            (
                Figure::Footprints {
                    peer: "rmm",
                    workloads: 100,
                    at_or_below: 97,
                    highest: 1.0449,
                    highest_over_live: 1.25,
                },
                "footprint,alluvion_pool,at or below rmm on 97 of 100 highest=1.045 highest_over_live=1.250,",
            ),
            (Figure::Sleep { what: "alluvion", mib: 8192, ms: 300.04 }, "sleep,alluvion,8GiB,300.040"),
            (Figure::Sleep { what: "copies", mib: 64, ms: 2.5 }, "sleep,copies,64MiB,2.500"),
            (
                Figure::MultiStream { streams: 4, kernels: 8, first_ns: 2000.0, ns: 40.04 },
                "multi-stream,alluvion_pool,streams=4 kernels=8 first=2000.0,40.0",
            ),
            (Figure::StreamPool { what: "next of a pool", ns: 2.0 }, "stream-pool,next of a pool,2.0"),
            (
                Figure::Priming { initial_mib: 100, made_ms: 1.5, first_ns: 800.0, again_ns: 700.04 },
                "priming,cuda-async,initial=100MiB made=1.500ms first=800.0,700.0",
            ),
            (
                Figure::Vectors { what: "made and dropped", elements: 10_000, ns: 300.04 },
                "vectors,alluvion_pool,made and dropped elements=10000,300.0",
            ),
            (Figure::Host { operation: "mimalloc pair 64 B", ns: 5.0 }, "host,mimalloc pair 64 B,5.0"),
            (
                Figure::Layers { over: "null", stack: "stats", ns: 9.04, added_ns: 3.96 },
                "layers,null,stats,9.0 ns,+4.0",
            ),
            (
                Figure::LayersThreads { over: "pool", stack: "stats", threads: 16, mops: 180.0, ratio: 0.9 },
                "layers,pool T=16,stats,180.000 Mops/s,0.90",
            ),
        ];
        for (figure, wanted) in figures {
            assert_eq!(line(&figure).trim_end(), wanted);
        }
    }
}
