//! A program of no kind: blocks of any sizes, in phases, with lifetimes from a few calls to the whole run.

use super::random::Random;
use super::sizes::Sizes;
use super::tape::{Held, Tape};

/// A block, and when it is to go.
struct Life {
    held: Held,
    stream: u32,
    /// The call after which it goes; `u64::MAX` at the end of the phase, or never.
    until: u64,
    whole_run: bool,
}

pub(super) fn run(tape: &mut Tape, random: &mut Random, most_events: usize) {
    let mut live: Vec<Life> = Vec::new();
    let mut bytes = 0;
    let mut call = 0;
    while tape.len() < most_events {
        let sizes = Sizes::any(random);
        let calls = random.between(most_events as u64 / 20, most_events as u64 / 3).max(8);
        let most_bytes = random.over_doublings(16 << 20, 16 << 30);
        let most_blocks = random.over_doublings(16, 3000);
        let (short, until_end) = (random.between(2, 200), random.between(0, 30));
        // Last in, first out, so many times out of a hundred; else any.
        let nested = random.pick(&[0, 30, 70, 95]);
        for _ in 0..calls {
            call += 1;
            let is_full = bytes >= most_bytes || live.len() as u64 >= most_blocks;
            if !live.is_empty() && (is_full || random.chance(45)) {
                let at = if random.chance(nested) {
                    live.len() - 1
                } else {
                    let due = live.iter().position(|life| life.until <= call);
                    due.unwrap_or_else(|| random.below(live.len() as u64) as usize)
                };
                if is_full || (!live[at].whole_run && (live[at].until <= call || random.chance(20))) {
                    let life = live.remove(at);
                    bytes -= life.held.bytes();
                    tape.free_about(random, life.held, life.stream);
                    continue;
                }
            }
            let stream = tape.stream(random.below(tape.streams() as u64) as usize);
            let held = tape.allocate(sizes.draw(random), stream);
            bytes += held.bytes();
            let whole_run = random.chance(2);
            let until = if random.chance(until_end) { u64::MAX } else { call + random.between(1, short) };
            live.push(Life { held, stream, until, whole_run });
        }
        // The phase ends: much of what is there goes, in any order.
        let goes = random.pick(&[20, 60, 90, 100]);
        let mut at = 0;
        while at < live.len() {
            if !live[at].whole_run && random.chance(goes) {
                let life = live.swap_remove(at);
                bytes -= life.held.bytes();
                tape.free_about(random, life.held, life.stream);
            } else {
                at += 1;
            }
        }
    }
}
