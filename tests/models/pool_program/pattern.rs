//! Kernels that find the pattern of a block's owner and write the next one.

#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::sync::{Arc, Mutex};

use alluvion::sim::Kernel;
use alluvion::{DevicePtr, Layout, StreamRef};

use super::{Subject, World};

/// What kernels have found that was not theirs.
pub(super) type Wrong = Arc<Mutex<Vec<String>>>;

/// More is declared than is written: the ends of a block tell whose it is, and its whole length is watched.
const PATTERN_BYTES: usize = 512;

impl<S: Subject> World<S> {
    /// Queues a kernel on a block: it finds the old word at both ends, if there is one, and writes the new one.
    pub(super) fn launch(
        &self,
        stream: StreamRef<'_>,
        pointer: DevicePtr,
        layout: Layout,
        old: Option<u32>,
        new: u32,
    ) {
        let (address, bytes) = (pointer.address(), layout.bytes());
        let ends = if bytes <= 2 * PATTERN_BYTES { bytes } else { PATTERN_BYTES };
        let starts = [address, address + (bytes - ends) as u64];
        let wrong = Arc::clone(&self.wrong);
        let kernel = Kernel::new("pattern").writes(address, bytes).run(move |memory| {
            let pattern =
                |word: u32| -> Vec<u8> { word.to_le_bytes().into_iter().cycle().take(ends).collect() };
            for start in starts.iter().take(if bytes > ends { 2 } else { 1 }) {
                let mut found = vec![0; ends];
                memory.read(*start, &mut found);
                if old.is_some_and(|word| found != pattern(word)) {
                    let words = format!("{ends} bytes at {start:#x} are {:x?} and not {old:x?}", &found[..4]);
                    wrong.lock().expect("no kernel panics").push(words);
                }
                memory.write(*start, &pattern(new));
            }
        });
        // SAFETY: the stream is borrowed, and the block live until a free behind the kernel; a conflict is reported.
        unsafe { self.sim.launch(0, stream.raw(), kernel) }.expect("a kernel can be launched");
    }

    /// What went wrong, by the machine and by the kernels.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let mut mistakes: Vec<String> = self.sim.hazards().iter().map(ToString::to_string).collect();
        mistakes.extend(self.wrong.lock().expect("no kernel panics").iter().cloned());
        mistakes
    }
}
