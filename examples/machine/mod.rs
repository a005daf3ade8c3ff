//! The machine that an example runs on: a GPU if there is one, else the simulator.

use alluvion::{Device, Error, Sim};

/// A device, and the simulator behind it if it is not a GPU.
pub(crate) struct Chosen {
    pub(crate) device: Device,
    pub(crate) sim: Option<Sim>,
}

/// Picks the first GPU, else a simulated one, and says which.
pub(crate) fn choose() -> Result<Chosen, Error> {
    let chosen = match Device::named("0") {
        Ok(device) => Chosen { device, sim: None },
        // No driver, or no GPU. Any other error is one to look at.
        Err(error) if error.is_no_device() => {
            let sim = Sim::new();
            Chosen { device: sim.device(0), sim: Some(sim) }
        }
        Err(error) => return Err(error),
    };
    let kind = if chosen.sim.is_some() { "simulated, because there is no GPU" } else { "a GPU" };
    println!("running on {} ({kind})", chosen.device.name()?);
    Ok(chosen)
}
