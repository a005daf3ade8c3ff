//! `Chunks`, `ChunksExact` and their mutable forms: a slice, part by part.

use core::fmt;
use core::iter::FusedIterator;

use super::device_copy::DeviceCopy;
use super::device_slice::DeviceSlice;
use super::device_slice_mut::DeviceSliceMut;
use crate::error::Error;

/// Where the parts of a slice begin and end that have not been handed out.
#[derive(Clone, Debug)]
struct Spans {
    start: usize,
    end: usize,
    /// Elements of each part but the last, at least 1.
    size: usize,
}

impl Spans {
    fn new(len: usize, size: usize) -> Result<Self, Error> {
        if size == 0 {
            return Err(Error::invalid_argument(
                "chunks of 0 elements",
                "there would be no end of them",
                "ask for 1 element or more",
            ));
        }
        Ok(Self { start: 0, end: len, size })
    }

    fn len(&self) -> usize {
        (self.end - self.start).div_ceil(self.size)
    }

    fn next(&mut self) -> Option<(usize, usize)> {
        let start = self.start;
        if start == self.end {
            return None;
        }
        self.start += self.size.min(self.end - start);
        Some((start, self.start))
    }

    fn next_back(&mut self) -> Option<(usize, usize)> {
        let end = self.end;
        if self.start == end {
            return None;
        }
        // All parts but the last are of one size.
        self.end = self.start + (self.len() - 1) * self.size;
        Some((self.end, end))
    }
}

macro_rules! iterate {
    ($iterator:ident, $slice:ident) => {
        impl<'a, T: DeviceCopy> Iterator for $iterator<'a, T> {
            type Item = $slice<'a, T>;

            fn next(&mut self) -> Option<Self::Item> {
                self.spans.next().map(|(start, end)| self.slice.part(start, end))
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                (self.spans.len(), Some(self.spans.len()))
            }
        }

        impl<T: DeviceCopy> DoubleEndedIterator for $iterator<'_, T> {
            fn next_back(&mut self) -> Option<Self::Item> {
                self.spans.next_back().map(|(start, end)| self.slice.part(start, end))
            }
        }

        impl<T: DeviceCopy> ExactSizeIterator for $iterator<'_, T> {}
        impl<T: DeviceCopy> FusedIterator for $iterator<'_, T> {}

        impl<T: DeviceCopy> fmt::Debug for $iterator<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let (parts, size) = (self.spans.len(), self.spans.size);
                write!(f, concat!(stringify!($iterator), "({} parts of up to {} elements)"), parts, size)
            }
        }
    };
}

/// Parts of a slice, to be read: made by [`DeviceSlice::chunks`].
#[derive(Clone)]
#[must_use = "an iterator does nothing until it is asked"]
pub struct Chunks<'a, T> {
    slice: DeviceSlice<'a, T>,
    spans: Spans,
}

/// Parts of a slice, all as long, to be read: made by [`DeviceSlice::chunks_exact`].
#[derive(Clone)]
#[must_use = "an iterator does nothing until it is asked"]
pub struct ChunksExact<'a, T> {
    slice: DeviceSlice<'a, T>,
    spans: Spans,
    remainder: DeviceSlice<'a, T>,
}

/// Parts of a slice, to be written: made by [`DeviceSliceMut::chunks_mut`].
#[must_use = "an iterator does nothing until it is asked"]
pub struct ChunksMut<'a, T: DeviceCopy> {
    /// Each element is handed out once.
    slice: Whole<'a, T>,
    spans: Spans,
}

/// Parts of a slice, all as long, to be written: made by [`DeviceSliceMut::chunks_exact_mut`].
#[must_use = "an iterator does nothing until it is asked"]
pub struct ChunksExactMut<'a, T: DeviceCopy> {
    /// Each element is handed out once.
    slice: Whole<'a, T>,
    spans: Spans,
    remainder: DeviceSliceMut<'a, T>,
}

/// What is handed out in parts that do not overlap, to be written.
struct Whole<'a, T: DeviceCopy>(DeviceSliceMut<'a, T>);

impl<'a, T: DeviceCopy> Whole<'a, T> {
    /// The caller asks for each element once.
    fn part(&mut self, start: usize, end: usize) -> DeviceSliceMut<'a, T> {
        let (block, at) = (self.0.block(), self.0.at() + start * size_of::<T>());
        DeviceSliceMut::new(block, at, end - start)
    }
}

