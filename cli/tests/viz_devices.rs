//! The page of a log of several devices: each device's part of it is what the log has of that device, and the list says the same.

#[allow(dead_code, reason = "each test file uses its part")]
mod page;

use std::fmt::Write;
use std::fs;

use alluvion::trace::{EventKind, Trace};
use page::{NOWHERE, Page, alluvion, scratch};
use serde_json::Value;

const HEADING: &str = "Thread,Time,Action,Pointer,Size,Stream,Device";

fn file(name: &str, text: &str) -> String {
    let path = scratch(name);
    fs::write(&path, text).expect("it can be written");
    path.to_str().expect("its name is text").to_owned()
}

/// What a random log has beside its blocks.
#[derive(Clone, Copy, Default)]
struct Has {
    strays: bool,
    reserved: bool,
}

/// A log of devices 0, 2 and 5, on streams and threads that they share the numbers of, with tags and failures. The first hundred rows are
/// of device 2 alone.
fn random_log(mut state: u64, has: Has) -> String {
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut log = format!("{HEADING},Tag,Reserved\n");
    let mut live: Vec<(u64, u64, u64)> = Vec::new();
    let mut reserved = [0_u64; 6];
    let mut time = 0;
    for row in 0..1500 {
        let device = if row < 100 { 2 } else { [0, 2, 5][draw(3) as usize] };
        let (thread, stream) = (draw(5), draw(4));
        let tag = ["", "a", "a;b", "c"][draw(4) as usize];
        time += draw(50);
        let mut write = |action: &str, address: &str, bytes: u64, device: u64, reserved: u64| {
            let reserved = if has.reserved { reserved.to_string() } else { String::new() };
            writeln!(
                log,
                "{thread},10:00:00.{time:06},{action},{address},{bytes},{stream:#x},{device},{tag},{reserved}"
            )
            .expect("memory takes it");
        };
        let held = reserved[device as usize];
        match draw(20) {
            0 => write("allocate failure", "(nil)", 1 << 30, device, held),
            1 if has.strays => write("free", &format!("{:#x}", 0x10 + row), 64, device, held),
            2..9 if !live.is_empty() => {
                let (address, bytes, device) = live.swap_remove(draw(live.len() as u64) as usize);
                write("free", &format!("{address:#x}"), bytes, device, reserved[device as usize]);
            }
            _ => {
                let (address, bytes) = ((row + 1) << 24, draw(4_000_000) + 1);
                live.push((address, bytes, device));
                reserved[device as usize] = reserved[device as usize].max(held + bytes);
                write("allocate", &format!("{address:#x}"), bytes, device, reserved[device as usize]);
            }
        }
    }
    log
}

/// What a page says of one device has to be what the library says of its part of the trace, by name and not by number.
#[track_caller]
fn assert_is_part(page: &Page, part: &Trace, begins: u64) {
    let wanted: Vec<_> = part.events.iter().map(|event| (event.block, event.kind)).collect();
    assert_eq!(page.events(), wanted);
    let (streams, threads) = (page.texts("streams"), page.texts("threads"));
    let tags = page.texts("tags");
    let (of_stream, of_thread) = (page.column("event.stream"), page.column("event.thread"));
    let tag_of_block = page.column("block.tag");
    let mut now = begins + page.heading["device"]["later_microseconds"].as_u64().expect("a number");
    let steps = page.wide("event.microseconds");
    for (at, (event, moment)) in part.events.iter().zip(&part.moments).enumerate() {
        assert_eq!(
            streams[of_stream[at] as usize],
            format!("{:#x}", part.stream_handles[event.stream as usize])
        );
        assert_eq!(threads[of_thread[at] as usize], part.thread_numbers[event.thread as usize].to_string());
        if event.kind == EventKind::Allocate {
            assert_eq!(tags[tag_of_block[event.block as usize] as usize], part.tags[moment.tag as usize]);
        }
        now += steps[at];
        assert_eq!(now, moment.microseconds, "the rows stand in the order of their times");
    }
    let refusals: Vec<_> = part.refusals.iter().map(|refusal| refusal.after_events as u64).collect();
    assert_eq!(page.column("failure.after"), refusals);
    for (at, refusal) in part.refusals.iter().enumerate() {
        let named = |column: &str| page.column(column)[at] as usize;
        assert_eq!(
            streams[named("failure.stream")],
            format!("{:#x}", part.stream_handles[refusal.stream as usize])
        );
        assert_eq!(tags[named("failure.tag")], part.tags[refusal.moment.tag as usize]);
        assert_eq!(
            threads[named("failure.thread")],
            part.thread_numbers[refusal.thread as usize].to_string()
        );
    }
}

