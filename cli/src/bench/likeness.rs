//! The workloads are the peers': what is out at most is, to the byte, what their programs have out, compiled by g++ 12
//! over an allocator that counts.

use alluvion::source::Null;
use alluvion::{Sim, StreamRef};

use crate::counted::Counted;
use crate::workload::{Holes, Walk, random_run};

/// The peak of what is out during `workload`.
fn peak(workload: impl FnOnce(&Counted<Null>, StreamRef<'_>)) -> usize {
    let sim = Sim::new();
    let stream = sim.device(0).stream().expect("a simulated device makes streams");
    let counted = Counted::new(Null::new(&sim.device(0)));
    workload(&counted, stream.as_ref());
    counted.peak_bytes()
}

#[test]
fn random_runs_are_those_of_the_peers() {
    for (num, max_mib, bytes) in
        [(1000, 4, 1_332_080_261), (10_000, 64, 16_777_214_948), (1000, 4096, 16_775_344_215)]
    {
        let ours = peak(|resource, stream| {
            assert_eq!(random_run(resource, num, max_mib, stream).expect("the source never fails"), 0);
        });
        assert_eq!(ours, bytes, "{num} up to {max_mib} MiB");
    }
}

#[test]
fn walks_are_those_of_the_peers() {
    let ours = peak(|resource, stream| {
        let mut walk = Walk::new(resource, 3);
        walk.steps(500, stream).expect("the source never fails");
        walk.steps(20_000, stream).expect("the source never fails");
        walk.give_back(stream);
    });
    assert_eq!(ours, 17_566_464);
}

#[test]
fn holes_are_those_of_the_peers() {
    let ours = peak(|resource, stream| {
        Holes::make(resource, 1000, stream).expect("the source never fails").give_back(stream);
    });
    assert_eq!(ours, 518_868_104);
}
