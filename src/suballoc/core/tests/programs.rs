//! Programs of calls: random long ones, and all short ones.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::model::{Call, Pair, Reach, STREAMS};
use super::trials;

fn reach() -> impl Strategy<Value = Reach> {
    [option::of(0..6_u64), option::of(0..6_u64), option::of(0..6_u64)]
}

/// Sizes on both sides of the bins of one size, and large ones.
fn units() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 1..8_u32, 3 => 28..70_u32, 2 => 60..300_u32, 1 => 1000..5000_u32]
}

/// `streams`: how many take part. Those of one are joined differently.
fn call(streams: usize) -> impl Strategy<Value = Call> {
    let aligned = prop_oneof![4 => Just(1_u32), 1 => (1..8_u32).prop_map(|log| 1 << log)];
    let allocate = (0..=streams, units(), aligned, reach());
    let address = prop_oneof![
        0x7000_0000..0x7010_0000_u64,
        (0..0x1000_u64).prop_map(|unit| 0x7000_0000 + unit * 256),
        any::<u64>()
    ];
    prop_oneof![
        20 => allocate.prop_map(|(requester, units, align_units, reach)| Call::Allocate { requester, units, align_units, reach }),
        4 => (0..=streams, units(), 1..40_u32).prop_map(|(requester, units, count)| Call::AllocateRun { requester, units, count }),
        20 => (any::<usize>(), 0..=streams, 0..5_u64).prop_map(|(pick, on, age)| Call::Release { pick, on, age }),
        2 => address.prop_map(|address| Call::ReleaseWrong { address }),
        4 => (0..streams).prop_map(|stream| Call::Advance { stream }),
        3 => (0..streams, 0..6_u64).prop_map(|(stream, age)| Call::Disown { stream, age }),
        2 => (0..=streams, reach()).prop_map(|(requester, reach)| Call::Gather { requester, reach }),
        1 => (0..streams).prop_map(|stream| Call::Leave { stream }),
        2 => (prop_oneof![1..40_u32, 500..3000_u32], 0..3_u64).prop_map(|(units, gap)| Call::AddSegment { units, gap }),
        2 => prop_oneof![0..50_u64, 0..5000_u64, Just(u64::MAX)].prop_map(|at_most| Call::TakeSegment { at_most }),
    ]
}

fn run(calls: &[Call]) -> Pair {
    let mut pair = Pair::new();
    pair.call(&Call::AddSegment { units: 2000, gap: 0 });
    for call in calls {
        pair.call(call);
        pair.check();
    }
    pair
}

proptest! {
    #![proptest_config(ProptestConfig { cases: trials(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn many_streams_do_as_the_list_says(calls in vec(call(STREAMS), 0..120)) {
        run(&calls).end();
    }

    #[test]
    fn one_stream_does_as_the_list_says(calls in vec(call(1), 0..120)) {
        run(&calls).drain();
    }
}

/// The most calls of a short program.
fn longest() -> u32 {
    if trials() < 256 { 4 } else { 5 }
}

/// All programs of up to so many calls. What a shorter one leaves has been checked when a longer one begins with it.
fn all(calls: &[Call], length: u32, segments: &[u32]) {
    for length in 1..=length {
        for program in 0..calls.len().pow(length) {
            let mut pair = Pair::new();
            segments.iter().for_each(|&units| pair.call(&Call::AddSegment { units, gap: 0 }));
            (0..length).for_each(|at| pair.call(&calls[program / calls.len().pow(at) % calls.len()]));
            pair.check();
        }
    }
}

const NONE: Reach = [None; STREAMS];
const ALL: Reach = [Some(0); STREAMS];

#[test]
fn every_short_program_of_two_streams() {
    let calls = [
        Call::Allocate { requester: 1, units: 1, align_units: 1, reach: NONE },
        Call::Allocate { requester: 2, units: 2, align_units: 1, reach: ALL },
        Call::Allocate { requester: 0, units: 1, align_units: 2, reach: ALL },
        Call::Release { pick: 0, on: 1, age: 0 },
        Call::Release { pick: 1, on: 2, age: 1 },
        Call::Release { pick: 0, on: 0, age: 0 },
        Call::Disown { stream: 0, age: 0 },
        Call::Gather { requester: 2, reach: [Some(0), None, None] },
    ];
    all(&calls, longest(), &[4]);
    all(&calls, 4, &[2, 1]);
}

#[test]
fn every_short_program_of_one_stream() {
    let calls = [
        Call::AllocateRun { requester: 1, units: 1, count: 3 },
        Call::Allocate { requester: 1, units: 1, align_units: 1, reach: NONE },
        Call::Release { pick: 0, on: 1, age: 1 },
        Call::Release { pick: 1, on: 1, age: 0 },
        Call::Release { pick: 1, on: 0, age: 0 },
        Call::Disown { stream: 0, age: 1 },
        Call::TakeSegment { at_most: 4 },
    ];
    all(&calls, longest(), &[4]);
}
