//! The drivers of this machine besides the one that is examined, and what is to be known of a runtime library.

use alluvion::driver::Driver;
use alluvion::driver::runtime::{Runtime, RuntimeDriver};
use alluvion::{Error, Machine};

use super::finding::Finding;

/// Which other drivers there are. That one is not installed is a fact, and nothing to mend.
pub(super) fn others(examined: &str) -> Vec<Finding> {
    let found = |name: &'static str, devices: Result<usize, Error>| match devices {
        Ok(devices) => Finding::note(name, format!("{devices} devices"))
            .with_advice(format!("`alluvion doctor --driver {name}` examines it")),
        Err(error) => Finding::note(name, why(&error)),
    };
    let cuda = ("cuda", Machine::cuda as fn() -> Result<Machine, Error>);
    [cuda, ("cudart", Machine::cudart), ("hip", Machine::hip), ("maca", Machine::maca)]
        .into_iter()
        .filter(|(name, _)| *name != examined)
        .map(|(name, machine)| found(name, machine().map(|machine| machine.devices().len())))
        .collect()
}

/// Without the advice, which is for who wants that driver.
fn why(error: &Error) -> String {
    error.unsupported_detail().map_or_else(|| error.to_string(), |detail| detail.why.to_owned())
}

/// What is to be known of a runtime library that a machine was made of.
pub(super) fn of_runtime(name: &str) -> Vec<Finding> {
    let Some(runtime) = Runtime::named(name) else { return Vec::new() };
    // There is one of each in a process, and the machine has it.
    let Ok(driver) = RuntimeDriver::load(runtime) else { return Vec::new() };
    let missing = driver.missing();
    let functions = if missing.is_empty() {
        Finding::ok("functions", format!("all {} are there", runtime.functions().count()))
    } else {
        Finding::missing(
            "functions",
            missing.join(", "),
            "what needs them is refused; a newer library may have them",
        )
    };
    let mut findings = vec![functions];
    if !runtime.has_run_on_hardware() {
        findings.push(
            Finding::note(
                "hardware",
                format!("nobody has reported a run through {runtime} ({})", driver.version()),
            )
            .with_advice("send this page with --json, and what `./run` of ci/gpu-bundle prints"),
        );
    }
    findings
}
