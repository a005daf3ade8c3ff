//! What becomes of logs when the process ends without dropping them: at its exit, and at a panic that aborts it.

use std::panic;
use std::sync::{Once, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use super::os;
use super::shared::Shared;
use super::writer::is_writer;
use crate::driver::{count_forks, forks};
use crate::sync::{Arc, Mutex};

/// A process that ends waits no longer for a log whose writer blocks.
const PATIENCE: Duration = Duration::from_secs(5);

/// The logs there are. Held for a few instructions.
static LOGS: OnceLock<Mutex<Vec<Weak<Shared>>>> = OnceLock::new();

/// Has the log flushed when the process exits or panics.
pub(super) fn watch(shared: &Arc<Shared>) {
    static EXIT: Once = Once::new();
    static PANIC: Once = Once::new();
    count_forks();
    if forks() > 0 {
        // A thread of the parent may have had the list when the process forked, and have it for ever.
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

/// Flushes every log, as far as that is possible here and in time.
fn flush_all() {
    if forks() > 0 || is_writer() {
        return;
    }
    let Some(logs) = LOGS.get() else { return };
    let logs: Vec<_> = logs.lock().iter().filter_map(Weak::upgrade).collect();
    for log in logs {
        // Who wrote it was told of a failure.
        let _ = log.flush(Some(PATIENCE));
    }
}
