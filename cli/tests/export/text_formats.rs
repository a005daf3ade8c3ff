//! Perfetto's JSON, folded stacks and Prometheus's text.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::program::{Folder, text};
use super::{PLAIN, SNAPSHOT, TAGGED, real_traces};

/// The events of a timeline, after checks on what every viewer of it relies on.
fn timeline(path: &str) -> Vec<Value> {
    let file: Value =
        serde_json::from_str(&text(&["export", path, "--format", "perfetto"])).expect("it is JSON");
    let events = file["traceEvents"].as_array().expect("a list of events").clone();
    let mut open: HashMap<String, (Value, u64)> = HashMap::new();
    let mut named = HashSet::new();
    let mut last = 0;
    for event in &events {
        let phase = event["ph"].as_str().unwrap();
        let pid = event["pid"].as_u64().unwrap();
        if phase == "M" {
            assert!(named.insert(pid), "{event} is named twice");
            continue;
        }
        assert!(named.contains(&pid), "{event} is of nobody");
        let ts = event["ts"].as_u64().unwrap();
        assert!(ts >= last, "{event} goes back in time");
        last = ts;
        let id = || format!("{} {}", event["cat"], event["id"]);
        match phase {
            "b" => {
                assert!(open.insert(id(), (event["name"].clone(), pid)).is_none(), "{event} is open already");
            }
            "e" => {
                assert_eq!(open.remove(&id()), Some((event["name"].clone(), pid)), "{event} was not begun");
            }
            "C" => assert!(event["args"]["bytes"].is_u64()),
            "i" => assert_eq!(event["s"], "g"),
            phase => panic!("{phase}"),
        }
    }
    assert!(
        open.keys().all(|id| id.starts_with("\"segment\"")),
        "a segment may stay, a block ends: {open:?}"
    );
    events
}

fn counter(events: &[Value], name: &str) -> Vec<u64> {
    let is_meant = |event: &&Value| event["ph"] == "C" && event["name"] == name;
    events.iter().filter(is_meant).map(|event| event["args"]["bytes"].as_u64().unwrap()).collect()
}

#[test]
fn a_timeline_has_counters_slices_and_failures() {
    let folder = Folder::new("perfetto");
    let events = timeline(&folder.file("tagged.csv", TAGGED));
    assert_eq!(counter(&events, "gpu 0 live"), [1024, 1280, 1536, 512, 256, 0, 512]);
    assert_eq!(counter(&events, "gpu 0 reserved"), [2 << 20, 4 << 20, 2 << 20]);
    let names: Vec<_> = events
        .iter()
        .filter(|event| event["ph"] == "b")
        .map(|event| (event["name"].as_str().unwrap(), event["args"]["bytes"].as_u64().unwrap()))
        .collect();
    assert_eq!(names, [("query;join", 1000), ("query", 10), ("untagged", 100), ("query;join", 512)]);
    let lanes: Vec<_> =
        events.iter().filter(|event| event["ph"] == "M").map(|event| &event["args"]["name"]).collect();
    assert_eq!(lanes, ["gpu 0", "stream 0x0, thread 590", "stream 0x9, thread 590"]);
    let failures: Vec<_> = events.iter().filter(|event| event["ph"] == "i").collect();
    assert_eq!(failures.len(), 1);
    assert_eq!(
        failures[0]["args"],
        json!({"bytes": 4096, "for": "query;sort", "stream": "0x0", "thread": 590})
    );
    assert_eq!(failures[0]["ts"], 4);
}

