//! `alluvion viz`: what goes into a page, and how the program ends.

#[allow(dead_code, reason = "each test file uses its part")]
mod page;

use std::fs;
use std::path::Path;

use alluvion::trace::EventKind;
use page::{NOWHERE, Page, alluvion, read_trace, scratch, snapshot_path, trace_path};

const HEADING: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// Writes a log to a scratch file, and returns its name.
fn log(name: &str, heading: &str, rows: &[&str]) -> String {
    let path = scratch(name);
    fs::write(&path, format!("{heading}\n{}\n", rows.join("\n"))).expect("it can be written");
    path.to_str().expect("its name is text").to_owned()
}

/// What it says when it ends with that code. Then it prints nothing.
#[track_caller]
fn refused(code: i32, arguments: &[&str]) -> String {
    let output = alluvion(&[&["viz"], arguments].concat());
    let errors = String::from_utf8(output.stderr).expect("it prints text");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed {}", String::from_utf8_lossy(&output.stdout));
    assert!(!errors.contains("panicked"), "{errors}");
    errors
}

/// What is in the page is what is in the trace.
#[track_caller]
fn assert_has_trace(page: &Page, path: &str) {
    let trace = read_trace(path);
    let events = page.events();
    let wanted: Vec<_> = trace.events.iter().map(|event| (event.block, event.kind)).collect();
    assert_eq!(events, wanted);
    let column = |of: fn(&alluvion::trace::Event) -> u64| trace.events.iter().map(of).collect::<Vec<_>>();
    assert_eq!(page.column("event.stream"), column(|event| u64::from(event.stream)));
    assert_eq!(page.column("event.thread"), column(|event| u64::from(event.thread)));
    let sizes: Vec<u64> = trace
        .events
        .iter()
        .filter(|event| event.kind == EventKind::Allocate)
        .map(|event| event.bytes)
        .collect();
    assert_eq!(page.wide("block.bytes"), sizes);
    let mut now = page.heading["first_microseconds"].as_u64().unwrap();
    for (step, moment) in page.wide("event.microseconds").into_iter().zip(&trace.moments) {
        now += step;
        assert!(now >= moment.microseconds);
    }
    assert_eq!(Some(now), trace.moments.iter().map(|moment| moment.microseconds).max());
    let handles: Vec<_> = trace.stream_handles.iter().map(|handle| format!("{handle:#x}")).collect();
    assert_eq!(page.texts("streams"), handles);
}

#[test]
fn a_log_that_does_not_say_what_was_reserved_is_replayed() {
    for name in ["etl", "rnn", "streams"] {
        let path = trace_path(name);
        let page = Page::draw(&format!("replay_{name}.html"), &path, &[]);
        assert_eq!((page.text("kind"), page.heading["knows_reserved"].as_bool()), ("replayed", Some(true)));
        assert!(
            page.text("resource").starts_with("Pool(") && page.text("resource").ends_with("> Cuda(gpu 0)")
        );
        assert_has_trace(&page, &path);
        let (born, died) = (page.column("segment.born"), page.column("segment.died"));
        let (starts, lengths) = (page.wide("segment.place"), page.wide("segment.bytes"));
        let reserved: Vec<_> =
            page.column("reserved.step").into_iter().zip(page.wide("reserved.bytes")).collect();
        let mut peak = 0;
        page.play(|step, blocks| {
            let step = step as u64;
            let live: u64 = blocks.iter().map(|(begin, (end, _))| end - begin).sum();
            peak = peak.max(live);
            // Not each: the comparison looks at every segment.
            if !step.is_multiple_of(19) {
                return;
            }
            let there: Vec<_> = (0..born.len()).filter(|&at| born[at] <= step && died[at] > step).collect();
            let held: u64 = there.iter().map(|&at| lengths[at]).sum();
            let said = reserved.iter().take_while(|(since, _)| *since <= step).last().unwrap().1;
            assert_eq!(held, said, "{name}: what is reserved is what segments are there");
            assert!(live <= held);
            if step.is_multiple_of(95) {
                for (begin, (end, block)) in blocks {
                    let inside = |&at: &usize| starts[at] <= *begin && *end <= starts[at] + lengths[at];
                    assert!(there.iter().any(inside), "{name}: block {block} lies in a segment");
                }
            }
        });
        assert_eq!(peak, read_trace(&path).peak_live_bytes(), "{name}");
        let cached = page.wide("sample.cached");
        assert!(!cached.is_empty() && cached.len() <= 2 * 16_384 + 1);
    }
}

