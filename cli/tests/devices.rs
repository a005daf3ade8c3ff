//! Logs of several devices, from outside: `alluvion replay`, `tune`, `viz` and `export`.

mod program;
mod traces;

use program::{Folder, refused, text};
use serde_json::Value;
use traces::{objects, printed};

const HEADING: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// What a program does on one device: blocks of many sizes on two streams, that come and go in an order of their own.
fn rows(device: u64) -> Vec<[String; 6]> {
    let mut rows = Vec::new();
    let mut row = |action: &str, block: u64, bytes: u64, stream: u64| {
        let address = format!("{:#x}", 0x1000_0000 * (block + 1));
        let fields = [(device + 1).to_string(), "00:00:00.000001".into(), action.into(), address];
        let [thread, time, action, address] = fields;
        rows.push([thread, time, action, address, bytes.to_string(), format!("{stream:#x}")]);
    };
    let bytes = |block: u64| ((block * 37 + device * 101) % 113 + 1) * 40_000 * (device + 1);
    for block in 0..60 {
        row("allocate", block, bytes(block), 1 + block % 2);
        if block % 3 == 2 {
            let gone = block - 2;
            row("free", gone, bytes(gone), 1 + gone % 2);
        }
    }
    rows
}

/// One log of several devices, whose rows alternate, and the log of each alone.
fn logs(folder: &Folder, devices: &[u64]) -> (String, Vec<String>) {
    let each: Vec<_> = devices.iter().map(|&device| rows(device)).collect();
    let mut together = format!("{HEADING},Device\n");
    for at in 0..each[0].len() {
        for (rows, device) in each.iter().zip(devices) {
            together += &format!("{},{device}\n", rows[at].join(","));
        }
    }
    let alone = each.iter().zip(devices).map(|(rows, device)| {
        let rows: String = rows.iter().map(|row| row.join(",") + "\n").collect();
        folder.file(&format!("alone-{device}.csv"), format!("{HEADING}\n{rows}"))
    });
    let alone = alone.collect();
    (folder.file("together.csv", together), alone)
}

const FIGURES: [&str; 6] = ["events", "peak_live", "peak_reserved", "ratio", "failures", "upstream_calls"];

fn figures(of: &Value) -> Vec<Value> {
    FIGURES.iter().map(|name| of[name].clone()).collect()
}

/// Each device's part is what its log alone would have been, and the whole is their sum.
#[test]
fn each_device_has_its_stack_and_its_figures() {
    let folder = Folder::new("replay-devices");
    let (together, alone) = logs(&folder, &[0, 1, 2]);
    for (stack, driver, threads) in [
        ("pool", "sim", "log-order"),
        ("pool(growth=exact) | cuda", "sim", "log-order"),
        ("cuda-async", "sim", "log-order"),
        ("limiting(4MiB) | pool", "sim", "log-order"),
        ("pool(growth=exact)", "null", "log-order"),
        ("pool | mapped", "sim", "free"),
    ] {
        let common = ["-r", stack, "--driver", driver, "--threads", threads, "--rounds", "2", "--json"];
        let play = |log: &str| objects(&[&["replay", log][..], &common].concat()).remove(0);
        let whole = play(&together);
        let devices = whole["devices"].as_array().expect("it is a list");
        assert_eq!(
            devices.iter().map(|device| device["device"].as_u64()).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(2)]
        );
        for (device, log) in devices.iter().zip(&alone) {
            let single = play(log);
            assert_eq!(single["devices"].as_array().map(Vec::len), Some(1));
            // Which thread comes first may decide where blocks lie.
            if threads == "log-order" {
                assert_eq!(figures(device), figures(&single), "{stack} on {driver}");
            }
        }
        for name in ["events", "peak_live", "peak_reserved", "failures", "upstream_calls"] {
            let sum: u64 = devices.iter().map(|device| device[name].as_u64().expect("a number")).sum();
            assert_eq!(whole[name].as_u64(), Some(sum), "{name} of {stack}");
        }
        let is_limited = stack.starts_with("limiting");
        assert_eq!(whole["failures"].as_u64().is_some_and(|failures| failures > 0), is_limited, "{whole}");
    }
}

#[test]
fn a_table_has_a_row_of_all_and_one_of_each() {
    let folder = Folder::new("replay-devices-table");
    let (together, alone) = logs(&folder, &[0, 5]);
    let table = text(&["replay", &together, "-r", "pool", "-r", "cuda", "--driver", "sim", "--rounds", "1"]);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("together: 160 events, 2 devices, 4 streams, 2 threads, "), "{table}");
    let names: Vec<_> =
        lines[2..8].iter().map(|line| line.split("  ").find(|part| !part.is_empty()).unwrap()).collect();
    assert_eq!(names, ["pool", "gpu 0", "gpu 5", "cuda", "gpu 0", "gpu 5"], "{table}");
    // A log of one device has no such rows.
    let table = text(&["replay", &alone[0], "--driver", "sim", "--rounds", "1"]);
    assert!(!table.contains("gpu") && !table.contains("device"), "{table}");
}

