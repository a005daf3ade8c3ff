//! What happens when a library is loaded, and when there is none that can be.

use std::env;
use std::path::Path;

use alluvion::driver::runtime::{Runtime, RuntimeDriver};
use alluvion::driver::{Call, Code, Driver};
use alluvion::sim::SimDriver;
use alluvion::{Error, ErrorKind};

use crate::child::{in_child, in_child_with};
use crate::stand_in::StandIn;

const CUDART: StandIn = StandIn::new(Runtime::Cudart, 13);
const HIP: StandIn = StandIn::new(Runtime::Hip, 7);
const MACA: StandIn = StandIn::new(Runtime::Maca, 3);
const EVERY: [StandIn; 3] = [CUDART, HIP, MACA];

fn load_error(runtime: Runtime) -> Error {
    RuntimeDriver::load(runtime).expect_err("there is nothing to load").into()
}

#[test]
fn no_library_is_no_driver() {
    for runtime in Runtime::ALL.iter().copied() {
        let is_installed = runtime.libraries().iter().any(|name| Path::new(name).is_file());
        // SAFETY: it is a vendor's library, if it is there.
        let is_found =
            runtime.libraries().iter().any(|name| unsafe { libloading::Library::new(*name) }.is_ok());
        if is_installed || is_found {
            println!("not tested: {runtime} is installed here");
            continue;
        }
        for _ in 0..2 {
            let error = load_error(runtime);
            assert_eq!(error.kind(), ErrorKind::NoDriver);
            assert!(error.is_no_device());
            assert!(error.to_string().contains("not installed"), "{error}");
        }
    }
}

/// By the variable that the vendor's own build scripts ask for. A path that is relative, or empty, names nothing.
#[test]
fn a_toolkit_is_found_by_its_variable() {
    for (stand_in, variable) in [(HIP, "ROCM_PATH"), (MACA, "MACA_PATH")] {
        let toolkit = stand_in.folder().join("toolkit");
        std::fs::create_dir_all(&toolkit).expect("a folder can be made");
        // Another process of this test may have made it.
        let _ = std::os::unix::fs::symlink("..", toolkit.join("lib"));
        let toolkit = toolkit.to_str().expect("the path is text");
        for (folder, is_found) in [(toolkit, true), ("", false), (".", false)] {
            in_child_with("loads::a_toolkit_is_found_by_its_variable", &[], &[(variable, folder)], || {
                let loaded = RuntimeDriver::load(stand_in.runtime);
                assert_eq!(loaded.is_ok(), is_found, "{variable}={folder}: {loaded:?}");
            });
        }
    }
}

#[test]
fn a_library_without_a_required_function_is_no_driver() {
    for (stand_in, name) in [(CUDART, "cudaMalloc"), (HIP, "hipMalloc"), (MACA, "mcMalloc")] {
        let lacking = stand_in.lacking("LACKS_REQUIRED");
        // SAFETY: `stand_in.c` is compiled against the vendor's header.
        let error = unsafe { RuntimeDriver::load_from(stand_in.runtime, &lacking.file()) };
        let error = Error::from(error.expect_err("it cannot be used"));
        assert_eq!(error.kind(), ErrorKind::NoDriver);
        assert!(error.to_string().contains(&format!("no function {name};")), "{error}");
    }
}

#[test]
fn what_is_too_old_or_has_no_device_is_refused() {
    for (stand_in, variable, value, kind, words) in [
        (CUDART, "STAND_IN_VERSION", "11080", ErrorKind::NoDriver, "older than 12.0"),
        (CUDART, "STAND_IN_DRIVER", "11080", ErrorKind::NoDriver, "older than 12.0"),
        (CUDART, "STAND_IN_DRIVER", "0", ErrorKind::NoDriver, "no driver behind it"),
        (CUDART, "STAND_IN_CODE", "35", ErrorKind::NoDriver, "older than the runtime library needs"),
        (CUDART, "STAND_IN_CODE", "34", ErrorKind::NoDriver, "stub"),
        (CUDART, "STAND_IN_CODE", "100", ErrorKind::NoDevice, ""),
        (HIP, "STAND_IN_VERSION", "50421304", ErrorKind::NoDriver, "older than 5.5"),
        (HIP, "STAND_IN_CODE", "100", ErrorKind::NoDevice, ""),
        (MACA, "STAND_IN_VERSION", "0", ErrorKind::NoDriver, "no version"),
        (MACA, "STAND_IN_CODE", "100", ErrorKind::NoDevice, ""),
    ] {
        in_child(
            "loads::what_is_too_old_or_has_no_device_is_refused",
            stand_in,
            &[(variable, value)],
            || {
                let error = load_error(stand_in.runtime);
                assert_eq!(error.kind(), kind, "{error}");
                assert!(error.to_string().contains(words), "{error}");
                if kind == ErrorKind::NoDevice {
                    assert_eq!((error.call(), error.code()), (Some(Call::Init), Some(Code::NO_DEVICE)));
                }
            },
        );
    }
}

