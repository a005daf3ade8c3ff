//! RMM's random allocations.

use alluvion::{Error, Resource, StreamRef};

use super::Block;
use super::numbers::{MinstdRand0, Uniform};

/// The live bytes stay below this.
const MAX_LIVE_BYTES: usize = 16_000 << 20;

/// Twice `num` steps: 73 of 100 allocate up to `max_mib`, as long as there is room, and the others free any block. In
/// the end all are freed. Returns how many allocations failed.
pub(crate) fn random_run<R: Resource>(
    resource: &R,
    num: usize,
    max_mib: usize,
    stream: StreamRef<'_>,
) -> Result<usize, Error> {
    let mut numbers = MinstdRand0::default();
    let sizes = Uniform::new(1, (max_mib << 20) as u64);
    let places = Uniform::new(0, num as u64 - 1);
    let operations = Uniform::new(0, 99);
    let mut live: Vec<Block<'_, R>> = Vec::new();
    let (mut count, mut used, mut fails) = (0, 0, 0);
    for _ in 0..2 * num {
        let bytes = sizes.draw(&mut numbers) as usize;
        let allocates = live.is_empty()
            || (operations.draw(&mut numbers) < 73 && count < num && used + bytes < MAX_LIVE_BYTES);
        if allocates {
            match Block::take(resource, bytes, stream) {
                Ok(block) => {
                    live.push(block);
                    count += 1;
                    used += bytes;
                    continue;
                }
                Err(error) if error.is_out_of_memory() => fails += 1,
                Err(error) => return Err(error),
            }
        }
        if !live.is_empty() {
            let block = live.swap_remove(places.draw(&mut numbers) as usize % live.len());
            used -= block.bytes();
            block.give_back(stream);
        }
    }
    live.into_iter().for_each(|block| block.give_back(stream));
    Ok(fails)
}