/// What the list says of a device has to follow from its part of the page.
#[track_caller]
fn assert_is_summed_up(summary: &Value, page: &Page) {
    let (sizes, places) = (page.wide("block.bytes"), page.wide("block.place"));
    let counts = |block: u32| page.text("kind") != "replayed" || places[block as usize] != NOWHERE;
    let (mut live, mut peak) = (0_u64, 0);
    for (block, kind) in page.events().into_iter().filter(|(block, _)| counts(*block)) {
        let bytes = sizes[block as usize].next_multiple_of(256);
        live = if kind == EventKind::Allocate { live + bytes } else { live - bytes };
        peak = peak.max(live);
    }
    let number = |name: &str| summary[name].as_u64().unwrap_or_else(|| panic!("{name} of {summary}"));
    assert_eq!((number("peak_live"), number("events")), (peak, page.events().len() as u64));
    assert_eq!(number("blocks"), sizes.len() as u64);
    let lost = (0..sizes.len() as u32).filter(|block| !counts(*block)).count();
    assert_eq!(number("failures"), (page.column("failure.after").len() + lost) as u64);
    let reserved = page.wide("reserved.bytes").into_iter().max();
    if page.heading["knows_reserved"] == true {
        assert_eq!(summary["peak_reserved"].as_u64(), Some(reserved.unwrap_or(0)));
    } else {
        assert!(summary["peak_reserved"].is_null(), "{summary}");
    }
    let curve: Vec<_> = summary["curve"].as_array().expect("a list").iter().map(Value::as_u64).collect();
    assert_eq!((curve.len(), curve.iter().max()), (120, Some(&Some(peak))));
    assert!(curve[119] >= Some(live), "what is live at the end is live in the last part of the time");
}

#[test]
fn each_part_is_that_of_its_device() {
    for (name, has) in [
        ("plain", Has::default()),
        ("strays", Has { strays: true, reserved: false }),
        ("reserved", Has { reserved: true, ..Has::default() }),
    ] {
        let log = file(&format!("devices_{name}.csv"), &random_log(7, has));
        let trace = Trace::read(&log).expect("it is well formed");
        assert!(trace.failures > 20 && (trace.strays > 20) == has.strays);
        for (more, kind) in [
            (&[][..], if has.reserved { "recorded" } else { "replayed" }),
            (&["--recorded"], "recorded"),
            (&["--resource", "limiting(40MiB) | pool(growth=exact)"], "replayed"),
        ] {
            let (list, pages) = Page::draw_devices(&format!("devices_{name}.html"), &log, more);
            assert_eq!(pages.len(), 3, "{name}");
            for (page, (summary, ordinal)) in pages.iter().zip(list.iter().zip([0, 2, 5])) {
                assert_eq!(
                    (page.text("kind"), page.text("title")),
                    (kind, format!("devices_{name}.csv").as_str())
                );
                assert_eq!(
                    (&summary["ordinal"], &page.heading["device"]["ordinal"]),
                    (&ordinal.into(), &ordinal.into())
                );
                let device = trace.device_ordinals.iter().position(|&of| of == ordinal).expect("it is there");
                let begins = page.heading["first_microseconds"].as_u64().expect("a number");
                assert_is_part(page, &trace.of_device(device as u32), begins);
                assert_is_summed_up(summary, page);
                let notes = page.texts("notes").join(" ");
                assert_eq!(notes.contains("of all devices, are of blocks"), has.strays, "{notes}");
            }
            let of = |name: &str| {
                pages.iter().map(|page| page.heading["device"][name].as_u64()).collect::<Vec<_>>()
            };
            assert_eq!(of("later_microseconds")[1], Some(0), "device 2 is the first");
            assert!(of("later_microseconds")[0] > Some(0));
            let moments = trace.moments.iter().chain(trace.refusals.iter().map(|refusal| &refusal.moment));
            let times: Vec<_> = moments.map(|moment| moment.microseconds).collect();
            let whole = times.iter().max().zip(times.iter().min()).map(|(last, first)| last - first);
            assert_eq!(of("whole_microseconds"), [whole; 3]);
        }
    }
}

