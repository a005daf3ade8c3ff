//! Memory of a device, used by the others of the machine.

#![expect(unsafe_code, reason = "writes from one device to the memory of another")]

use core::mem;

use alluvion::source::{CudaAsync, CudaAsyncConfig, Mapped, MappedConfig};
use alluvion::{AnyResource, Device, DeviceVec, Error};

use super::{BYTES, Patient, WRONG};
use crate::doctor::finding::{Finding, Trouble};

const NAME: &str = "peers";
const ADVICE: &str = "copies between them go through the host; a virtual machine, and PCIe with access control (ACS), forbid more";

/// What the other devices can do with the memory of this one; `None` on a machine without others.
pub(super) fn examine(device: &Device) -> Option<Finding> {
    if device.machine().devices().len() <= 1 {
        return None;
    }
    Some(match device.peers() {
        Ok(peers) if peers.is_empty() => {
            Finding::missing(NAME, "no other device can reach its memory", ADVICE)
        }
        Ok(peers) => match peers.iter().try_for_each(|peer| write_from(device, peer)) {
            Ok(()) => {
                let names: Vec<_> = peers.iter().map(Device::to_string).collect();
                Finding::ok(NAME, format!("64 KiB written by each of {}, and read back", names.join(", ")))
            }
            Err(trouble) => Finding::failed(NAME, &trouble, ADVICE),
        },
        Err(error) if error.is_unsupported() => Finding::missing(NAME, error.to_string(), ADVICE),
        Err(error) => Finding::failed(NAME, &Trouble::Library(error), ADVICE),
    })
}

/// Memory that is given to one peer: access to plain memory would last as long as the process.
fn for_peer(device: &Device, peer: &Device) -> Result<AnyResource, Error> {
    let peers = [peer.clone()];
    if device.capabilities()?.memory_pools {
        CudaAsync::with_config(device, CudaAsyncConfig::default().peers(peers)).map(AnyResource::new)
    } else {
        Mapped::with_config(device, MappedConfig::default().peers(peers)).map(AnyResource::new)
    }
}

fn write_from(device: &Device, peer: &Device) -> Result<(), Trouble> {
    let (home, there) = (device.stream()?, peer.stream()?);
    let bytes = DeviceVec::<u8, _>::zeroed_in(BYTES, &home, for_peer(device, peer)?)?;
    there.wait_for_stream(&home)?;
    let Patient { driver, ordinal } = Patient::of(peer);
    let address = bytes.as_device_ptr().address();
    // SAFETY: the whole vector, which nothing else uses before `home` has waited for `there` below.
    let filled =
        unsafe { driver.fill_async(ordinal, address, Patient::pattern(), BYTES, there.as_ref().raw()) };
    filled?;
    // The vector goes behind the work of the peer. If nothing orders it so, the host waits; if nothing waits either, it stays.
    if let Err(error) = home.wait_for_stream(&there) {
        if there.synchronize().is_err() {
            mem::forget(bytes);
        }
        return Err(error.into());
    }
    let back = bytes.to_vec(&home)?;
    drop(bytes);
    home.synchronize()?;
    if back.iter().all(|byte| *byte == super::PATTERN) { Ok(()) } else { Err(WRONG) }
}
