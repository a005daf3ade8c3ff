//! A stack for every device: what is made, what an error keeps, and the current resources of all devices at once.

use core::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use alluvion::adaptor::{Counts, Stats};
use alluvion::compose::PerDevice;
use alluvion::driver::Code;
use alluvion::metrics::Metrics;
use alluvion::sim::{Fault, SimConfig};
use alluvion::source::{Cuda, CudaAsync};
use alluvion::suballoc::{Status, SuballocBook};
use alluvion::testing::Sweep;
use alluvion::{
    AnyResource, Device, DeviceVec, Error, ErrorKind, Machine, PoolConfig, Recipe, Resource, ResourceExt, Sim,
};

fn machine_of(devices: u32) -> Sim {
    Sim::with_config(SimConfig::default().devices(devices))
}

fn recipe(text: &str) -> Recipe {
    text.parse().expect("it is well formed")
}

#[test]
fn each_device_has_one_in_the_order_of_the_numbers() {
    let sim = machine_of(3);
    let asked = RefCell::new(Vec::new());
    let note = |device: &Device| {
        asked.borrow_mut().push(device.ordinal());
        Ok(Cuda::new(device))
    };
    let all = sim.machine().per_device(note).unwrap();
    assert_eq!(asked.take(), [0, 1, 2]);
    assert_eq!(all.iter().map(|(device, _)| device.ordinal()).collect::<Vec<_>>(), [0, 1, 2]);
    for device in sim.machine().devices() {
        assert_eq!(all[device.ordinal()].device(), &device);
        assert_eq!(all.on(&device).unwrap().device(), &device);
    }
    // Some of them, named in any order.
    let some = PerDevice::of([sim.device(2), sim.device(0)], note).unwrap();
    assert_eq!(asked.take(), [0, 2]);
    assert_eq!((some[0].device().ordinal(), some[2].device().ordinal(), some.len()), (0, 2, 2));
    assert!(some.get(&sim.device(1)).is_none());
    let error = some.on(&sim.device(1)).unwrap_err();
    assert!(error.to_string().contains("nothing was made for gpu 1"), "{error}");
    let panicked = catch_unwind(AssertUnwindSafe(|| some[1].device().ordinal()));
    let words = *panicked.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(words, "gpu 1 is none of the 2 devices");
    let (devices, resources): (Vec<_>, Vec<_>) = some.into_iter().unzip();
    assert!(devices.iter().zip(&resources).all(|(device, resource)| resource.device() == device));
}

#[test]
fn a_machine_without_devices_has_none() {
    let sim = machine_of(0);
    let none = sim.machine().per_device(|device| Ok(Cuda::new(device))).unwrap();
    assert!(none.is_empty());
    assert!(none.into_any().set_current_resources().is_ok());
}

#[test]
fn a_device_of_another_machine_and_one_named_twice_are_refused_before_anything_is_made() {
    let (here, there) = (machine_of(2), machine_of(2));
    let never = |_: &Device| -> Result<(), Error> { panic!("nothing is to be made") };
    let failed = PerDevice::of([here.device(0), there.device(1)], never).unwrap_err();
    assert!(failed.error().is_device_mismatch() && failed.made().is_empty(), "{failed}");
    let failed = PerDevice::of([here.device(1), here.device(0), here.device(1)], never).unwrap_err();
    assert_eq!((failed.device(), failed.error().kind()), (&here.device(1), ErrorKind::InvalidArgument));
    let of_here = here.machine().per_device(|device| Ok(Cuda::new(device))).unwrap();
    assert!(of_here.get(&there.device(0)).is_none());
    assert!(of_here.on(&there.device(0)).unwrap_err().is_device_mismatch());
}

