//! Tables in columns: few blocks, huge ones among them, whose sizes depend on the data.

use super::random::Random;
use super::tape::{Held, Tape};

/// A column of a table.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// Bytes a row, in eighths.
    eighths: u64,
    /// The bytes of a row vary, and there is a column of places beside it.
    is_text: bool,
    has_gaps: bool,
}

/// The columns of a table that is there, and how many rows they have.
struct Table {
    columns: Vec<Column>,
    rows: u64,
    held: Vec<Held>,
}

fn columns(random: &mut Random) -> Vec<Column> {
    (0..random.between(2, 16))
        .map(|_| {
            let is_text = random.chance(20);
            let eighths =
                if is_text { random.between(3, 40) * 8 } else { random.pick(&[1, 8, 16, 32, 64, 64]) };
            Column { eighths, is_text, has_gaps: random.chance(40) }
        })
        .collect()
}

fn make(tape: &mut Tape, random: &mut Random, columns: &[Column], rows: u64, stream: u32) -> Table {
    let mut held = Vec::new();
    for column in columns {
        let bytes = (rows * column.eighths).div_ceil(8);
        let bytes = if column.is_text { random.near(bytes, 30) } else { bytes };
        held.push(tape.allocate(bytes, stream));
        if column.is_text {
            held.push(tape.allocate(rows * 4 + 4, stream));
        }
        if column.has_gaps {
            held.push(tape.allocate(rows.div_ceil(512) * 64, stream));
        }
    }
    Table { columns: columns.to_vec(), rows, held }
}

fn drop_table(tape: &mut Tape, random: &mut Random, table: Table, stream: u32) {
    table.held.into_iter().for_each(|held| tape.free_about(random, held, stream));
}

pub(super) fn run(tape: &mut Tape, random: &mut Random, most_events: usize) {
    let (facts, names) = (columns(random), columns(random));
    let rows = random.over_doublings(20_000, 12_000_000);
    let differ = random.pick(&[0, 20, 60, 150]);
    let first = tape.stream(0);
    let few = rows / random.between(2, 100);
    let small = make(tape, random, &names, few, first);
    let mut results: Vec<Table> = Vec::new();
    let mut part = 0;
    while tape.len() < most_events {
        part += 1;
        let stream = tape.stream(part);
        let here = random.log_normal(rows, differ).min(rows * 6);
        // What is packed is read, and unpacked.
        let packed = tape.allocate(here * random.between(4, 24), stream);
        let mut table = make(tape, random, &facts, here, stream);
        tape.free(packed, stream);
        for _ in 0..random.between(1, 4) {
            let next = match random.below(5) {
                0 => filter(tape, random, &table, stream),
                1 => join(tape, random, &table, &small, stream),
                2 => sort(tape, random, &table, stream),
                3 => group(tape, random, &table, stream),
                _ => shuffle(tape, random, &table, stream),
            };
            drop_table(tape, random, std::mem::replace(&mut table, next), stream);
        }
        if random.chance(60) {
            results.push(table);
        } else {
            drop_table(tape, random, table, stream);
        }
        if results.len() as u64 > random.between(3, 20) {
            // All parts in one, and then a new stage begins.
            let rows = results.iter().map(|table| table.rows).sum();
            let whole = make(tape, random, &facts, rows, stream);
            results.drain(..).for_each(|part| drop_table(tape, random, part, stream));
            let sorted = sort(tape, random, &whole, stream);
            drop_table(tape, random, whole, stream);
            drop_table(tape, random, sorted, stream);
        }
    }
}

fn filter(tape: &mut Tape, random: &mut Random, table: &Table, stream: u32) -> Table {
    let mask = tape.allocate(table.rows, stream);
    let places = tape.allocate(table.rows * 4, stream);
    let rows = table.rows * random.between(1, 95) / 100 + 1;
    let kept = make(tape, random, &table.columns, rows, stream);
    tape.free(places, stream);
    tape.free(mask, stream);
    kept
}

fn join(tape: &mut Tape, random: &mut Random, table: &Table, other: &Table, stream: u32) -> Table {
    let hashes = tape.allocate(other.rows.max(1).next_power_of_two() * 16, stream);
    let counts = tape.allocate(table.rows * 4, stream);
    let rows = table.rows * random.between(30, 160) / 100 + 1;
    let (left, right) = (tape.allocate(rows * 4, stream), tape.allocate(rows * 4, stream));
    tape.free(counts, stream);
    tape.free(hashes, stream);
    let mut wide = table.columns.clone();
    wide.extend(other.columns.iter().take(4));
    wide.truncate(20);
    let joined = make(tape, random, &wide, rows, stream);
    tape.free(right, stream);
    tape.free(left, stream);
    joined
}

fn sort(tape: &mut Tape, random: &mut Random, table: &Table, stream: u32) -> Table {
    let order = tape.allocate(table.rows * 4, stream);
    let keys = tape.allocate(table.rows * 16, stream);
    tape.scratch(table.rows / 2 + 1024, stream);
    tape.free(keys, stream);
    let sorted = make(tape, random, &table.columns, table.rows, stream);
    tape.free(order, stream);
    sorted
}

fn group(tape: &mut Tape, random: &mut Random, table: &Table, stream: u32) -> Table {
    let hashes = tape.allocate(table.rows.max(1).next_power_of_two() * 8, stream);
    for _ in 0..random.between(1, 6) {
        tape.scratch(table.rows * 8, stream);
        tape.scratch(random.between(1, 4096), stream);
    }
    let groups = table.rows / random.between(2, 1000) + 1;
    let grouped = make(tape, random, &table.columns, groups, stream);
    tape.free(hashes, stream);
    grouped
}

/// The rows go to as many parts as there are peers, and come back from them.
fn shuffle(tape: &mut Tape, random: &mut Random, table: &Table, stream: u32) -> Table {
    let map = tape.allocate(table.rows * 4, stream);
    let peers = random.between(2, 8);
    let share = table.rows / peers + 1;
    let parts: Vec<Table> = (0..peers).map(|_| make(tape, random, &table.columns, share, stream)).collect();
    tape.free(map, stream);
    let whole = make(tape, random, &table.columns, table.rows, stream);
    parts.into_iter().for_each(|part| drop_table(tape, random, part, stream));
    whole
}
