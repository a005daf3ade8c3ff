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

/// Where a driver says more about what has failed.
pub(super) fn where_to_look(driver: &str) -> &'static str {
    match driver {
        "hip" => "see rocminfo, and the kernel's log (dmesg)",
        "maca" => "see mx-smi, and the kernel's log (dmesg)",
        _ => "see nvidia-smi, and the kernel's log (dmesg)",
    }
}

/// What is advised, but for what is about the software of NVIDIA where the device is another vendor's.
pub(super) fn advice_for(driver: &str, advice: &'static str) -> &'static str {
    let is_of_nvidia = ["nvidia", "NVIDIA", "NVLink"].iter().any(|word| advice.contains(word));
    if matches!(driver, "hip" | "maca") && is_of_nvidia { where_to_look(driver) } else { advice }
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
        Finding::ok("functions", "none that is called is missing")
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