#[test]
fn a_machine_that_lacks_a_device_of_the_log_is_refused() {
    let folder = Folder::new("replay-devices-few");
    let (together, _) = logs(&folder, &[0, 1, 2]);
    let words = refused(1, &["replay", &together, "--driver", "sim", "--sim-devices", "2"]);
    assert!(words.contains("gpu 2, and the machine has 2") && words.contains("`--sim-devices`"), "{words}");
    let more = ["replay", &together, "--driver", "sim", "--sim-devices", "4", "--rounds", "1"];
    assert!(printed(&more).1.is_empty());
    for many in ["0", "4097", "x"] {
        refused(2, &["replay", &together, "--sim-devices", many]);
    }
    // A stack for one device, and a stack whose peers the machine has not.
    let words = refused(2, &["replay", &together, "-r", "pool | cuda(gpu=0)", "--driver", "sim"]);
    assert!(words.contains("the stack is built on another device"), "{words}");
}

#[test]
fn the_smallest_is_searched_for_each_device() {
    let folder = Folder::new("replay-devices-smallest");
    let (together, alone) = logs(&folder, &[0, 3]);
    let common = ["--smallest", "-r", "pool(growth=exact) | cuda", "--driver", "sim"];
    let lines = text(&[&["replay", &together][..], &common].concat());
    let single = text(&[&["replay", &alone[0], &alone[1]][..], &common].concat());
    assert_eq!(lines, single.replace("alone-0", "together@gpu0").replace("alone-3", "together@gpu3"));
    let words = refused(2, &["replay", &together, "--smallest", "--sim-devices", "2"]);
    assert!(words.contains("cannot be used with"), "{words}");
}

/// A log that the stacks of two devices write together while another log is replayed, replays to the same figures.
#[test]
fn what_stacks_of_two_devices_log_is_replayed_as_they_were() {
    let folder = Folder::new("replay-devices-logged");
    let (together, _) = logs(&folder, &[0, 1]);
    let written = folder.path("written.csv");
    let stack = format!("logging(file=\"{written}\", devices=true) | pool");
    let first =
        objects(&["replay", &together, "-r", &stack, "--driver", "sim", "--rounds", "1", "--json"]).remove(0);
    let again =
        objects(&["replay", &written, "-r", "pool", "--driver", "sim", "--rounds", "1", "--json"]).remove(0);
    let of = |outcome: &Value, name: &str| -> Vec<Value> {
        outcome["devices"].as_array().unwrap().iter().map(|device| device[name].clone()).collect()
    };
    for name in ["peak_live", "peak_reserved", "upstream_calls"] {
        assert_eq!(of(&first, name), of(&again, name), "{name}");
    }
}

#[test]
fn a_stack_is_searched_for_all_devices_of_a_log() {
    let folder = Folder::new("tune-devices");
    let (together, _) = logs(&folder, &[0, 1]);
    let found = objects(&["tune", &together, "--candidates", "4", "--json"]).remove(0);
    let front = found["front"].as_array().expect("it is a list");
    assert!(
        !front.is_empty() && front.iter().all(|point| point["peak_reserved"].as_u64() > Some(0)),
        "{found}"
    );
}

/// What a picture or an export of one device's part is: that of the log which the device alone would have written.
#[test]
fn a_picture_is_of_one_device() {
    let (folder, other) = (Folder::new("draw-devices"), Folder::new("draw-devices-alone"));
    let (together, alone) = logs(&folder, &[0, 3]);
    // Under the same name, which is in the page.
    let alone = other.file("together.csv", std::fs::read(&alone[0]).expect("it is there"));
    let page = |log: &str, more: &[&str]| {
        let page = other.path("page.html");
        text(&[&["viz", log, "-o", &page][..], more].concat());
        std::fs::read(page).expect("it is there")
    };
    for more in [&[][..], &["--recorded"], &["--resource", "pool(growth=exact)"]] {
        let of_first = page(&together, &[&["--gpu", "0"][..], more].concat());
        assert!(of_first == page(&alone, more), "{more:?}");
        assert!(of_first != page(&together, &[&["--gpu", "3"][..], more].concat()), "{more:?}");
        assert!(of_first == page(&alone, &[&["--gpu", "0"][..], more].concat()), "{more:?}");
    }
    for format in ["memory-viz", "perfetto", "folded", "prometheus"] {
        let of = |log: &str, more: &[&str]| {
            program::printed(&[&["export", log, "--format", format][..], more].concat())
        };
        assert!(of(&together, &["--gpu", "0"]) == of(&alone, &[]), "{format}");
    }
    let words = refused(1, &["viz", &together, "-o", &other.path("none.html"), "--gpu", "1"]);
    assert!(words.contains("nothing in it is of gpu 1: it is of gpu 0, gpu 3"), "{words}");
    for format in ["perfetto", "memory-viz"] {
        let words = refused(1, &["export", &together, "--format", format, "--gpu", "1"]);
        assert!(words.contains("nothing in it is of gpu 1: it is of gpu 0, gpu 3"), "{words}");
    }
    let snapshot = format!("{}/../tests/snapshots/pool.json", env!("CARGO_MANIFEST_DIR"));
    for arguments in
        [["viz", &snapshot, "-o", &other.path("none.html")], ["export", &snapshot, "--format", "folded"]]
    {
        let words = refused(2, &[&arguments[..], &["--gpu", "0"]].concat());
        assert!(words.contains("leave out --gpu"), "{words}");
    }
}

