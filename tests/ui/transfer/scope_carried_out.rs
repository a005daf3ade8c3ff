//! `TransferScope` ends with the call that made it: it cannot be carried out and used later.

use alluvion::Sim;

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let mut kept = None;
    let _ = stream.scope(|scope| {
        kept = Some(scope);
        Ok(())
    });
    drop(kept);
}
