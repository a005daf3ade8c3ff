//! Ranges beside a machine of plain data, which knows what is mapped where.

mod growth;
mod machine;
mod moves;
mod visits;

use proptest::collection::vec;
use proptest::prelude::*;

use super::trials;
use crate::stream::Epoch;
use crate::suballoc::core::{Core, Extent, Owner};
use machine::{STREAMS, run, step};

proptest! {
    #![proptest_config(ProptestConfig { cases: trials(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_of_two_streams_always_have_memory(steps in vec(step(STREAMS), 0..120)) {
        run(&steps);
    }

    #[test]
    fn blocks_of_one_stream_always_have_memory(steps in vec(step(1), 0..120)) {
        run(&steps);
    }
}

fn grown(core: &mut Core, owner: Owner, units: u32, number: u64) -> u64 {
    let site = core.site(owner, units, 1, &[]).expect("the range is long enough");
    let growing = core.begin_growth(site, 0);
    core.take_stale(&growing.gaps, 0).into_iter().for_each(|stale| core.settle_stale(stale, true));
    let mapped: Vec<Extent> = growing
        .gaps
        .iter()
        .zip(number..)
        .map(|(&(address, units), number)| Extent { address, units, number })
        .collect();
    core.finish_growth(&growing, &mapped, owner, Epoch(1))
}
