//! Memory on two streams, and nothing to remember about them. Runs on a GPU if there is one, else on the simulator.

mod machine;

use alluvion::{DeviceVec, Error};

fn main() -> Result<(), Error> {
    let machine::Chosen { device, sim } = machine::choose()?;
    let (first, second) = (device.stream()?, device.stream()?);
    println!("containers allocate from {:?}", device.current_resource()?);

    // Memory comes from the device's current resource, ordered by the stream that is named.
    let mut numbers = DeviceVec::from_slice(&[1_u32, 2, 3, 4], first.as_ref())?;

    // Any stream may use it. What has to come first comes first, on the device: here the upload comes before
    // the fill.
    numbers.slice_mut(1..3)?.fill(7, second.as_ref())?;
    let back = numbers.to_vec(first.as_ref())?;
    assert_eq!(back, [1, 7, 7, 4]);
    println!("the device has {back:?}");

    // Dropped at once, while either stream may still be using it: the memory goes back behind all of its uses.
    drop(numbers);
    device.synchronize()?;

    if let Some(sim) = sim {
        // The simulator has watched every access: no race, no use after free.
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
        println!("the simulator saw {} driver calls and no hazard", sim.calls().total());
    }
    Ok(())
}
