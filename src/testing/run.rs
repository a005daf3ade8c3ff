//! `run_ops`: runs operations on a resource and holds it against the oracle.

use super::block::{Block, Copied, first_difference};
use super::{Op, ShadowHeap, Violation};
use crate::error::{Error, ErrorKind};
use crate::resource::{DeviceAccessible, DevicePtr, Layout, Resource};
use crate::stream::{Event, Stream, StreamRef};

/// The most streams that are open at a time: enough for every pair of them to differ in what it has waited for, and few
/// enough that they meet.
const MOST_STREAMS: usize = 8;

/// The figures of a run, so that a test can assert that it did something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Allocations that were served.
    pub served: usize,
    /// Allocations that were refused: for lack of memory, or for an alignment above the largest.
    pub refused: usize,
    /// Blocks that were read back and compared.
    pub compared: usize,
}

/// Runs operations on a resource, and compares what it does with what it must do: where blocks lie, and what they hold.
///
/// Every other allocation and free asks [at once](Resource::allocate_at_once) first. Every use of a block is ordered after the one before, by the least that does: so a wrong byte is the resource's fault,
/// or a hazard on a simulated machine, which the caller should ask for. What is live in the end is freed.
///
/// # Examples
///
/// ```
/// use alluvion::source::CudaAsync;
/// use alluvion::testing::{Op, run_ops};
/// use alluvion::{Resource, Sim};
///
/// let sim = Sim::new();
/// let resource = CudaAsync::new(&sim.device(0))?;
/// let ops: Vec<Op> = Op::random(1).take(200).map(|op| op.limited(1 << 16, resource.max_align())).collect();
/// let summary = run_ops(&resource, &ops).unwrap();
/// assert!(summary.compared >= summary.served);
/// assert!(sim.hazards().is_empty());
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// # Errors
///
/// The first way in which the resource broke the contract.
pub fn run_ops<R: DeviceAccessible>(resource: &R, ops: &[Op]) -> Result<Summary, Violation> {
    let touch = Touch {
        fill: |block, word, stream| block.fill(word, stream),
        copy_out: |block, stream| block.copy_out(stream),
    };
    Run::new(resource, Some(touch))?.all(ops)
}

/// As [`run_ops`], for a resource whose blocks nobody may touch: compares where they lie, and nothing else.
///
/// # Errors
///
/// As [`run_ops`].
pub fn run_ops_untouched<R: Resource>(resource: &R, ops: &[Op]) -> Result<Summary, Violation> {
    Run::new(resource, None)?.all(ops)
}

/// How the blocks of an accessible resource are touched.
struct Touch<'r, R> {
    fill: fn(&Block<'r, R>, u32, StreamRef<'_>),
    copy_out: fn(&Block<'r, R>, StreamRef<'_>) -> Copied,
}

struct Run<'r, R> {
    resource: &'r R,
    touch: Option<Touch<'r, R>>,
    heap: ShadowHeap,
    live: Vec<Live<'r, R>>,
    streams: Vec<Stream>,
    copies: Vec<(Copied, (DevicePtr, Layout), u32)>,
    next_word: u32,
    /// Calls that could have asked at once.
    asked: u32,
    summary: Summary,
}

struct Live<'r, R> {
    block: Block<'r, R>,
    word: u32,
    last_use: LastUse,
}

/// What the next use of a block must be ordered after.
#[derive(Clone)]
enum LastUse {
    /// Nothing: no work has used it, or the host has waited.
    Over,
    /// What is on an open stream now.
    On(crate::stream::StreamId),
    /// What was on a stream that is gone.
    Before(Event),
}

fn refused(what: &'static str) -> impl Fn(Error) -> Violation {
    move |error| Violation::Refused { what, error }
}

impl<'r, R: Resource> Run<'r, R> {
    fn new(resource: &'r R, touch: Option<Touch<'r, R>>) -> Result<Self, Violation> {
        let stream = resource.device().stream().map_err(refused("making a stream"))?;
        Ok(Self {
            resource,
            touch,
            heap: ShadowHeap::new(),
            live: Vec::new(),
            streams: vec![stream],
            copies: Vec::new(),
            next_word: 0x0100_0193,
            asked: 0,
            summary: Summary::default(),
        })
    }

