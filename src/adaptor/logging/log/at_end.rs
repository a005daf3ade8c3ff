//! Flushes logs when the process ends without dropping them: at its exit, and at a panic that aborts it.

use std::panic;
use std::sync::{Once, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::os;
use super::shared::LogShared;
use super::writer_mark::is_writer;
use crate::sync::{Arc, MadeIn, Mutex};

/// The longest wait of an ending process for all logs whose writers block.
const PATIENCE: Duration = Duration::from_secs(5);

/// The logs of the process. Locked for a few instructions.
static LOGS: OnceLock<Mutex<Vec<Weak<LogShared>>>> = OnceLock::new();

/// Has the log flushed when the process exits or panics.
pub(super) fn watch(shared: &Arc<LogShared>) {
    static EXIT: Once = Once::new();
    static PANIC: Once = Once::new();
    if MadeIn::this_process() != MadeIn::FIRST || cfg!(loom) {
        // A thread of the parent may have had the list when the process forked, and have it for ever. In a model no process ends.
        return;
    }
    {
        let mut logs = LOGS.get_or_init(Mutex::default).lock();
        logs.retain(|log| log.strong_count() > 0);
        logs.push(Arc::downgrade(shared));
    }
    EXIT.call_once(|| os::at_exit(flush_at_exit));
    // The hook cannot be changed by a thread that panics; the next log does it.
    if !thread::panicking() {
        PANIC.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                // First, because the hook that was there may end the process itself. A panic that only ends a thread costs a
                // flush, too: nobody can tell here.
                flush_all();
                before(info);
            }));
        });
    }
}

extern "C" fn flush_at_exit() {
    flush_all();
}

fn flush_all() {
    flush_within(PATIENCE);
}

/// Flushes every log, as far as that is possible here and in time.
fn flush_within(patience: Duration) {
    let until = Instant::now() + patience;
    if MadeIn::FIRST.is_parent() || is_writer() {
        return;
    }
    let Some(logs) = LOGS.get() else { return };
    let logs: Vec<_> = logs.lock().iter().filter_map(Weak::upgrade).collect();
    // All are asked before the first is waited for: one whose writer blocks takes no time from the others.
    for log in &logs {
        let _ = log.flush(Some(Duration::ZERO));
    }
    for log in logs {
        // The log has reported a failure already.
        let _ = log.flush(Some(until.saturating_duration_since(Instant::now())));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::{self, Write};
    use std::sync::mpsc;

    use super::*;
    use crate::adaptor::Log;
    use crate::sync::{AtomicU64, Ordering};

    /// Waits until the other end of the channel is gone.
    struct Stuck(mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Counts its flushes.
    struct Fine(Arc<AtomicU64>);

    impl Write for Fine {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn all_logs_together_get_so_much_patience() {
        // Each on its own they would get 20 s.
        let stuck: Vec<_> = (0..100)
            .map(|_| {
                let (hold, held) = mpsc::channel();
                (Log::write_to(Stuck(held)).expect("there is a thread for it"), hold)
            })
            .collect();
        let flushes = Arc::new(AtomicU64::new(0));
        let fine = Log::write_to(Fine(Arc::clone(&flushes))).expect("there is a thread for it");
        let begun = Instant::now();
        flush_within(Duration::from_millis(200));
        let took = begun.elapsed();
        assert!(flushes.load(Ordering::Relaxed) > 0, "it did not have to wait for the others");
        drop(fine);
        for (log, hold) in stuck {
            drop(hold);
            drop(log);
        }
        assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(10), "it took {took:?}");
    }
}
