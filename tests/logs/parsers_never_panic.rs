//! The parsers, given anything: no panic, no overflow, and errors with a place. Always the same inputs, so a failure comes back.

use alluvion::recipe::ingredients;

use crate::parsers;
use crate::trials::trials;

/// Inputs of a night for each parser.
const CASES: u32 = 100_000;

const RECIPES: [&str; 12] = [
    "",
    "pool",
    "cuda-async",
    "stats | limiting(8GiB) | pool(initial=1GiB) | cuda-async",
    "pool(50%, 75%, growth=doubling, reuse=own, checked=true) | managed",
    "binning(256KiB, 4MiB, blocks=8) | arena(16 GiB) | cuda(gpu=3)",
    "fixed_size(block=1.5k, blocks=16) | pinned(numa=3, huge=2MiB, threads=8)",
    "fallback(pool | managed) | limiting(1GB) | cuda",
    "fallback(fallback(fallback(pool))) | pool",
    "logging(\"a \\\"b\\\".csv.gz\", tags=true) | budget(1g, 512m, name=jobs)",
    "aligned(4096, 64KiB) | prefetch | cuda_async_managed",
    "pool | pool | pool | pool | pool | pool | pool | pool | pool | pool | pool | pool | pool | pool | pool | pool",
];

const LOGS: [&str; 4] = [
    "Thread,Time,Action,Pointer,Size,Stream\n",
    "Thread,Time,Action,Pointer,Size,Stream\n\
     590,09:12:19.353101,allocate,0x302000000,22532048,0\n\
     591,09:12:19.353102,allocate failure,(nil),10,0x2\n\
     590,09:12:19.540106,free,0x302000000,22532048,0x7f653d\n",
    "Stream,Size,Tag,Pointer,Action,Time,Thread,Reserved\r\n\
     0,10,query;join,0x100,allocate,23:59:59.999999,1,4096\r\n\
     0,10,,0x100,free,00:00:00.000000,1,\r\n",
    "Thread,Time,Action,Pointer,Size,Stream\n\n\
     1,00:00:00.000000,allocate,0x1,9223372036854775000,0\n\
     1,00:00:00.000000,allocate,0x1,1,0x1\n\
     1,00:00:00.000000,free,0x1,1,0x1\n\
     1,00:00:00.000000,free,0x2,0,0x1\n",
];

const PIECES: [&str; 50] = [
    "|",
    "(",
    ")",
    ",",
    "=",
    "\"",
    "\\",
    "%",
    " ",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "☃",
    "é",
    "\u{feff}",
    "-",
    "_",
    ".",
    "..",
    "/",
    "0",
    "1",
    "9",
    "99999999999999999999",
    "18446744073709551615",
    "9223372036854775807",
    "1GiB",
    "1.5GB",
    "0x",
    "0xffffffffffffffff",
    "(nil)",
    "gpu=",
    "second=",
    "fallback(",
    "true",
    "spare",
    "1e9",
    "-1",
    "+1",
    "allocate",
    "free",
    "allocate failure",
    "00:00:00.000000",
    "24:00:00.000000",
    "Thread",
    "Tag",
    "Reserved",
    "Size",
    ",,,,,",
];

/// Numbers that are the same in each run: splitmix64.
struct Numbers(u64);

impl Numbers {
    fn draw(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % below.max(1) as u64) as usize
    }

    /// Changes `bytes` in a few places: single bits and bytes, pieces that mean something, and pieces of itself.
    fn mutate(&mut self, bytes: &mut Vec<u8>, pieces: &[&str]) {
        for _ in 0..=self.draw(4) {
            let at = self.draw(bytes.len() + 1);
            let end = (at + self.draw(8)).min(bytes.len());
            match self.draw(8) {
                0 => bytes.truncate(at),
                1 => drop(bytes.drain(at..end)),
                2 => bytes.insert(at, self.draw(256) as u8),
                3 if at < bytes.len() => bytes[at] ^= 1 << self.draw(8),
                4 => {
                    let piece: Vec<u8> = bytes[at..end].repeat(1 + self.draw(64));
                    bytes.splice(at..at, piece);
                }
                5 => {
                    let from = self.draw(bytes.len() + 1);
                    let piece = bytes[from..(from + self.draw(40)).min(bytes.len())].to_vec();
                    bytes.splice(at..end, piece);
                }
                _ => {
                    let piece = pieces[self.draw(pieces.len())];
                    bytes.splice(at..end, piece.bytes());
                }
            }
        }
    }

    /// Arbitrary bytes, every now and then; else a seed that has been changed.
    fn input(&mut self, seeds: &[&str], pieces: &[&str]) -> Vec<u8> {
        if self.draw(16) == 0 {
            let length = self.draw(200);
            return (0..length).map(|_| self.draw(256) as u8).collect();
        }
        let mut bytes = seeds[self.draw(seeds.len())].as_bytes().to_vec();
        if self.draw(4) == 0 {
            bytes.extend_from_slice(seeds[self.draw(seeds.len())].as_bytes());
        }
        self.mutate(&mut bytes, pieces);
        bytes
    }
}

/// Gives `parse` all the inputs. Some are to be good and some bad, or the seeds are no seeds.
#[track_caller]
fn feed(seed: u64, seeds: &[&str], pieces: &[&str], parse: impl Fn(&[u8]) -> bool) {
    let mut numbers = Numbers(seed);
    for seed in seeds {
        assert!(parse(seed.as_bytes()), "a seed is good: {seed:?}");
    }
    let tried = trials(CASES) as usize;
    let good = (0..tried).filter(|_| parse(&numbers.input(seeds, pieces))).count();
    assert!((tried / 50..tried / 2).contains(&good), "{good} of {tried} are good");
}

#[test]
fn any_line_is_a_recipe_or_an_error_with_its_place() {
    let names = ingredients().flat_map(|ingredient| {
        let parameters = ingredient.parameters().iter().map(|parameter| parameter.name());
        core::iter::once(ingredient.name()).chain(parameters)
    });
    let pieces: Vec<&str> = PIECES.into_iter().chain(names).collect();
    feed(1, &RECIPES, &pieces, |bytes| parsers::recipe(&String::from_utf8_lossy(bytes)));
}

#[test]
fn any_bytes_are_a_trace_or_an_error_with_its_line() {
    feed(2, &LOGS, &PIECES, parsers::trace);
}

/// What is deep or long, where a parser that calls itself would overflow its stack.
#[test]
fn nothing_is_too_deep_or_too_long() {
    for piece in PIECES.into_iter().chain(RECIPES).filter(|piece| !piece.is_empty()) {
        for times in [100, 1000, 100_000] {
            let text = piece.repeat(times);
            parsers::recipe(&text);
            parsers::recipe(&format!("pool | {text}"));
            parsers::recipe(&format!("fallback({text}"));
            parsers::trace(text.as_bytes());
            parsers::trace(format!("{}{text}", LOGS[1]).as_bytes());
        }
    }
}
