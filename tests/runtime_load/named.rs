//! Machines and devices by name, and by the variable that names one.

use alluvion::driver::runtime::Runtime;
use alluvion::{Device, Error, ErrorKind, Machine};

use crate::child::in_child;
use crate::stand_in::StandIn;

const EVERY: [StandIn; 3] =
    [StandIn::new(Runtime::Cudart, 13), StandIn::new(Runtime::Hip, 7), StandIn::new(Runtime::Maca, 3)];

#[test]
fn a_device_is_named_by_its_driver_and_its_number() {
    for stand_in in EVERY {
        let name = stand_in.runtime.name();
        in_child("named::a_device_is_named_by_its_driver_and_its_number", stand_in, &[], || {
            let device = Device::named(&format!("{name}:0")).expect("the stand-in has one");
            assert_eq!((device.ordinal(), device.driver().name()), (0, name));
            assert_eq!(Device::named(name).expect("it is device 0").machine(), device.machine());
            assert_eq!(Machine::named(name).expect("it is loaded"), *device.machine());
            assert_eq!(Device::named(&format!("{name}:1")).unwrap_err().kind(), ErrorKind::NoDevice);
            for nonsense in
                [format!("{name}:"), format!("{name}:-1"), format!("{name}:0:0"), format!(":{name}")]
            {
                let error = Device::named(&nonsense).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{nonsense}: {error}");
            }
        });
    }
}

#[test]
fn the_variable_names_the_machine() {
    for stand_in in EVERY {
        let name = stand_in.runtime.name();
        in_child("named::the_variable_names_the_machine", stand_in, &[("ALLUVION_DRIVER", name)], || {
            let machine = Machine::of_environment().expect("the stand-in starts");
            assert_eq!(machine.driver().name(), name);
            assert_eq!(*Device::named("0").expect("it has one").machine(), machine);
        });
    }
}

/// As of the other variables of the crate: an empty one is none.
#[test]
fn an_empty_variable_names_no_machine() {
    for empty in ["", " "] {
        let variables = [("ALLUVION_DRIVER", empty)];
        in_child("named::an_empty_variable_names_no_machine", EVERY[1], &variables, || {
            let kind = |machine: Result<Machine, Error>| machine.map_err(|error| error.kind());
            assert_eq!(kind(Machine::of_environment()), kind(Machine::named("cuda")));
        });
    }
}

#[test]
fn a_variable_with_another_name_is_refused() {
    let variables = [("ALLUVION_DRIVER", "rocm")];
    in_child("named::a_variable_with_another_name_is_refused", EVERY[1], &variables, || {
        let error = Machine::of_environment().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(
            text.contains("ALLUVION_DRIVER: there is no driver `rocm`") && text.contains("hip"),
            "{text}"
        );
    });
}
