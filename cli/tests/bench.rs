//! The program from outside: what it prints, and how it ends.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn alluvion(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_alluvion")).args(arguments).output().expect("the program starts")
}

fn trace(name: &str) -> String {
    format!("{}/../tests/traces/{name}.csv.gz", env!("CARGO_MANIFEST_DIR"))
}

/// What it prints when all is well, line by line.
#[track_caller]
fn lines(arguments: &[&str]) -> Vec<String> {
    let output = alluvion(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("it prints text").lines().map(str::to_owned).collect()
}

/// What it says when it ends with that code. Then it prints no figure.
#[track_caller]
fn refused(code: i32, arguments: &[&str]) -> String {
    let output = alluvion(arguments);
    let errors = String::from_utf8(output.stderr).expect("it prints text");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed {}", String::from_utf8_lossy(&output.stdout));
    assert!(!errors.contains("panicked"), "{errors}");
    errors
}

/// Matches a line against a pattern in which `#` stands for a number, and returns the numbers.
#[track_caller]
fn numbers(line: &str, pattern: &str) -> Vec<f64> {
    let mut rest = line;
    let mut found = Vec::new();
    for (at, part) in pattern.split('#').enumerate() {
        if at > 0 {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            found.push(rest[..end].parse().unwrap_or_else(|_| panic!("`{line}` is not `{pattern}`")));
            rest = &rest[end..];
        }
        rest = rest.strip_prefix(part).unwrap_or_else(|| panic!("`{line}` is not `{pattern}`"));
    }
    assert!(rest.is_empty(), "`{line}` is not `{pattern}`");
    found
}

fn quick(workload: &str, driver: &str) -> Vec<String> {
    lines(&["bench", workload, "--quick", "--driver", driver])
}

#[test]
fn pair_prints_every_size_beside_every_number_of_blocks() {
    for driver in ["null", "sim"] {
        let lines = quick("pair", driver);
        let cases: Vec<_> =
            lines.iter().map(|line| numbers(line, "pair,alluvion_pool,live=# size=#,#")).collect();
        let wanted =
            [0.0, 100.0].map(|live| [256.0, 65_536.0, 1_048_576.0, 67_108_864.0].map(|size| [live, size]));
        assert_eq!(
            cases.iter().map(|case| [case[0], case[1]]).collect::<Vec<_>>(),
            wanted.concat(),
            "{driver}"
        );
        assert!(cases.iter().all(|case| case[2] > 0.0), "{lines:?}");
    }
}

#[test]
fn random_never_fails_with_room_to_spare() {
    let lines = quick("random", "null");
    let cases: Vec<_> =
        lines.iter().map(|line| numbers(line, "random,alluvion_pool,num=# max=#MiB fails=#,#")).collect();
    assert_eq!(
        cases.iter().map(|case| [case[0], case[1], case[2]]).collect::<Vec<_>>(),
        [[1000.0, 1.0, 0.0], [1000.0, 4096.0, 0.0]]
    );
}

#[test]
fn threads_prints_a_line_for_each_number_of_them() {
    for driver in ["null", "sim"] {
        let lines = quick("threads", driver);
        let cases: Vec<_> =
            lines.iter().map(|line| numbers(line, "threads,alluvion_pool,T=#,# Mops/s")).collect();
        assert_eq!(cases.iter().map(|case| case[0]).collect::<Vec<_>>(), [1.0, 2.0], "{driver}");
        assert!(cases.iter().all(|case| case[1] > 0.0), "{lines:?}");
    }
}

#[test]
fn cross_prints_one_line() {
    for driver in ["null", "sim"] {
        let lines = quick("cross", driver);
        assert_eq!(lines.len(), 1, "{lines:?}");
        numbers(&lines[0], "cross,alluvion_pool,alloc/free alternating between two streams #MiB,#");
    }
}

#[test]
fn turns_prints_a_line_for_each_number_of_streams() {
    for driver in ["null", "sim"] {
        let lines = quick("turns", driver);
        let cases: Vec<_> =
            lines.iter().map(|line| numbers(line, "turns,alluvion_pool,streams=#,#")).collect();
        assert_eq!(cases.iter().map(|case| case[0]).collect::<Vec<_>>(), [10.0, 100.0], "{driver}");
        assert!(cases.iter().all(|case| case[1] > 0.0), "{lines:?}");
    }
}

#[test]
fn sleep_prints_the_time_of_both_and_that_of_the_copies() {
    let lines = lines(&["bench", "sleep", "--quick", "--driver", "sim", "--mib", "5"]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, what) in lines.iter().zip(["alluvion", "copies"]) {
        let figures = numbers(line, &format!("sleep,{what},#MiB,#"));
        assert!(figures[0] == 5.0 && figures[1] > 0.0, "{line}");
    }
}

#[test]
fn replay_prints_the_trace_and_its_figures() {
    for driver in ["null", "sim"] {
        let lines =
            lines(&["bench", "replay", "--quick", "--driver", driver, &trace("etl"), &trace("streams")]);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert_eq!(lines[0], "replay,etl.evt,events=8160 streams=1 peak_live=376.0 MiB,");
        assert_eq!(lines[2], "replay,streams.evt,events=12000 streams=4 peak_live=1273.5 MiB,");
        for (line, name) in [(&lines[1], "etl"), (&lines[3], "streams")] {
            let pattern =
                format!("replay,alluvion_pool,{name}.evt first=# ns/ev steady=# ns/ev footprint=# MiB,#");
            let figures = numbers(line, &pattern);
            assert!(
                figures[3] > 0.999,
                "{line}: it holds what is live, and a block may be less than whole units"
            );
        }
    }
}

#[test]
fn footprint_prints_two_lines_for_each_program_and_each_log_and_two_for_all_programs() {
    let etl = trace("etl");
    let words = ["bench", "footprint", "--workloads", "2", "--first-seed", "7", "--events", "500", &etl];
    let all_lines = lines(&words);
    assert_eq!(all_lines.len(), 8, "{all_lines:?}");
    for (ours, peer) in [("alluvion_pool", "rmm"), ("alluvion_pool_mapped", "torch_expandable")] {
        let lines: Vec<&String> =
            all_lines.iter().filter(|line| line.starts_with(&format!("footprint,{ours},"))).collect();
        assert_eq!(lines.len(), 4, "{all_lines:?}");
        let figures = format!("events=# streams=# peak_live=# MiB over_live=# {peer}=# calls=#,#");
        let programs: Vec<_> = [lines[0], lines[1]]
            .into_iter()
            .zip(["7", "8"])
            .map(|(line, seed)| {
                let (program, _) = line.split_once(" events=").expect("it says how many calls");
                assert!(program.ends_with(&format!(" {seed}")), "{line} is not of the seed {seed}");
                numbers(line, &format!("{program} {figures}"))
            })
            .collect();
        let log = numbers(lines[3], &format!("footprint,{ours},etl {figures}"));
        assert_eq!(log[..3], [8160.0, 1.0, 376.0], "{}", lines[3]);
        for (line, figures) in lines.iter().zip(&programs).chain([(&lines[3], &log)]) {
            let [_, _, _, ours, theirs, calls, ratio] = figures[..] else {
                panic!("{line} has other figures")
            };
            assert!(ours > 0.99 && theirs > 0.99 && calls >= 1.0, "{line}: both hold what is live");
            // Two numbers that are rounded to hundredths.
            assert!((ratio - ours / theirs).abs() <= 0.01 * (1.0 + ratio) / theirs, "{line}");
        }
        assert!(programs.iter().all(|figures| figures[0] == 500.0), "{lines:?}");
        let pattern = format!("footprint,{ours},at or below {peer} on # of # highest=# highest_over_live=#,");
        let [at_or_below, of, highest, over_live] = numbers(lines[2], &pattern)[..] else {
            panic!("{}", lines[2])
        };
        let ratios = programs.iter().map(|figures| figures[6]);
        let wanted = ratios.clone().filter(|ratio| *ratio <= 1.0).count();
        assert_eq!((at_or_below, of), (wanted as f64, 2.0), "the log does not count");
        assert_eq!(highest, ratios.fold(0.0, f64::max), "the log does not count");
        let most_over_live = programs.iter().map(|figures| figures[3]).fold(0.0, f64::max);
        assert!((over_live - most_over_live).abs() <= 0.006, "{}", lines[2]);
    }
    let again = alluvion(&words);
    assert_eq!(
        String::from_utf8_lossy(&again.stdout).lines().collect::<Vec<_>>(),
        all_lines,
        "a seed is a program"
    );
}

#[test]
fn layers_prints_every_stack_beside_none() {
    let lines = lines(&["bench", "layers", "--quick", "--threads", "2"]);
    let of = |case: &str| -> Vec<_> {
        let of_case = lines.iter().filter_map(|line| line.strip_prefix(&format!("layers,{case},")));
        of_case.map(|rest| rest.rsplitn(3, ',').map(str::to_owned).collect::<Vec<_>>()).collect()
    };
    let [null, pool, threads] = ["null", "pool", "pool T=2"].map(of);
    let names = |rows: &[Vec<String>]| rows.iter().map(|row| row[2].clone()).collect::<Vec<_>>();
    assert_eq!((null.len(), names(&null), names(&null)), (14, names(&pool), names(&threads)));
    assert_eq!(lines.len(), 3 * 14, "{lines:?}");
    let first = |rows: &[Vec<String>]| rows[0].clone();
    assert_eq!((first(&null)[2].as_str(), first(&null)[0].as_str()), ("none", "+0.0"));
    assert_eq!((first(&threads)[2].as_str(), first(&threads)[0].as_str()), ("none", "1.00"));
    for row in null.iter().chain(&pool) {
        let ns = row[1].strip_suffix(" ns").and_then(|ns| ns.parse::<f64>().ok());
        assert!(ns.is_some_and(|ns| ns > 0.0) && row[0].parse::<f64>().is_ok(), "{row:?}");
    }
    for row in &threads {
        let mops = row[1].strip_suffix(" Mops/s").and_then(|mops| mops.parse::<f64>().ok());
        assert!(mops.is_some_and(|mops| mops > 0.0) && row[0].parse::<f64>().is_ok(), "{row:?}");
    }
}

#[test]
fn host_prints_what_the_host_costs() {
    let lines = lines(&["bench", "host", "--quick"]);
    let names: Vec<_> = lines.iter().map(|line| line.split(',').nth(1).unwrap_or_default()).collect();
    let mut wanted = vec![
        "Mutex lock+unlock uncontended",
        "Arc clone+drop",
        "hashbrown get of 100k",
        "hashbrown insert+remove",
    ];
    if cfg!(feature = "mimalloc") {
        wanted.extend(["mimalloc pair 64 B", "mimalloc pair 64 KiB", "mimalloc pair 1 MiB"]);
    }
    assert_eq!(names, wanted);
    for line in &lines {
        let ns = line.split(',').nth(2).and_then(|ns| ns.parse::<f64>().ok());
        assert!(ns.is_some_and(|ns| ns > 0.0), "{line}");
    }
}

#[test]
fn the_host_is_measured_beside_mimalloc_or_it_is_said_why_not() {
    let output = alluvion(&["bench", "host", "--quick"]);
    let notes = String::from_utf8(output.stderr).expect("it prints text");
    let why = "note: mimalloc is not measured: it is in programs built with the feature `mimalloc`\n";
    assert_eq!(notes, if cfg!(feature = "mimalloc") { "" } else { why });
}

#[test]
fn the_version_is_that_of_the_program() {
    for flag in ["--version", "-V"] {
        assert_eq!(lines(&[flag]), [concat!("alluvion ", env!("CARGO_PKG_VERSION"))]);
    }
}

#[test]
fn several_stacks_come_one_after_the_other() {
    let lines =
        lines(&["bench", "cross", "--quick", "--driver", "sim", "--stack", "cuda-async", "--stack", "cuda"]);
    let names: Vec<_> = lines.iter().map(|line| line.split(',').nth(1).unwrap_or_default()).collect();
    assert_eq!(names, ["alluvion_cuda_async", "alluvion_cuda"]);
}

#[test]
fn every_stack_runs_every_workload_that_it_can() {
    for (driver, source) in [("null", "null"), ("sim", "cuda")] {
        for stack in ["pool", "pool-mapped", "pool-mapped-budget", "arena", "binning", "fixed-size", source] {
            let arguments = |workload| ["bench", workload, "--quick", "--driver", driver, "--stack", stack];
            // Blocks of 1 MiB serve three of the four sizes, beside none and beside a hundred blocks.
            let sizes = if stack == "fixed-size" { 6 } else { 8 };
            assert_eq!(lines(&arguments("pair")).len(), sizes, "{driver} {stack}");
            assert_eq!(lines(&arguments("threads")).len(), 2, "{driver} {stack}");
            assert_eq!(lines(&arguments("cross")).len(), 1, "{driver} {stack}");
            assert_eq!(lines(&arguments("turns")).len(), 2, "{driver} {stack}");
            assert_eq!(lines(&arguments("multi-stream")).len(), 6, "{driver} {stack}");
        }
    }
}

/// RMM's benchmarks by their flags: RANDOM_ALLOCATIONS_BENCH, MULTI_STREAM_ALLOCATIONS_BENCH, REPLAY_BENCH.
#[test]
fn the_flags_of_rmm_are_understood() {
    let random = |words: &[&str]| lines(&[&["bench", "random", "--driver", "sim"], words].concat());
    for words in [
        ["--numallocs", "200", "--maxsize", "4", "--resource", "arena"],
        ["-n", "200", "-m", "4", "-r", "arena"],
        ["--allocations", "200", "--max-mib", "4", "--stack", "arena"],
    ] {
        let lines = random(&words);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let found = numbers(&lines[0], "random,alluvion_arena,num=# max=#MiB fails=#,#");
        assert_eq!(found[..3], [200.0, 4.0, 0.0], "{lines:?}");
    }
    let words =
        ["bench", "multi-stream", "--quick", "--driver", "sim", "--numkernels", "6", "--numstreams", "3"];
    let lines = lines(&words);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let found = numbers(&lines[0], "multi-stream,alluvion_pool,streams=# kernels=# first=#,#");
    assert_eq!(found[..2], [3.0, 6.0], "{lines:?}");
    let etl = trace("etl");
    for words in [vec!["-f", &etl], vec!["--file", &etl], vec![&etl[..]]] {
        let words = [vec!["bench", "replay", "--quick", "--driver", "null", "-r", "pool"], words].concat();
        assert_eq!(crate::lines(&words).len(), 2, "{words:?}");
    }
}

#[test]
fn streams_vectors_and_pools_of_the_driver_are_measured() {
    let several = quick("multi-stream", "null");
    let cases: Vec<_> = several
        .iter()
        .map(|line| numbers(line, "multi-stream,alluvion_pool,streams=# kernels=# first=#,#"))
        .collect();
    let wanted = [4.0, 8.0].map(|kernels| [1.0, 2.0, 4.0].map(|streams| [streams, kernels])).concat();
    assert_eq!(cases.iter().map(|case| [case[0], case[1]]).collect::<Vec<_>>(), wanted, "{several:?}");
    let streams = quick("stream-pool", "sim");
    assert!(numbers(&streams[0], "stream-pool,next of a pool,#")[0] > 0.0, "{streams:?}");
    assert!(numbers(&streams[1], "stream-pool,made and destroyed,#")[0] > 0.0, "{streams:?}");
    let pools = quick("priming", "sim");
    let pattern = "priming,cuda-async,initial=#MiB made=#ms first=#,#";
    assert_eq!([numbers(&pools[0], pattern)[0], numbers(&pools[1], pattern)[0]], [0.0, 10.0], "{pools:?}");
    let vectors = quick("vectors", "sim");
    assert_eq!(vectors.len(), 8, "{vectors:?}");
    for (line, stack) in vectors.iter().zip(["pool"; 4].into_iter().chain(["cuda_async"; 4])) {
        assert!(line.starts_with(&format!("vectors,alluvion_{stack},")), "{line}");
    }
    assert_eq!(
        numbers(&vectors[3], "vectors,alluvion_pool,three, two copies elements=#,#")[0],
        1e5,
        "{vectors:?}"
    );
}

#[test]
fn every_figure_is_an_object_in_json() {
    let etl = trace("etl");
    for (arguments, keys) in [
        (vec!["pair"], vec!["live", "size", "ns"]),
        (vec!["random"], vec!["num", "max_mib", "fails", "ms"]),
        (vec!["threads"], vec!["threads", "mops"]),
        (vec!["cross"], vec!["ns"]),
        (vec!["turns"], vec!["streams", "ns"]),
        (vec!["multi-stream"], vec!["streams", "kernels", "first_ns", "ns"]),
        (vec!["stream-pool"], vec!["what", "ns"]),
        (vec!["replay", &etl], vec!["trace"]),
    ] {
        let arguments = [vec!["bench"], arguments, vec!["--quick", "--driver", "null", "--json"]].concat();
        for line in lines(&arguments) {
            let figure: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(figure["driver"], "null", "{line}");
            assert!(keys.iter().all(|key| figure.get(key).is_some()), "{line}");
        }
    }
    let host = lines(&["bench", "host", "--quick", "--json"]);
    let host: Value = serde_json::from_str(&host[0]).expect("it is JSON");
    assert_eq!((&host["workload"], &host["driver"]), (&Value::from("host"), &Value::from("host")));
    assert!(host["ns"].is_f64() && host.get("allocator").is_none(), "{host}");
}

#[test]
fn figures_of_a_replay_in_json_are_numbers() {
    let lines = lines(&["bench", "replay", "--quick", "--driver", "null", "--json", &trace("etl")]);
    let [about, figure] =
        [&lines[0], &lines[1]].map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    assert_eq!(
        (&about["workload"], &about["events"], &about["streams"]),
        (&Value::from("trace"), &Value::from(8160), &Value::from(1))
    );
    assert_eq!(
        (&figure["workload"], &figure["allocator"]),
        (&Value::from("replay"), &Value::from("alluvion_pool"))
    );
    for key in ["first_ns", "steady_ns", "footprint_bytes", "ratio"] {
        assert!(figure[key].as_f64().is_some_and(|number| number > 0.0), "{key}: {figure}");
    }
}

#[test]
fn help_has_examples_and_comes_on_the_standard_output() {
    for arguments in [vec!["--help"], vec!["bench", "--help"]] {
        assert!(lines(&arguments).iter().any(|line| line == "Examples:"), "{arguments:?}");
    }
    for workload in [
        "pair",
        "random",
        "multi-stream",
        "threads",
        "cross",
        "turns",
        "replay",
        "footprint",
        "vectors",
        "stream-pool",
        "priming",
        "sleep",
        "host",
        "layers",
    ] {
        let help = lines(&["bench", workload, "--help"]).join("\n");
        assert!(help.contains("--json") && help.contains("--quick"), "{workload}: {help}");
    }
}

#[test]
fn what_is_not_understood_ends_with_two() {
    for arguments in [
        vec![],
        vec!["bench"],
        vec!["dance"],
        vec!["bench", "dance"],
        vec!["bench", "pair", "--driver", "rocm"],
        vec!["bench", "pair", "--dance"],
        vec!["bench", "pair", "a-trace-that-pair-does-not-take"],
        vec!["bench", "replay"],
        vec!["bench", "cross", "--stack"],
        vec!["bench", "layers", "--threads", "0"],
    ] {
        refused(2, &arguments);
    }
    let words = refused(2, &["bench", "cross", "--driver", "null", "--stack", "pool", "--stack", "pooool"]);
    assert!(words.contains("no stack `pooool` over the driver null; there are: pool"), "{words}");
}

/// A file of the test's own, gone at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, content: &[u8]) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
        fs::write(&path, content).expect("the folder for tests can be written to");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("the path is text")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_malformed_trace_is_refused_with_line_and_reason() {
    let heading = "Thread,Time,Action,Pointer,Size,Stream\n";
    let row = "1,00:00:00.000000,allocate,0x100,8,0\n";
    let bad_size =
        Scratch::new("bad-size.csv", format!("{heading}{row}{}", row.replace(",8,", ",8x,")).as_bytes());
    let words = refused(1, &["bench", "replay", "--driver", "null", bad_size.path()]);
    assert!(words.contains("malformed: line 3: Size is `8x` and not a number of bytes"), "{words}");
    assert!(words.contains(bad_size.path()), "{words}");

    // Nothing is measured before all are read.
    let words =
        refused(1, &["bench", "replay", "--driver", "null", "--quick", &trace("etl"), bad_size.path()]);
    assert!(words.contains("malformed: line 3"), "{words}");

    let empty = Scratch::new("empty.csv", b"");
    let words = refused(1, &["bench", "replay", "--driver", "null", empty.path()]);
    assert!(words.contains("malformed: line 1"), "{words}");

    let idle = Scratch::new("idle.csv", heading.as_bytes());
    let words = refused(1, &["bench", "replay", "--driver", "null", idle.path()]);
    assert!(words.contains("nothing is allocated in it"), "{words}");

    let packed = fs::read(trace("etl")).expect("the trace is there");
    let torn = Scratch::new("torn.csv.gz", &packed[..packed.len() / 2]);
    // The rows before the cut of a log are replayed, and the program names the place of the cut.
    let output = alluvion(&["bench", "replay", "--driver", "null", "--quick", torn.path()]);
    let words = String::from_utf8(output.stderr).expect("it prints text");
    assert!(output.status.success() && words.contains("what gzip packed has no end"), "{words}");

    let words = refused(1, &["bench", "replay", "--driver", "null", "no-such-trace.csv"]);
    assert!(words.contains("no-such-trace.csv"), "{words}");
}

#[test]
fn a_trace_that_is_not_packed_is_read_too_and_what_is_left_out_is_said() {
    let text = "Thread,Time,Action,Pointer,Size,Stream\n\
                1,00:00:00.000000,free,0x900,8,0\n\
                1,00:00:00.000000,allocate failure,(nil),8,0\n\
                1,00:00:00.000000,allocate,0x100,8,0\n";
    let plain = Scratch::new("plain.csv.gz", text.as_bytes());
    let output = alluvion(&["bench", "replay", "--driver", "null", "--quick", plain.path()]);
    let notes = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{notes}");
    assert!(notes.contains("1 allocations that failed are left out"), "{notes}");
    assert!(notes.contains("1 frees of what was never allocated are left out"), "{notes}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("events=1 streams=1 peak_live=0.0 MiB,"));
}

#[test]
fn memory_that_runs_out_is_an_error_that_names_the_event() {
    let text = "Thread,Time,Action,Pointer,Size,Stream\n\
                1,00:00:00.000000,allocate,0x100,8,0\n\
                1,00:00:00.000000,allocate,0x200,4611686018427387904,0\n";
    let huge = Scratch::new("huge.csv", text.as_bytes());
    let output = alluvion(&["bench", "replay", "--driver", "sim", "--quick", huge.path()]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("event 1 of 2: out of memory"), "{words}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_reader_that_has_had_enough_ends_it_in_silence() {
    let (reader, writer) = std::io::pipe().expect("there are pipes");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_alluvion"))
        .args(["bench", "pair", "--quick", "--driver", "null"])
        .stdout(writer)
        .output()
        .expect("the program starts");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(1), ""));
}
