//! `Holes`: live blocks with a hole between every two.

use alluvion::{Error, Resource, StreamRef};

use super::Block;
use super::numbers::Mt19937_64;

/// Live blocks of up to 512 KiB, each followed by a hole of that sort.
pub(crate) struct Holes<'r, R> {
    held: Vec<Block<'r, R>>,
}

impl<'r, R: Resource> Holes<'r, R> {
    pub(crate) fn make(resource: &'r R, count: usize, stream: StreamRef<'_>) -> Result<Self, Error> {
        let mut numbers = Mt19937_64::new(1);
        let mut block = || Block::take(resource, 256 + (numbers.draw() % (512 << 10)) as usize, stream);
        let (mut held, mut gaps) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for _ in 0..count {
            held.push(block()?);
            gaps.push(block()?);
        }
        gaps.into_iter().for_each(|block| block.give_back(stream));
        Ok(Self { held })
    }

    pub(crate) fn give_back(self, stream: StreamRef<'_>) {
        self.held.into_iter().for_each(|block| block.give_back(stream));
    }
}