/// What was made before the failure is usable, and what it is about stays in the error however it is converted.
#[test]
fn an_error_names_its_device_and_keeps_what_was_made() {
    let sim = machine_of(3);
    let pools = recipe("pool(initial=8MiB) | cuda");
    let at_last = |device: &Device| match device.ordinal() {
        2 => recipe("limiting(4MiB) | pool(initial=512GiB) | cuda").build(device),
        _ => pools.build(device),
    };
    let failed = sim.machine().per_device(at_last).unwrap_err();
    assert_eq!((failed.device().ordinal(), failed.made().len()), (2, 2));
    assert_eq!(failed.error().device(), Some(2));
    assert!(failed.error().is_out_of_memory(), "{failed}");
    assert!(failed.to_string().starts_with("gpu 2: out of memory"), "{failed}");
    let made = failed.into_made();
    let stream = sim.device(1).stream().unwrap();
    let vector = DeviceVec::from_slice_in(&[1, 2, 3], &stream, made[1].1.clone()).unwrap();
    assert_eq!(vector.to_vec(&stream).unwrap(), [1, 2, 3]);
    drop((vector, made, stream));
    sim.assert_clean();

    let failed = sim.machine().per_device(at_last).unwrap_err();
    let report = failed.error().out_of_memory_report().expect("the pool's").requested_bytes;
    let error = Error::from(failed);
    assert_eq!((error.device(), error.requested_bytes()), (Some(2), Some(report)));
    assert_eq!(error.clone().to_string(), error.to_string());
    sim.assert_clean();
}

#[test]
fn a_place_in_a_recipe_and_an_error_of_others_go_through() {
    let sim = machine_of(2);
    let failed = recipe("pool | cuda(gpu=0)").per_device(sim.machine()).unwrap_err();
    assert_eq!((failed.device().ordinal(), failed.error().column()), (1, Some(17)));
    assert!(failed.to_string().contains("gpu 1: invalid argument: line 1, column 17"), "{failed}");
    let others = |_: &Device| -> Result<(), Error> { Err(Error::foreign("no".parse::<u8>().unwrap_err())) };
    let error = Error::from(sim.machine().per_device(others).unwrap_err());
    assert!(error.foreign_error().is_some_and(|error| error.is::<std::num::ParseIntError>()), "{error}");
    // The innermost device is the one that failed.
    let inner = machine_of(2);
    let nested = |_: &Device| {
        Ok(inner.machine().per_device(|device| match device.ordinal() {
            1 => Err(Error::over_limit(2, 1)),
            _ => Ok(()),
        })?)
    };
    assert_eq!(sim.machine().per_device(nested).unwrap_err().error().device(), Some(1));
}

#[test]
fn every_failing_call_leaves_nothing_behind() {
    let line = recipe("stats | pool(initial=8MiB) | cuda-async(initial=4MiB)");
    let swept = Sweep::new().config(SimConfig::default().devices(2)).run(|sim| {
        let stacks = line.per_device(sim.machine())?;
        let current = stacks.set_current_resources()?;
        for (device, _) in &stacks {
            let stream = device.stream()?;
            drop(DeviceVec::from_slice(&[1, 2, 3], &stream)?);
            stream.synchronize()?;
        }
        drop(current);
        Ok(())
    });
    assert!(swept.errors > 10, "{swept}");
}

/// The calls of one device, as many times as there are devices: nothing asks all of them for each.
#[test]
fn sixty_four_devices_cost_what_one_costs() {
    let calls = |devices| {
        let sim = machine_of(devices);
        let before = sim.calls().total();
        let stacks = recipe("pool(initial=1MiB) | cuda").per_device(sim.machine()).unwrap();
        let made = sim.calls().total() - before;
        let current = stacks.set_current_resources().unwrap();
        let found = stacks.iter().all(|(device, stack)| device.current_resource().unwrap().is_same(stack));
        assert!(found);
        drop(current);
        assert_eq!(sim.calls().total() - before, made, "to set them asks the driver for nothing");
        made
    };
    let one = calls(1);
    assert!(one > 0);
    assert_eq!(calls(64), 64 * one);
}

fn is_current(stacks: &PerDevice<AnyResource>) -> Vec<bool> {
    stacks.iter().map(|(device, stack)| device.current_resource().unwrap().is_same(stack)).collect()
}

