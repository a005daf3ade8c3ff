//! A server of a language model: requests come and go, and what it remembers of each grows with every word.

use super::random::Random;
use super::tape::{Held, Tape};

/// How what is remembered of a request is kept.
#[derive(Clone, Copy, Debug)]
enum Memory {
    /// A tensor a layer, made anew with each word.
    Anew,
    /// A tensor a layer, half as long again when it is full.
    Growing,
    /// Pages of so many words.
    Pages(u64),
    /// As much as the longest request needs, from the start.
    Whole,
}

struct Server {
    layers: u64,
    /// What a word takes in one layer.
    word_bytes: u64,
    width_bytes: u64,
    memory: Memory,
    longest: u64,
    prompt: u64,
    answer: u64,
    at_once: u64,
    /// What is kept of prompts that may come again, in bytes.
    cache_bytes: u64,
}

impl Server {
    fn any(random: &mut Random) -> Self {
        let longest = random.pick(&[512, 1024, 2048, 4096, 8192]);
        Self {
            layers: random.between(1, 12),
            word_bytes: random.over_doublings(1 << 10, 64 << 10),
            width_bytes: random.over_doublings(2 << 10, 64 << 10),
            memory: match random.below(4) {
                0 => Memory::Anew,
                1 => Memory::Growing,
                2 => Memory::Pages(random.pick(&[16, 64, 256])),
                _ => Memory::Whole,
            },
            longest,
            prompt: random.over_doublings(16, longest / 2),
            answer: random.over_doublings(8, 256),
            at_once: random.between(1, 24),
            cache_bytes: if random.chance(40) { random.over_doublings(64 << 20, 4 << 30) } else { 0 },
        }
    }
}

/// A request that is being answered.
struct Request {
    held: Vec<Held>,
    words: u64,
    /// Up to which its memory reaches.
    room: u64,
    left: u64,
    stream: u32,
}

pub(super) fn run(tape: &mut Tape, random: &mut Random, most_events: usize) {
    let server = Server::any(random);
    let first = tape.stream(0);
    for _ in 0..server.layers {
        tape.allocate(server.width_bytes * random.between(1000, 4000), first);
        tape.allocate(server.width_bytes, first);
    }
    let mut requests: Vec<Request> = Vec::new();
    let mut cache: Vec<Held> = Vec::new();
    let mut cached = 0;
    let mut turn = 0;
    // How busy it is, in hundredths: comes and goes like the hours of a day.
    let mut busy = 100;
    while tape.len() < most_events {
        turn += 1;
        if random.chance(2) {
            busy = random.between(10, 100);
        }
        if (requests.len() as u64) < (server.at_once * busy).div_ceil(100) {
            let stream = tape.stream(random.below(tape.streams() as u64) as usize);
            let request = prefill(tape, random, &server, stream);
            if server.cache_bytes > 0 {
                let kept = tape.allocate(request.words * server.word_bytes, stream);
                cached += kept.bytes();
                cache.push(kept);
            }
            requests.push(request);
        }
        while cached > server.cache_bytes || (!cache.is_empty() && random.chance(1)) {
            let dropped = cache.remove(random.below(cache.len().min(3) as u64) as usize);
            cached -= dropped.bytes();
            tape.free_about(random, dropped, first);
        }
        let stream = tape.stream(turn);
        for _ in 0..2 {
            tape.scratch(requests.len() as u64 * server.width_bytes, stream);
        }
        tape.scratch(requests.len() as u64 * random.between(1, 512), stream);
        for at in (0..requests.len()).rev() {
            decode(tape, random, &server, &mut requests[at]);
            if requests[at].left == 0 {
                let Request { held, stream, .. } = requests.swap_remove(at);
                held.into_iter().for_each(|held| tape.free_about(random, held, stream));
            }
        }
    }
}

fn prefill(tape: &mut Tape, random: &mut Random, server: &Server, stream: u32) -> Request {
    let words = random.log_normal(server.prompt, 120).min(server.longest);
    let left = random.log_normal(server.answer, 100).clamp(1, server.longest);
    let room = match server.memory {
        Memory::Anew => words,
        Memory::Growing => words.next_multiple_of(64),
        Memory::Pages(page) => words.next_multiple_of(page),
        Memory::Whole => server.longest * 2,
    };
    let mut held = Vec::new();
    let mut between = tape.allocate(words * server.width_bytes, stream);
    for _ in 0..server.layers {
        tape.scratch(words * server.width_bytes * 3, stream);
        if let Memory::Pages(page) = server.memory {
            held.extend((0..room / page).map(|_| tape.allocate(page * server.word_bytes, stream)));
        } else {
            held.push(tape.allocate(room * server.word_bytes, stream));
        }
        let next = tape.allocate(words * server.width_bytes, stream);
        tape.free(between, stream);
        between = next;
    }
    tape.free(between, stream);
    Request { held, words, room, left, stream }
}

/// One more word.
fn decode(tape: &mut Tape, random: &mut Random, server: &Server, request: &mut Request) {
    // Seldom for all at once: a few words are one step here.
    let more = random.between(1, 8).min(request.left);
    (request.words, request.left) = (request.words + more, request.left - more);
    let stream = request.stream;
    if request.words <= request.room {
        return;
    }
    match server.memory {
        Memory::Pages(page) => {
            request.room += page;
            for _ in 0..server.layers {
                request.held.push(tape.allocate(page * server.word_bytes, stream));
            }
        }
        Memory::Anew | Memory::Growing | Memory::Whole => {
            request.room = match server.memory {
                Memory::Growing => request.words + request.words / 2,
                _ => request.words,
            };
            for held in &mut request.held {
                // The new one is filled from the old one.
                let longer = tape.allocate(request.room * server.word_bytes, stream);
                tape.free(*held, stream);
                *held = longer;
            }
        }
    }
}
