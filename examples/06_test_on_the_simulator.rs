//! A race that a GPU would show once in a thousand runs, found in the first one, and its report.
//!
//! This example always runs on the simulator: that is what it is about.

#![expect(unsafe_code, reason = "launches kernels, one of them wrongly")]

use alluvion::sim::{HazardKind, Kernel, SimConfig};
use alluvion::{DeviceVec, Error, Sim, Stream};

const BYTES: usize = 1024;

/// Two kernels on two streams: one fills the vector, the other sums it up. The order between them is what is tested.
fn fill_then_sum(
    sim: &Sim,
    vector: &mut DeviceVec<u8>,
    fills: &Stream,
    sums: &Stream,
    guarded: bool,
) -> Result<(), Error> {
    let address = vector.as_device_ptr().address();
    let fill =
        Kernel::new("fill").writes(address, BYTES).run(move |memory| memory.write(address, &[1; BYTES]));
    let sum = Kernel::new("sum").reads(address, BYTES);

    let write = vector.write_on(fills)?;
    // SAFETY: the stream is live and of this device; the guard orders the kernel with all else that uses the vector.
    unsafe { sim.launch(0, fills.raw(), fill) }?;
    drop(write);

    // The guard is what tells the second stream to wait for the first. Without it, nothing does.
    let read = if guarded { Some(vector.read_on(sums)?) } else { None };
    // SAFETY: the stream is live and of this device; the kernel has no closure, so it touches the vector in
    // name only. Without the guard its order is not right, which is what the simulator is here to find.
    unsafe { sim.launch(0, sums.raw(), sum) }?;
    drop(read);
    sim.device(0).synchronize()
}

fn main() -> Result<(), Error> {
    // A seed decides every choice that hardware leaves to chance. Hazards are found from the order that was
    // asked for, so they are reported under every seed, whether or not the bytes came out right.
    for seed in 0..8 {
        let sim = Sim::with_config(SimConfig::default().seed(seed));
        let device = sim.device(0);
        let (fills, sums) = (device.stream()?, device.stream()?);
        let mut vector = DeviceVec::<u8>::zeroed(BYTES, &fills)?;

        fill_then_sum(&sim, &mut vector, &fills, &sums, true)?;
        assert!(sim.take_hazards().is_empty(), "with a guard there is nothing to report");

        fill_then_sum(&sim, &mut vector, &fills, &sums, false)?;
        let hazards = sim.take_hazards();
        let race = hazards.iter().find(|hazard| hazard.kind() == HazardKind::Race).expect("a race is found");
        if seed == 0 {
            println!("without a guard:\n{race}");
        }
    }
    println!("found under each of 8 seeds, and with a guard under none");
    Ok(())
}
