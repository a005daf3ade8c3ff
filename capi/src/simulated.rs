//! What would a GPU have done?

#![expect(unsafe_code, reason = "exports functions")]

use std::ffi::{c_char, c_void};
use std::io::Write as _;

use alluvion::Error;
use alluvion::driver::{Call, CaptureMode, Code, Driver as _, StreamFlags};
use alluvion::sim::Fault;

use crate::boundary::{self, null};
use crate::handle::by_contract::{give_to, lend, lend_or_null};
use crate::machine::MachineHandle;
use crate::status::Status;
use crate::stream::{self, CudaStream};
use crate::text::{self, Write, Writer};

/// Waits for all work of a simulated machine, writes its mistakes and what is still out as text, a line each, and says how many
/// there are. What the library keeps for a machine, such as spare events, is not out. `write` and `count` may be null. What was
/// written is not written again but for what is still out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sim_report(
    machine: *const MachineHandle,
    write: Write,
    user: *mut c_void,
    count: *mut usize,
) -> Status {
    boundary::call(|| {
        let sim = lend!(machine).sim()?;
        let left_over = sim.left_over();
        let mut mistakes = sim.take_hazards();
        mistakes.extend(left_over);
        if !count.is_null() {
            // SAFETY: not null, so writable.
            unsafe { count.write(mistakes.len()) };
        }
        if write.is_some() {
            // SAFETY: the caller's function and what it is called with, valid for the call.
            let mut writer = unsafe { Writer::new(write, user) }?;
            for mistake in &mistakes {
                writeln!(writer, "{mistake}").map_err(|error| Error::unwritable("a report", &error))?;
            }
        }
        Ok(())
    })
}

/// Another process on the hardware of a simulated machine, as a machine: with handles, addresses, faults and mistakes of its own, and
/// the same devices and the same free memory. What one process shares, another opens. The process ends with the last handle of its
/// machine.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sim_process(
    machine: *const MachineHandle,
    out: *mut *mut MachineHandle,
) -> Status {
    boundary::call(|| {
        let make = || Ok(MachineHandle::of_sim(lend!(machine).sim()?.process()));
        give_to!(out, make)
    })
}

/// Ends a simulated process as SIGKILL does: its queued work is dropped, its calls fail from now on, and its memory is free, but for
/// what other processes have open. Its handles are released as ever: what it had open of others is closed by that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sim_kill(machine: *const MachineHandle) -> Status {
    boundary::call(|| {
        lend!(machine).sim()?.kill();
        Ok(())
    })
}

/// Makes the `nth` coming call of a kind fail on a simulated machine, counted from 1: `call` is its name in CUDA, such as
/// `cuMemAlloc`, and `code` the code that it answers, such as 2, out of memory. `nth` 0 fails every call of that kind; `call` null
/// means a call of any kind. A code that loses contexts, such as 700, loses that of the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sim_fail(
    machine: *const MachineHandle,
    call: *const c_char,
    nth: u64,
    code: i32,
) -> Status {
    boundary::call(|| {
        let sim = lend!(machine).sim()?;
        let code = match u32::try_from(code) {
            Ok(code) if code > 0 => Code(code),
            _ => {
                return Err(Error::invalid_argument(
                    "code",
                    "it is no error",
                    "pass a positive number, such as 2",
                ));
            }
        };
        let kind = if call.is_null() {
            None
        } else {
            // SAFETY: the contract of pointers.
            let name = unsafe { text::borrow(call, "call") }?;
            let kind = Call::ALL.iter().copied().find(|call| call.symbol() == name);
            Some(kind.ok_or_else(|| {
                Error::invalid_argument(
                    "call",
                    "the driver has no such call",
                    "name one as CUDA does, as cuMemAlloc",
                )
            })?)
        };
        let fault = match (kind, nth) {
            (Some(call), 0) => Fault::every(call, code),
            (Some(call), nth) => Fault::nth(call, nth, code),
            (None, 0) => {
                let why = "every call of every kind cannot fail";
                return Err(Error::invalid_argument("nth", why, "name a call, or a number from 1"));
            }
            (None, nth) => Fault::nth_call(nth, code),
        };
        sim.inject(fault);
        Ok(())
    })
}

