//! The other devices that memory of one device is given to, for every source that takes `peers`.

use crate::device::Device;
use crate::driver::{Code, DriverError, RelaxedCapture, Sharing};
use crate::error::Error;

/// The ordinals of the peers, each once, without that of the device itself.
pub(super) fn ordinals(device: &Device, peers: &[Device]) -> Result<Vec<u32>, Error> {
    let mut others = Vec::with_capacity(peers.len());
    for peer in peers {
        device.require_machine(peer)?;
        others.push(peer.ordinal());
    }
    others.sort_unstable();
    others.dedup();
    others.retain(|&other| other != device.ordinal());
    Ok(others)
}

/// Gives each of the peers access, by `give`, after the driver has said that each can have it: so that none has it if one cannot.
pub(super) fn give_access(
    device: &Device,
    peers: &[Device],
    give: impl Fn(&dyn Sharing, u32) -> Result<(), DriverError>,
) -> Result<(), Error> {
    let others = ordinals(device, peers)?;
    if others.is_empty() {
        return Ok(());
    }
    let sharing = device.sharing("memory that other devices use")?;
    let _relaxed = RelaxedCapture::enter(&**device.driver())?;
    for &peer in &others {
        if !sharing.can_reach(peer, device.ordinal()).map_err(|error| refused(device, peer, error))? {
            return Err(Error::peer_without_access(device.ordinal(), peer, None));
        }
    }
    others.iter().try_for_each(|&peer| give(sharing, peer).map_err(|error| refused(device, peer, error)))
}

/// The error of a peer for which the driver has refused access: that it has none, or, if the driver has failed, as it says.
#[cold]
pub(super) fn refused(device: &Device, peer: u32, error: DriverError) -> Error {
    if is_refusal(error.code) {
        Error::peer_without_access(device.ordinal(), peer, Some(error))
    } else {
        error.into()
    }
}

/// Whether a driver says by this code that the device cannot do what was asked for, rather than that it failed.
pub(crate) fn is_refusal(code: Code) -> bool {
    const REFUSALS: [Code; 5] = [
        Code::INVALID_VALUE,
        Code::INVALID_DEVICE,
        Code::NOT_SUPPORTED,
        Code::NOT_PERMITTED,
        Code::PEER_ACCESS_UNSUPPORTED,
    ];
    REFUSALS.contains(&code)
}