    fn all(mut self, ops: &[Op]) -> Result<Summary, Violation> {
        for &op in ops {
            self.step(op)?;
        }
        while !self.live.is_empty() {
            self.free(self.live.len() - 1, 0)?;
        }
        self.compare()?;
        Ok(self.summary)
    }

    fn step(&mut self, op: Op) -> Result<(), Violation> {
        match op {
            Op::Allocate { stream, .. } | Op::AllocateSync { stream, .. } => {
                let Some(layout) = op.layout() else { return Ok(()) };
                let synchronous = matches!(op, Op::AllocateSync { .. });
                self.allocate(layout, self.stream_index(stream), synchronous)
            }
            Op::Use { block, stream } => match self.block_index(block) {
                Some(index) => self.reuse(index, self.stream_index(stream)),
                None => Ok(()),
            },
            Op::Free { block, stream } => match self.block_index(block) {
                Some(index) => self.free(index, self.stream_index(stream)),
                None => Ok(()),
            },
            Op::FreeSync { block } => match self.block_index(block) {
                Some(index) => self.free_sync(index),
                None => Ok(()),
            },
            Op::Wait { stream, on } => {
                let (stream, on) = (self.stream_index(stream), self.stream_index(on));
                self.streams[stream]
                    .wait_for_stream(&self.streams[on])
                    .map_err(refused("waiting for a stream"))
            }
            Op::Synchronize { stream } => {
                let stream = self.stream_index(stream);
                self.streams[stream].synchronize().map_err(refused("synchronising"))
            }
            Op::Open if self.streams.len() < MOST_STREAMS => {
                self.streams.push(self.resource.device().stream().map_err(refused("making a stream"))?);
                Ok(())
            }
            Op::Close { stream } if self.streams.len() > 1 => self.close(self.stream_index(stream)),
            Op::Open | Op::Close { .. } => Ok(()),
            Op::Trim { keep_bytes } => self.resource.trim(keep_bytes).map(drop).map_err(refused("trimming")),
        }
    }

    fn stream_index(&self, stream: u8) -> usize {
        usize::from(stream) % self.streams.len()
    }

    fn block_index(&self, block: u8) -> Option<usize> {
        usize::from(block).checked_rem(self.live.len())
    }

    /// Every other call asks at once first, so that both ways are mixed.
    fn asks_at_once(&mut self) -> bool {
        self.asked += 1;
        self.asked.is_multiple_of(2)
    }

    fn allocate(&mut self, layout: Layout, stream: usize, synchronous: bool) -> Result<(), Violation> {
        let stream = self.streams[stream].clone();
        let (resource, max_align) = (self.resource, self.resource.max_align());
        let allocated = if synchronous {
            Block::allocate_sync(resource, layout)
        } else {
            let at_once =
                self.asks_at_once().then(|| Block::allocate_at_once(resource, layout, stream.as_ref()));
            match at_once.flatten() {
                Some(block) => Ok(block),
                None => Block::allocate(resource, layout, stream.as_ref()),
            }
        };
        let block = match allocated {
            Ok(block) => block,
            Err(error) => {
                self.summary.refused += 1;
                let lacks = error.is_out_of_memory();
                let aligned = error.kind() == ErrorKind::UnsupportedAlignment && layout.align() > max_align;
                return if lacks || aligned { Ok(()) } else { Err(refused("allocating")(error)) };
            }
        };
        if layout.align() > max_align && !layout.is_empty() {
            return Err(Violation::AlignmentIgnored { layout, max_align });
        }
        self.heap.insert(block.pointer, layout)?;
        self.summary.served += 1;
        let word = self.next_word();
        self.fill(&block, word, &stream);
        let last_use =
            if synchronous && layout.is_empty() { LastUse::Over } else { LastUse::On(stream.id()) };
        self.live.push(Live { block, word, last_use });
        Ok(())
    }

