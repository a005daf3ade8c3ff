//! The contract of `Driver` over each library: names, order and width of arguments, structures and numbers, by what they do.

use std::sync::{Mutex, PoisonError};

use alluvion::driver::Driver;
use alluvion::driver::runtime::Runtime;
use alluvion::sim::SimDriver;

use crate::stand_in::StandIn;

/// The libraries of a process have one machine behind them, so one clause at a time has it.
static TURN: Mutex<()> = Mutex::new(());

fn with(stand_in: StandIn, clause: fn(&dyn Driver), is_misuse: bool) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let sim = SimDriver::new(stand_in.config());
    stand_in.put_behind(&sim, 1);
    let driver = stand_in.load();
    assert_eq!(driver.missing(), [""; 0], "the stand-in has every function");
    clause(&*driver);
    assert_eq!(!sim.hazards().is_empty(), is_misuse, "{:#?}", sim.hazards());
}

macro_rules! over {
    ($($name:ident = $stand_in:expr;)+) => { $(
        mod $name {
            use super::*;
            use crate::driver_contract;

            fn sound(clause: fn(&dyn Driver)) {
                with($stand_in, clause, false);
            }

            fn misused(clause: fn(&dyn Driver)) {
                with($stand_in, clause, true);
            }

            driver_contract::clauses!(sound, misused);
        }
    )+ };
    // What an older version has by another name or with another type.
    ($($name:ident before $newer:ident = $stand_in:expr;)+) => { $(
        mod $name {
            use super::*;
            use crate::driver_contract;

            fn sound(clause: fn(&dyn Driver)) {
                with($stand_in, clause, false);
            }

            driver_contract::clauses! { sound:
                a_machine_names_itself
                every_attribute_can_be_asked_for
                attributes_have_numbers
                managed_memory_can_be_sent_and_advised_on
                a_capture_has_a_number_and_a_graph
                a_pool_keeps_to_its_limit
                a_default_pool_is_always_the_same
                an_address_knows_its_memory
                an_address_that_nobody_knows_is_no_error
                what_a_thread_has_made_current_stays_current
                a_context_is_made_current_where_none_is
                a_handle_is_for_other_processes
                a_shared_event_is_an_event
                what_goes_out_comes_in
            }
        }
    )+ };
}

over! {
    cudart_13 = StandIn::new(Runtime::Cudart, 13);
    hip_7 = StandIn::new(Runtime::Hip, 7);
    maca = StandIn::new(Runtime::Maca, 3);
}

over! {
    cudart_12 before cudart_13 = StandIn::new(Runtime::Cudart, 12);
    cudart_12_over_an_older_driver before cudart_12 = StandIn::new(Runtime::Cudart, 12).lacking("LACKS_DRIVER");
    hip_6 before hip_7 = StandIn::new(Runtime::Hip, 6);
    hip_5 before hip_6 = StandIn::new(Runtime::Hip, 5);
}
