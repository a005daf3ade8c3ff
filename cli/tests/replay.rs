//! `alluvion replay` from outside: what it prints, and how it ends.

mod program;
mod traces;

use std::io::Read;

use alluvion::trace::{EventKind, Trace};
use program::{Folder, alluvion, refused};
use serde_json::Value;
use traces::{objects, printed, trace};

/// With the events, streams, threads and the live peak of each.
const TRACES: [(&str, u64, u64, u64, u64); 7] = [
    ("etl", 8160, 1, 1, 376),
    ("rnn", 7738, 1, 2, 536),
    ("serve_gpt", 121_086, 1, 1, 386),
    ("serve_streams", 112_844, 5, 5, 947),
    ("streams", 12_000, 4, 4, 1273),
    ("train_gpt", 40_763, 1, 2, 12_964),
    ("train_resnet", 26_211, 1, 2, 3114),
];

#[test]
fn the_seven_traces_replay_with_no_failure() {
    let paths = TRACES.map(|(name, ..)| trace(name));
    let mut arguments = vec!["replay", "--driver", "sim", "--rounds", "1", "--json", "--sim-memory", "24GiB"];
    arguments.extend(paths.iter().map(String::as_str));
    let outcomes = objects(&arguments);
    assert_eq!(outcomes.len(), TRACES.len());
    for (outcome, (name, events, streams, threads, live)) in outcomes.iter().zip(TRACES) {
        assert_eq!(outcome["trace"], name);
        let numbers = ["events", "streams", "log_threads", "failures"].map(|key| outcome[key].as_u64());
        assert_eq!(numbers, [Some(events), Some(streams), Some(threads), Some(0)], "{outcome}");
        assert_eq!(outcome["peak_live"].as_u64().map(|bytes| bytes >> 20), Some(live), "{outcome}");
        let ratio = outcome["ratio"].as_f64().expect("a number");
        assert!((1.0..2.0).contains(&ratio), "{outcome}");
        let reserved = outcome["peak_reserved"].as_f64().expect("a number");
        assert!((reserved / outcome["peak_live"].as_f64().unwrap() - ratio).abs() < 1e-9, "{outcome}");
        // What grows by a sixteenth at a time takes 145 segments until 2 MiB have become 13 GiB.
        assert!(
            outcome["upstream_calls"].as_u64().is_some_and(|calls| (1..=145).contains(&calls)),
            "{outcome}"
        );
        assert!(outcome["ns_per_event"].as_f64().is_some_and(|ns| ns > 0.0), "{outcome}");
        assert!(outcome["charged_ns"].as_u64().is_some_and(|ns| ns > 0), "{outcome}");
        assert!(outcome.get("first_failure").is_none(), "{outcome}");
    }
}

#[test]
fn threads_may_run_free() {
    let paths = ["rnn", "streams", "serve_streams"].map(trace);
    for driver in ["sim", "null"] {
        let mut arguments =
            vec!["replay", "--driver", driver, "--threads", "free", "--rounds", "2", "--json"];
        arguments.extend(paths.iter().map(String::as_str));
        for outcome in objects(&arguments) {
            assert_eq!((&outcome["threads"], &outcome["failures"]), (&"free".into(), &0.into()), "{outcome}");
            assert_eq!(outcome["driver"], driver);
        }
    }
}

#[test]
fn stacks_stand_side_by_side_in_a_table() {
    let etl = trace("etl");
    let (text, notes) = printed(&[
        "replay",
        &etl,
        "-r",
        "pool(growth=exact)|cuda",
        "-r",
        "cuda",
        "--resource",
        "",
        "--driver",
        "sim",
        "--rounds",
        "1",
    ]);
    assert_eq!(notes, "", "no bar where nobody watches");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "etl: 8160 events, 1 stream, 1 thread, 376.0 MiB live at the peak; log-order on sim"
    );
    for heading in
        ["resource", "ns/event", "charged/event", "peak reserved", "ratio", "failures", "upstream calls"]
    {
        assert!(lines[1].contains(heading), "{text}");
    }
    for (line, name) in lines[2..5].iter().zip(["pool(growth=exact) | cuda ", "cuda ", "(default source) "]) {
        assert!(line.trim_start().starts_with(name), "{text}");
        assert_eq!(line.len(), lines[1].len(), "{text}");
    }
    // What the driver was asked is what was charged: a pair of its allocation and its free, 8160 times half of that.
    let words: Vec<&str> = lines[3].split_whitespace().collect();
    assert_eq!((words[3], words[6], words[7]), ("376.0", "0", "8160"), "{text}");
}

