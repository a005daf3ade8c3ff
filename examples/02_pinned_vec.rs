//! Collections of the host that the device reads by itself: `Vec` and `HashMap` over a pool of pinned memory.

mod machine;

use std::sync::Arc;

use alluvion::host::{HashMap, Vec};
use alluvion::source::Pinned;
use alluvion::{DeviceVec, Error, OnHost, PinnedAlloc, PinnedVec, PoolConfig, ResourceExt};

fn main() -> Result<(), Error> {
    let machine::Chosen { device, sim } = machine::choose()?;
    let stream = device.stream()?;

    // To pin a block and to free it takes the driver 0.5 ms. A pool pins much at once, and collections come, grow and go in
    // it. For a few that are large and live long `PinnedAlloc::new(&device)?` does, without one.
    let pool = Arc::new(Pinned::new(&device)?.pool(PoolConfig::default())?);
    let pinned = PinnedAlloc::from_resource(Arc::clone(&pool));
    println!("collections allocate from {pinned:?}");

    // An ordinary vector, but for where its elements are. From ordinary memory the driver copies through a
    // buffer of its own.
    let mut readings = PinnedVec::with_capacity_in(1 << 16, pinned.clone());
    readings.extend((0..1 << 16).map(|index| f64::from(index) / 2.0));

    // The upload takes the vector and gives it back when the device has read it. The host goes on meanwhile; it
    // cannot touch the vector, because it does not have it.
    let mut on_device = DeviceVec::<f64>::uninit(readings.len(), &stream)?;
    let upload = on_device.upload(readings, &stream)?;
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

    // A vector that moves at each doubling, and the driver is not asked once. `OnHost` names what is under it; here a borrow.
    let before = pool.status().upstream_calls;
    let mut growing = Vec::new_in(OnHost::new(&*pool));
    for number in 0..100_000_u32 {
        growing.push(number);
    }
    assert_eq!(pool.status().upstream_calls, before);
    println!("{} elements, one by one, from {}", growing.len(), pool.describe());

    if let Some(sim) = sim {
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
    }
    Ok(())
}
