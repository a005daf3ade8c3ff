//! Two streams over one buffer: copies on one, kernels on the other, and no event in sight.
//!
//! The kernels are stood in for by the fills that every device has; `04_kernel` launches one of your own.

mod machine;

use alluvion::{DeviceVec, Error, Frontier};

fn main() -> Result<(), Error> {
    let machine::Chosen { device, sim } = machine::choose()?;
    let (copies, computes) = (device.stream()?, device.stream()?);

    let mut results = Vec::new();
    for round in 0..4_u32 {
        // The next round's upload may overlap this round's work: each is ordered with its own buffer alone.
        let mut buffer = DeviceVec::from_slice(&vec![round; 1 << 16], &copies)?;
        buffer.slice_mut(..10)?.fill(round + 100, &computes)?;
        results.push(buffer.get(9, &copies)? + buffer.get(10, &copies)?);
        // The buffer goes back to its resource here, behind the work of both streams, and the host does not
        // wait for it.
    }
    assert_eq!(results, [100, 102, 104, 106]);

    // What happens underneath: memory that is freed is tagged with a point of its stream. That costs no driver call.
    let freed = Frontier::of(computes.release());
    assert!(computes.may_reuse(&freed), "its own stream may have it at once");
    assert!(!copies.may_reuse(&freed), "another one has to wait");
    // One wait on the device, for one event, covers everything that was freed there before.
    copies.wait_for(&freed)?;
    assert!(copies.may_reuse(&freed));
    println!("the rounds gave {results:?}; {freed:?} was waited for on the device");

    if let Some(sim) = sim {
        device.synchronize()?;
        assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
    }
    Ok(())
}
