//! What it costs that streams know what they have waited for, counted: bytes, calls of the heap, driver calls. Counts do not
//! depend on the machine.

use alluvion::{Device, Frontier, Stream};

use crate::heap::heap_of;
use crate::nil::Nil;

const MIB: i64 = 1 << 20;

fn streams(device: &Device, count: usize) -> Vec<Stream> {
    (0..count).map(|_| device.stream().expect("there are numbers left")).collect()
}

/// Each stream waits for the one before it, all the way round.
fn go_round(streams: &[Stream]) {
    for (at, stream) in streams.iter().enumerate() {
        streams[(at + 1) % streams.len()].wait_for_stream(stream).expect("nothing fails");
    }
}

/// Any stream waits for any other, `waits` times, the same in each run.
fn go_anyhow(streams: &[Stream], waits: usize) {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % streams.len()
    };
    for _ in 0..waits {
        let (taker, giver) = (next(), next());
        streams[taker].wait_for_stream(&streams[giver]).expect("nothing fails");
    }
}

fn knows_all(streams: &[Stream], points: &[Frontier]) -> bool {
    streams.iter().all(|stream| points.iter().all(|point| stream.as_ref().may_reuse(point)))
}

#[test]
fn what_all_know_of_all_takes_little_room() {
    let (_nil, device) = Nil::device();
    let streams = streams(&device, 4000);
    let points: Vec<Frontier> =
        streams.iter().step_by(97).map(|stream| Frontier::of(stream.as_ref().release())).collect();
    let (_, bytes) = heap_of(|| (0..4).for_each(|_| go_round(&streams)));
    assert!(knows_all(&streams, &points), "all wait for all");
    assert!(bytes < 8 * MIB, "{} MiB", bytes / MIB);
    // Nothing is over, and no two know the same.
    let (_, more) = heap_of(|| go_anyhow(&streams, 100_000));
    assert!(bytes + more < 64 * MIB, "{} MiB", (bytes + more) / MIB);
}

/// Calls of the heap and of the driver that one wait takes, in the steady state.
fn of_one_wait(count: usize, go: impl Fn(&[Stream])) -> [f64; 2] {
    const ROUNDS: usize = 20;
    let (nil, device) = Nil::device();
    let streams = streams(&device, count);
    // Until each stream keeps as many events as it ever does.
    (0..8).for_each(|_| go(&streams));
    let before = nil.calls();
    let (heap, _) = heap_of(|| (0..ROUNDS).for_each(|_| go(&streams)));
    let waits = (ROUNDS * count) as f64;
    [heap as f64 / waits, (nil.calls() - before) as f64 / waits]
}

/// The question whether it captures, and the record; the same question of the other, and the wait.
const DRIVER_CALLS: f64 = 4.0;

#[test]
fn a_wait_among_few_streams_makes_its_event_and_nothing_else() {
    for count in [2, 4] {
        assert_eq!(
            of_one_wait(count, go_round),
            [2.0, DRIVER_CALLS],
            "{count} streams: one is made, one goes"
        );
    }
}

#[test]
fn a_wait_among_many_streams_copies_no_clock() {
    let [few, of_driver] = of_one_wait(10, go_round);
    assert!((few, of_driver) <= (6.0, DRIVER_CALLS), "{few} calls of the heap, {of_driver} of the driver");
    for count in [100, 1000, 4000] {
        let [many, of_driver] = of_one_wait(count, go_round);
        assert!(many <= 2.0 * few, "{many} calls of the heap among {count}, {few} among 10");
        assert_eq!(of_driver, DRIVER_CALLS, "{count} streams");
        let [anyhow, of_driver] = of_one_wait(count, |streams| go_anyhow(streams, streams.len()));
        assert!(
            anyhow <= 10.0 * few,
            "{anyhow} calls of the heap among {count}, any for any, {few} among 10"
        );
        assert!(of_driver <= DRIVER_CALLS, "{of_driver} calls among {count} streams");
    }
}

#[test]
fn what_is_over_is_forgotten_while_waits_go_on() {
    const OTHERS: usize = 4000;
    let (_nil, device) = Nil::device();
    let (taker, last) = (device.stream().expect("the first"), device.stream().expect("the second"));
    let wait_for = |giver: &Stream| taker.wait_for_stream(giver).expect("nothing fails");
    let others = streams(&device, OTHERS);
    others.iter().for_each(wait_for);
    (0..8).for_each(|_| wait_for(&last));
    let wait_on = || (0..OTHERS / 16 * 8 + 100).for_each(|_| wait_for(&last));
    let (_, freed) = heap_of(wait_on);
    assert_eq!(freed, 0, "nothing is over");
    others.iter().for_each(|stream| stream.synchronize().expect("nothing fails"));
    let (_, freed) = heap_of(wait_on);
    // Each took eight bytes, and more.
    assert!(freed <= -8 * OTHERS as i64, "{freed} bytes");
}
