//! How the page is laid out: nothing lies on something else, nothing is cut off, and everything can be read.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::browser::Browser;
use super::devices::log as devices_log;
use super::failures::failing_log;
use super::page::{scratch, snapshot_path, trace_path};
use super::{browser, draw, number, text_of};

/// Lists what is wrong.
const CHECK: &str = include_str!("layout.js");

const SIZES: [(u32, u32); 2] = [(1400, 900), (1000, 700)];

/// Checks the page as it is now, and keeps a picture of it in the target folder.
fn check(browser: &mut Browser, name: &str) {
    browser.settle();
    let picture = browser.screenshot();
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let folder = target.parent().expect("it is in the target folder").join("viz-pictures");
    fs::create_dir_all(&folder).expect("the folder can be made");
    fs::write(folder.join(format!("{name}.png")), &picture).expect("it can be kept");
    assert!(picture.len() > 20_000, "{name} is a picture of something");
    let wrong = browser.value(CHECK);
    let wrong: Vec<&str> = wrong.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(wrong.is_empty(), "{name}: {wrong:#?}");
}

#[test]
fn everything_is_in_its_place_and_can_be_read() {
    for dark in [false, true] {
        let Some((_alone, mut browser)) = browser(dark) else { return };
        let theme = if dark { "dark" } else { "light" };
        let pages = [
            ("trace", draw("laid_trace.html", &trace_path("serve_streams"), &[])),
            ("failing", draw("laid_failing.html", &failing_log(), &[])),
            ("devices", draw("laid_devices.html", &devices_log(), &[])),
            ("snapshot", draw("laid_snapshot.html", &snapshot_path("pool"), &[])),
        ];
        for (name, path) in &pages {
            for (width, height) in SIZES {
                browser.resize(width, height);
                browser.open(path);
                check(&mut browser, &format!("{name}-{width}x{height}-{theme}"));
                // With a block chosen, and what follows from that.
                browser.value("document.querySelector('#holders-table button').click()");
                browser.ask("probe.select(probe.map()[0][0])");
                check(&mut browser, &format!("{name}-{width}x{height}-{theme}-chosen"));
            }
            assert!(browser.complaints(path).is_empty(), "{:?}", browser.complaints(path));
        }
    }
}

/// Where everything is that is not on a canvas.
const PLACES: &str = "[...document.querySelectorAll('.panel, .plot, .scroll')].map((part) => { \
                      const { x, y, width, height } = part.getBoundingClientRect(); return [part.id, x, y, width, height]; })";

#[test]
fn choosing_a_block_moves_nothing() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    for (width, height) in SIZES {
        browser.resize(width, height);
        let path = draw("unmoved.html", &failing_log(), &[]);
        browser.open(&path);
        let before = browser.value(PLACES);
        assert!(before.as_array().is_some_and(|places| places.len() > 8));
        let block = browser.ask("probe.map()[0][0]");
        let part = browser.ask(&format!("probe.rectangles({block})[0]"));
        let [x, y, wide, high] = ["x", "y", "width", "height"].map(|key| number(&part[key]));
        browser.value(&format!("window.scrollTo(0, {y})"));
        let scrolled = number(&browser.value("window.scrollY"));
        browser.click(x + wide / 2.0, y + high / 2.0 - scrolled);
        assert_eq!(browser.ask("probe.selected()"), block);
        assert!(text_of(&mut browser, "tab-block").contains(&format!("#{block}")));
        browser.value("window.scrollTo(0, 0)");
        browser.settle();
        assert_eq!(browser.value(PLACES), before, "at {width} by {height}");
        browser.click_on("tab-now");
        assert_eq!(browser.value(PLACES), before, "at {width} by {height}");
        let shown = "['now', 'block', 'failures'].filter((id) => \
                     document.getElementById(id).checkVisibility({ visibilityProperty: true }))";
        assert_eq!(browser.value(shown), json!(["now"]));
        browser.click_on("tab-block");
        assert_eq!(browser.value(shown), json!(["block"]));
        browser.click_on("block-birth");
        let birth = browser.ask("probe.moment()");
        assert!(text_of(&mut browser, "block").contains(&format!("event {} ·", number(&birth) + 1.0)));
        browser.click_on("block-close");
        assert_eq!(browser.ask("probe.selected()"), Value::Null);
        assert_eq!(browser.value(shown), json!(["now"]));
    }
}

