//! `peers` of every source that takes it, on simulated machines: who may access the memory, what is refused, and what it costs.

#![expect(unsafe_code, reason = "queues kernels, and gives blocks back")]

use alluvion::driver::{Call, Code};
use alluvion::sim::{Fault, HazardKind, Kernel, SimConfig};
use alluvion::source::{Cuda, CudaAsync, CudaAsyncConfig, CudaConfig, Mapped, MappedConfig};
use alluvion::{AnyResource, Device, Error, ErrorKind, Recipe, Resource, Sim};

use crate::source_contract::layout;
use crate::two_devices;

fn machine_of(devices: u32) -> Sim {
    Sim::with_config(SimConfig::default().devices(devices))
}

type Make = fn(&Device, Vec<Device>) -> Result<AnyResource, Error>;

/// Each source that takes peers, with the call that gives access.
const SOURCES: [(&str, Call, Make); 3] = [
    ("cuda", Call::Reach, |device, peers| {
        Cuda::with_config(device, CudaConfig::default().peers(peers)).map(AnyResource::new)
    }),
    ("cuda-async", Call::PoolSetAccess, |device, peers| {
        CudaAsync::with_config(device, CudaAsyncConfig::default().peers(peers)).map(AnyResource::new)
    }),
    ("mapped", Call::MemorySetAccess, |device, peers| {
        Mapped::with_config(device, MappedConfig::default().peers(peers)).map(AnyResource::new)
    }),
];

/// What the simulator says of a kernel of device 1 that writes to a block of device 0.
fn written_by_the_peer(sim: &Sim, resource: &AnyResource) -> Vec<HazardKind> {
    let (here, there) = (sim.device(0).stream().unwrap(), sim.device(1).stream().unwrap());
    let block = resource.allocate(layout(100), here.as_ref()).unwrap();
    there.wait_for_stream(&here).unwrap();
    let kernel = Kernel::new("writer").writes(block.address(), 64);
    // SAFETY: the block is live until the kernel has run.
    unsafe { sim.launch(1, there.as_ref().raw(), kernel) }.unwrap();
    let found = sim.take_hazards().iter().map(alluvion::sim::Hazard::kind).collect();
    here.wait_for_stream(&there).unwrap();
    here.synchronize().unwrap();
    // SAFETY: the block came from this resource with this layout, and its use is over.
    unsafe { resource.deallocate(block, layout(100), here.as_ref()) };
    found
}

#[test]
fn a_peer_has_access_and_others_have_none() {
    for (name, _, make) in SOURCES {
        let sim = machine_of(3);
        let alone = make(&sim.device(0), Vec::new()).unwrap();
        assert_eq!(written_by_the_peer(&sim, &alone), [HazardKind::NoAccess], "{name} without peers");
        drop(alone);
        let for_another = make(&sim.device(0), vec![sim.device(2)]).unwrap();
        assert_eq!(written_by_the_peer(&sim, &for_another), [HazardKind::NoAccess], "{name} for gpu 2");
        drop(for_another);
        let shared = make(&sim.device(0), vec![sim.device(1)]).unwrap();
        assert_eq!(written_by_the_peer(&sim, &shared), [], "{name} for gpu 1");
    }
}

/// Its own device and a peer that is named twice cost nothing, and nothing is asked where there are no peers.
#[test]
fn each_peer_costs_two_calls_when_the_source_is_made() {
    for (name, call, make) in &SOURCES[..2] {
        let sim = machine_of(4);
        let own = sim.device(0);
        let count = |peers: Vec<Device>| {
            let before = sim.calls();
            drop(make(&own, peers).unwrap());
            sim.calls() - before
        };
        count(Vec::new());
        let without = count(Vec::new());
        assert_eq!([without[*call], without[Call::CanReach]], [0; 2], "{name}");
        assert_eq!(count(vec![own.clone()]).total(), without.total(), "{name}");
        let [one, three] = [vec![1, 1, 0], vec![3, 2, 1, 2]]
            .map(|ordinals| count(ordinals.into_iter().map(|ordinal| sim.device(ordinal)).collect()));
        assert_eq!([one[*call], one[Call::CanReach]], [1; 2], "{name}");
        assert_eq!([three[*call], three[Call::CanReach]], [3; 2], "{name}");
        assert_eq!(three.total() - one.total(), 4, "{name}");
    }
    // As few as without a configuration.
    let sim = machine_of(2);
    let before = sim.calls().total();
    drop(Cuda::with_config(&sim.device(0), CudaConfig::default()).unwrap());
    assert_eq!(sim.calls().total(), before);
}

#[test]
fn devices_that_cannot_reach_each_other_are_named() {
    for (name, _, make) in SOURCES {
        let sim = Sim::with_config(SimConfig::default().devices(2).peers(false));
        let error = make(&sim.device(1), vec![sim.device(0)]).unwrap_err();
        assert_eq!(
            (error.kind(), error.refused_peer()),
            (ErrorKind::InvalidArgument, Some(0)),
            "{name}: {error}"
        );
        assert!(error.to_string().contains("gpu 0 has no access to memory of gpu 1"), "{name}: {error}");
        assert!(make(&sim.device(1), vec![sim.device(1)]).is_ok(), "{name}");
        sim.assert_clean();
        assert_eq!(sim.live().pools, 0, "{name}");
        let there = machine_of(2);
        assert!(make(&sim.device(0), vec![there.device(1)]).unwrap_err().is_device_mismatch(), "{name}");
    }
    let sim = Sim::with_config(SimConfig::default().devices(2).peers(false));
    assert_eq!(sim.device(0).peers().unwrap(), []);
    assert!(!sim.device(0).can_reach(&sim.device(1)).unwrap());
    assert!(sim.device(0).can_reach(&sim.device(0)).unwrap());
    let sim = machine_of(3);
    assert_eq!(sim.device(1).peers().unwrap(), [sim.device(0), sim.device(2)]);
    assert!(sim.device(0).can_reach(&machine_of(2).device(1)).unwrap_err().is_device_mismatch());
    assert_eq!(machine_of(1).device(0).peers().unwrap(), []);
}