#[test]
fn on_request_the_addresses_of_the_log_are_shown() {
    for name in ["serve_streams", "train_resnet"] {
        let path = trace_path(name);
        let page = Page::draw(&format!("recorded_{name}.html"), &path, &["--recorded"]);
        assert_eq!((page.text("kind"), page.heading["knows_reserved"].as_bool()), ("recorded", Some(false)));
        assert_has_trace(&page, &path);
        let trace = read_trace(&path);
        let steps = trace.events.iter().zip(&trace.moments);
        let wanted: Vec<_> = steps
            .filter(|(event, _)| event.kind == EventKind::Allocate)
            .map(|(_, moment)| Some(moment.address))
            .collect();
        assert_eq!(page.addresses(), wanted);
        page.play(|_, _| {});
    }
}

/// The longest hole and all holes, from nothing but the list of blocks and segments.
fn fragmentation(segments: &[(u64, u64)], blocks: &[(u64, u64)]) -> u64 {
    let (mut free, mut longest) = (0, 0);
    for &(begin, end) in segments {
        let mut at = begin;
        let inside = blocks.iter().filter(|block| block.0 >= begin && block.0 < end);
        for next in inside.copied().chain([(end, end)]) {
            free += next.0 - at;
            longest = longest.max(next.0 - at);
            at = next.1;
        }
    }
    if free == 0 { 0 } else { ((1.0 - longest as f64 / free as f64) * 65_535.0).round() as u64 }
}

#[test]
fn fragmentation_is_that_of_the_holes_between_blocks() {
    let page = Page::draw("fragmentation.html", &trace_path("streams"), &[]);
    let said = page.column("event.fragmentation");
    let segments: Vec<_> = (page.wide("segment.place").into_iter().zip(page.wide("segment.bytes")))
        .zip(page.column("segment.born").into_iter().zip(page.column("segment.died")))
        .collect();
    page.play(|step, blocks| {
        if step.is_multiple_of(53) {
            let step = step as u64;
            let there: Vec<_> = segments
                .iter()
                .filter(|(_, (born, died))| *born <= step && *died > step)
                .map(|((place, bytes), _)| (*place, place + bytes))
                .collect();
            let blocks: Vec<_> = blocks.iter().map(|(begin, (end, _))| (*begin, *end)).collect();
            assert_eq!(said[step as usize], fragmentation(&there, &blocks), "step {step}");
        }
    });
}

#[test]
fn what_a_log_says_is_reserved_is_shown_with_its_tags() {
    let rows = [
        "7,09:00:00.000000,allocate,0x1000,1000,0,,4096",
        "7,09:00:00.000100,allocate,0x2000,10,0x7f653d,load;parse,8192",
        "8,09:00:00.000050,free,0x1000,1000,0,,8192",
        "8,09:00:01.000000,allocate,0x2100,24,0,load,2048",
    ];
    let path = log("reserved.csv", &format!("{HEADING},Tag,Reserved"), &rows);
    let page = Page::draw("reserved.html", &path, &[]);
    assert_eq!((page.text("kind"), page.heading["knows_reserved"].as_bool()), ("recorded", Some(true)));
    assert_eq!(page.column("reserved.step"), [0, 1, 3]);
    assert_eq!(page.wide("reserved.bytes"), [4096, 8192, 2048]);
    assert_eq!(page.texts("tags"), ["", "load;parse", "load"]);
    assert_eq!(page.column("block.tag"), [0, 1, 2]);
    assert_eq!(page.wide("event.microseconds"), [0, 100, 0, 999_900], "time does not go back");
    assert_eq!(page.addresses(), [Some(0x1000), Some(0x2000), Some(0x2100)]);
    assert_eq!(page.texts("threads"), ["7", "8"]);
    let replayed = Page::draw("reserved_replayed.html", &path, &["--resource", "pool"]);
    assert_eq!(replayed.text("kind"), "replayed");
}

