//! Waits on the host, for sources whose frees know no stream.

use crate::stream::StreamRef;

/// Waits until the work that is on the stream now is over. Returns `false` if nothing proves that: the stream captures, so that a
/// wait would break the capture and recorded work may run at any time, or the wait has failed.
pub(super) fn has_passed(stream: StreamRef<'_>) -> bool {
    matches!(stream.is_capturing(), Ok(false)) && stream.synchronize().is_ok()
}