#[test]
fn what_was_current_before_is_put_back() {
    let sim = machine_of(2);
    let own = AnyResource::new(Cuda::new(&sim.device(1)));
    sim.device(1).set_current_resource(own.clone()).unwrap();
    let (first, second) =
        (recipe("stats | cuda").per_device(sim.machine()), recipe("pool | cuda").per_device(sim.machine()));
    let (first, second) = (first.unwrap(), second.unwrap());
    {
        let _first = first.set_current_resources().unwrap();
        assert_eq!(is_current(&first), [true; 2]);
        {
            let _second = second.set_current_resources().unwrap();
            assert_eq!((is_current(&first), is_current(&second)), (vec![false; 2], vec![true; 2]));
        }
        assert_eq!(is_current(&first), [true; 2]);
    }
    assert!(sim.device(1).current_resource().unwrap().is_same(&own));
    assert_eq!(sim.device(0).current_resource().unwrap().describe().to_string(), "CudaAsync(gpu 0)");
    // However the code between ends.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _first = first.set_current_resources().unwrap();
        panic!("in between");
    }));
    assert!(panicked.is_err());
    assert_eq!(is_current(&first), [false; 2]);
}

#[test]
fn what_somebody_else_has_set_meanwhile_stays() {
    let sim = machine_of(2);
    let stacks = recipe("stats | cuda").per_device(sim.machine()).unwrap();
    let current = stacks.set_current_resources().unwrap();
    let own = AnyResource::new(Cuda::new(&sim.device(1)));
    sim.device(1).set_current_resource(own.clone()).unwrap();
    drop(current);
    assert!(sim.device(1).current_resource().unwrap().is_same(&own));
    assert_eq!(is_current(&stacks), [false; 2]);
    stacks.set_current_resources().unwrap().keep();
    assert_eq!(is_current(&stacks), [true; 2]);
    let again = stacks.set_current_resources().unwrap();
    // The machine lets go of them, as at its end.
    sim.machine().reset_current_resources();
    drop(again);
    assert_eq!(is_current(&stacks), [false; 2]);
}

/// A block that is live when its stack is no longer current goes back to it, and the stack goes once nobody has it.
#[test]
fn live_blocks_keep_their_stack() {
    let sim = machine_of(2);
    let stream = sim.device(1).stream().unwrap();
    let vector = {
        let stacks = recipe("pool | cuda").per_device(sim.machine()).unwrap();
        let _current = stacks.set_current_resources().unwrap();
        DeviceVec::from_slice(&[1, 2, 3], &stream).unwrap()
    };
    assert_eq!(vector.to_vec(&stream).unwrap(), [1, 2, 3]);
    drop((vector, stream));
    sim.assert_clean();
}

#[test]
fn a_resource_of_another_device_is_refused_and_nothing_is_set() {
    let sim = machine_of(3);
    let wrong = sim.machine().per_device(|device| Ok(Cuda::new(device))).unwrap();
    let wrong = wrong.map(|device, own| match device.ordinal() {
        2 => AnyResource::new(Cuda::new(&sim.device(0))),
        _ => AnyResource::new(own),
    });
    let error = wrong.set_current_resources().unwrap_err();
    assert!(error.is_device_mismatch() && error.device() == Some(2), "{error}");
    assert!(is_current(&wrong).iter().all(|is_current| !is_current));
}

#[test]
fn a_page_has_the_figures_of_each_device_under_one_name() {
    let sim = machine_of(2);
    let make = |device: &Device| Ok(CudaAsync::new(device)?.pool(PoolConfig::default())?.stats());
    let stacks = sim.machine().per_device(make).unwrap();
    let stream = sim.device(1).stream().unwrap();
    let vector = DeviceVec::<u8, _>::uninit_in(1000, &stream, &stacks[1]).unwrap();
    let mut page = Metrics::new();
    page.add_per_device("all", &stacks);
    let page = page.to_string();
    let live = |device: u32| {
        format!("alluvion_live_bytes{{resource=\"all\",device=\"{device}\",depth=\"0\",layer=\"Stats\"}}")
    };
    assert!(page.contains(&format!("{} 0\n", live(0))), "{page}");
    assert!(
        page.contains(&format!("{} {}\n", live(1), vector.len().next_multiple_of(256)))
            || page.contains(&format!("{} 1000\n", live(1))),
        "{page}"
    );
}

