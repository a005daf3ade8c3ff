//! The resource that the environment names: each case is a process of its own.

use std::ffi::OsStr;
use std::sync::Barrier;
use std::thread;

use alluvion::driver::DeviceAttribute;
use alluvion::sim::SimConfig;
use alluvion::source::Cuda;
use alluvion::suballoc::SuballocBook;
use alluvion::{AnyResource, DeviceVec, Error, ErrorKind, Resource, ResourceExt, Sim};

use crate::child;

/// Runs `body` in a process whose environment has that recipe.
fn with_recipe(test: &str, recipe: impl AsRef<OsStr>, body: impl FnOnce()) {
    child::in_child_with(test, &[("ALLUVION_RESOURCE", recipe.as_ref())], 1, || {
        body();
        child::done();
    });
}

#[test]
fn every_device_begins_with_it() {
    with_recipe("recipe_environment::every_device_begins_with_it", "pool(initial=8MiB) | cuda", || {
        let sim = Sim::with_config(SimConfig::default().devices(2));
        for ordinal in 0..2 {
            let device = sim.device(ordinal);
            let resource = device.current_resource().unwrap();
            assert_eq!(resource.describe().to_string(), format!("Pool(8 MiB) > Cuda(gpu {ordinal})"));
            assert_eq!(resource, device.current_resource().unwrap(), "it is made once");
            assert!(resource.find::<SuballocBook>().is_some());
            let stream = device.stream().unwrap();
            let numbers = DeviceVec::from_slice(&[1, 2, 3], stream.as_ref()).unwrap();
            assert_eq!(numbers.to_vec(stream.as_ref()).unwrap(), [1, 2, 3]);
        }
        let device = sim.device(0);
        let cuda = AnyResource::new(Cuda::new(&device));
        assert!(device.set_current_resource(cuda).unwrap().describe().to_string().starts_with("Pool"));
        assert!(device.reset_current_resource().unwrap().describe().to_string().starts_with("Cuda"));
        assert!(device.current_resource().unwrap().describe().to_string().starts_with("Pool"));
    });
}

/// A second one would not find as much memory, and would empty the log that the first has begun.
#[test]
fn putting_it_back_makes_no_second_one() {
    with_recipe(
        "recipe_environment::putting_it_back_makes_no_second_one",
        "pool(initial=80%) | cuda",
        || {
            let device = Sim::new().device(0);
            let cuda = AnyResource::new(Cuda::new(&device));
            let initial = device.reset_current_resource().unwrap();
            let free = initial.memory_info().unwrap().free_bytes;
            assert_eq!(device.reset_current_resource().unwrap(), initial, "it is the current one already");
            assert_eq!(device.set_current_resource(cuda.clone()).unwrap(), initial);
            assert_eq!(device.reset_current_resource().unwrap(), cuda);
            assert_eq!(device.current_resource().unwrap(), initial);
            assert_eq!(initial.memory_info().unwrap().free_bytes, free);
            // Nobody has it any more, and so it has gone.
            device.set_current_resource(cuda.clone()).unwrap();
            let id = initial.id();
            drop(initial);
            device.reset_current_resource().unwrap();
            assert_ne!(device.current_resource().unwrap().id(), id);
        },
    );
}

#[test]
fn the_source_may_be_left_to_the_device() {
    with_recipe("recipe_environment::the_source_may_be_left_to_the_device", "pool", || {
        let describe = |sim: &Sim| sim.device(0).current_resource().unwrap().describe().to_string();
        assert_eq!(describe(&Sim::new()), "Pool(0 B) > CudaAsync(gpu 0)");
        let old = SimConfig::default().attribute(DeviceAttribute::MemoryPools, 0);
        assert_eq!(describe(&Sim::with_config(old)), "Pool(0 B) > Cuda(gpu 0)");
    });
}

/// The error of asking, of setting and of resetting. Nothing has changed after either.
fn errors() -> [Error; 3] {
    let sim = Sim::new();
    let device = sim.device(0);
    let cuda = AnyResource::new(Cuda::new(&device));
    let errors = [
        device.current_resource().unwrap_err(),
        device.set_current_resource(cuda.clone()).unwrap_err(),
        device.reset_current_resource().unwrap_err(),
    ];
    assert!(device.current_resource().is_err(), "nothing was set");
    // Who names a resource is not stopped by it.
    let stream = device.stream().unwrap();
    assert!(DeviceVec::from_slice_in(&[1], stream.as_ref(), cuda).is_ok());
    errors
}

