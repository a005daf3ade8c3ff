//! Who calls with the interpreter, lets go of it where a call may wait.

#![expect(unsafe_code, reason = "takes a body that stays on its thread through a bound of PyO3's")]

use pyo3::prelude::*;

use crate::attached::is_attached;

/// Something that stays on its thread.
struct Here<T>(T);

// SAFETY: what `unattached` wraps comes back on the thread that it went in on, where no other thread has seen it. It holds no object of
// Python that its body would use while the thread is detached: a handle has none.
unsafe impl<T> Send for Here<T> {}

/// Runs what may wait for the device, or for a thread that wants the interpreter: a caller that has the interpreter is without it meanwhile.
/// C++ allocates, frees and lets go wherever it is called from.
pub(super) fn unattached<T>(body: impl FnOnce() -> T) -> T {
    if !is_attached() {
        return body();
    }
    let mut body = Some(body);
    let waiting = Here(&mut body);
    let done = Python::try_attach(|py| {
        py.detach(move || {
            let Here(body) = { waiting };
            Here(body.take().map(|body| body()))
        })
    });
    match (done, body) {
        (Some(Here(Some(done))), _) => done,
        // The interpreter is ending, and nobody waits for it any more.
        (_, Some(body)) => body(),
        _ => unreachable!("a body that is gone has answered"),
    }
}
