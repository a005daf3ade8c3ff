//! `Report`: everything that was found out.

use std::fs;

use alluvion::driver::DeviceAttribute;
use alluvion::recipe::Auto;
use alluvion::{Device, Error, ErrorKind, Machine};
use serde::Serialize;

use super::finding::{Finding, Trouble, Verdict};
use super::host::size;
use super::{drivers, host, probes};

/// Everything that was found out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) driver: DriverReport,
    /// The drivers that were not examined.
    pub(super) other_drivers: Vec<Finding>,
    pub(super) host: Vec<Finding>,
    pub(super) devices: Vec<DeviceReport>,
}

/// What is between the program and its devices.
#[derive(Debug, Serialize)]
pub(super) struct DriverReport {
    /// `cuda`, `cudart`, `hip`, `maca` or `sim`, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'static str>,
    /// The version of CUDA that it speaks: `13.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cuda: Option<String>,
    /// The version of another vendor's library: `6.3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    pub(super) findings: Vec<Finding>,
}

/// One device.
#[derive(Debug, Serialize)]
pub(super) struct DeviceReport {
    pub(super) ordinal: u32,
    pub(super) name: String,
    pub(super) compute: String,
    pub(super) pci: String,
    pub(super) free_bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) findings: Vec<Finding>,
}

impl Report {
    /// Examines a machine, or what there is without the one of the driver `asked`.
    pub(super) fn of(machine: Result<&Machine, &Error>, asked: &str) -> Self {
        let (driver, devices) = match machine {
            Ok(machine) => (
                DriverReport::of(machine),
                machine.devices().map(|device| DeviceReport::of(&device)).collect(),
            ),
            Err(error) => (DriverReport::of_none(error, asked), Vec::new()),
        };
        // A simulated machine is for looking at what there is to see, and the same everywhere.
        let other_drivers = if asked == "sim" { Vec::new() } else { drivers::others(asked) };
        Self { driver, other_drivers, host: host::examine(), devices }
    }

    /// Whether something that should work does not.
    pub(super) fn has_failed(&self) -> bool {
        let devices = self.devices.iter().flat_map(|device| &device.findings);
        devices.chain(&self.driver.findings).any(|finding| finding.verdict == Verdict::Failed)
    }
}

impl DriverReport {
    fn of(machine: &Machine) -> Self {
        let driver = machine.driver();
        let version = driver.version();
        let mut findings = Vec::new();
        if machine.devices().len() == 0 {
            findings.push(no_device("the driver has no device for this process", driver.name()));
        }
        if is_of_nvidia(driver.name()) {
            findings.extend(kernel_module());
        }
        findings.extend(drivers::of_runtime(driver.name()));
        let version = Some(format!("{}.{}", version / 1000, version % 1000 / 10));
        let is_cuda = !matches!(driver.name(), "hip" | "maca");
        let (cuda, version) = if is_cuda { (version, None) } else { (None, version) };
        Self { name: Some(driver.name()), cuda, version, findings }
    }

    fn of_none(error: &Error, asked: &str) -> Self {
        let finding = match error.unsupported_detail() {
            Some(detail) => Finding::missing("driver", detail.why, detail.instead),
            None if error.is_no_device() => no_device(error.to_string(), asked),
            None if error.kind() == ErrorKind::InvalidArgument => {
                let names = format!("name one of {}", Machine::NAMES.join(", "));
                Finding::failed("driver", &Trouble::Library(error.clone()), &names)
            }
            None => {
                Finding::failed("driver", &Trouble::Library(error.clone()), drivers::where_to_look(asked))
            }
        };
        let module = if is_of_nvidia(asked) { kernel_module() } else { None };
        let findings = [finding].into_iter().chain(module).collect();
        Self { name: None, cuda: None, version: None, findings }
    }
}

fn is_of_nvidia(driver: &str) -> bool {
    matches!(driver, "cuda" | "cudart")
}