/// A log of so many streams that their lanes do not fit.
fn many_streams() -> String {
    let mut log = "Thread,Time,Action,Pointer,Size,Stream\n".to_owned();
    for at in 0..600_u64 {
        let (address, bytes, stream) = (0x7f00_0000_0000_u64 + (at << 16), 1000 + at, at % 24);
        writeln!(log, "7,10:00:00.{:06},allocate,{address:#x},{bytes},{stream:#x}", at * 100).unwrap();
    }
    let path = scratch("many_streams.csv");
    fs::write(&path, log).expect("it can be written");
    path.to_str().expect("its name is text").to_owned()
}

#[test]
fn lanes_that_scroll_are_as_wide_as_the_curves() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let path = draw("many_streams.html", &many_streams(), &[]);
    browser.open(&path);
    let scroller = browser.value(
        "(() => { const { scrollHeight, clientHeight, clientWidth, offsetWidth } = document.getElementById('lanes-scroll'); \
         return { scrolls: scrollHeight > clientHeight + 1, bar: offsetWidth - clientWidth }; })()",
    );
    assert_eq!(scroller["scrolls"], true);
    assert!(number(&scroller["bar"]) > 0.0, "the bar takes room: {scroller}");
    let canvases = browser.ask("probe.canvases()");
    let of = |plot: &str| {
        let canvas = canvases.as_array().unwrap().iter().find(|canvas| canvas["plot"] == plot).unwrap();
        (number(&canvas["x"]), number(&canvas["width"]))
    };
    for plot in ["overview", "fragmentation", "lanes"] {
        assert_eq!(of(plot), of("bytes"), "{plot}");
    }
    // Straight below each other, the mouse is at the same event.
    let [_, curve] = browser.middle("plot-bytes");
    let lane =
        number(&browser.value("document.getElementById('lanes-scroll').getBoundingClientRect().y")) + 10.0;
    let (left, width) = of("bytes");
    for share in [0.2, 0.5, 0.9, 0.985] {
        let x = (left + width * share).round();
        let mut said = Vec::new();
        for (y, line) in [(curve, 0), (lane, 1)] {
            browser.hover(x, y);
            let tip = text_of(&mut browser, "tip");
            said.push(tip.lines().nth(line).unwrap_or_default().to_owned());
        }
        assert!(said[0].starts_with("event "), "{said:?}");
        assert_eq!(said[0], said[1], "at {share} of the width");
    }
}

#[test]
fn events_are_counted_from_one() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let log = scratch("two_events.csv");
    let rows = ["Thread,Time,Action,Pointer,Size,Stream", "7,10:00:00.000000,allocate,0x1000,1000,0"];
    let more = ["7,10:00:00.000009,free,0x1000,1000,0", "7,10:00:00.000010,free,0x9000,1000,0", ""];
    fs::write(&log, [&rows[..], &more].concat().join("\n")).expect("it can be written");
    let path = draw("two_events.html", log.to_str().expect("its name is text"), &[]);
    browser.open(&path);
    for (key, event) in [("Home", "1 of 2"), ("End", "2 of 2")] {
        browser.key(key);
        assert!(text_of(&mut browser, "now-facts").contains(&format!("event{event}")), "{key}");
        assert!(
            text_of(&mut browser, "scrub-text").starts_with(&format!("event {} ·", &event[..1])),
            "{key}"
        );
    }
    assert!(
        text_of(&mut browser, "notes")
            .contains("1 free is of a block that was allocated before the log began")
    );
    let all = browser.value("document.body.innerText");
    let all = all.as_str().expect("it is text");
    for wrong in ["1 blocks", "1 frees", "1 events", "1 calls", "1 streams"] {
        assert!(!all.contains(wrong), "{wrong} in {all}");
    }
}
