//! `Walk`: what one thread of several does.

use alluvion::{Error, Resource, StreamRef};

use super::Block;
use super::numbers::Mt19937_64;

/// Allocates and frees blocks of 256 B to 1 MiB at random, so that 32 to 64 are live.
pub(crate) struct Walk<'r, R> {
    resource: &'r R,
    numbers: Mt19937_64,
    live: Vec<Block<'r, R>>,
}

impl<'r, R: Resource> Walk<'r, R> {
    pub(crate) fn new(resource: &'r R, seed: u64) -> Self {
        Self { resource, numbers: Mt19937_64::new(seed), live: Vec::with_capacity(64) }
    }

    pub(crate) fn steps(&mut self, count: usize, stream: StreamRef<'_>) -> Result<(), Error> {
        for _ in 0..count {
            if self.live.len() < 32 || (self.live.len() < 64 && self.numbers.draw() % 2 == 1) {
                let bytes = 256 << (self.numbers.draw() % 13);
                self.live.push(Block::take(self.resource, bytes, stream)?);
            } else {
                let place = (self.numbers.draw() % self.live.len() as u64) as usize;
                self.live.swap_remove(place).give_back(stream);
            }
        }
        Ok(())
    }

    pub(crate) fn give_back(self, stream: StreamRef<'_>) {
        self.live.into_iter().for_each(|block| block.give_back(stream));
    }
}