#[test]
fn what_fails_is_counted_and_shown_and_the_replay_goes_on() {
    let text = "Thread,Time,Action,Pointer,Size,Stream\n\
                1,00:00:00.000000,allocate,0x100,1048576,0\n\
                1,00:00:00.000000,allocate,0x200,4611686018427387904,0\n\
                1,00:00:00.000000,free,0x200,4611686018427387904,0\n\
                1,00:00:00.000000,allocate,0x300,1048576,0\n";
    let folder = Folder::new("replay-fails");
    let log = folder.file("fails.csv", text);
    for threads in ["log-order", "free"] {
        let outcomes = objects(&[
            "replay",
            &log,
            "-r",
            "pool | cuda",
            "--driver",
            "sim",
            "--threads",
            threads,
            "--json",
        ]);
        assert_eq!(outcomes[0]["failures"], 1);
        assert_eq!(outcomes[0]["peak_live"], 2 << 20, "what failed was never live");
        let first = &outcomes[0]["first_failure"];
        assert_eq!(first["event"], 1);
        assert!(first["error"].as_str().is_some_and(|error| error.contains("out of memory")), "{first}");
    }
    let (_, notes) = printed(&["replay", &log, "--driver", "sim"]);
    assert!(notes.contains("pool: event 1 failed first: out of memory"), "{notes}");
}

/// The live bytes after each event.
fn curve(path: &str) -> Vec<u64> {
    let mut bytes = Vec::new();
    flate2::read::MultiGzDecoder::new(std::fs::File::open(path).expect("it is there"))
        .read_to_end(&mut bytes)
        .or_else(|_| std::fs::read(path).map(|plain| plain.clone_into(&mut bytes)).map(|()| 0))
        .expect("it is read");
    let trace = Trace::from_rmm_csv(&bytes[..]).expect("it is a log");
    let mut live = 0;
    let after = trace.events.iter().map(|event| {
        live = if event.kind == EventKind::Allocate { live + event.bytes } else { live - event.bytes };
        live
    });
    after.collect()
}

#[test]
fn what_a_replay_logs_has_the_same_live_curve_and_replays_the_same() {
    let folder = Folder::new("replay-log");
    for (name, ending) in [("etl", "csv"), ("streams", "csv.gz")] {
        let (log, original) = (folder.path(&format!("{name}.{ending}")), trace(name));
        let line = format!("logging(\"{log}\") | pool | cuda");
        let run = |path: &str, line: &str| {
            objects(&["replay", path, "-r", line, "--driver", "sim", "--rounds", "1", "--json"]).remove(0)
        };
        let (first, again) = (run(&original, &line), run(&log, "pool | cuda"));
        for key in ["events", "streams", "peak_live", "peak_reserved", "failures", "upstream_calls"] {
            assert_eq!(first[key], again[key], "{name}: {key}");
        }
        let is_packed = std::fs::read(&log).expect("it is there").starts_with(&[0x1f, 0x8b]);
        assert_eq!(is_packed, ending == "csv.gz");
        assert_eq!(curve(&log), curve(&original), "{name}");
    }
}

#[test]
fn a_small_simulated_gpu_is_small() {
    let streams = trace("streams");
    let failures = |memory: &str| -> Value {
        let arguments = [
            "replay",
            &streams,
            "-r",
            "cuda",
            "--driver",
            "sim",
            "--sim-memory",
            memory,
            "--rounds",
            "1",
            "--json",
        ];
        objects(&arguments)[0]["failures"].clone()
    };
    assert_eq!(failures("24GiB"), 0);
    assert!(failures("512MiB").as_u64().is_some_and(|failures| failures > 0));
}