#[test]
fn a_line_that_is_not_understood_is_an_error_with_its_place() {
    with_recipe(
        "recipe_environment::a_line_that_is_not_understood_is_an_error_with_its_place",
        "pool | cuda-asinc",
        || {
            for error in errors() {
                assert_eq!((error.kind(), error.column()), (ErrorKind::Malformed, Some(8)), "{error}");
                let said = error.to_string();
                assert!(
                    said.starts_with("malformed: ALLUVION_RESOURCE, line 1, column 8: nothing is called"),
                    "{said}"
                );
                assert!(said.contains("did you mean `cuda-async`?"), "{said}");
                assert!(said.ends_with("\n  pool | cuda-asinc\n         ^^^^^^^^^^"), "{said}");
            }
        },
    );
}

#[test]
fn a_value_that_breaks_a_rule_is_an_error_with_its_place() {
    let recipe = "pool(initial=2MiB, maximum=1MiB)";
    with_recipe("recipe_environment::a_value_that_breaks_a_rule_is_an_error_with_its_place", recipe, || {
        for error in errors() {
            assert_eq!((error.kind(), error.column()), (ErrorKind::InvalidArgument, Some(1)), "{error}");
            let said = error.to_string();
            assert!(
                said.starts_with("invalid argument: ALLUVION_RESOURCE, line 1, column 1: an initial size"),
                "{said}"
            );
        }
    });
}

#[test]
fn a_device_that_is_too_small_says_so() {
    with_recipe("recipe_environment::a_device_that_is_too_small_says_so", "pool(initial=900GiB)", || {
        for error in errors() {
            assert!(error.is_out_of_memory(), "{error}");
            let report = error.out_of_memory_report().expect("who refused says so");
            assert_eq!((report.refused_by, error.requested_bytes()), ("CudaAsync", Some(900 << 30)));
            let said = error.to_string();
            let begins =
                "out of memory: ALLUVION_RESOURCE, line 1, column 1: CudaAsync of gpu 0 refused 900 GiB: ";
            assert!(said.starts_with(begins), "{said}");
            assert!(said.contains("\n  pool(initial=900GiB)\n  ^^^^"), "{said}");
        }
    });
}

/// A process inherits the environment of this one, in which nothing is set.
#[test]
fn nothing_is_the_driver_s_pool() {
    child::in_child("recipe_environment::nothing_is_the_driver_s_pool", 1, || {
        let resource = Sim::new().device(0).current_resource().unwrap();
        assert_eq!(resource.describe().to_string(), "CudaAsync(gpu 0)");
        child::done();
    });
}

/// Each by itself would not leave enough for another.
#[test]
fn threads_that_ask_at_once_get_one() {
    with_recipe("recipe_environment::threads_that_ask_at_once_get_one", "pool(initial=80%) | cuda", || {
        for _ in 0..20 {
            let sim = Sim::new();
            let device = sim.device(0);
            let start = Barrier::new(8);
            let ask = || {
                start.wait();
                device.current_resource().unwrap()
            };
            let all: Vec<AnyResource> = thread::scope(|scope| {
                let asking: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
                asking.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(all.iter().all(|resource| *resource == all[0]));
        }
    });
}

#[test]
fn threads_that_ask_at_once_all_hear_what_is_wrong() {
    let test = "recipe_environment::threads_that_ask_at_once_all_hear_what_is_wrong";
    with_recipe(test, "pool(initial=900GiB) | cuda", || {
        let sim = Sim::new();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert!(sim.device(0).current_resource().unwrap_err().is_out_of_memory()));
            }
        });
    });
}

#[test]
fn an_empty_variable_is_none() {
    with_recipe("recipe_environment::an_empty_variable_is_none", " ", || {
        let resource = Sim::new().device(0).current_resource().unwrap();
        assert_eq!(resource.describe().to_string(), "CudaAsync(gpu 0)");
    });
}

#[cfg(unix)]
#[test]
fn bytes_that_are_no_text_are_an_error_with_their_place() {
    use std::os::unix::ffi::OsStrExt;
    let recipe = OsStr::from_bytes(b"pool \xff");
    with_recipe("recipe_environment::bytes_that_are_no_text_are_an_error_with_their_place", recipe, || {
        for error in errors() {
            assert_eq!((error.kind(), error.column()), (ErrorKind::Malformed, Some(6)), "{error}");
        }
    });
}

/// In quotes any character may stand, also the one that stands for what is no text: the name would be that of another file.
#[cfg(unix)]
#[test]
fn bytes_that_are_no_text_are_none_in_quotes_either() {
    use std::os::unix::ffi::OsStrExt;
    let recipe = OsStr::from_bytes(b"budget(1MiB, name=\"\xff\") | cuda");
    with_recipe("recipe_environment::bytes_that_are_no_text_are_none_in_quotes_either", recipe, || {
        for error in errors() {
            assert_eq!((error.kind(), error.column()), (ErrorKind::Malformed, Some(20)), "{error}");
        }
    });
}
