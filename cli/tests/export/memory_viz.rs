//! PyTorch's snapshot, read as its viewer reads it.

use std::collections::{BTreeMap, HashMap};
use std::process::Command;

use serde_json::{Value, json};

use super::pickle::unpickle;
use super::program::{Folder, printed};
use super::{PLAIN, SNAPSHOT, TAGGED, real_traces};

fn exported(path: &str) -> Value {
    let snapshot = unpickle(&printed(&["export", path, "--format", "memory-viz"]));
    check(&snapshot);
    snapshot
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// What the viewer and PyTorch's own scripts rely on: every key is there, blocks tile their segments, and the history leads to
/// the blocks that there are, with each inside a segment all the time.
fn check(snapshot: &Value) {
    let devices = snapshot["device_traces"].as_array().unwrap();
    let mut segments: BTreeMap<u64, u64> = BTreeMap::new();
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    for segment in snapshot["segments"].as_array().unwrap() {
        assert_eq!(number(segment, "device") as usize, devices.len() - 1);
        let (address, total) = (number(segment, "address"), number(segment, "total_size"));
        let (mut at, mut out, mut requested) = (address, 0, 0);
        for block in segment["blocks"].as_array().unwrap() {
            assert_eq!(number(block, "address"), at);
            assert!(block["frames"].is_array());
            let (bytes, wanted) = (number(block, "size"), number(block, "requested_size"));
            assert!(wanted <= bytes && bytes > 0, "{block}");
            match block["state"].as_str().unwrap() {
                "active_allocated" => {
                    out += bytes;
                    requested += wanted;
                    assert!(live.insert(at, wanted).is_none());
                }
                "inactive" => assert_eq!(wanted, 0),
                state => panic!("{state}"),
            }
            at += bytes;
        }
        assert_eq!(at, address + total);
        assert_eq!(number(segment, "allocated_size"), out);
        assert_eq!(number(segment, "active_size"), out);
        assert_eq!(number(segment, "requested_size"), requested);
        assert!(segment["stream"].is_u64() && segment["segment_type"].is_string());
        assert_eq!(segment["segment_pool_id"], json!([0, 0]));
        assert!(segments.insert(address, total).is_none());
    }
    // As the viewer does, from the end backwards.
    for event in devices.last().unwrap().as_array().unwrap().iter().rev() {
        assert!(event["time_us"].is_u64() && event["stream"].is_u64() && event["frames"].is_array());
        let bytes = number(event, "size");
        match event["action"].as_str().unwrap() {
            "oom" => assert!(event["device_free"].is_u64()),
            "alloc" => assert!(live.remove(&number(event, "addr")).is_some(), "{event} of nothing"),
            "free_requested" => assert!(live.contains_key(&number(event, "addr")), "{event} of nothing"),
            "free_completed" => {
                let address = number(event, "addr");
                assert!(live.insert(address, bytes).is_none(), "{event} of what is live");
                let (&segment, &total) = segments.range(..=address).next_back().expect("a segment before it");
                assert!(address + bytes <= segment + total, "{event} is in no segment");
            }
            "segment_alloc" => assert_eq!(segments.remove(&number(event, "addr")), Some(bytes)),
            "segment_free" => assert!(segments.insert(number(event, "addr"), bytes).is_none()),
            action => panic!("{action}"),
        }
    }
    assert!(devices.last().unwrap().as_array().unwrap().is_empty() || live.is_empty(), "{live:?}");
}

fn actions(snapshot: &Value) -> Vec<(&str, u64)> {
    let events = snapshot["device_traces"][0].as_array().unwrap();
    events.iter().map(|event| (event["action"].as_str().unwrap(), number(event, "size"))).collect()
}

#[test]
fn a_plain_log_has_the_history_of_a_pool() {
    let folder = Folder::new("memory-viz-plain");
    let snapshot = exported(&folder.file("plain.csv", PLAIN));
    let without_segments: Vec<_> =
        actions(&snapshot).into_iter().filter(|(action, _)| !action.starts_with("segment")).collect();
    assert_eq!(
        without_segments,
        [
            ("alloc", 1_000_000),
            ("alloc", 300),
            ("free_requested", 1_000_000),
            ("free_completed", 1_000_000),
            ("alloc", 2_000_000),
            ("oom", 99_999_999_999),
        ]
    );
    assert_eq!(actions(&snapshot)[0].0, "segment_alloc");
    let events = snapshot["device_traces"][0].as_array().unwrap();
    let (first, last) = (number(&events[0], "time_us"), number(events.last().unwrap(), "time_us"));
    assert_eq!(last - first, 17, "microseconds, across midnight");
    let other = events.iter().find(|event| event["size"] == 300).unwrap();
    assert_eq!(
        (number(other, "stream"), &other["frames"]),
        (
            0x7f65,
            &json!([
                {"name": "run", "filename": "thread", "line": 591}
            ])
        )
    );
}

#[test]
fn tags_are_frames_the_innermost_first() {
    let folder = Folder::new("memory-viz-tagged");
    let snapshot = exported(&folder.file("tagged.csv", TAGGED));
    let events = snapshot["device_traces"][0].as_array().unwrap();
    let frames = json!([
        {"name": "join", "filename": "tag", "line": 2},
        {"name": "query", "filename": "tag", "line": 1},
        {"name": "run", "filename": "thread", "line": 590}
    ]);
    assert_eq!(events[0]["frames"], frames);
    assert_eq!(events[3]["frames"], frames, "a free has those of its block");
    let failed = events.iter().find(|event| event["action"] == "oom").unwrap();
    assert_eq!((&failed["frames"][0]["name"], &failed["size"]), (&json!("sort"), &json!(4096)));
    // Addresses are the log's, and segments the pages that they are on.
    assert_eq!(number(&events[0], "addr"), 0x3_0200_0000);
    let segments: HashMap<_, _> = snapshot["segments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|segment| (number(segment, "address"), number(segment, "total_size")))
        .collect();
    assert_eq!(segments, HashMap::from([(0x3_0200_0000, 2 << 20), (0x3_0260_0000, 2 << 20)]));
    let live = &snapshot["segments"][0]["blocks"][0];
    assert_eq!((number(live, "size"), &live["frames"]), (512, &frames));
}

#[test]
fn blocks_that_overlap_push_each_other_out() {
    let log = "Thread,Time,Action,Pointer,Size,Stream,Reserved
590,09:00:00.000001,allocate,0x302000000,1000,0,4096
590,09:00:00.000002,allocate,0x302000100,10,0,4096
590,09:00:00.000003,allocate,0x302000100,20,0,4096
590,09:00:00.000004,allocate,0x301ffff00,9000,0,4096
590,09:00:00.000005,allocate,0xffffffffffffff00,9000000000000000000,0,4096
590,09:00:00.000006,free,0x302000000,1000,0,4096
";
    let folder = Folder::new("memory-viz-overlap");
    let path = folder.file("overlap.csv", log);
    // The last block ends beyond all addresses, which no check of ours can follow: that it is written is all.
    unpickle(&printed(&["export", &path, "--format", "memory-viz"]));
    let sane: String =
        log.lines().filter(|line| !line.contains("0xffff")).map(|line| format!("{line}\n")).collect();
    let snapshot = exported(&folder.file("sane.csv", sane));
    let actions: Vec<_> =
        actions(&snapshot).into_iter().map(|(action, bytes)| (&action[..4], bytes)).collect();
    assert_eq!(
        actions,
        [
            ("allo", 1000),
            ("free", 1000),
            ("free", 1000),
            ("allo", 10),
            ("free", 10),
            ("free", 10),
            ("allo", 20),
            ("free", 20),
            ("free", 20),
            ("allo", 9000)
        ]
    );
}

#[test]
fn a_snapshot_has_segments_and_no_history() {
    let folder = Folder::new("memory-viz-snapshot");
    let snapshot = exported(&folder.file("snapshot.json", SNAPSHOT));
    assert_eq!(snapshot["device_traces"], json!([[], [], []]), "it is of device 2");
    let blocks: Vec<_> = snapshot["segments"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|segment| segment["blocks"].as_array().unwrap())
        .map(|block| (block["state"].as_str().unwrap(), number(block, "size")))
        .collect();
    assert_eq!(
        blocks,
        [("active_allocated", 512), ("active_allocated", 256), ("inactive", 512), ("inactive", 256)]
    );
    assert_eq!(snapshot["segments"][0]["blocks"][0]["frames"][0]["name"], "join");
}

#[test]
fn snapshots_of_the_library_hold_together() {
    for name in ["pool", "out-of-memory"] {
        let path = format!("{}/../tests/snapshots/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let snapshot = exported(&path);
        assert!(!snapshot["segments"].as_array().unwrap().is_empty(), "{name}");
    }
}

#[test]
fn real_logs_hold_together() {
    for (path, _) in real_traces() {
        let snapshot = exported(&path);
        let allocations = actions(&snapshot).iter().filter(|(action, _)| *action == "alloc").count();
        assert!(allocations > 4000, "{path}");
    }
}

#[test]
fn python_reads_it_too() {
    let folder = Folder::new("memory-viz-python");
    if Command::new("python3").arg("--version").output().is_err() {
        println!("not run: there is no python3 here to read a pickle with");
        return;
    }
    for (name, input) in [("plain.csv", PLAIN), ("tagged.csv", TAGGED), ("snapshot.json", SNAPSHOT)] {
        let file = printed(&["export", &folder.file(name, input), "--format", "memory-viz"]);
        let path = folder.file("exported.pickle", &file);
        let script = "import json, pickle, sys; print(json.dumps(pickle.load(open(sys.argv[1], 'rb'))))";
        let output = Command::new("python3").args(["-c", script, &path]).output().expect("python3 starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
        assert_eq!(read, unpickle(&file), "{name}");
    }
}

/// The events of each device are in the list at its number, and the segments name it: as if each were exported alone.
#[test]
fn devices_are_kept_apart() {
    let rows = |device: u64| {
        (0..60_u64).flat_map(move |block| {
            let (address, bytes) = (0x3_0000_0000 + (block << 21), (block * 37 + device * 101) % 113 + 1);
            let row = |action: &str, block: u64| {
                let tag = ["", "query;join", "query"][(block % 3) as usize];
                let bytes = bytes * 40_000;
                format!("7,09:00:00.{block:06},{action},{address:#x},{bytes},0x7f,{device},{tag}\n")
            };
            let failed = format!("7,09:00:00.{block:06},allocate failure,(nil),4096,0x7f,{device},\n");
            let free = (block % 3 == device % 3).then(|| row("free", block));
            [Some(row("allocate", block)), (block == 30).then_some(failed), free].into_iter().flatten()
        })
    };
    let log = |devices: &[u64]| {
        let each: Vec<Vec<String>> = devices.iter().map(|&device| rows(device).collect()).collect();
        let mut log = "Thread,Time,Action,Pointer,Size,Stream,Device,Tag\n".to_owned();
        for at in 0..each.iter().map(Vec::len).max().unwrap_or(0) {
            log.extend(each.iter().filter_map(|rows| rows.get(at).map(String::as_str)));
        }
        log
    };
    let folder = Folder::new("memory-viz-devices");
    let path = folder.file("several.csv", log(&[4, 0, 1]));
    for more in [&[][..], &["--resource", "pool(growth=exact)"]] {
        let export = |gpu: &[&str]| {
            unpickle(&printed(&[&["export", &path, "--format", "memory-viz"][..], more, gpu].concat()))
        };
        let all = export(&[]);
        let traces = all["device_traces"].as_array().unwrap();
        assert_eq!(traces.len(), 5);
        assert!(traces[2..4].iter().all(|events| events == &json!([])));
        for device in [0, 1, 4] {
            let gpu = device.to_string();
            let alone = export(&["--gpu", &gpu]);
            check(&alone);
            assert!(traces[device].as_array().unwrap().len() > 80);
            assert_eq!(traces[device], alone["device_traces"][device], "gpu {device}");
            let segments = all["segments"].as_array().unwrap();
            let of_it: Vec<_> = segments.iter().filter(|segment| segment["device"] == device).collect();
            assert!(!of_it.is_empty());
            assert_eq!(json!(of_it), alone["segments"], "gpu {device}");
        }
        let segments = all["segments"].as_array().unwrap();
        assert!(segments.iter().all(|segment| [0, 1, 4].contains(&number(segment, "device"))));
    }
}