#[test]
fn with_no_memory_at_all_only_the_layers_are_measured() {
    let etl = trace("etl");
    let outcomes =
        objects(&["replay", &etl, "-r", "pool | null", "-r", "pool", "--driver", "null", "--json"]);
    assert_eq!(outcomes[0]["peak_reserved"], outcomes[1]["peak_reserved"]);
    let on_sim = |resource: &str| -> Value {
        objects(&["replay", &etl, "-r", resource, "--driver", "sim", "--rounds", "1", "--json"]).remove(0)
    };
    let outcome = on_sim("pool(growth=doubling) | null");
    assert_eq!(outcome["charged_ns"], 0, "no call reached a driver: {outcome}");
    // Before it grows by a little the pool asks how far the stream has come. Calls for memory are charged with 242 ns on top.
    let (bare, whole) = (on_sim("pool | null"), on_sim("pool | cuda-async"));
    let [bare_ns, whole_ns] =
        [&bare, &whole].map(|outcome| outcome["charged_ns"].as_u64().expect("a number"));
    assert_eq!(bare["upstream_calls"], whole["upstream_calls"]);
    let calls = whole["upstream_calls"].as_u64().expect("a number");
    assert_eq!(whole_ns - bare_ns, 242 * calls, "no call for memory reached a driver: {bare}, {whole}");
    let words = refused(2, &["replay", &etl, "-r", "pool | cuda", "--driver", "null"]);
    assert!(words.contains("the driver null has no `cuda`; leave the source out"), "{words}");
}

#[test]
fn help_has_examples_and_tells_of_recipes() {
    let (short, _) = printed(&["replay", "-h"]);
    assert!(short.contains("Examples:") && !short.contains("cuda-async-managed"), "{short}");
    let (long, _) = printed(&["replay", "--help"]);
    for words in [
        "Examples:",
        "  charged/event   ns",
        "A RECIPE is",
        "  pool(initial=SIZE",
        "  cuda-async-managed",
        "--sim-memory",
    ] {
        assert!(long.contains(words), "{words}: {long}");
    }
    let (all, _) = printed(&["--help"]);
    assert!(all.contains("alluvion replay"), "{all}");
}

#[test]
fn what_is_not_understood_ends_with_two() {
    let etl = trace("etl");
    for arguments in [
        vec!["replay"],
        vec!["replay", "--json"],
        vec!["replay", &etl, "--driver", "rocm"],
        vec!["replay", &etl, "--threads", "many"],
        vec!["replay", &etl, "--sim-memory", "50%"],
        vec!["replay", &etl, "--sim-memory", "much"],
        vec!["replay", &etl, "--rounds", "0"],
        vec!["replay", &etl, "--dance"],
    ] {
        refused(2, &arguments);
    }
    // The place is shown, and nothing is played before all is understood.
    let words = refused(2, &["replay", &etl, "-r", "pool", "-r", "pool | cuda-asinc", "--driver", "sim"]);
    assert!(words.contains("column 8: nothing is called `cuda-asinc`"), "{words}");
    assert!(words.contains("\n  pool | cuda-asinc\n         ^^^^^^^^^^\n"), "{words}");
    let words = refused(2, &["replay", &etl, "-r", "pool", "-r", "arena(100)", "--driver", "sim"]);
    assert!(words.contains("an arena below 256 bytes"), "{words}");
}

#[test]
fn what_cannot_be_read_or_made_ends_with_one() {
    let words = refused(1, &["replay", "no-such-trace.csv"]);
    assert!(words.contains("no-such-trace.csv"), "{words}");
    let heading = "Thread,Time,Action,Pointer,Size,Stream\n";
    let folder = Folder::new("replay-bad");
    let idle = folder.file("idle.csv", heading);
    assert!(refused(1, &["replay", &idle]).contains("nothing is allocated in it"));
    let bad = folder.file("bad.csv", format!("{heading}1,00:00:00.000000,allocate,0x1,x,0\n"));
    assert!(refused(1, &["replay", &trace("etl"), &bad]).contains("malformed: line 2: Size is `x`"));
    let words = refused(
        1,
        &["replay", &trace("etl"), "-r", "arena(2GiB)", "--driver", "sim", "--sim-memory", "1GiB"],
    );
    assert!(words.contains("the stack `arena(bytes=2GiB)`: out of memory"), "{words}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_reader_that_has_had_enough_ends_it_in_silence() {
    let (reader, writer) = std::io::pipe().expect("there are pipes");
    drop(reader);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_alluvion"))
        .args(["replay", &trace("etl"), "--driver", "null", "--rounds", "1"])
        .stdout(writer)
        .output()
        .expect("the program starts");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(1), ""));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_alluvion"))
        .args(["replay", &trace("etl"), "--driver", "null", "--rounds", "1"])
        .stdout(full)
        .output()
        .expect("the program starts");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && words.contains("writing the figures"), "{words}");
}

