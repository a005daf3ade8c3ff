//! The doctor on simulated machines: what is missing is found missing, what fails is found failing, nothing is left behind.

use alluvion::driver::{Call, Code, DeviceAttribute, HandleType};
use alluvion::sim::{Fault, SimConfig};
use alluvion::testing::Sweep;
use alluvion::{Machine, Sim};

use super::finding::{Finding, Verdict};
use super::page::Page;
use super::report::Report;

fn all() -> SimConfig {
    SimConfig::default().attribute(DeviceAttribute::PageableMemoryAccess, 1).attribute(
        DeviceAttribute::PoolHandleTypes,
        HandleType::POSIX_FILE_DESCRIPTOR.with(HandleType::FABRIC).0 as i32,
    )
}

/// What is found on a machine, which is left as it was.
fn examined(sim: &Sim) -> Vec<Finding> {
    let mut report = Report::of(Ok(sim.machine()), "sim");
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
    report.devices.pop().expect("there is a device").findings
}

fn verdict(findings: &[Finding], name: &str) -> Verdict {
    findings.iter().find(|finding| finding.name == name).unwrap_or_else(|| panic!("{name}")).verdict
}

#[test]
fn a_machine_that_can_do_everything_is_well() {
    let sim = Sim::with_config(all());
    let before = sim.device(0).memory_info().unwrap();
    let findings = examined(&sim);
    assert!(findings.iter().all(|finding| finding.verdict == Verdict::Ok), "{findings:#?}");
    assert_eq!(findings.len(), 14);
    sim.device(0).synchronize().unwrap();
    assert_eq!(sim.device(0).memory_info().unwrap(), before, "everything is given back");
    let live = sim.live();
    assert!(!Report::of(Ok(sim.machine()), "sim").has_failed());
    assert_eq!(sim.live(), live, "a second time leaves no more than the first");
}

#[test]
fn what_a_device_has_not_is_missing() {
    for (attribute, names) in [
        (DeviceAttribute::MemoryPools, &["memory pools", "allocation while capturing"][..]),
        (DeviceAttribute::VirtualMemory, &["virtual memory"]),
        (DeviceAttribute::ManagedMemory, &["managed memory"]),
        (DeviceAttribute::ConcurrentManagedAccess, &["managed, both sides at once"]),
        (DeviceAttribute::PageableMemoryAccess, &["memory of the host, directly"]),
        (DeviceAttribute::HostRegister, &["host registration"]),
        (DeviceAttribute::SharedEvents, &["plain memory, exported"]),
        (DeviceAttribute::PoolHandleTypes, &["a pool, exported"]),
        (DeviceAttribute::MemoryDescriptors, &["export as a file descriptor"]),
        (DeviceAttribute::MemoryFabricHandles, &["export as a fabric handle"]),
    ] {
        let findings = examined(&Sim::with_config(all().attribute(attribute, 0)));
        for name in names {
            assert_eq!(verdict(&findings, name), Verdict::Missing, "{attribute:?}: {findings:#?}");
            assert!(
                findings.iter().all(|finding| finding.verdict == Verdict::Ok || finding.advice.is_some())
            );
        }
    }
}

#[test]
fn advice_is_of_the_vendor() {
    use super::drivers::{advice_for, where_to_look};
    let of_nvidia = "see whether the kernel has its nvidia-uvm module (`lsmod`)";
    assert_eq!(advice_for("cudart", of_nvidia), of_nvidia);
    for other in ["hip", "maca"] {
        assert_eq!(advice_for(other, of_nvidia), where_to_look(other));
        assert!(!where_to_look(other).contains("nvidia"));
        assert_eq!(
            advice_for(other, "allocate before the capture begins"),
            "allocate before the capture begins"
        );
    }
}

#[test]
fn what_a_device_claims_and_cannot_has_failed() {
    for (call, name) in [
        (Call::AllocateDevice, "device memory"),
        (Call::PoolCreate, "memory pools"),
        (Call::MemoryMap, "virtual memory"),
        (Call::AllocateManaged, "managed memory"),
        (Call::PrefetchAsync, "managed, both sides at once"),
        (Call::RegisterHost, "host registration"),
        (Call::PoolExport, "a pool, exported"),
        (Call::MemoryExport, "export as a file descriptor"),
        (Call::BeginCapture, "graph capture"),
        (Call::EndCapture, "allocation while capturing"),
    ] {
        let sim = Sim::with_config(all());
        sim.inject(Fault::every(call, Code::NOT_PERMITTED));
        let report = Report::of(Ok(sim.machine()), "sim");
        assert_eq!(verdict(&report.devices[0].findings, name), Verdict::Failed, "{call:?}");
        assert!(report.has_failed());
        let page = Page { report: &report, is_coloured: false }.to_string();
        assert!(page.contains(call.symbol()) && page.contains("-> "), "{page}");
    }
}