#[test]
fn a_timeline_of_a_plain_log_has_segments() {
    let folder = Folder::new("perfetto-plain");
    let events = timeline(&folder.file("plain.csv", PLAIN));
    let segments: u64 = events
        .iter()
        .filter(|event| event["cat"] == "segment" && event["ph"] == "b")
        .map(|event| event["args"]["bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(counter(&events, "gpu 0 reserved").last(), Some(&segments));
    for (path, peak) in real_traces() {
        assert_eq!(counter(&timeline(&path), "gpu 0 live").into_iter().max(), Some(peak));
    }
}

#[test]
fn names_are_escaped() {
    let log = "Thread,Time,Action,Pointer,Size,Stream,Tag
590,09:00:00.000001,allocate,0x302000000,1000,0,a \"b\" \\c\u{1}é
";
    let folder = Folder::new("escaped");
    let path = folder.file("log.csv", log);
    let events = timeline(&path);
    let block = events.iter().find(|event| event["cat"] == "block").unwrap();
    assert_eq!(block["name"], "a \"b\" \\c\u{1}é");
    let folded = text(&["export", &path, "--format", "folded"]);
    assert_eq!(folded, "a \"b\" \\c_é 1024\n");
    let page = text(&["export", &path, "--format", "prometheus"]);
    assert!(
        page.contains("alluvion_tag_live_bytes{device=\"0\",tag=\"a \\\"b\\\" \\\\c\\\\u{1}é\"} 1000\n"),
        "{page}"
    );
}

fn folded(path: &str, more: &[&str]) -> Vec<(String, u64)> {
    let arguments = [&["export", path, "--format", "folded"], more].concat();
    let lines = text(&arguments);
    let parse = |line: &str| {
        let (path, bytes) = line.rsplit_once(' ').expect("a path, and a number");
        (path.to_owned(), bytes.parse().expect("a number"))
    };
    lines.lines().map(parse).collect()
}

#[test]
fn folded_stacks_are_what_is_live() {
    let folder = Folder::new("folded");
    let path = folder.file("tagged.csv", TAGGED);
    let lines = |lines: &[(&str, u64)]| {
        lines.iter().map(|(path, bytes)| ((*path).to_owned(), *bytes)).collect::<Vec<_>>()
    };
    let untagged = "untagged;thread 590;stream 0x9";
    assert_eq!(folded(&path, &[]), lines(&[("query", 256), ("query;join", 1024), (untagged, 256)]));
    assert_eq!(folded(&path, &["--at-end"]), lines(&[("query;join", 512)]));
    assert_eq!(folded(&path, &["--total"]), lines(&[("query", 256), ("query;join", 1536), (untagged, 256)]));
    for (path, peak) in real_traces() {
        assert_eq!(folded(&path, &[]).iter().map(|(_, bytes)| bytes).sum::<u64>(), peak, "{path}");
    }
}

#[test]
fn folded_stacks_of_a_snapshot_are_its_blocks() {
    let folder = Folder::new("folded-snapshot");
    let lines = text(&["export", &folder.file("snapshot.json", SNAPSHOT), "--format", "folded"]);
    assert_eq!(
        lines,
        "cached;stream 0:1 256\nfree 256\nlive 256\nlive;query;join 512\npending;stream 0:2 256\n"
    );
}

#[test]
fn a_log_can_be_played_through_another_stack() {
    let folder = Folder::new("export-resource");
    let path = folder.file("tagged.csv", TAGGED);
    let figure = |stack: &str, name: &str| {
        let page = text(&["export", &path, "--format", "prometheus", "--resource", stack]);
        samples(&page)[&*format!("{name}{{device=\"0\"}}")]
    };
    assert_eq!(figure("pool(initial=8MiB)", "alluvion_reserved_bytes"), f64::from(8 << 20));
    // The log has four allocations and a failure; one of the four is more than this.
    let small = "pool(maximum=512)";
    assert_eq!(figure(small, "alluvion_failures_total"), 1.0 + 1.0);
    assert_eq!(figure(small, "alluvion_live_bytes"), 512.0);
}

/// The samples of a page, by name and labels.
fn samples(page: &str) -> HashMap<&str, f64> {
    let mut samples = HashMap::new();
    for line in page.lines().filter(|line| !line.starts_with("# ")) {
        let (name, value) = line.rsplit_once(' ').expect("a name, and a number");
        assert!(samples.insert(name, value.parse().expect("a number")).is_none(), "{name} comes twice");
        let family = name.split('{').next().unwrap();
        assert!(page.contains(&format!("# TYPE {family} ")), "{family}");
    }
    samples
}

#[test]
fn figures_are_those_at_the_end() {
    let folder = Folder::new("prometheus");
    let page = text(&["export", &folder.file("tagged.csv", TAGGED), "--format", "prometheus"]);
    let samples = samples(&page);
    for (name, value) in [
        ("alluvion_live_bytes{device=\"0\"}", 512),
        ("alluvion_live_blocks{device=\"0\"}", 1),
        ("alluvion_reserved_bytes{device=\"0\"}", 2 << 20),
        ("alluvion_peak_live_bytes{device=\"0\"}", 1536),
        ("alluvion_peak_reserved_bytes{device=\"0\"}", 4 << 20),
        ("alluvion_allocations_total{device=\"0\"}", 4),
        ("alluvion_frees_total{device=\"0\"}", 3),
        ("alluvion_failures_total{device=\"0\"}", 1),
        ("alluvion_tag_live_bytes{device=\"0\",tag=\"query;join\"}", 512),
        ("alluvion_tag_live_bytes{device=\"0\",tag=\"query\"}", 0),
    ] {
        assert_eq!(samples.get(name), Some(&f64::from(value)), "{name}");
    }
}

#[test]
fn figures_of_a_snapshot_are_its_status() {
    let folder = Folder::new("prometheus-snapshot");
    let page = text(&["export", &folder.file("snapshot.json", SNAPSHOT), "--format", "prometheus"]);
    let samples = samples(&page);
    for (name, value) in [
        ("alluvion_live_bytes{device=\"2\"}", 768.0),
        ("alluvion_hits_total{device=\"2\"}", 7.0),
        ("alluvion_fragmentation_ratio{device=\"2\"}", 0.5),
        ("alluvion_segments{device=\"2\"}", 2.0),
        ("alluvion_out_of_memory_requested_bytes{device=\"2\",cause=\"limit\"}", 9999.0),
        ("alluvion_tag_live_bytes{device=\"2\",tag=\"query;join\"}", 512.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
}
