//! `alluvion tune` from outside: what it prints, and how it ends.

mod program;
mod traces;

use program::{Folder, refused};
use serde_json::Value;
use traces::{objects, printed, trace};

/// The one object that it prints, without what is measured: that differs from run to run.
fn tuned(arguments: &[&str]) -> Value {
    let arguments = [&["tune", "--json"], arguments].concat();
    let mut objects = objects(&arguments);
    assert_eq!(objects.len(), 1);
    let mut report = objects.remove(0);
    for point in report["front"].as_array_mut().expect("a list") {
        let measured = point.as_object_mut().expect("an object").remove("measured_ns_per_event");
        assert!(measured.and_then(|ns| ns.as_f64()).is_some_and(|ns| ns > 0.0));
    }
    report
}

#[test]
fn the_front_goes_from_the_fastest_to_the_smallest() {
    let report = tuned(&[&trace("etl"), "--candidates", "40"]);
    assert_eq!((&report["trace"], &report["tried"]), (&"etl".into(), &40.into()));
    assert_eq!((&report["events"], &report["ended_by"]), (&8160.into(), &"candidates".into()));
    let front = report["front"].as_array().expect("a list");
    let numbers = |key: &str| -> Vec<u64> {
        front.iter().map(|point| point[key].as_u64().expect("a number")).collect()
    };
    let (charged, reserved) = (numbers("charged_ns"), numbers("peak_reserved"));
    assert!(charged.is_sorted() && reserved.iter().rev().is_sorted(), "{report:#}");
    assert!(charged.windows(2).all(|pair| pair[0] < pair[1]), "no two are equal: {report:#}");
    let best = |name: &str| -> Vec<&Value> {
        let is_it = |point: &&Value| point["best"].as_array().is_some_and(|best| best.contains(&name.into()));
        front.iter().filter(is_it).collect()
    };
    let [fastest, balanced, smallest] = ["fastest", "balanced", "smallest"].map(best);
    assert_eq!([fastest.len(), balanced.len(), smallest.len()], [1, 1, 1], "{report:#}");
    assert_eq!(balanced[0]["resource"], report["resource"]);
    // The source alone holds what is live and nothing else, at two calls a block.
    assert_eq!(smallest[0]["resource"], "cuda");
    assert!(smallest[0]["ratio"].as_f64().is_some_and(|ratio| (0.99..=1.0).contains(&ratio)), "{report:#}");
    assert_eq!(smallest[0]["upstream_calls"], 8160);
    assert!(charged[0] < 8160 * 100, "a pool asks the driver seldom: {report:#}");
}

/// Moves cost time and save memory, so that some of them are on the front. What is asked for stands over nothing else.
#[test]
fn pools_over_pages_are_tried_beside_cuda_and_not_beside_a_source_that_is_named() {
    let lines = |arguments: &[&str]| -> Vec<String> {
        let report = tuned(&[&[trace("etl").as_str(), "--candidates", "12"], arguments].concat());
        let front = report["front"].as_array().expect("a list").clone();
        front.iter().map(|point| point["resource"].as_str().expect("a line").to_owned()).collect()
    };
    let both = lines(&[]);
    let is_budget = |line: &String| line.starts_with("pool(budget=") && line.ends_with(" | mapped");
    assert!(both.iter().any(is_budget), "{both:?}");
    assert!(lines(&["--source", "cuda"]).iter().all(|line| !line.ends_with("mapped")));
    let pages = lines(&["--source", "mapped"]);
    assert!(pages.iter().all(|line| line.ends_with("mapped")) && pages.iter().any(is_budget), "{pages:?}");
}

#[test]
fn what_is_proposed_replays_with_the_same_figures() {
    let etl = trace("etl");
    for point in tuned(&[&etl, "--candidates", "30"])["front"].as_array().expect("a list") {
        let line = point["resource"].as_str().expect("a line");
        let outcome =
            &objects(&["replay", &etl, "-r", line, "--driver", "sim", "--rounds", "1", "--json"])[0];
        for key in ["charged_ns", "peak_reserved", "upstream_calls"] {
            assert_eq!(outcome[key], point[key], "{line}: {outcome:#}");
        }
        assert_eq!(outcome["failures"], 0);
    }
}