/// A device joined by NVLink says that it has fabric handles; the daemon that they need may not be there.
#[test]
fn what_needs_more_than_the_device_may_be_refused() {
    for (code, expected) in [(Code::NOT_PERMITTED, Verdict::Missing), (Code::INVALID_VALUE, Verdict::Failed)]
    {
        let sim = Sim::with_config(all());
        sim.inject(Fault::every(Call::MemoryExport, code));
        let findings = examined(&sim);
        assert_eq!(verdict(&findings, "export as a fabric handle"), expected);
        assert_eq!(verdict(&findings, "export as a file descriptor"), Verdict::Failed);
    }
}

#[test]
fn a_fabric_handle_that_nobody_has_permitted_is_missing_and_nothing_is_broken() {
    for (code, wanted) in [(Code::NOT_PERMITTED, Verdict::Missing), (Code::MAP_FAILED, Verdict::Failed)] {
        let sim = Sim::with_config(all());
        // Exported first is a file descriptor.
        sim.inject(Fault::nth(Call::MemoryExport, 2, code));
        let report = Report::of(Ok(sim.machine()), "sim");
        assert_eq!(verdict(&report.devices[0].findings, "export as a fabric handle"), wanted);
        assert_eq!(report.has_failed(), wanted == Verdict::Failed);
        assert!(Page { report: &report, is_coloured: false }.to_string().contains("nvidia-imex"));
    }
}

#[test]
fn after_the_context_is_lost_nothing_else_is_tried() {
    let sim = Sim::with_config(all());
    sim.inject(Fault::nth(Call::MemoryMap, 1, Code::ILLEGAL_ADDRESS));
    let findings = examined(&sim);
    assert_eq!(verdict(&findings, "virtual memory"), Verdict::Failed);
    assert_eq!(verdict(&findings, "managed memory"), Verdict::Note);
    let advice = findings.iter().find_map(|finding| finding.advice.as_deref()).unwrap();
    assert!(advice.contains("Xid"), "{advice}");
}

/// Every call of the driver fails once: nothing is lost but by a call that gives something back.
#[test]
fn nothing_is_left_behind_whatever_fails() {
    let swept = Sweep::new().config(all()).run(|sim| {
        let report = Report::of(Ok(sim.machine()), "sim");
        drop(Page { report: &report, is_coloured: true }.to_string());
        sim.device(0).synchronize()
    });
    assert!(swept.calls > 100, "{swept:?}");
}

#[test]
fn a_machine_without_a_device_is_told_so() {
    let sim = Sim::with_config(SimConfig::default().devices(0));
    let report = Report::of(Ok(sim.machine()), "sim");
    assert!(!report.has_failed());
    let page = Page { report: &report, is_coloured: false }.to_string();
    assert!(page.contains("missing  device") && page.contains("No GPU"), "{page}");
    let error = Machine::device(sim.machine(), 0).unwrap_err();
    let report = Report::of(Err(&error), "sim");
    assert!(!report.has_failed() && report.driver.findings[0].name == "device");
}

#[test]
fn what_other_devices_do_with_its_memory_is_tried() {
    // A machine of one device says nothing of others.
    assert!(examined(&Sim::with_config(all())).iter().all(|finding| finding.name != "peers"));
    let sim = Sim::with_config(all().devices(3));
    let report = Report::of(Ok(sim.machine()), "sim");
    for (device, others) in report.devices.iter().zip(["gpu 1, gpu 2", "gpu 0, gpu 2", "gpu 0, gpu 1"]) {
        let found = device.findings.iter().find(|finding| finding.name == "peers").expect("there are others");
        assert_eq!(found.verdict, Verdict::Ok);
        assert!(found.detail.contains(others), "{found:?}");
    }
    assert!(sim.hazards().is_empty(), "{:#?}", sim.hazards());
    // By pages, where there are no pools.
    let without = Sim::with_config(all().devices(2).attribute(DeviceAttribute::MemoryPools, 0));
    assert_eq!(verdict(&examined(&without), "peers"), Verdict::Ok);
    let apart = Sim::with_config(all().devices(2).peers(false));
    assert_eq!(verdict(&examined(&apart), "peers"), Verdict::Missing);
    for (call, wanted) in [(Call::CanReach, Verdict::Failed), (Call::PoolSetAccess, Verdict::Failed)] {
        let sim = Sim::with_config(all().devices(2));
        sim.inject(Fault::every(call, Code::NOT_PERMITTED));
        assert_eq!(verdict(&examined(&sim), "peers"), wanted, "{call:?}");
    }
}

#[test]
fn nothing_is_left_behind_on_two_devices() {
    let swept = Sweep::new().config(all().devices(2)).codes(&[Code::OUT_OF_MEMORY]).run(|sim| {
        let report = Report::of(Ok(sim.machine()), "sim");
        drop(Page { report: &report, is_coloured: false }.to_string());
        sim.machine().devices().try_for_each(|device| device.synchronize())
    });
    assert!(swept.calls > 200, "{swept:?}");
}
