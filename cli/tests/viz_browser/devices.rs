//! The page of several devices: a click shows another, and each has its own memory over time and its own figures.

use std::fmt::Write;
use std::fs;
use std::time::{Duration, Instant};

use alluvion::trace::{EventKind, Trace};
use serde_json::Value;

use super::browser::Browser;
use super::page::{scratch, trace_path};
use super::speed::random_log;
use super::{browser, draw, keep, named, number, pixel, text_of};

/// Devices 0, 1 and 3. The second begins when the first is done; the third holds the most, and an allocation of it fails.
pub(super) fn log() -> String {
    let mut log = "Thread,Time,Action,Pointer,Size,Stream,Device,Tag\n".to_owned();
    let mut row = |millisecond: u64, action: &str, block: u64, bytes: u64, device: u64| {
        let address = if action == "allocate failure" {
            "(nil)".to_owned()
        } else {
            format!("{:#x}", (block + 1) << 28)
        };
        let time = format!("10:00:{:02}.{:03}000", millisecond / 1000, millisecond % 1000);
        writeln!(
            log,
            "{},{time},{action},{address},{bytes},0x{},{device},of {device}",
            50 + device,
            block % 2
        )
        .expect("memory takes it");
    };
    for block in 0..40 {
        row(block * 10, "allocate", block, 1 << 20, 0);
    }
    for block in 0..40 {
        row(400 + block * 10, "free", block, 1 << 20, 0);
    }
    for block in 100..120 {
        row(block * 10, "allocate", block, 3 << 20, 1);
    }
    row(1250, "allocate", 200, 500 << 20, 3);
    row(1300, "allocate failure", 0, 900 << 20, 3);
    row(2000, "free", 200, 500 << 20, 3);
    let path = scratch("several.csv");
    fs::write(&path, log).expect("it can be written");
    path.to_str().expect("its name is text").to_owned()
}

/// Waits until a device is shown, and all of it drawn.
#[track_caller]
fn wait_for(browser: &mut Browser, ordinal: u32) {
    let since = Instant::now();
    while browser.ask("probe.device()") != ordinal {
        assert!(since.elapsed() < Duration::from_secs(60), "gpu {ordinal} is never shown");
        std::thread::sleep(Duration::from_millis(10));
    }
    browser.settle();
}

/// What the list says of the device is what its part of the page comes to.
#[track_caller]
fn assert_is_itself(browser: &mut Browser, trace: &Trace, ordinal: u32) {
    let device = trace.device_ordinals.iter().position(|&of| of == ordinal).expect("it is there");
    let part = trace.of_device(device as u32);
    let summary = browser.ask("probe.summary()");
    let said = &summary["said"];
    assert_eq!(said["ordinal"], ordinal);
    assert_eq!(said["events"], part.events.len());
    assert_eq!(said["peak_live"], part.peak_live_bytes());
    assert_eq!(number(&said["peak_live"]), number(&summary["live"]));
    assert_eq!(number(&said["peak_reserved"]), number(&summary["reserved"]));
    assert_eq!((&said["failures"], &summary["failures"]), (&part.failures.into(), &part.failures.into()));
    assert_eq!(browser.ask("probe.devices()"), serde_json::json!([0, 1, 3]));
    let selected = "document.querySelector('#devices-tabs [aria-selected=true]').id";
    assert_eq!(browser.value(selected), format!("device-{ordinal}"));
    let events: Vec<_> = part.events.iter().map(|event| event.kind == EventKind::Allocate).collect();
    assert_eq!(browser.ask("probe.events"), events.len());
    assert_eq!(
        browser.ask("probe.holders().map((row) => row.name)"),
        if events.is_empty() { serde_json::json!([]) } else { serde_json::json!([format!("of {ordinal}")]) }
    );
}

#[test]
fn a_click_shows_another_device() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let log = log();
    let trace = Trace::read(&log).expect("it is well formed");
    let path = draw("several.html", &log, &[]);
    browser.open(&path);
    keep(&mut browser, "devices");
    assert_is_itself(&mut browser, &trace, 0);
    let sum = text_of(&mut browser, "devices-sum");
    assert!(sum.starts_with("3 devices · 102 events · 1 failed\nlive peaks 600 MiB"), "{sum}");
    // The first has been freed by the middle of the time, and the last has one block.
    let facts = text_of(&mut browser, "facts");
    assert!(facts.contains("Live peak40.0 MiB") && facts.contains("Events80"), "{facts}");
    browser.click_on("device-1");
    wait_for(&mut browser, 1);
    assert_is_itself(&mut browser, &trace, 1);
    let facts = text_of(&mut browser, "facts");
    assert!(facts.contains("Live peak60.0 MiB") && facts.contains("Events20"), "{facts}");
    assert_eq!(browser.value("location.hash"), "#gpu=1");
    // Everything listens anew: the keys, the curves, the search, the map.
    browser.key("Home");
    assert_eq!(browser.ask("probe.moment()"), 0);
    let [x, y] = browser.middle("plot-bytes");
    browser.click(x, y);
    assert!(number(&browser.ask("probe.moment()")) > 3.0);
    browser.key("/");
    browser.type_text("of 1");
    assert_eq!(browser.ask("probe.hits().length"), 20);
    browser.key("Enter");
    assert_eq!(browser.ask("probe.selected()"), 0);
    browser.click_on("device-3");
    wait_for(&mut browser, 3);
    assert_is_itself(&mut browser, &trace, 3);
    assert_eq!(browser.ask("probe.failures().length"), 1);
    // What was looked for is looked for here, too: nothing has that tag.
    assert_eq!(browser.ask("probe.hits().length"), 0);
    assert_eq!(browser.ask("probe.selected()"), Value::Null);
    // Back to where nothing is left of it.
    browser.value("history.back()");
    wait_for(&mut browser, 1);
    assert_is_itself(&mut browser, &trace, 1);
    assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
}