/// A code that says no names the peer; every other one stays as it is. Nothing is left behind.
#[test]
fn what_the_driver_says_of_a_peer_is_told() {
    for (name, call, make) in SOURCES {
        let calls = if call == Call::MemorySetAccess { vec![call] } else { vec![call, Call::CanReach] };
        for call in calls {
            for code in
                [Code::PEER_ACCESS_UNSUPPORTED, Code::INVALID_DEVICE, Code::UNKNOWN, Code::OUT_OF_MEMORY]
            {
                let sim = machine_of(3);
                // Of two peers the second; for pages, the device's own access is the first.
                let nth = if call == Call::MemorySetAccess { 3 } else { 2 };
                sim.inject(Fault::nth(call, nth, code));
                let error = make(&sim.device(0), vec![sim.device(1), sim.device(2)]).unwrap_err();
                assert_eq!(sim.faults_left(), 0, "{name}");
                let is_refusal = matches!(code, Code::PEER_ACCESS_UNSUPPORTED | Code::INVALID_DEVICE);
                assert_eq!(error.refused_peer(), is_refusal.then_some(2), "{name}, {call:?}: {error}");
                if !is_refusal {
                    assert_eq!((error.call(), error.code()), (Some(call), Some(code)), "{name}: {error}");
                }
                sim.assert_clean();
                assert_eq!(sim.live().pools, 0, "{name}");
            }
        }
    }
}

#[test]
fn recipes_name_peers() {
    for (name, _, _) in SOURCES {
        for (written, plain) in [
            ("peers=all", "peers=all"),
            ("peers=REACHABLE", "peers=reachable"),
            ("peers=1", "peers=1"),
            ("gpu=0, peers=2+1+0", "gpu=0, peers=2+1+0"),
        ] {
            let recipe: Recipe = format!("pool | {name}({written})").parse().unwrap();
            assert_eq!(recipe.to_string(), format!("pool | {name}({plain})"));
            assert_eq!(recipe, recipe.to_string().parse().unwrap());
            let sim = machine_of(3);
            let stack = recipe.build(&sim.device(0)).unwrap();
            assert_eq!(written_by_the_peer(&sim, &stack), [], "{recipe}");
        }
        for wrong in
            ["peers=some", "peers=1+", "peers=+1", "peers=1+x", "peers=-1", "peers=4294967296", "peers=\"\""]
        {
            let error = format!("{name}({wrong})").parse::<Recipe>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Malformed, "{wrong}");
            assert!(error.to_string().contains("all, reachable or numbers such as 0+1"), "{error}");
        }
        // Two of three devices are there, and two cannot reach each other.
        let recipe: Recipe = format!("pool | {name}(peers=0+2)").parse().unwrap();
        let sim = machine_of(2);
        let failed = recipe.per_device(sim.machine()).unwrap_err();
        assert_eq!((failed.error().kind(), failed.device().ordinal()), (ErrorKind::NoDevice, 0), "{failed}");
        assert_eq!(failed.error().column(), Some(8), "{failed}");
        let sim = Sim::with_config(SimConfig::default().devices(3).peers(false));
        let failed = recipe.per_device(sim.machine()).unwrap_err();
        assert_eq!((failed.error().refused_peer(), failed.error().column()), (Some(2), Some(8)), "{failed}");
        let none: Recipe = format!("{name}(peers=reachable)").parse().unwrap();
        assert!(none.per_device(sim.machine()).is_ok());
        assert!(none.per_device(machine_of(1).machine()).is_ok());
    }
}

#[test]
fn memory_of_each_device_is_used_on_the_other() {
    for line in two_devices::STACKS {
        let sim = machine_of(2);
        two_devices::memory_of_each_is_written_by_the_other(sim.machine(), line);
        sim.assert_clean();
    }
}

#[test]
fn a_pool_that_its_peer_uses_sleeps() {
    let sim = machine_of(2);
    two_devices::a_pool_that_its_peer_uses_sleeps(sim.machine());
    sim.assert_clean();
}

#[test]
fn threads_of_two_devices_use_memory_of_each_other() {
    for line in ["stats | pool | cuda-async(peers=all)", "pool | mapped(peers=all)", "pool | cuda(peers=all)"]
    {
        let sim = machine_of(2);
        two_devices::threads_of_two_devices_use_the_current_stacks(sim.machine(), line);
        sim.machine().reset_current_resources();
        sim.assert_clean();
    }
}

#[test]
fn pinned_memory_is_near_each_device() {
    let sim = machine_of(2);
    let facts = two_devices::pinned_memory_is_near_each(sim.machine());
    assert_eq!(facts.len(), 2);
    sim.assert_clean();
}