/// A part of the page is the page of that device, but for the time of all.
#[test]
fn a_part_is_the_page_that_gpu_asks_for() {
    let log = file("devices_one.csv", &random_log(11, Has::default()));
    for more in [&[][..], &["--recorded"]] {
        let (_, pages) = Page::draw_devices("devices_all.html", &log, more);
        for (page, ordinal) in pages.iter().zip(["0", "2", "5"]) {
            let alone = Page::draw("devices_alone.html", &log, &[more, &["--gpu", ordinal]].concat());
            assert!(!alone.text.contains("id=\"devices-data\""));
            let without = |page: &Page| {
                let mut heading = page.heading.clone();
                let heading = heading.as_object_mut().expect("it is an object");
                for time in ["first_microseconds", "device"] {
                    heading.remove(time);
                }
                heading.clone()
            };
            assert_eq!(without(page), without(&alone), "gpu {ordinal}");
            assert!(page.columns == alone.columns, "gpu {ordinal}");
        }
    }
}

#[test]
fn devices_that_have_only_failures_or_only_strays_are_there_too() {
    let rows = [
        "1,00:00:00.000010,allocate failure,(nil),4096,0,3",
        "1,00:00:00.000020,free,0x99,64,0,7",
        "1,00:00:00.000030,allocate,0x1000000,1000,0,1",
        "1,00:00:00.000040,free,0x1000000,1000,0,1",
    ];
    let log = file("devices_little.csv", &format!("{HEADING}\n{}\n", rows.join("\n")));
    let (list, pages) = Page::draw_devices("devices_little.html", &log, &[]);
    let of =
        |name: &str| list.iter().map(|device| device[name].as_u64().expect("a number")).collect::<Vec<_>>();
    assert_eq!((of("ordinal"), of("events"), of("failures")), (vec![1, 3, 7], vec![2, 0, 0], vec![0, 1, 0]));
    assert_eq!(of("peak_live"), [1024, 0, 0]);
    let later = |page: &Page| page.heading["device"]["later_microseconds"].as_u64();
    assert_eq!((later(&pages[0]), later(&pages[1])), (Some(20), Some(0)));
    assert_eq!(pages[1].column("failure.after"), [0]);
    let notes = pages[2].texts("notes").join(" ");
    assert!(notes.contains("1 free in the log, of any of its devices, is of a block"), "{notes}");
    // 20 of 31 microseconds are over before the first block, and it is gone after 30 of them.
    let curve: Vec<_> =
        list[0]["curve"].as_array().expect("a list").iter().map(|most| most.as_u64()).collect();
    let first = curve.iter().position(|most| *most == Some(1024)).expect("it is drawn");
    let last = curve.iter().rposition(|most| *most == Some(1024)).expect("it is drawn");
    assert_eq!((first, last, curve[119]), (20 * 120 / 31, 30 * 120 / 31, Some(0)));
}

#[test]
fn the_program_says_how_many_devices_it_drew() {
    let log = file("devices_said.csv", &random_log(3, Has::default()));
    let output = scratch("devices_said.html");
    let done = alluvion(&["viz", &log, "-o", output.to_str().expect("text")]);
    let said = String::from_utf8(done.stdout).expect("text");
    let events = Trace::read(&log).expect("it is well formed").events.len();
    assert!(said.contains(&format!("devices_said.html: {events} events of 3 devices, ")), "{said}");
}
