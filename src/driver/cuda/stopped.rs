//! Which errors of libcuda prove that no copy runs any more.

use crate::driver::{Call, Code, DriverError};

/// The codes after which a GPU was seen to touch memory of the host no more: no copy that was queued behind the work that failed
/// ran, and one that was under way on another stream stood still.
///
/// `tests/gpu_ends.rs` brings each about, in a process of its own, with copies on the stream of the error and on another one. It fails
/// if a code of this list does not come up, or a byte is written after it. A code that is missing here, however final it sounds,
/// costs a wait that does not end, or a leak; one that is here and should not be would cost memory.
const STOPPING: [Code; 6] = [
    // A kernel has read or written memory that is not there.
    Code::ILLEGAL_ADDRESS,
    // A kernel has called `__assertfail`.
    Code::ASSERT,
    // A kernel has come to an instruction that the GPU does not have.
    Code::ILLEGAL_INSTRUCTION,
    // A kernel has read or written a word at an address that is no multiple of its size.
    Code::MISALIGNED_ADDRESS,
    // A kernel has jumped to where no instructions are.
    Code::INVALID_PROGRAM_COUNTER,
    // A kernel has executed `trap`.
    Code::LAUNCH_FAILED,
];

/// Whether the error says that the context of the call's own device has stopped.
///
/// Only a call that waits says so, because it is made with that context current and is about its work. To find out which context is
/// current, to push one, or to exchange the capture mode of a thread may each return the error of another context, while the copies of
/// this one go on.
pub(super) fn is_proof(error: DriverError) -> bool {
    let waits =
        matches!(error.call, Call::StreamSynchronize | Call::EventSynchronize | Call::ContextSynchronize);
    waits && STOPPING.contains(&error.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_of_the_context_itself_proves_it_and_nothing_else() {
        for code in STOPPING {
            assert!(code.is_sticky());
            for &call in Call::ALL {
                let waits = [Call::StreamSynchronize, Call::EventSynchronize, Call::ContextSynchronize]
                    .contains(&call);
                assert_eq!(is_proof(DriverError::new(call, code)), waits, "{call:?} {code}");
            }
        }
        for code in (0..2000).map(Code).filter(|code| !STOPPING.contains(code)) {
            assert!(!is_proof(DriverError::new(Call::StreamSynchronize, code)), "{code}");
        }
    }
}