#[test]
fn a_block_whose_free_is_missing_goes_when_its_address_is_taken() {
    let rows = [
        "7,09:00:00.000000,allocate,0x1000,1000,0",
        "7,09:00:00.000001,allocate,0x3000,256,0",
        "7,09:00:00.000002,allocate,0x1200,512,0",
        "7,09:00:00.000003,free,0x1200,512,0",
    ];
    let path = log("lost.csv", HEADING, &rows);
    let page = Page::draw("lost.html", &path, &["--recorded"]);
    assert_eq!((page.column("covered.block"), page.column("covered.step")), (vec![0], vec![2]));
    assert!(
        page.texts("notes")
            .iter()
            .any(|note| note.starts_with("1 block has no free in the log before its address was"))
    );
    let mut there = Vec::new();
    page.play(|_, blocks| there.push(blocks.len()));
    assert_eq!(there, [1, 2, 2, 1]);
}

#[test]
fn allocations_that_failed_are_in_the_page() {
    let rows = [
        "7,09:00:00.000000,allocate failure,(nil),5000000000,0,load,",
        "7,09:00:00.000010,allocate,0x1000,1000,0,,4096",
        "8,09:00:00.000030,allocate failure,(nil),77,0x9,join,4096",
        "7,09:00:00.000020,free,0x1000,1000,0,,4096",
        "7,09:00:00.000021,free,0x7000,1000,0,,4096",
    ];
    let path = log("failures.csv", &format!("{HEADING},Tag,Reserved"), &rows);
    for more in [&[][..], &["--resource", "pool"]] {
        let page = Page::draw("failures.html", &path, more);
        assert_eq!(page.column("failure.after"), [0, 1]);
        assert_eq!(page.wide("failure.bytes"), [5_000_000_000, 77]);
        assert_eq!(page.wide("failure.microseconds"), [0, 30]);
        assert_eq!((page.column("failure.stream"), page.column("failure.thread")), (vec![0, 1], vec![0, 1]));
        let tags = page.texts("tags");
        let named: Vec<_> = page.column("failure.tag").into_iter().map(|tag| &*tags[tag as usize]).collect();
        assert_eq!(named, ["load", "join"]);
        assert_eq!(page.wide("event.microseconds"), [10, 10], "since the first row, and never back");
        let notes = page.texts("notes");
        assert!(notes[0].starts_with("2 allocations failed when the log was written"), "{notes:?}");
        assert!(
            notes[1].starts_with("1 free is of a block that was allocated before the log began"),
            "{notes:?}"
        );
    }
}

#[test]
fn another_stack_can_be_replayed_through() {
    let page = Page::draw("arena.html", &trace_path("etl"), &["--resource", "arena(2GiB)"]);
    assert!(page.text("resource").starts_with("Arena(2 GiB)"), "{}", page.text("resource"));
    assert_eq!(page.wide("segment.bytes"), [2 << 30]);
    page.play(|_, _| {});
    let page = Page::draw("tight.html", &trace_path("etl"), &["--resource", "pool(maximum=64MiB)"]);
    assert!(page.wide("block.place").contains(&NOWHERE));
    let notes = page.texts("notes");
    assert!(notes[0].contains("allocations failed in the replay; the first at event"), "{notes:?}");
    // The page counts events from 1.
    let lost = page.wide("block.place").iter().position(|place| *place == NOWHERE).unwrap() as u32;
    let step = page.events().iter().position(|event| *event == (lost, EventKind::Allocate)).unwrap();
    assert!(notes[0].contains(&format!("at event {}: ", step + 1)), "{notes:?}");
    page.play(|_, blocks| {
        assert!(blocks.iter().map(|(begin, (end, _))| end - begin).sum::<u64>() <= 64 << 20);
    });
    let none = Page::draw("no_layer.html", &trace_path("etl"), &["--resource", ""]);
    assert_eq!(none.text("resource"), "Cuda(gpu 0)");
}