/// The figures of each device stand under its label, and are those of its log alone.
#[test]
fn figures_have_the_device_as_a_label() {
    let folder = Folder::new("figures-devices");
    let (together, alone) = logs(&folder, &[0, 3]);
    let samples = |log: &str| -> Vec<String> {
        let page = text(&["export", log, "--format", "prometheus"]);
        page.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    let mut wanted = samples(&alone[0]);
    wanted.extend(samples(&alone[1]).iter().map(|line| line.replace("device=\"0\"", "device=\"3\"")));
    let mut found = samples(&together);
    wanted.sort();
    found.sort();
    assert_eq!(found, wanted);
}

/// The events of a timeline, by the processes of each device: the first of them is the device.
fn events_of(timeline: &Value) -> Vec<(String, Vec<Value>)> {
    let mut found: Vec<(String, u64, Vec<Value>)> = Vec::new();
    for event in timeline["traceEvents"].as_array().expect("it is a list") {
        let name = event["args"]["name"].as_str().unwrap_or_default();
        let process = event["pid"].as_u64().expect("a number");
        if event["ph"] == "M" && name.starts_with("gpu") {
            found.push((name.to_owned(), process, Vec::new()));
        }
        let (_, first, events) = found.last_mut().expect("the device comes first");
        assert!(process >= *first, "{event} is of the device before");
        let mut event = event.clone();
        event["pid"] = (process - *first).into();
        // It is another number for each, and of one block the same.
        event.as_object_mut().expect("it is an object").remove("id");
        events.push(event);
    }
    found.into_iter().map(|(name, _, events)| (name, events)).collect()
}

#[test]
fn a_timeline_has_each_device_as_it_is_alone() {
    let folder = Folder::new("timeline-devices");
    let (together, _) = logs(&folder, &[3, 0]);
    let export = |more: &[&str]| -> Value {
        let timeline = text(&[&["export", &together, "--format", "perfetto"][..], more].concat());
        serde_json::from_str(&timeline).expect("it is JSON")
    };
    for more in [&[][..], &["--resource", "pool(growth=exact)"]] {
        let all = export(more);
        let alone = ["0", "3"].map(|gpu| events_of(&export(&[more, &["--gpu", gpu]].concat())).remove(0));
        assert_eq!(events_of(&all), alone);
        // No two blocks, and no two segments, of all devices have one number.
        let mut begun = std::collections::HashSet::new();
        let mut blocks = 0;
        for event in all["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "b") {
            assert!(begun.insert((event["cat"].to_string(), event["id"].to_string())), "{event}");
            blocks += usize::from(event["cat"] == "block");
        }
        assert_eq!(blocks, 120);
        let ends = all["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "e");
        assert!(
            ends.map(|event| (event["cat"].to_string(), event["id"].to_string()))
                .all(|end| begun.contains(&end))
        );
    }
    // Each is counted from the first event of any.
    let log = "Thread,Time,Action,Pointer,Size,Stream,Device
1,00:00:00.000007,allocate failure,(nil),300,0,4
1,00:00:00.000010,allocate,0x100,300,0,0
1,00:00:00.000030,allocate,0x100,300,0,4
";
    let path = folder.file("later.csv", log);
    let timeline: Value = serde_json::from_str(&text(&["export", &path, "--format", "perfetto"])).unwrap();
    let events = timeline["traceEvents"].as_array().unwrap();
    let blocks = events.iter().filter(|event| event["ph"] == "b" && event["cat"] == "block");
    assert_eq!(blocks.map(|event| event["ts"].as_u64()).collect::<Vec<_>>(), [Some(3), Some(23)]);
    let failed: Vec<_> = events.iter().filter(|event| event["ph"] == "i").collect();
    assert_eq!((failed.len(), &failed[0]["ts"]), (1, &0.into()));
}
