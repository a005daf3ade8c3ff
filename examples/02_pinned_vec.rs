//! Collections of the host that the device reads by itself: `Vec` and `HashMap` over pinned memory.

mod machine;

use alluvion::{DeviceVec, Error, PinnedAlloc, PinnedVec};
use hashbrown::HashMap;

fn main() -> Result<(), Error> {
    let machine::Chosen { device, sim } = machine::choose()?;
    let stream = device.stream()?;
    let stream = stream.as_ref();
    let pinned = PinnedAlloc::new(&device)?;
    println!("collections allocate from {pinned:?}");

    // An ordinary vector, but for where its elements are. From ordinary memory the driver copies through a
    // buffer of its own.
    let mut readings = PinnedVec::with_capacity_in(1 << 16, pinned.clone());
    readings.extend((0..1 << 16).map(|index| f64::from(index) / 2.0));

    // The upload takes the vector and gives it back when the device has read it. The host goes on meanwhile; it
    // cannot touch the vector, because it does not have it.
    let mut on_device = DeviceVec::<f64>::uninit(readings.len(), stream)?;
    let upload = on_device.upload(readings, stream)?;
    let mut by_name = HashMap::new_in(pinned);
    by_name.insert("half", 0.5);
    let mut readings = upload.wait()?;
    assert_eq!(readings[2], 1.0);

    // Downloads likewise. A scope lends instead: what is borrowed stays borrowed until the scope has waited.
    readings.fill(0.0);
    device.stream()?.scope(|scope| scope.download(&on_device, &mut readings))?;
    assert_eq!(readings[3], 1.5);
    by_name.insert("last", readings[readings.len() - 1]);
    println!("the device gave back {by_name:?}");

    if let Some(sim) = sim {
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
    }
    Ok(())
}