#[test]
fn by_the_clock_all_devices_have_one_axis() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let path = draw("several.html", &log(), &[]);
    browser.open(&path);
    browser.key("x");
    let first = browser.ask("probe.view()");
    assert_eq!(first["byTime"], true);
    let end = number(&browser.ask("probe.summary().end"));
    assert_eq!(end, 2_000_000.0, "two seconds from the first event of any to the last of any");
    browser.key("d");
    wait_for(&mut browser, 1);
    assert_eq!(browser.ask("probe.view()"), first);
    assert_eq!(browser.ask("probe.summary().later"), 1_000_000);
    // It begins in the middle: before that nothing is drawn, and after it memory is.
    let live = named(&mut browser, "live");
    let at = |browser: &mut Browser, step: u32, bytes: u64| {
        let point = browser.ask(&format!("probe.point({step}, {bytes})"));
        (number(&point["x"]), number(&point["y"]))
    };
    let ((begin, low), (later, _)) = (at(&mut browser, 0, 1 << 20), at(&mut browser, 19, 1 << 20));
    assert!(super::is_near(pixel(&mut browser, "bytes", later + 20.0, low), live, 6));
    let before = pixel(&mut browser, "bytes", begin - 7.0, low);
    assert!(!super::is_near(before, live, 40), "{before:?} is the curve's {live:?}");
    let mark = |browser: &mut Browser| number(&browser.ask("probe.moment()"));
    // A moment is kept by the clock, where there is one.
    browser.key("End");
    assert_eq!(mark(&mut browser), 19.0);
    browser.key("d");
    wait_for(&mut browser, 3);
    // 1.19 s: before its first block comes.
    assert_eq!(mark(&mut browser), 0.0);
    browser.key("d");
    wait_for(&mut browser, 0);
    browser.key("D");
    wait_for(&mut browser, 3);
    assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
}

#[test]
fn an_address_opens_a_device_and_the_arrows_walk_through_the_list() {
    let Some((_alone, mut browser)) = browser(true) else { return };
    let path = draw("several.html", &log(), &["--recorded"]);
    browser.open(&format!("{path}#gpu=3"));
    wait_for(&mut browser, 3);
    browser.value("document.getElementById('device-3').focus()");
    for ordinal in [0, 1, 3] {
        browser.key("ArrowRight");
        wait_for(&mut browser, ordinal);
        assert_eq!(browser.value("document.activeElement.id"), format!("device-{ordinal}"));
    }
    browser.key("ArrowLeft");
    wait_for(&mut browser, 1);
    assert_eq!(browser.ask("probe.kind"), "recorded");
    // Two at once: the last that was asked for is shown.
    browser.value("document.getElementById('device-3').click(), document.getElementById('device-0').click()");
    wait_for(&mut browser, 0);
    keep(&mut browser, "devices-dark");
    assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
}

#[test]
fn a_page_of_one_device_has_no_list() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let path = draw("of_one.html", &trace_path("etl"), &[]);
    browser.open(&path);
    assert_eq!(browser.value("document.getElementById('devices').hidden"), true);
    assert_eq!(browser.ask("probe.device()"), Value::Null);
    let moment = browser.ask("probe.moment()");
    browser.key("d");
    assert_eq!((browser.ask("probe.moment()"), browser.value("location.hash")), (moment, "".into()));
}

/// Half a million events of each are unpacked when the device is shown, and let go when another is.
#[test]
fn a_million_events_of_two_devices_are_shown_one_by_one() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let path = draw("two_million.html", &random_log(1_000_000, 2), &[]);
    let (mut opened, mut turned) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        let before = browser.busy();
        browser.open(&path);
        opened = opened.min(browser.busy() - before);
        assert_eq!(browser.ask("probe.device()"), 0);
        let before = browser.busy();
        browser.key("d");
        wait_for(&mut browser, 1);
        turned = turned.min(browser.busy() - before);
        let events = number(&browser.ask("probe.events"));
        assert!(events > 300_000.0 && events < 700_000.0, "{events}");
        if opened < 1500.0 && turned < 1500.0 {
            break;
        }
    }
    println!(
        "a page of two devices keeps a processor busy for {opened:.0} ms, and the second for {turned:.0} ms more"
    );
    assert!(opened > 0.0 && opened < 1500.0, "it opens in {opened:.0} ms of a processor");
    assert!(turned > 0.0 && turned < 1500.0, "the second device takes {turned:.0} ms of a processor");
    assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
}
