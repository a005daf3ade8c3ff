//! A stack, a job on several streams, and then a look at what happened: figures, a log, and a page for a browser. Runs on a
//! GPU if there is one, else on the simulator.

mod machine;

use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::path::Path;

use alluvion::adaptor::{LogConfig, Logging, Stats};
use alluvion::source::CudaAsync;
use alluvion::tag::with_tag;
use alluvion::{DeviceVec, Pool, PoolConfig, ResourceExt, Stream};

/// The whole stack is a type, outermost layer first. No call of it is virtual.
type Stack = Logging<Stats<Pool<CudaAsync>>>;

fn main() -> Result<(), Box<dyn Error>> {
    let machine::Chosen { device, sim } = machine::choose()?;
    let folder = Path::new("target/quickstart");
    fs::create_dir_all(folder)?;
    let (log_file, page) = (folder.join("log.csv"), folder.join("page.html"));

    // Built from the inside out: who has the bytes, who carves them up, who counts, who writes down.
    let log = LogConfig::default().tags(true).reserved(true).create(&log_file)?;
    let stack: Stack = CudaAsync::new(&device)?.pool(PoolConfig::default())?.stats().logging(log);

    let streams = (0..4).map(|_| device.stream()).collect::<Result<Vec<_>, _>>()?;
    run_job(&stack, &streams)?;
    println!("{}", stack.describe());

    let stats = stack.upstream();
    println!("{}", stats.counts());
    for tag in stats.book().by_tag() {
        println!("  {:8}{:4} allocations, {:8} KiB", tag.tag, tag.allocations, tag.bytes >> 10);
    }

    stack.book().flush()?;
    println!("log:  {} ({} rows)", log_file.display(), stack.book().rows());
    println!("page: {}", alluvion_cli::write_page(&log_file, &page)?);

    if let Some(sim) = sim {
        // The simulator has watched every access: no race, no use after free.
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
        println!("the simulator saw {} driver calls and no hazard", sim.calls().total());
    }
    Ok(())
}

/// Batches come in, are filtered on one stream and summed up on another; the last few results are kept.
fn run_job(stack: &Stack, streams: &[Stream]) -> Result<(), alluvion::Error> {
    let mut results = VecDeque::new();
    for batch in 0..200_u32 {
        let here = &streams[batch as usize % streams.len()];
        let there = &streams[(batch as usize + 1) % streams.len()];
        // No two batches are equally long.
        let rows = 200_000 + (batch as usize * 79_190) % 500_000;

        let input = with_tag("load", || DeviceVec::from_slice_in(&vec![batch; rows], here, stack))?;
        let matches =
            with_tag("filter", || DeviceVec::from_device_in(input.slice(..rows / 3)?, here, stack))?;
        drop(input); // Its memory is free behind the copy, for the next batch.

        // On another stream: what it needs of the first comes first, on the device.
        let sums = with_tag("sum", || DeviceVec::from_device_in(matches.slice(..rows / 100)?, there, stack))?;
        results.push_back((matches, sums));
        if results.len() > 12 {
            results.pop_front();
        }
    }
    for (matches, sums) in results {
        assert_eq!(sums.front(&streams[0])?, matches.back(&streams[0])?);
    }
    Ok(())
}