    /// A word that no block holds.
    fn next_word(&mut self) -> u32 {
        // A linear congruential generator of full period: no word comes twice in 2^32.
        self.next_word = self.next_word.wrapping_mul(0x0019_660D).wrapping_add(0x3C6E_F35F);
        self.next_word
    }

    fn fill(&self, block: &Block<'r, R>, word: u32, stream: &Stream) {
        if let Some(touch) = &self.touch {
            (touch.fill)(block, word, stream.as_ref());
        }
    }

    /// Queues a comparison of what the block holds. The caller has ordered the stream after the last use.
    fn read(&mut self, index: usize, stream: &Stream) {
        let live = &self.live[index];
        if let Some(touch) = &self.touch {
            let copied = (touch.copy_out)(&live.block, stream.as_ref());
            self.copies.push((copied, (live.block.pointer, live.block.layout), live.word));
        }
    }

    /// Orders a stream after the last use of a block, if it is not.
    fn follow(&self, index: usize, stream: &Stream) -> Result<(), Violation> {
        match &self.live[index].last_use {
            LastUse::Over => Ok(()),
            LastUse::On(id) if *id == stream.id() => Ok(()),
            LastUse::On(id) => match self.streams.iter().find(|open| open.id() == *id) {
                Some(open) => stream.wait_for_stream(open).map_err(refused("waiting for a stream")),
                None => Ok(()),
            },
            LastUse::Before(event) => stream.wait_event(event).map_err(refused("waiting for an event")),
        }
    }

    fn reuse(&mut self, index: usize, stream: usize) -> Result<(), Violation> {
        let stream = self.streams[stream].clone();
        self.follow(index, &stream)?;
        self.read(index, &stream);
        let word = self.next_word();
        self.fill(&self.live[index].block, word, &stream);
        self.live[index].word = word;
        self.live[index].last_use = LastUse::On(stream.id());
        Ok(())
    }

    fn free(&mut self, index: usize, stream: usize) -> Result<(), Violation> {
        let stream = self.streams[stream].clone();
        self.follow(index, &stream)?;
        self.read(index, &stream);
        let live = self.live.swap_remove(index);
        self.heap.remove(live.block.pointer, live.block.layout)?;
        let block = live.block;
        let refused =
            if self.asks_at_once() { block.free_at_once(stream.as_ref()).err() } else { Some(block) };
        if let Some(block) = refused {
            block.free(stream.as_ref());
        }
        Ok(())
    }

    fn free_sync(&mut self, index: usize) -> Result<(), Violation> {
        let stream = self.streams[0].clone();
        self.follow(index, &stream)?;
        self.read(index, &stream);
        stream.synchronize().map_err(refused("synchronising"))?;
        let live = self.live.swap_remove(index);
        self.heap.remove(live.block.pointer, live.block.layout)?;
        live.block.free_sync();
        Ok(())
    }

    fn close(&mut self, index: usize) -> Result<(), Violation> {
        let stream = self.streams.swap_remove(index);
        let here = |last_use: &LastUse| matches!(last_use, LastUse::On(id) if *id == stream.id());
        if self.live.iter().any(|live| here(&live.last_use)) {
            let event = stream.record().map_err(refused("recording an event"))?;
            for live in self.live.iter_mut().filter(|live| here(&live.last_use)) {
                live.last_use = LastUse::Before(event.clone());
            }
        }
        Ok(())
    }

    /// Waits for all copies and compares them.
    fn compare(&mut self) -> Result<(), Violation> {
        let device = self.resource.device();
        device.synchronize().map_err(refused("synchronising the device"))?;
        for (copied, block, word) in self.copies.drain(..) {
            let bytes = copied.take_after_device();
            if let Some(at) = first_difference(&bytes, word) {
                return Err(Violation::Corrupt { block, at, word, found: bytes[at] });
            }
            self.summary.compared += 1;
        }
        Ok(())
    }
}
