//! The NUMA node nearest to a device, read from the kernel, where the driver is too old to report it.

use core::ffi::c_int;

/// The node nearest to a PCI device, or -1 if the kernel does not know.
pub(in crate::driver) fn node_of_pci_device(domain: c_int, bus: c_int, device: c_int) -> c_int {
    let path = format!("/sys/bus/pci/devices/{domain:04x}:{bus:02x}:{device:02x}.0/numa_node");
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(-1)
}