/// Makes a stream on a simulated machine that the library does not know, as another library would with `cuStreamCreate`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sim_stream_create(
    machine: *const MachineHandle,
    device: i32,
    out: *mut CudaStream,
) -> Status {
    boundary::call(|| {
        if out.is_null() {
            return Err(null("out"));
        }
        // SAFETY: not null, so writable.
        unsafe { out.write(std::ptr::null_mut()) };
        let machine = lend!(machine);
        let (sim, ordinal) = (machine.sim()?, machine.device(device)?.ordinal());
        let made = sim.sim_driver().stream_create(ordinal, StreamFlags::default())?;
        // SAFETY: as above.
        unsafe { out.write(std::ptr::with_exposed_provenance_mut(made.0 as usize)) };
        Ok(())
    })
}

/// Destroys a stream of `alv_sim_stream_create`. Work that is on it goes on, and the next stream may get its handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sim_stream_destroy(
    machine: *const MachineHandle,
    device: i32,
    stream: CudaStream,
) -> Status {
    boundary::call(|| {
        let machine = lend!(machine);
        let (sim, ordinal) = (machine.sim()?, machine.device(device)?.ordinal());
        // SAFETY: a stream that was made above and is not used again, by the function's text.
        Ok(unsafe { sim.sim_driver().stream_destroy(ordinal, stream::raw(stream)) }?)
    })
}

/// Begins to capture what is submitted to a stream of a simulated machine, as `cuStreamBeginCapture` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sim_begin_capture(
    machine: *const MachineHandle,
    device: i32,
    stream: CudaStream,
) -> Status {
    boundary::call(|| {
        let machine = lend!(machine);
        let (sim, ordinal) = (machine.sim()?, machine.device(device)?.ordinal());
        let begun = sim.begin_capture(ordinal, stream::raw(stream), CaptureMode::Global);
        begun.map_err(|code| no_capture("the beginning of a capture", code))
    })
}

/// Ends a capture on the stream that it was begun on, launches the graph there once, waits for it, and lets go of it. All memory that it uses is
/// there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sim_end_capture(
    machine: *const MachineHandle,
    device: i32,
    stream: CudaStream,
) -> Status {
    boundary::call(|| {
        let machine = lend!(machine);
        let (sim, device) = (machine.sim()?, machine.device(device)?);
        let (ordinal, stream) = (device.ordinal(), stream::raw(stream));
        let ended = sim.end_capture(ordinal, stream);
        let graph = ended.map_err(|code| no_capture("the end of a capture", code))?;
        // SAFETY: all that the graph uses is there, by the function's text.
        let launched = unsafe { sim.launch_graph(ordinal, stream, &graph) };
        launched.map_err(|code| no_capture("the launch of a graph", code))?;
        device.synchronize()
    })
}

fn no_capture(what: &'static str, code: Code) -> Error {
    Error::foreign(format!("{what}: {code}"))
}

/// Takes all faults back that have not occurred.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sim_clear_faults(machine: *const MachineHandle) -> Status {
    boundary::call(|| {
        lend!(machine).sim()?.clear_faults();
        Ok(())
    })
}

/// How many driver calls a simulated machine has seen; 0 for null and for a machine that is not simulated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_sim_calls(machine: *const MachineHandle) -> u64 {
    boundary::unanswered("alv_sim_calls", 0, || {
        let sim = lend_or_null!(machine).map(MachineHandle::sim);
        // One that is not simulated has seen none.
        Ok(sim.map_or(0, |sim| sim.map_or(0, |sim| sim.calls().total())))
    })
}
