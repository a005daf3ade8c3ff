//! What a tally says of several threads, against a plain count.

use super::*;

/// Threads with as much slack as there is have nothing to tell each other.
#[test]
fn nobody_meets_within_the_slack() {
    for slack_bytes in [1 << 20, usize::MAX] {
        let tally = StatsBook::new(slack_bytes);
        tally.allocated(1000);
        tally.freed(500);
        assert_eq!(tally.summit.lock().published, [0, 0], "with {slack_bytes}");
    }
    let tally = StatsBook::new(0);
    tally.allocated(1000);
    assert_eq!(tally.summit.lock().published, [1000, 1]);
}

/// Threads in a program of one: each counts in a shard of its own, in turns.
struct Program {
    tally: StatsBook,
    threads: u32,
    live: [i64; 2],
}

impl Program {
    fn new(slack_bytes: usize, threads: u32) -> Self {
        Self { tally: StatsBook::new(slack_bytes), threads, live: [0; 2] }
    }

    fn shard(&self, thread: u32) -> &StatsShard {
        let interval = self.tally.interval.load(Ordering::Relaxed);
        self.tally.shards.get_or_make(thread % self.threads, || StatsShard::new(interval, self.tally.slack))
    }

    fn allocate(&mut self, thread: u32, bytes: u64) {
        self.live = [self.live[0] + bytes as i64, self.live[1] + 1];
        self.tally.come(self.shard(thread), bytes, Tag::NONE);
    }

    fn free(&mut self, thread: u32, bytes: u64) {
        self.live = [self.live[0] - bytes as i64, self.live[1] - 1];
        self.tally.go(self.shard(thread), bytes);
    }
}

/// A scope that is open, and the highest point in it as it is.
struct Open {
    began: [i64; 2],
    peak: [i64; 2],
    total: [i64; 2],
}

impl Open {
    fn check(&self, counts: &Counts, live: [i64; 2], may_err: bool, of: &str) {
        for (at, counter) in [counts.bytes, counts.allocations].into_iter().enumerate() {
            let truth = self.peak[at] - self.began[at];
            assert_eq!((counter.live, counter.total), (live[at] - self.began[at], self.total[at]), "{of}");
            let known = counter.peak - counter.peak_error..=counter.peak;
            assert!(known.contains(&truth), "{of}: the peak is {truth}, and {counter:?} was told");
            assert!(may_err || counter.peak_error == 0, "{of}: {counter:?}");
        }
    }
}

/// Programs in which threads take, give back what others took, and begin and end scopes: no peak that is told is false.
#[test]
fn every_peak_is_as_right_as_it_says() {
    for seed in 0..200_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut random = move |below: u64| {
            // Marsaglia's xorshift.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let threads = 1 + random(4) as u32;
        let slack = [0, 1 << 16, 4 << 20][random(3) as usize];
        let may_err = threads > 1 && slack > 0;
        let mut program = Program::new(slack, threads);
        let mut blocks = Vec::new();
        let mut open = vec![Open { began: [0; 2], peak: [0; 2], total: [0; 2] }];
        for step in 0..120 {
            let of = format!("seed {seed}, step {step}, {threads} threads, slack {slack}");
            let thread = random(4) as u32;
            match random(20) {
                0 => {
                    open.last().expect("one").check(&program.tally.push(), program.live, may_err, &of);
                    open.push(Open { began: program.live, peak: program.live, total: [0; 2] });
                }
                1 if open.len() > 1 => {
                    let ended = open.pop().expect("it has two");
                    ended.check(&program.tally.pop().expect("one is pushed"), program.live, may_err, &of);
                    let around = open.last_mut().expect("it had two");
                    for at in 0..2 {
                        around.peak[at] = around.peak[at].max(ended.peak[at]);
                        around.total[at] += ended.total[at];
                    }
                }
                2..9 if !blocks.is_empty() => {
                    let bytes = blocks.swap_remove(random(blocks.len() as u64) as usize);
                    program.free(thread, bytes);
                }
                _ => {
                    let bytes =
                        [1 + random(1 << 12), 1 + random(1 << 17), 1 + random(16 << 20)][random(3) as usize];
                    blocks.push(bytes);
                    program.allocate(thread, bytes);
                    let inner = open.last_mut().expect("one");
                    for (at, came) in [bytes as i64, 1].into_iter().enumerate() {
                        inner.peak[at] = inner.peak[at].max(program.live[at]);
                        inner.total[at] += came;
                    }
                }
            }
            // A look makes what is live at that moment known: most of the time nobody looks.
            if random(16) == 0 || step == 119 {
                open.last().expect("one").check(&program.tally.counts(), program.live, may_err, &of);
            }
        }
    }
}