fn no_device(why: impl Into<String>, driver: &str) -> Finding {
    let (hidden_by, otherwise) = match driver {
        "hip" => {
            ("HIP_VISIBLE_DEVICES", "see rocminfo; the user needs /dev/kfd and /dev/dri, in a container, too")
        }
        "maca" => ("MACA_VISIBLE_DEVICES", "see mx-smi"),
        _ => (
            "CUDA_VISIBLE_DEVICES",
            "see nvidia-smi; a container needs the NVIDIA Container Toolkit and `--gpus all`",
        ),
    };
    let advice = match std::env::var(hidden_by) {
        Ok(list) => format!("{hidden_by} is `{list}`: it may hide them"),
        Err(_) => otherwise.to_owned(),
    };
    Finding::missing("device", why, advice)
}

/// The kernel's half of the driver, where it says so itself.
fn kernel_module() -> Option<Finding> {
    let name = "kernel module";
    if !cfg!(target_os = "linux") {
        return None;
    }
    Some(match fs::read_to_string("/proc/driver/nvidia/version") {
        Ok(text) => Finding::ok(name, module_version(&text).unwrap_or("loaded")),
        Err(_) => Finding::missing(
            name,
            "the kernel has no nvidia module, or hides it",
            "install the NVIDIA driver, 525 or later (on Ubuntu: `ubuntu-drivers install`); in a container, install it on the host",
        ),
    })
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue ...`: the first word that is a version.
fn module_version(text: &str) -> Option<&str> {
    let line = text.lines().next()?;
    line.split_whitespace().find(|word| {
        let mut parts = word.split('.');
        parts.clone().count() > 1
            && parts.all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

impl DeviceReport {
    fn of(device: &Device) -> Self {
        let attribute =
            |attribute| device.driver().attribute(device.ordinal(), attribute).unwrap_or_default();
        let (domain, bus, slot) = (
            attribute(DeviceAttribute::PciDomain),
            attribute(DeviceAttribute::PciBus),
            attribute(DeviceAttribute::PciDevice),
        );
        let mut report = Self {
            ordinal: device.ordinal(),
            name: device.name().unwrap_or_default(),
            compute: format!(
                "{}.{}",
                attribute(DeviceAttribute::ComputeMajor),
                attribute(DeviceAttribute::ComputeMinor)
            ),
            pci: format!("{domain:04x}:{bus:02x}:{slot:02x}.0"),
            free_bytes: 0,
            total_bytes: 0,
            findings: Vec::new(),
        };
        let advice = drivers::where_to_look(device.driver().name());
        match device.memory_info() {
            Ok(memory) => {
                report.free_bytes = memory.free_bytes as u64;
                report.total_bytes = memory.total_bytes as u64;
            }
            Err(error) => report.findings.push(Finding::failed("memory", &Trouble::Library(error), advice)),
        }
        match device.capabilities() {
            Ok(capabilities) => {
                report.findings.extend(probes::examine(device, capabilities));
                // If it cannot be told, what was found above says why.
                report
                    .findings
                    .extend(Auto::of(device).ok().map(|auto| Finding::ok("auto", auto.to_string())));
            }
            Err(error) => {
                report.findings.push(Finding::failed("capabilities", &Trouble::Library(error), advice));
            }
        }
        report
    }

    /// What it is, on one line.
    pub(super) fn about(&self) -> String {
        let Self { name, compute, pci, free_bytes, total_bytes, .. } = self;
        format!("{name}, compute {compute}, PCI {pci}, {} of {} free", size(*free_bytes), size(*total_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_the_module_is_found() {
        for (text, version) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Sep  2\nGCC version:",
                Some("580.159.04"),
            ),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build",
                Some("595.71.05"),
            ),
            ("nothing of the kind", None),
            ("", None),
        ] {
            assert_eq!(module_version(text), version, "{text}");
        }
    }
}