#[test]
fn a_snapshot_is_shown_block_by_block() {
    let page = Page::draw("snapshot.html", &snapshot_path("pool"), &[]);
    assert_eq!(page.text("kind"), "snapshot");
    let written: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(snapshot_path("pool")).unwrap()).unwrap();
    let blocks = written["blocks"].as_array().unwrap();
    let names = ["live", "cached", "pending", "free"];
    let (tags, streams) = (page.texts("tags"), page.texts("streams"));
    let columns = [page.wide("block.bytes"), page.column("block.state"), page.column("block.tag")];
    for (at, block) in blocks.iter().enumerate() {
        let address = u64::from_str_radix(&block["address"].as_str().unwrap()[2..], 16).unwrap();
        assert_eq!(page.addresses()[at], Some(address));
        assert_eq!(columns[0][at], block["bytes"].as_u64().unwrap());
        assert_eq!(names[columns[1][at] as usize], block["state"]);
        assert_eq!(tags[columns[2][at] as usize], block["tag"].as_str().unwrap_or_default());
        let stream = page.column("block.stream")[at] as usize;
        assert_eq!(streams[stream], block["stream"].as_str().unwrap_or_default());
    }
    assert_eq!(page.heading["status"], written["status"]);
    assert_eq!(page.wide("segment.bytes"), [4_194_304, 12_582_912]);
    let out = Page::draw("oom.html", &snapshot_path("out-of-memory"), &[]);
    assert!(out.texts("notes")[0].starts_with("Memory had run out: "), "{:?}", out.texts("notes"));
}

#[test]
fn a_log_without_events_is_a_page_that_says_so() {
    let path = log("empty.csv", HEADING, &[]);
    let page = Page::draw("empty.html", &path, &[]);
    assert_eq!(page.heading["events"], 0);
    assert!(page.text.contains("Nothing was allocated"));
}

#[test]
fn a_page_needs_nothing_but_itself() {
    let page = Page::draw("alone.html", &trace_path("etl"), &[]);
    let frame = page.text.split("class=\"data\"").next().unwrap();
    assert!(page.text.contains("default-src 'none'"));
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.text.contains(outside), "{outside}");
    }
    assert!(frame.starts_with("<!doctype html>"));
}

#[test]
fn names_are_text_and_never_markup() {
    let rows = ["7,09:00:00.000000,allocate,0x1000,1000,0,</script><b>&\"tag\","];
    let name = "<i>&amp;.csv";
    let path = log(name, &format!("{HEADING},Tag,Reserved"), &rows);
    let page = Page::draw("names.html", &path, &[]);
    assert!(page.text.contains("<title>&lt;i&gt;&amp;amp;.csv · Alluvion</title>"));
    assert!(!page.text.contains("<i>&amp;.csv") && !page.text.contains("<b>&\"tag\""));
    assert_eq!(page.texts("tags")[1], "</script><b>&\"tag\"");
    assert_eq!(page.text("title"), name);
}

#[test]
fn an_event_takes_thirty_bytes_at_most_before_it_is_packed() {
    for (name, events) in [("serve_gpt", 121_086), ("serve_streams", 112_844)] {
        let page = Page::draw(&format!("bytes_{name}.html"), &trace_path(name), &[]);
        assert_eq!(page.heading["events"], events);
        // Samples and segments are bounded, or come with blocks of their own size.
        let beside = (2 * 16_384 + 1) * 8 + page.column("segment.born").len() * 64;
        let each = (page.columns.len() - beside.min(page.columns.len())) as f64 / f64::from(events);
        assert!(each <= 30.0, "{name}: {each}");
    }
}

#[test]
fn wild_numbers_are_drawn_or_refused() {
    let rows = [
        "7,00:00:00.000000,allocate,0xffffffffffffff00,256,0xffffffffffffffff",
        "7,23:59:59.999999,allocate,0xfffffffffffffff1,4611686018427387904,0",
        "7,11:00:00.000000,allocate,0,512,0",
        "7,11:00:00.000000,allocate,0x1,4611686018427387904,0",
        "7,10:00:00.000000,allocate,0x8000000000000000,4611686018427387904,0",
        "18446744073709551615,10:00:00.000000,free,0,512,0",
    ];
    let path = log("wild.csv", HEADING, &rows);
    let page = Page::draw("wild.html", &path, &["--recorded"]);
    assert_eq!(page.heading["events"], 6);
    assert_eq!(page.addresses()[0], Some(0xffff_ffff_ffff_ff00));
    assert_eq!(page.addresses()[2], None, "null is no address");
    let replayed = Page::draw("wild_replayed.html", &path, &[]);
    assert_eq!(replayed.wide("block.place").iter().filter(|place| **place == NOWHERE).count(), 3);
}

