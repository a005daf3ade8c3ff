//! Logs of several devices: a column says whose memory a block is, and a trace keeps the devices apart.

use alluvion::adaptor::{LogConfig, Logging};
use alluvion::sim::SimConfig;
use alluvion::trace::{EventKind, RmmCsv, Trace};
use alluvion::{Device, Recipe, Resource, ResourceExt, Sim, source::Null};

use crate::log_files::{Paper, Scratch};
use crate::raw_block::{Held, layout_of};

const HEADING: &str = "Thread,Time,Action,Pointer,Size,Stream,Device";

fn of(rows: &[&str]) -> Trace {
    let log = format!("{HEADING}\n{}\n", rows.join("\n"));
    Trace::from_rmm_csv(log.as_bytes()).expect("the log is well formed")
}

#[test]
fn the_stacks_of_all_devices_write_one_log() {
    let scratch = Scratch::new("of-devices.csv");
    let sim = Sim::with_config(SimConfig::default().devices(3));
    let line = format!("logging(file={:?}, devices=true, reserved=true) | pool | cuda", scratch.0);
    let stacks = line.parse::<Recipe>().unwrap().per_device(sim.machine()).unwrap();
    for (device, stack) in &stacks {
        let stream = device.default_stream();
        let blocks = device.ordinal() as usize + 1;
        let held: Vec<_> = (0..blocks).map(|_| Held::of(stack, 1000, stream.as_ref())).collect();
        held.into_iter().for_each(|block| block.free(stream.as_ref()));
    }
    drop(stacks);
    let trace = scratch.trace();
    assert_eq!((trace.devices, trace.device_ordinals.as_slice()), (3, &[0, 1, 2][..]));
    // The default stream of each has one handle, and is another stream.
    assert_eq!(
        (trace.stream_handles.as_slice(), trace.stream_devices.as_slice()),
        (&[1; 3][..], &[0, 1, 2][..])
    );
    for device in 0..3 {
        let events = trace.events.iter().filter(|event| trace.device_of(event) == device);
        assert_eq!(events.count(), 2 * (device as usize + 1));
        assert_eq!(trace.peak_live_bytes_of(device), 1024 * (u64::from(device) + 1));
    }
    assert_eq!(trace.peak_live_bytes(), 3 * 1024, "one device after the other");
    sim.assert_clean();
}

/// Where nothing is behind the addresses, those of two devices are the same.
#[test]
fn one_address_of_two_devices_is_two_blocks() {
    let trace = of(&[
        "1,00:00:00.000001,allocate,0x100,300,0,0",
        "1,00:00:00.000002,allocate,0x100,700,0,5",
        "1,00:00:00.000003,free,0x100,300,0,0",
        "1,00:00:00.000004,free,0x100,700,0,5",
        "1,00:00:00.000005,free,0x100,700,0,1",
    ]);
    let blocks: Vec<_> = trace.events.iter().map(|event| (event.kind, event.block, event.bytes)).collect();
    assert_eq!(
        blocks,
        [
            (EventKind::Allocate, 0, 300),
            (EventKind::Allocate, 1, 700),
            (EventKind::Free, 0, 300),
            (EventKind::Free, 1, 700),
        ]
    );
    assert_eq!((trace.strays, trace.device_ordinals.as_slice()), (1, &[0, 5, 1][..]));
    assert_eq!(
        (trace.peak_live_bytes_of(0), trace.peak_live_bytes_of(1), trace.peak_live_bytes()),
        (512, 768, 1280)
    );
}

#[test]
fn a_log_that_does_not_say_is_of_device_0() {
    let sim = Sim::with_config(SimConfig::default().devices(2));
    let paper = Paper::default();
    let log = LogConfig::default().devices(true).write_to(paper.clone()).unwrap();
    let make = |device: &Device| -> Logging<Null> { Null::new(device).logging(log.clone()) };
    let stack = make(&sim.device(1));
    assert!(stack.allocate_sync(layout_of(1000)).is_ok());
    drop((stack, make));
    drop(log);
    let text = paper.text();
    let row = RmmCsv::new(text.as_bytes()).unwrap().next().unwrap().unwrap();
    assert_eq!(row.device, Some(1), "{text}");
    let without: String =
        text.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned() + "\n").collect();
    let row = RmmCsv::new(without.as_bytes()).unwrap().next().unwrap().unwrap();
    assert_eq!(row.device, None);
    let trace = Trace::from_rmm_csv(without.as_bytes()).unwrap();
    assert_eq!((trace.devices, trace.device_ordinals, trace.stream_devices), (1, vec![0], vec![0]));
    // A field that is left empty is of no device either.
    assert_eq!(of(&["1,00:00:00.000001,allocate,0x100,300,0,"]).device_ordinals, [0]);
}