#[test]
fn a_failing_device_is_told_by_its_call() {
    let sim = machine_of(2);
    let make = |machine: &Machine| machine.per_device(CudaAsync::new).map(drop);
    assert!(make(sim.machine()).is_ok());
    sim.inject(Fault::nth(alluvion::driver::Call::PoolCreate, 2, Code::UNKNOWN));
    let error = Error::from(make(sim.machine()).unwrap_err());
    assert_eq!(
        (error.device(), error.call(), error.code()),
        (Some(1), Some(alluvion::driver::Call::PoolCreate), Some(Code::UNKNOWN))
    );
}

/// The figures of each are its own, those of all their sums, and a stack without such a layer has none.
#[test]
fn figures_of_all_are_the_sums_of_each() {
    let sim = machine_of(3);
    let lines = ["stats | pool(initial=1MiB) | cuda", "stats | pool(initial=2MiB) | cuda", "cuda"];
    let stacks = PerDevice::of(sim.machine().devices(), |device| {
        recipe(lines[device.ordinal() as usize]).build(device)
    });
    let stacks = stacks.unwrap();
    let streams = sim.machine().per_device(|device| device.stream()).unwrap();
    let block = |device: u32, bytes| {
        DeviceVec::<u8, _>::uninit_in(bytes, streams[device].as_ref(), &stacks[device]).unwrap()
    };
    // 8 KiB at most on the first and 4 KiB on the second, not at once.
    drop(block(0, 8 << 10));
    let held = (block(0, 1 << 10), block(1, 4 << 10), block(2, 16 << 10));
    assert!(stacks[1].allocate_sync(alluvion::Layout::from_bytes(1 << 50).unwrap()).is_err());
    let books = stacks.find::<Stats>();
    assert_eq!(books.iter().map(|(device, _)| device.ordinal()).collect::<Vec<_>>(), [0, 1]);
    assert!(books.get(&sim.device(2)).is_none());
    let each = books.map(|_, book| book.whole());
    let of = |bytes: fn(&Counts) -> i64| (bytes(&each[0]), bytes(&each[1]), bytes(&stacks.counts()));
    assert_eq!(of(|counts| counts.bytes.live), (1 << 10, 4 << 10, 5 << 10));
    assert_eq!(of(|counts| counts.bytes.total), (9 << 10, 4 << 10, 13 << 10));
    assert_eq!(of(|counts| counts.bytes.peak), (8 << 10, 4 << 10, 12 << 10));
    assert_eq!(of(|counts| counts.bytes.peak_error), (0, 0, 4 << 10), "8 KiB were live at once");
    assert_eq!(of(|counts| counts.allocations.live), (1, 1, 2));
    assert_eq!((each[0].failures, each[1].failures, stacks.counts().failures), (0, 1, 1));
    // A pushed scope is of its stack alone, and the sum is of the whole time.
    stacks.find::<Stats>()[0].push();
    assert_eq!(stacks.counts().bytes.total, 13 << 10);

    let each = stacks.find::<SuballocBook>().map(|_, book| book.status());
    let all = stacks.status();
    assert_eq!((each.len(), all.reserved_bytes), (2, 3 << 20));
    let of = |figure: fn(&Status) -> u64| (figure(&each[0]) + figure(&each[1]), figure(&all));
    let figures: [fn(&Status) -> u64; 6] = [
        |status| status.live_bytes as u64,
        |status| status.cached_bytes as u64,
        |status| status.free_bytes as u64,
        |status| status.largest_free_bytes as u64,
        |status| status.misses,
        |status| status.upstream_calls,
    ];
    for figure in figures {
        let (sum, all) = of(figure);
        assert_eq!(sum, all);
        assert!(all > 0);
    }
    assert_eq!(all.live_bytes + all.cached_bytes + all.free_bytes, all.reserved_bytes);
    assert_eq!(all.fragmentation(), 0.0, "each has one free piece");
    drop(held);
}
