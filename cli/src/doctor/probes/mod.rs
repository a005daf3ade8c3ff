//! What is tried on a device, each for itself. Whatever it takes it gives back.

mod captures;
mod exports;
mod host_memory;
mod managed;
mod peers;
mod pools;
mod virtual_memory;

use alluvion::driver::{Driver, FillValue, HandleType};
use alluvion::{Capabilities, Device, DeviceAccessible, DeviceVec};

use super::drivers::advice_for;
use super::finding::{Finding, Trouble};

/// One thing to try.
struct Probe {
    name: &'static str,
    /// Whether the device says that it can do it.
    is_claimed: fn(&Capabilities) -> bool,
    /// What to do where it does not.
    advice_if_missing: &'static str,
    /// Does it, and says what was done.
    run: fn(&Device) -> Result<String, Trouble>,
    /// What to do where it does, and cannot.
    advice_if_failed: &'static str,
    /// Whether the device speaks for itself alone: what more is needed may be refused, and is then missing.
    needs_more: bool,
}

const NEWER_DRIVER: &str = "install a newer NVIDIA driver; it must be of series 525 or later";
const OPEN_FILES: &str = "see the limit of open files (`ulimit -n`), and what the container forbids";
const SEE_THE_LOG: &str = "see nvidia-smi, and the kernel's log (dmesg)";

const PROBES: [Probe; 13] = [
    Probe {
        name: "device memory",
        is_claimed: |_| true,
        advice_if_missing: SEE_THE_LOG,
        run: pools::device_memory,
        advice_if_failed: SEE_THE_LOG,
        needs_more: false,
    },
    Probe {
        name: "memory pools",
        is_claimed: |can| can.memory_pools,
        advice_if_missing: "use `Cuda` under a `Pool`, as the default resource does here",
        run: pools::memory_pools,
        advice_if_failed: SEE_THE_LOG,
        needs_more: false,
    },
    Probe {
        name: "virtual memory",
        is_claimed: |can| can.virtual_memory,
        advice_if_missing: "`Mapped` cannot be used; a pool over `CudaAsync` or `Cuda` needs no mapping",
        run: virtual_memory::map_a_page,
        advice_if_failed: "use `CudaAsync` in place of `Mapped`; in a virtual machine, give it the whole GPU: some shared GPUs cannot map",
        needs_more: false,
    },
    Probe {
        name: "managed memory",
        is_claimed: |can| can.managed_memory,
        advice_if_missing: "copy between `Pinned` memory and the device's",
        run: managed::allocate,
        advice_if_failed: "see whether the kernel has its nvidia-uvm module (`lsmod`)",
        needs_more: false,
    },
    Probe {
        name: "managed, both sides at once",
        is_claimed: |can| can.concurrent_managed_access,
        advice_if_missing: "do without `Managed` and `Prefetch`, or use Linux without a shared (vGPU) device",
        run: managed::send_to_and_fro,
        advice_if_failed: "see whether the kernel has its nvidia-uvm module (`lsmod`)",
        needs_more: false,
    },
    Probe {
        name: "memory of the host, directly",
        is_claimed: |can| can.pageable_memory_access,
        advice_if_missing: "use `Pinned` or `Managed` in place of `System`; HMM needs Linux 6.1 and NVIDIA's open kernel modules",
        run: host_memory::fill_pageable,
        advice_if_failed: SEE_THE_LOG,
        needs_more: false,
    },
    Probe {
        name: "host registration",
        is_claimed: |can| can.host_register,
        advice_if_missing: "`Pinned` asks the driver for its memory then, which takes longer from 2 MiB up",
        run: host_memory::register,
        advice_if_failed: "see how much memory the limits of the host leave, above",
        needs_more: false,
    },
    Probe {
        name: "plain memory, exported",
        is_claimed: |can| can.shared_events,
        advice_if_missing: "share memory of `Mapped` with other processes, where its pages can be exported",
        run: exports::plain_memory,
        advice_if_failed: "share memory of `Mapped` with other processes; some containers and WSL have no other way",
        needs_more: true,
    },
    Probe {
        name: "a pool, exported",
        is_claimed: |can| can.pool_handle_types.contains(HandleType::POSIX_FILE_DESCRIPTOR),
        advice_if_missing: "make `CudaAsync` without `handle_types`, and share memory of `Cuda` or of `Mapped`",
        run: exports::pool,
        advice_if_failed: OPEN_FILES,
        needs_more: false,
    },
    Probe {
        name: "export as a file descriptor",
        is_claimed: |can| can.page_handle_types.contains(HandleType::POSIX_FILE_DESCRIPTOR),
        advice_if_missing: "memory of `Mapped` cannot be shared with other processes here; on Windows it has other handles",
        run: exports::file_descriptor,
        advice_if_failed: OPEN_FILES,
        needs_more: false,
    },
    Probe {
        name: "export as a fabric handle",
        is_claimed: |can| can.page_handle_types.contains(HandleType::FABRIC),
        advice_if_missing: "only needed across nodes: that takes GPUs joined by NVLink and a running nvidia-imex",
        run: exports::fabric_handle,
        advice_if_failed: "only needed across nodes: start nvidia-imex, and give the container a channel of it",
        needs_more: true,
    },
    Probe {
        name: "graph capture",
        is_claimed: |_| true,
        advice_if_missing: NEWER_DRIVER,
        run: captures::capture,
        advice_if_failed: NEWER_DRIVER,
        needs_more: false,
    },
    Probe {
        name: "allocation while capturing",
        is_claimed: |can| can.memory_pools,
        advice_if_missing: "allocate before the capture begins",
        run: captures::capture_an_allocation,
        advice_if_failed: "allocate before the capture begins",
        needs_more: false,
    },
];