#[test]
fn what_is_no_device_is_refused_with_its_line() {
    for device in ["-1", "x", "4096", "18446744073709551616", "1.0"] {
        let log = format!(
            "{HEADING}\n1,00:00:00.000001,allocate,0x100,300,0,0\n1,00:00:00.000001,free,0x100,300,0,{device}\n"
        );
        let error = Trace::from_rmm_csv(log.as_bytes()).unwrap_err();
        assert_eq!(error.line(), Some(3), "{error}");
        assert!(
            error.to_string().contains(&format!("Device is `{device}` and not the number of a device")),
            "{error}"
        );
    }
}

/// The first RMM in C wrote the device, too.
#[test]
fn the_log_of_the_first_interface_names_devices() {
    let log = "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,Start,End,Elapsed,Location
Alloc,0,0x100,0,300,1,2,1,0.1,0.2,0.1,a.cpp:1
Alloc,3,0x200,0,300,1,2,1,0.1,0.2,0.1,a.cpp:1
Free,3,0x200,0,0,1,2,0,0.3,0.4,0.1,a.cpp:1
";
    let trace = Trace::from_rmm_csv(log.as_bytes()).unwrap();
    assert_eq!((trace.devices, trace.device_ordinals.as_slice(), trace.streams), (2, &[0, 3][..], 2));
    assert_eq!(trace.strays, 0);
    let wrong = log.replace("Free,3", "Free,none");
    let error = Trace::from_rmm_csv(wrong.as_bytes()).unwrap_err();
    assert!(error.line() == Some(4) && error.to_string().contains("Device ID"), "{error}");
}

/// The part of a device is the trace of its rows alone: numbers, tags, refusals and moments with it.
#[test]
fn the_part_of_a_device_is_the_trace_of_its_rows() {
    let heading = format!("{HEADING},Tag,Reserved");
    let mut state = 7_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut live: Vec<(u64, u64)> = Vec::new();
    let mut rows = Vec::new();
    for block in 1..400 {
        let (device, thread, stream, time) = (draw(3) * 2, draw(5), draw(4), block);
        let tag = ["", "a", "a;b", "c"][draw(4) as usize];
        let mut row = |action: &str, address: String, device: u64| {
            rows.push((
                device as u32,
                format!(
                    "{thread},00:00:00.{time:06},{action},{address},300,{stream:#x},{device},{tag},{block}"
                ),
            ));
        };
        match draw(5) {
            0 => row("allocate failure", "(nil)".into(), device),
            1 | 2 if !live.is_empty() => {
                let (address, device) = live.swap_remove(draw(live.len() as u64) as usize);
                row("free", format!("{address:#x}"), device);
            }
            _ => {
                live.push((block * 0x1000, device));
                row("allocate", format!("{:#x}", block * 0x1000), device);
            }
        }
    }
    let of = |keep: &dyn Fn(u32) -> bool| {
        let kept = rows.iter().filter(|(device, _)| keep(*device)).map(|(_, row)| format!("{row}\n"));
        let log: String = core::iter::once(format!("{heading}\n")).chain(kept).collect();
        Trace::from_rmm_csv(log.as_bytes()).expect("the log is well formed")
    };
    let all = of(&|_| true);
    assert_eq!((all.devices, all.strays), (3, 0));
    assert!(all.refusals.len() > 20 && all.events.len() > 200);
    let parts = all.by_device();
    assert_eq!(parts.len(), 3);
    for (device, &ordinal) in all.device_ordinals.iter().enumerate() {
        let (part, alone) = (all.of_device(device as u32), of(&|of| of == ordinal));
        assert_eq!(parts[device], part, "gpu {ordinal}");
        assert_eq!(part, alone, "gpu {ordinal}");
        assert_eq!(part.of_device(0), part);
    }
}