#[test]
fn a_seed_decides_what_is_tried() {
    let streams = trace("streams");
    let run = |seed: &str| tuned(&[&streams, "--candidates", "16", "--seed", seed]);
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7")["seed"], run("8")["seed"]);
}

#[test]
fn the_table_has_a_line_to_paste() {
    let (text, notes) = printed(&["tune", &trace("etl"), "--candidates", "12"]);
    assert_eq!(notes, "");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("etl: 8160 events, 376.0 MiB live at the peak; 12 stacks tried"), "{text}");
    for heading in ["resource", "charged/event", "measured/event", "peak reserved", "ratio", "best"] {
        assert!(lines[1].contains(heading), "{text}");
    }
    let line = lines.last().expect("there are lines").trim();
    let recipe = line.strip_prefix("ALLUVION_RESOURCE='").and_then(|rest| rest.strip_suffix('\''));
    let recipe: Result<alluvion::recipe::Recipe, _> = recipe.unwrap_or_else(|| panic!("{text}")).parse();
    assert!(recipe.is_ok(), "{recipe:?}");
}

#[test]
fn a_small_gpu_leaves_only_what_fits() {
    let report = tuned(&[&trace("etl"), "--candidates", "30", "--sim-memory", "400MiB"]);
    assert!(report["failed"].as_u64().is_some_and(|failed| failed > 0), "{report:#}");
    for point in report["front"].as_array().expect("a list") {
        assert!(point["peak_reserved"].as_u64().is_some_and(|bytes| bytes <= 400 << 20), "{point:#}");
    }
    let words = refused(1, &["tune", &trace("etl"), "--candidates", "30", "--sim-memory", "100MiB"]);
    assert!(words.contains("each of the 30 stacks that were tried fails"), "{words}");
}

#[test]
fn time_ends_a_search() {
    let report = tuned(&[&trace("etl"), "--candidates", "100000", "--budget-time", "1s"]);
    assert_eq!(report["ended_by"], "time");
    let tried = report["tried"].as_u64().expect("a number");
    assert!((1..100_000).contains(&tried), "{report:#}");
}

#[test]
fn other_sources_and_small_traces_do_too() {
    let folder = Folder::new("tune");
    let log = "Thread,Time,Action,Pointer,Size,Stream\n\
               1,00:00:00.000000,allocate,0x100,8,0\n\
               1,00:00:00.000000,free,0x100,8,0\n";
    let log = folder.file("small.csv", log);
    let report = tuned(&[&log, "--source", "managed", "--candidates", "40"]);
    let line = report["resource"].as_str().expect("a line");
    assert!(line.ends_with("managed"), "{line}");
}

#[test]
fn help_says_what_is_measured_and_what_is_charged() {
    let (help, _) = printed(&["tune", "--help"]);
    for words in ["Examples:", "What is charged", "What is measured", "--budget-time", "--seed"] {
        assert!(help.contains(words), "{help}");
    }
}

#[test]
fn what_is_not_understood_ends_with_two_and_what_fails_with_one() {
    let etl = trace("etl");
    for arguments in [
        vec!["tune"],
        vec!["tune", &etl, &etl],
        vec!["tune", &etl, "--candidates", "0"],
        vec!["tune", &etl, "--budget-time", "soon"],
        vec!["tune", &etl, "--source", "pool"],
        vec!["tune", &etl, "--source", "pool | cuda"],
        vec!["tune", &etl, "--source", "null"],
        vec!["tune", &etl, "--source", ""],
        vec!["tune", &etl, "--source", "cudda"],
        vec!["tune", &etl, "--sim-memory", "?"],
    ] {
        refused(2, &arguments);
    }
    assert!(refused(1, &["tune", "no-such-trace.csv"]).contains("no-such-trace.csv"));
    let words = refused(1, &["tune", &etl, "--source", "system", "--candidates", "5"]);
    assert!(words.contains("unsupported"), "{words}");
}

#[test]
fn a_peak_that_no_recipe_can_say_is_one_that_nothing_serves() {
    let folder = Folder::new("tune-absurd");
    let rows: String =
        (1..3).map(|at| format!("7,00:00:00.000001,allocate,{at:#x},9223372036854775000,0\n")).collect();
    let log = folder.file("log.csv", format!("Thread,Time,Action,Pointer,Size,Stream\n{rows}"));
    let said = refused(1, &["tune", &log]);
    assert!(said.contains("stacks that were tried fails an allocation"), "{said}");
}