iterate!(Chunks, DeviceSlice);
iterate!(ChunksExact, DeviceSlice);
iterate!(ChunksMut, DeviceSliceMut);
iterate!(ChunksExactMut, DeviceSliceMut);

impl<'a, T: DeviceCopy> ChunksExact<'a, T> {
    /// The elements behind the last whole part, fewer than one has.
    #[must_use]
    pub fn remainder(&self) -> DeviceSlice<'a, T> {
        self.remainder
    }
}

impl<'a, T: DeviceCopy> ChunksExactMut<'a, T> {
    /// The elements behind the last whole part, fewer than one has.
    #[must_use]
    pub fn into_remainder(self) -> DeviceSliceMut<'a, T> {
        self.remainder
    }
}

impl<'a, T: DeviceCopy> DeviceSlice<'a, T> {
    /// Parts of `size` elements, the last one of fewer if they do not come out even.
    ///
    /// ```
    /// use alluvion::{DeviceVec, Sim};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let vector = DeviceVec::from_slice(&[1, 2, 3, 4, 5], &stream)?;
    /// let lengths: Vec<_> = vector.as_slice().chunks(2)?.map(|part| part.len()).collect();
    /// assert_eq!(lengths, [2, 2, 1]);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for 0 elements.
    pub fn chunks(self, size: usize) -> Result<Chunks<'a, T>, Error> {
        Ok(Chunks { slice: self, spans: Spans::new(self.len(), size)? })
    }

    /// Parts of just `size` elements. What is left over is the [`remainder`](ChunksExact::remainder).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for 0 elements.
    pub fn chunks_exact(self, size: usize) -> Result<ChunksExact<'a, T>, Error> {
        let spans = Spans::new(self.len(), size)?;
        let (whole, remainder) = self.split_at(self.len() - self.len() % size)?;
        Ok(ChunksExact { slice: whole, spans: Spans { end: whole.len(), ..spans }, remainder })
    }
}

impl<'a, T: DeviceCopy> DeviceSliceMut<'a, T> {
    /// Parts of `size` elements, the last one of fewer if they do not come out even. Each may be written on a stream of its own.
    ///
    /// ```
    /// use alluvion::{DeviceVec, Sim};
    ///
    /// let sim = Sim::new();
    /// let streams = [sim.device(0).stream()?, sim.device(0).stream()?];
    /// let mut vector = DeviceVec::<u32>::uninit(5, &streams[0])?;
    /// for (index, mut part) in vector.as_mut_slice().chunks_mut(2)?.enumerate() {
    ///     part.fill(index as u32, &streams[index % 2])?;
    /// }
    /// assert_eq!(vector.to_vec(&streams[0])?, [0, 0, 1, 1, 2]);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for 0 elements.
    pub fn chunks_mut(self, size: usize) -> Result<ChunksMut<'a, T>, Error> {
        let spans = Spans::new(self.len(), size)?;
        Ok(ChunksMut { slice: Whole(self), spans })
    }

    /// Parts of just `size` elements. What is left over is the remainder, [`into_remainder`](ChunksExactMut::into_remainder).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for 0 elements.
    pub fn chunks_exact_mut(self, size: usize) -> Result<ChunksExactMut<'a, T>, Error> {
        let spans = Spans::new(self.len(), size)?;
        let even = self.len() - self.len() % size;
        let (whole, remainder) = self.split_at_mut(even)?;
        Ok(ChunksExactMut { slice: Whole(whole), spans: Spans { end: even, ..spans }, remainder })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwards(mut spans: Spans) -> Vec<(usize, usize)> {
        core::iter::from_fn(|| spans.next()).collect()
    }

    #[test]
    fn parts_are_those_of_a_slice_of_the_host_from_either_end() {
        for (len, size) in [(0, 1), (1, 1), (5, 2), (6, 2), (6, 7), (7, 3), (3, usize::MAX)] {
            let host: Vec<_> = (0..len).collect();
            let expected: Vec<_> = host.chunks(size).map(|part| (part[0], part[0] + part.len())).collect();
            let spans = Spans::new(len, size).expect("the size is not 0");
            assert_eq!(spans.len(), expected.len());
            assert_eq!(forwards(spans.clone()), expected);
            let mut from_both = spans;
            let (mut front, mut back) = (Vec::new(), Vec::new());
            while let Some(last) = from_both.next_back() {
                back.push(last);
                front.extend(from_both.next());
            }
            front.extend(back.into_iter().rev());
            assert_eq!(front, expected, "{len} elements by {size}");
        }
        assert!(Spans::new(3, 0).is_err());
    }
}