#[test]
fn four_threads_that_hold_a_little_each_are_not_told_of_as_one() {
    let mut program = Program::new(SLACK_BYTES, 4);
    (0..4).for_each(|thread| program.allocate(thread, 1 << 20));
    let held = "4 MiB in 4 blocks, at most 4 MiB in 4 blocks, in all 4 MiB in 4 blocks, 0 failures";
    assert_eq!(program.tally.to_string(), held);
    (0..4).for_each(|thread| program.free(thread, 1 << 20));
    assert_eq!(
        program.tally.to_string(),
        "0 B in 0 blocks, at most 4 MiB in 4 blocks, in all 4 MiB in 4 blocks, 0 failures"
    );
}

#[test]
fn a_peak_that_nobody_looked_at_has_bounds() {
    let mut program = Program::new(SLACK_BYTES, 4);
    (0..4).for_each(|thread| {
        program.allocate(thread, 1 << 20);
        program.free(thread, 1 << 20);
    });
    assert_eq!(
        program.tally.to_string(),
        "0 B in 0 blocks, at most 4 MiB in 4 blocks (at least 0 B in 0 blocks), in all 4 MiB in 4 blocks, 0 failures"
    );
    // What threads have told of counts in full, and what they have not by the slack.
    program.allocate(0, 1 << 30);
    program.free(0, 1 << 30);
    let bytes = program.tally.counts().bytes;
    assert_eq!(
        (bytes.peak, bytes.peak_error <= 9 * SLACK_BYTES as i64),
        ((1 << 30) + (3 << 20), true),
        "{bytes:?}"
    );
}

#[test]
fn one_thread_is_exact_whenever_somebody_looks() {
    let mut program = Program::new(SLACK_BYTES, 1);
    program.allocate(0, 4096);
    program.allocate(0, 1024);
    program.free(0, 1024);
    let said = "4 KiB in 1 block, at most 5 KiB in 2 blocks, in all 5 KiB in 2 blocks, 0 failures";
    assert_eq!(program.tally.to_string(), said);
}

/// Who counts is one of many: what the others hold, and do not touch, makes nothing inexact.
#[test]
fn one_thread_at_work_among_many_is_exact() {
    let mut program = Program::new(SLACK_BYTES, 4);
    (1..4).for_each(|thread| program.allocate(thread, 3 << 20));
    program.tally.push();
    program.allocate(0, 1 << 20);
    program.free(0, 1 << 20);
    let counts = program.tally.pop().expect("one is pushed");
    assert_eq!((counts.bytes.peak, counts.bytes.peak_error, counts.allocations.peak), (1 << 20, 0, 1));
}

/// A free that was counted and did not happen leaves every count as it was, whatever the slack, and also where a scope began
/// meanwhile.
#[test]
fn a_free_that_did_not_happen_changes_nothing() {
    for slack_bytes in [0, 1 << 10, usize::MAX] {
        let tally = StatsBook::new(slack_bytes);
        (0..3).for_each(|_| tally.allocated(4096));
        tally.freed(4096);
        let before = tally.counts();
        for _ in 0..3 {
            tally.freed(4096);
            tally.not_freed(4096);
            assert_eq!(tally.counts(), before, "with {slack_bytes}");
        }
        tally.allocated(8192);
        assert_eq!(tally.counts().bytes.peak, 16384, "with {slack_bytes}");
        tally.freed(4096);
        let scope = tally.scope();
        tally.not_freed(4096);
        let counts = scope.end();
        assert_eq!(
            (counts.bytes.live, counts.bytes.peak, counts.bytes.total),
            (4096, 4096, 0),
            "with {slack_bytes}"
        );
    }
}