/// Tries everything on a device. After an error that loses its context nothing else is tried.
pub(super) fn examine(device: &Device, capabilities: &Capabilities) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_over = false;
    for probe in &PROBES {
        let Probe { name, is_claimed, run, needs_more, .. } = probe;
        let [advice_if_missing, advice_if_failed] = [probe.advice_if_missing, probe.advice_if_failed]
            .map(|advice| advice_for(device.driver().name(), advice));
        findings.push(if !is_claimed(capabilities) {
            Finding::missing(name, "the device says that it has none", advice_if_missing)
        } else if is_over {
            Finding::note(name, "not tried: the context is lost")
        } else {
            match run(device) {
                Ok(detail) => Finding::ok(name, detail),
                Err(trouble) if *needs_more && trouble.is_refusal() => {
                    Finding::missing(name, trouble.to_string(), advice_if_failed)
                }
                Err(trouble) => {
                    is_over = trouble.is_the_end();
                    Finding::failed(name, &trouble, advice_if_failed)
                }
            }
        });
    }
    if !is_over {
        findings.extend(peers::examine(device));
    }
    findings
}

/// So many bytes are written and read back where nothing says how many it must be.
const BYTES: usize = 64 << 10;

/// What is written and read back: no pattern that fresh memory has by chance.
const PATTERN: u8 = 0xa7;

const WRONG: Trouble = Trouble::Wrong("what was read back is not what was written");

/// A device by its driver, as the probes call it.
#[derive(Clone, Copy)]
struct Patient<'d> {
    driver: &'d dyn Driver,
    ordinal: u32,
}

impl<'d> Patient<'d> {
    fn of(device: &'d Device) -> Self {
        Self { driver: &**device.driver(), ordinal: device.ordinal() }
    }

    fn pattern() -> FillValue {
        FillValue::U8(PATTERN)
    }
}

/// Writes to memory of the resource on the device, and reads it back.
fn round_trip<R: DeviceAccessible>(device: &Device, resource: R) -> Result<(), Trouble> {
    let stream = device.stream()?;
    let bytes = DeviceVec::filled_in(BYTES, PATTERN, stream.as_ref(), resource)?;
    let back = bytes.to_vec(stream.as_ref())?;
    drop(bytes);
    stream.synchronize()?;
    if back.len() == BYTES && back.iter().all(|byte| *byte == PATTERN) { Ok(()) } else { Err(WRONG) }
}