#[test]
fn a_failure_is_forgotten_and_a_success_is_kept() {
    for stand_in in EVERY {
        in_child(
            "loads::a_failure_is_forgotten_and_a_success_is_kept",
            stand_in,
            &[("STAND_IN_CODE", "100")],
            || {
                assert_eq!(load_error(stand_in.runtime).kind(), ErrorKind::NoDevice);
                // SAFETY: no other thread of this child reads or writes the environment.
                unsafe { env::remove_var("STAND_IN_CODE") };
                let first = RuntimeDriver::load(stand_in.runtime).expect("the stand-in starts now");
                let second = RuntimeDriver::load(stand_in.runtime).expect("it has started");
                assert!(std::ptr::eq(&*first, &*second));
                assert_eq!(first.name(), stand_in.runtime.name());
            },
        );
    }
}

#[test]
fn the_newest_library_that_is_there_is_taken() {
    let old = StandIn::new(Runtime::Hip, 5);
    in_child("loads::the_newest_library_that_is_there_is_taken", old, &[], || {
        let driver = RuntimeDriver::load(Runtime::Hip).expect("the stand-in starts");
        assert_eq!(driver.version(), 5_050);
    });
}

const CUDART_12: StandIn = StandIn::new(Runtime::Cudart, 12);

#[test]
fn an_older_library_is_taken_where_the_driver_is_too_old_for_the_newest() {
    const TEST: &str = "loads::an_older_library_is_taken_where_the_driver_is_too_old_for_the_newest";
    let of_12_8 = [("STAND_IN_DRIVER", "12080")];
    in_child_with(TEST, &[CUDART, CUDART_12], &of_12_8, || {
        let driver = RuntimeDriver::load(Runtime::Cudart).expect("the older one starts");
        assert_eq!(driver.version(), 12_080);
    });
    in_child(TEST, CUDART, &of_12_8, || {
        let error = load_error(Runtime::Cudart);
        assert!(error.to_string().contains("older than the runtime library needs"), "{error}");
    });
}

/// What works is what both the library and the driver behind it know. What the driver lacks is not asked for, so that no error is left.
#[test]
fn the_version_is_that_of_both() {
    let lacking = CUDART_12.lacking("LACKS_DRIVER");
    for (stand_in, variables, version) in
        [(lacking, [].as_slice(), 12_000), (CUDART_12, &[("STAND_IN_DRIVER", "12040")], 12_040)]
    {
        in_child("loads::the_version_is_that_of_both", stand_in, variables, || {
            let driver = RuntimeDriver::load(Runtime::Cudart).expect("the stand-in starts");
            assert_eq!((driver.version(), driver.missing()), (version, [""; 0].as_slice()));
            let peek: unsafe extern "C" fn() -> u32 = stand_in.function("cudaPeekAtLastError\0");
            // SAFETY: it takes no argument.
            assert_eq!(unsafe { peek() }, 0);
        });
    }
}

#[test]
fn a_machine_is_made_of_each() {
    use alluvion::{DeviceVec, Machine};
    for stand_in in EVERY {
        in_child("loads::a_machine_is_made_of_each", stand_in, &[], || {
            let sim = SimDriver::new(stand_in.config());
            stand_in.put_behind(&sim, 1);
            let machine = match stand_in.runtime {
                Runtime::Cudart => Machine::cudart(),
                Runtime::Hip => Machine::hip(),
                _ => Machine::maca(),
            }
            .expect("the stand-in starts");
            assert_eq!(machine, Machine::of_runtime(stand_in.runtime).expect("it has started"));
            let stream = machine.device(0).and_then(|device| device.stream()).expect("it is there");
            let vector = DeviceVec::from_slice(&[1_u32, 2, 3], &stream).expect("there is memory");
            assert_eq!(vector.to_vec(&stream).expect("it can be read"), [1, 2, 3]);
            drop((vector, stream));
            assert!(sim.hazards().is_empty(), "{:?}", sim.hazards());
        });
    }
}