#[test]
fn a_snapshot_is_no_log() {
    let path = format!("{}/../tests/snapshots/pool.json", env!("CARGO_MANIFEST_DIR"));
    assert!(refused(1, &["replay", &path]).contains("it is a snapshot, and a log is needed"));
    assert!(alluvion(&["replay", "--version"]).status.code() == Some(2));
}

/// A log in which so many threads allocate once each.
fn log_of_threads(folder: &Folder, threads: u32) -> String {
    let rows: String =
        (1..=threads).map(|n| format!("{n},00:00:00.000001,allocate,{:#x},100,0\n", n * 256)).collect();
    folder.file("threads.csv", format!("Thread,Time,Action,Pointer,Size,Stream\n{rows}"))
}

#[test]
fn more_threads_than_a_machine_has_room_for_are_refused() {
    let folder = Folder::new("replay-threads");
    let log = log_of_threads(&folder, 4097);
    let words = refused(1, &["replay", &log, "--threads", "free", "--driver", "null", "--rounds", "1"]);
    assert!(words.contains("4097 threads"), "{words}");
}

/// Each thread has 2 MiB of addresses for its stack, so that not all of them fit.
#[cfg(target_os = "linux")]
#[test]
fn a_thread_that_there_is_not_ends_it_and_keeps_nobody_waiting() {
    let folder = Folder::new("replay-no-thread");
    let log = log_of_threads(&folder, 4000);
    let line = format!(
        "ulimit -v 4000000; exec timeout 60 {} replay {log} --threads free --driver null --rounds 1",
        env!("CARGO_BIN_EXE_alluvion")
    );
    // A thread that has its stack and finds no room for that of its signals is ended by the standard library, and its process with it.
    let outputs = std::iter::repeat_with(|| {
        std::process::Command::new("sh").args(["-c", &line]).output().expect("there is a shell")
    });
    let is_told = |output: &std::process::Output| {
        !String::from_utf8_lossy(&output.stderr).contains("alternative stack")
    };
    let output = outputs.take(20).find(is_told).expect("the last thread seldom has half of what it needs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("no more threads") && !words.contains("panicked"), "{words}");
}

/// As a program leaves it that was killed, or a disk that was full.
#[test]
fn a_log_that_was_cut_is_played_to_where_it_ends() {
    let folder = Folder::new("replay-cut");
    let rows = "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00.000000,allocate,0x100,1048576,0\n";
    let log = folder.file("cut.csv", format!("{rows}1,00:00:00.000001,free,0x1"));
    let packed = folder.path("cut.csv.gz");
    let whole = std::fs::read(trace("etl")).expect("it is there");
    std::fs::write(&packed, &whole[..whole.len() / 2]).expect("there is room");

    let (text, notes) = printed(&["replay", &log, "--driver", "sim", "--rounds", "1"]);
    assert!(text.starts_with("cut: 1 event, 1 stream"), "{text}");
    let why = "that line has no line end, and is left out; what comes before is read";
    assert_eq!(notes, format!("note: {log}: it ends in line 3, after byte {}: {why}\n", rows.len()));

    let (text, notes) = printed(&["replay", &packed, "--driver", "sim", "--rounds", "1"]);
    assert!(text.starts_with("cut: ") && !text.starts_with("cut: 8160 events"), "{text}");
    assert!(notes.starts_with(&format!("note: {packed}: it ends in line ")), "{notes}");
    assert!(notes.ends_with(": what gzip packed has no end; what comes before is read\n"), "{notes}");

    let page = folder.path("cut.html");
    let (_, notes) = printed(&["viz", &log, "-o", &page]);
    assert_eq!(notes.lines().count(), 1, "{notes}");
    printed(&["export", &log, "--format", "perfetto", "-o", &folder.path("cut.json")]);

    let empty = folder.file("empty.csv", "");
    assert!(refused(1, &["replay", &empty]).contains("the file is empty: a log has at least its heading"));
    let mark = folder.file("mark.csv", format!("\u{feff}{rows}"));
    assert_eq!(printed(&["replay", &mark, "--driver", "sim", "--rounds", "1"]).1, "");
}

#[test]
fn the_smallest_device_of_each_stack_and_trace_is_a_line() {
    let folder = Folder::new("replay-smallest");
    let rows = "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00.000000,allocate,0x100,67108864,0\n";
    let log = folder.file("one.csv", rows);
    let arguments = [
        "replay",
        &log,
        "--smallest",
        "-r",
        "cuda",
        "-r",
        "pool(growth=exact, reuse=own)",
        "--driver",
        "sim",
    ];
    let (text, notes) = printed(&arguments);
    let bytes = (64 << 20) + (2 << 20);
    assert_eq!(
        text,
        format!(
            "smallest,cuda,one,1.01,{bytes}\nsmallest,\"pool(growth=exact, reuse=own)\",one,1.01,{bytes}\n"
        )
    );
    assert_eq!(notes, "");

    let outcomes = objects(&[&arguments[..], &["--json"]].concat());
    assert_eq!(outcomes.len(), 2);
    let outcome = &outcomes[0];
    assert_eq!(
        (&outcome["trace"], &outcome["resource"], &outcome["driver"]),
        (&"one".into(), &"cuda".into(), &"sim".into())
    );
    assert_eq!((outcome["peak_live"].as_u64(), outcome["smallest"].as_u64()), (Some(64 << 20), Some(bytes)));
    assert!(outcome["ratio"].as_f64().is_some_and(|ratio| (1.0..1.01).contains(&ratio)), "{outcome}");
}

#[test]
fn what_fails_on_every_device_is_above_eight_and_says_why() {
    let folder = Folder::new("replay-above");
    let rows = "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:00.000000,allocate,0x100,67108864,0\n";
    let log = folder.file("one.csv", rows);
    let arguments = ["replay", &log, "--smallest", "-r", "limiting(1MiB) | cuda", "--driver", "sim"];
    let (text, notes) = printed(&arguments);
    assert_eq!(text, "smallest,limiting(bytes=1MiB) | cuda,one,above 8,\n");
    assert!(
        notes.contains("on a device of 8 times the live peak event 0 failed first: out of memory"),
        "{notes}"
    );
    let outcome = objects(&[&arguments[..], &["--json"]].concat()).remove(0);
    assert!(outcome["smallest"].is_null() && outcome["ratio"].is_null(), "{outcome}");
    assert_eq!(outcome["first_failure"]["event"], 0);
}

#[test]
fn what_a_search_for_the_smallest_decides_itself_cannot_be_told() {
    let etl = trace("etl");
    for (flag, value) in [("--rounds", "3"), ("--threads", "free"), ("--sim-memory", "1GiB")] {
        let words = refused(2, &["replay", &etl, "--smallest", flag, value]);
        assert!(words.contains("cannot be used with") && words.contains(flag), "{words}");
    }
    let words = refused(2, &["replay", &etl, "--smallest", "-r", "cuda-async-managed", "--driver", "sim"]);
    assert!(words.contains("name another source"), "{words}");
}

/// As a log tells it: that the second stream waited for the first is not in there.
#[test]
fn a_block_that_another_stream_frees_is_no_hazard_of_the_replay() {
    let folder = Folder::new("replay-streams");
    let rows = "Thread,Time,Action,Pointer,Size,Stream\n\
                1,00:00:00.000000,allocate,0x100,67108864,0x1\n\
                1,00:00:00.000000,allocate,0x200,67108864,0x2\n\
                1,00:00:00.000000,free,0x100,67108864,0x2\n";
    let log = folder.file("two.csv", rows);
    let (text, _) = printed(&[
        "replay",
        &log,
        "--driver",
        "sim",
        "-r",
        "cuda-async",
        "-r",
        "pool | cuda",
        "--rounds",
        "2",
    ]);
    assert!(text.starts_with("two: 3 events, 2 streams"), "{text}");
    let (text, _) = printed(&["replay", &log, "--smallest", "--driver", "sim", "-r", "cuda-async"]);
    assert!(text.starts_with("smallest,cuda-async,two,"), "{text}");
}
