//! `DeviceBytes`: bytes of a device, full of junk at first, and allocated when they are first written.

use std::collections::HashMap;

/// Bytes of one page. Small enough that touching one byte is cheap, large enough that a page outweighs its map entry.
const PAGE: u64 = 4096;

/// A range of bytes that costs nothing until it is written.
///
/// Bytes that were never written read as junk: never zero, and the same for the same seed.
#[derive(Debug)]
pub(super) struct DeviceBytes {
    pages: HashMap<u64, Box<[u8]>>,
    seed: u64,
}

impl DeviceBytes {
    pub(super) fn new(seed: u64) -> Self {
        Self { pages: HashMap::new(), seed }
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        for (page, start, chunk) in chunks_mut(offset, into) {
            match self.pages.get(&page) {
                Some(bytes) => chunk.copy_from_slice(&bytes[start..start + chunk.len()]),
                None => junk(self.seed, page * PAGE + start as u64, chunk),
            }
        }
    }

    pub(super) fn write(&mut self, offset: u64, from: &[u8]) {
        let mut done = 0;
        while done < from.len() {
            let (page, start, length) = split(offset + done as u64, from.len() - done);
            let chunk = &from[done..done + length];
            if length as u64 == PAGE {
                self.pages.insert(page, chunk.into());
            } else {
                self.page(page)[start..start + length].copy_from_slice(chunk);
            }
            done += length;
        }
    }

    /// Makes the range junk again, as for a new owner. Whole pages are released.
    pub(super) fn scramble(&mut self, offset: u64, bytes: u64) {
        // Most memory is never touched. Then its size must not matter.
        let whole = offset.next_multiple_of(PAGE)..(offset + bytes) / PAGE * PAGE;
        if (self.pages.len() as u64) < whole.end.saturating_sub(whole.start) / PAGE {
            self.pages.retain(|page, _| !whole.contains(&(page * PAGE)));
            self.scramble(offset, whole.start - offset);
            self.scramble(whole.end, offset + bytes - whole.end);
            return;
        }
        let mut done = 0;
        while done < bytes {
            let (page, start, length) =
                split(offset + done, usize::try_from(bytes - done).unwrap_or(usize::MAX));
            if length as u64 == PAGE {
                self.pages.remove(&page);
            } else if let Some(content) = self.pages.get_mut(&page) {
                junk(self.seed, page * PAGE + start as u64, &mut content[start..start + length]);
            }
            done += length as u64;
        }
    }

    fn page(&mut self, page: u64) -> &mut [u8] {
        let seed = self.seed;
        self.pages.entry(page).or_insert_with(|| {
            let mut content = vec![0; PAGE as usize].into_boxed_slice();
            junk(seed, page * PAGE, &mut content);
            content
        })
    }
}

/// The page of an offset, the position in that page, and how many of `most` bytes lie in the page from there.
fn split(offset: u64, most: usize) -> (u64, usize, usize) {
    let start = (offset % PAGE) as usize;
    (offset / PAGE, start, most.min(PAGE as usize - start))
}

fn chunks_mut(offset: u64, mut rest: &mut [u8]) -> impl Iterator<Item = (u64, usize, &mut [u8])> {
    let mut at = offset;
    core::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (page, start, length) = split(at, rest.len());
        let (chunk, tail) = core::mem::take(&mut rest).split_at_mut(length);
        rest = tail;
        at += length as u64;
        Some((page, start, chunk))
    })
}

/// Fills with junk: a hash of the position, made odd so that no byte is zero.
pub(super) fn junk(seed: u64, offset: u64, into: &mut [u8]) {
    let word = |at: u64| (mix(seed ^ (at / 8)) | 0x0101_0101_0101_0101).to_le_bytes();
    let skipped = (offset % 8) as usize;
    // Whole words where the range is aligned, as pages are: a hash per byte would dominate the time of tests.
    let (head, rest) = into.split_at_mut(into.len().min((8 - skipped) % 8));
    let head_bytes = head.len();
    head.copy_from_slice(&word(offset)[skipped..skipped + head_bytes]);
    let mut at = offset + head_bytes as u64;
    for chunk in rest.chunks_mut(8) {
        chunk.copy_from_slice(&word(at)[..chunk.len()]);
        at += 8;
    }
}

/// The finaliser of SplitMix64: every bit of the input moves every bit of the output.
pub(super) const fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &DeviceBytes, offset: u64, length: usize) -> Vec<u8> {
        let mut into = vec![0; length];
        bytes.read(offset, &mut into);
        into
    }

    #[test]
    fn fresh_bytes_are_junk_and_stay_the_same() {
        let bytes = DeviceBytes::new(1);
        let first = read(&bytes, 4000, 300);
        assert!(first.iter().all(|&byte| byte != 0));
        assert_eq!(first, read(&bytes, 4000, 300));
        assert_eq!(first[100..], read(&bytes, 4100, 200));
        assert_ne!(first, read(&DeviceBytes::new(2), 4000, 300));
        assert!(bytes.pages.is_empty());
    }

    #[test]
    fn a_write_across_pages_reads_back_and_leaves_its_neighbours() {
        let mut bytes = DeviceBytes::new(1);
        let before = read(&bytes, 0, 12_288);
        let data: Vec<u8> = (0..5000_u32).map(|n| n as u8).collect();
        bytes.write(4090, &data);
        assert_eq!(read(&bytes, 4090, 5000), data);
        assert_eq!(read(&bytes, 0, 4090), before[..4090]);
        assert_eq!(read(&bytes, 9090, 100), before[9090..9190]);
    }

    #[test]
    fn a_scramble_forgets_what_was_written_and_nothing_else() {
        let mut bytes = DeviceBytes::new(1);
        let before = read(&bytes, 0, 16_384);
        bytes.write(0, &[0; 16_384]);
        bytes.scramble(100, 10_000);
        let after = read(&bytes, 0, 16_384);
        assert_eq!(after[100..10_100], before[100..10_100]);
        assert!(after[..100].iter().chain(&after[10_100..]).all(|&byte| byte == 0));
        assert_eq!(bytes.pages.len(), 3, "one whole page in the middle was let go");
    }
}
