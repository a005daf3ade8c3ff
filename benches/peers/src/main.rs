//! The allocators that a Rust program would use without alluvion, on the workloads of `alluvion bench`.
//!
//! ```text
//! alluvion-peers pair|random [--quick] [--driver auto|cuda|null]
//! alluvion-peers replay [--quick] [--driver auto|cuda|null] TRACE…
//! ```
//!
//! Prints the lines of `alluvion bench`: workload, allocator, case, value. The footprint is in those of `replay`.
//!
//! | allocator | what it is |
//! |---|---|
//! | `cudarc` | `CudaStream::alloc` of cudarc 0.19: two events and an allocation of the driver's default pool for each block |
//! | `cubecl` | the `MemoryManagement` of cubecl-server 0.11, one for each stream, as cubecl's runtime for CUDA configures it |
//!
//! The storage that cubecl has for CUDA is private to its compute server. The one here does what it does by default: `cuMemAlloc`
//! for each page. Without a GPU it counts bytes, and cudarc is left out.

mod cubecl;
mod cudarc_stream;
#[path = "../../../cli/src/workload/numbers/mod.rs"]
mod numbers;
mod peer;
mod storage;
mod trace_file;
mod workload;

use std::process::ExitCode;

use crate::cubecl::Cubecl;
use crate::cudarc_stream::Cudarc;
use crate::peer::Peer;
use crate::storage::{Counting, DeviceMemory, Tally};
use crate::trace_file::TraceFile;
use crate::workload::Scale;

const USAGE: &str = "usage: alluvion-peers pair|random|replay [--quick] [--driver auto|cuda|null] [TRACE...]";

/// The workload to measure.
enum Job {
    Pair,
    Random,
    Replay(Vec<TraceFile>),
}

/// The command line, read.
struct Request {
    job: Job,
    scale: Scale,
    driver: String,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|request| run(&request)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            eprintln!("error: {words}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Request, String> {
    let (mut words, mut quick, mut driver) = (Vec::new(), false, "auto".to_owned());
    let mut arguments = arguments;
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "--quick" => quick = true,
            "--driver" => driver = arguments.next().ok_or("`--driver` wants auto, cuda or null")?,
            _ if word.starts_with('-') => return Err(format!("`{word}` is no flag; {USAGE}")),
            _ => words.push(word),
        }
    }
    if !["auto", "cuda", "null"].contains(&driver.as_str()) {
        return Err(format!("`{driver}` is no driver; there are auto, cuda and null"));
    }
    let (job, traces) = words.split_first().ok_or(USAGE)?;
    let job = match (job.as_str(), traces) {
        ("pair", []) => Job::Pair,
        ("random", []) => Job::Random,
        ("pair" | "random", [trace, ..]) => {
            return Err(format!("`{job}` plays no trace, as `{trace}`; {USAGE}"));
        }
        ("replay", []) => return Err(format!("`replay` wants a trace; {USAGE}")),
        // All are read before the first is measured: the last may be malformed.
        ("replay", traces) => {
            Job::Replay(traces.iter().map(|path| TraceFile::open(path)).collect::<Result<_, _>>()?)
        }
        _ => return Err(format!("`{job}` is no workload; {USAGE}")),
    };
    Ok(Request { job, scale: Scale { quick }, driver })
}

/// Memory of an H200, of which cubecl makes the size of its largest page.
const NULL_BYTES: u64 = 141 << 30;

fn run(request: &Request) -> Result<(), String> {
    if request.driver != "null" {
        match cudarc_stream::context() {
            Ok(context) => {
                let total_bytes = context.total_mem().map_err(|error| error.to_string())? as u64;
                measure(request, |streams| Cudarc::new(&context, streams))?;
                return measure(request, |streams| {
                    let storage = |tally: &Tally| DeviceMemory::new(&context, tally);
                    Ok(Cubecl::new(storage, total_bytes, streams, Some(&context)))
                });
            }
            Err(words) if request.driver == "cuda" => return Err(words),
            Err(words) => eprintln!("note: {words}; cubecl counts bytes, and cudarc is left out"),
        }
    }
    measure(request, |streams| Ok(Cubecl::new(Counting::new, NULL_BYTES, streams, None)))
}

/// Each case of a workload gets a peer of its own.
fn measure<P: Peer>(request: &Request, make: impl Fn(usize) -> Result<P, String>) -> Result<(), String> {
    match &request.job {
        Job::Pair => workload::pair(&make, request.scale),
        Job::Random => workload::random(&make, request.scale),
        Job::Replay(traces) => {
            traces.iter().try_for_each(|trace| workload::replay(&make, trace, request.scale))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Result<Request, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in
            ["", "dance", "pair x.csv", "replay", "pair --dance", "pair --driver", "pair --driver rocm"]
        {
            assert!(request(line).is_err(), "{line}");
        }
        assert!(request("replay no-such-trace.csv").is_err_and(|words| words.contains("no-such-trace.csv")));
        let request = request("random --quick --driver null").expect("it is understood");
        assert!(matches!(request.job, Job::Random) && request.scale.quick && request.driver == "null");
    }

    #[test]
    fn every_workload_runs_on_the_host_alone() {
        let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/traces/etl.csv.gz");
        for line in ["pair", "random", &format!("replay {trace}")] {
            let request = request(&format!("{line} --quick --driver null")).expect("it is understood");
            run(&request).unwrap_or_else(|words| panic!("{line}: {words}"));
        }
    }
}