#[test]
fn mangled_input_is_refused_or_drawn_but_never_ends_in_a_panic() {
    let mut seed = 11_u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let rows =
        "7,09:00:00.000000,allocate,0x1000,1000,0,a,4096\n7,09:00:00.000100,free,0x1000,10,0x7f653d,,8192\n";
    let logs = format!("{HEADING},Tag,Reserved\n{rows}");
    let snapshot = fs::read_to_string(snapshot_path("pool")).unwrap();
    let of_devices = format!(
        "{HEADING},Device,Tag\n7,09:00:00.000000,allocate,0x1000,1000,0,1,a\n7,09:00:00.000001,allocate,0x2000,1000,0,0,b\n\
         8,09:00:00.000002,allocate failure,(nil),1000,0,2,a;b\n7,09:00:00.000100,free,0x1000,10,0x7f653d,1,\n\
         8,09:00:00.000101,free,0x3000,10,0x7f,0,\n"
    );
    let (input, output) = (scratch("mangled"), scratch("mangled.html"));
    for round in 0..90 {
        let mut bytes = [&logs, &snapshot, &of_devices][round % 3].clone().into_bytes();
        for _ in 0..=next(4) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] = b"0123456789,\n{}[]\"x;-\xff"[next(21)],
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, b"90,\n"[next(4)]),
            }
        }
        fs::write(&input, &bytes).unwrap();
        let done = alluvion(&["viz", input.to_str().unwrap(), "-o", output.to_str().unwrap()]);
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(matches!(done.status.code(), Some(0 | 1)), "{errors} of {}", String::from_utf8_lossy(&bytes));
        assert!(!errors.contains("panicked"), "{errors}");
    }
}

#[test]
fn what_cannot_be_done_is_told() {
    let page = scratch("untold.html");
    let page = page.to_str().unwrap();
    let etl = trace_path("etl");
    assert!(refused(1, &["/no/such/trace.csv", "-o", page]).contains("/no/such/trace.csv"));
    let malformed = log("malformed.csv", HEADING, &["7,09:00:00.000000,allocate,0x1000,many,0"]);
    let said = refused(1, &[&malformed, "-o", page]);
    assert!(said.contains("line 2") && said.contains("Size is `many`"), "{said}");
    let said = refused(1, &[&etl, "-o", "/no/such/folder/page.html"]);
    assert!(said.contains("/no/such/folder/page.html"), "{said}");
    if Path::new("/dev/full").exists() {
        assert!(refused(1, &[&etl, "-o", "/dev/full"]).contains("/dev/full"), "a full disk");
    }
    assert!(refused(1, &["/", "-o", page]).contains("error: /"));
    assert!(!Path::new(page).exists(), "nothing is written where something failed");
    assert!(refused(2, &[&etl]).contains("--output"));
    assert!(refused(2, &[&etl, "-o", page, "--recorded", "--resource", "pool"]).contains("cannot be used"));
    let said = refused(2, &[&etl, "-o", page, "--resource", "pol"]);
    assert!(said.contains("column 1") && said.contains("^^^"), "{said}");
    let said = refused(2, &[&etl, "-o", page, "--resource", "pool | cuda-async"]);
    assert!(said.contains("leave the source out (`cuda-async`)"), "{said}");
    let snapshot = snapshot_path("pool");
    assert!(refused(2, &[&snapshot, "-o", page, "--recorded"]).contains("a snapshot is one moment"));
}

#[test]
fn a_log_is_not_overwritten_by_its_page() {
    let path = log("kept.csv", HEADING, &["7,09:00:00.000000,allocate,0x1000,10,0"]);
    let before = fs::read(&path).unwrap();
    assert!(refused(2, &[&path, "-o", &path]).contains("would be overwritten"));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn help_shows_how() {
    let output = alluvion(&["viz", "--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    for part in ["Examples:", "alluvion viz trace.csv.gz -o out.html", "--recorded", "--resource"] {
        assert!(help.contains(part), "{part}");
    }
}
