//! Allocations that failed: crosses on the curve, a list, and how one goes from one to the next.

use std::fs;

use serde_json::{Value, json};

use super::browser::Browser;
use super::page::{Page, scratch, trace_path};
use super::{browser, draw, is_near, keep, named, number, pixel, text_of};

/// A program that runs out of memory twice: it frees something and goes on, and then it ends.
pub(super) fn failing_log() -> String {
    let mut rows = vec!["Thread,Time,Action,Pointer,Size,Stream,Tag,Reserved".to_owned()];
    let mib = |mib: u64| mib << 20;
    for at in 0..40_u64 {
        let (address, tag) = (0x7f00_0000_0000 + at * mib(4), ["load;parse", "query;join"][at as usize % 2]);
        let held = mib(4) * (at.min(29) + 1);
        rows.push(format!(
            "7,10:00:{at:02}.000000,allocate,{address:#x},{},{:#x},{tag},{held}",
            mib(2) + at,
            at % 2
        ));
        if at == 29 {
            rows.push(format!("8,10:00:29.500000,allocate failure,(nil),{},0x1,query;join,{held}", mib(100)));
            for old in 0..20_u64 {
                let address = 0x7f00_0000_0000 + old * mib(4);
                rows.push(format!("7,10:00:29.6000{old:02},free,{address:#x},0,0x0,,{held}"));
            }
        }
    }
    rows.push(format!("7,10:00:41.000000,allocate failure,(nil),{},0x0,load;parse,{}", mib(3), mib(120)));
    let path = scratch("failing.csv");
    fs::write(&path, rows.join("\n") + "\n").expect("it can be written");
    path.to_str().expect("its name is text").to_owned()
}

/// Each cross that is drawn has the colour of failures where its arms meet.
fn assert_crossed(browser: &mut Browser, count: usize) -> Vec<(f64, f64)> {
    let wanted = named(browser, "failure");
    let crosses = browser.ask("probe.crosses()");
    let crosses: Vec<_> = crosses.as_array().expect("a list").clone();
    assert_eq!(crosses.len(), count);
    let place = |cross: &Value| (number(&cross["x"]), number(&cross["y"]));
    for (x, y) in crosses.iter().map(place) {
        // Arms meet between pixels: the four around are near enough.
        let near = [(-0.5, -0.5), (0.5, -0.5), (-0.5, 0.5), (0.5, 0.5)]
            .map(|(right, down)| is_near(pixel(browser, "bytes", x + right, y + down), wanted, 60));
        assert!(near.contains(&true), "a cross at {x}, {y}");
    }
    crosses.iter().map(place).collect()
}

#[test]
fn failures_of_the_log_are_crosses_and_rows() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let path = draw("failing.html", &failing_log(), &[]);
    browser.open(&path);
    let failures = browser.ask("probe.failures()");
    assert_eq!(
        failures,
        json!([
            { "step": 29, "bytes": 100 << 20, "words": "failed: 100 MiB on stream 1, query › join" },
            { "step": 59, "bytes": 3 << 20, "words": "failed: 3.00 MiB on stream 0, load › parse" },
        ])
    );
    assert!(text_of(&mut browser, "facts").contains("Failed2"));
    assert_eq!(
        text_of(&mut browser, "failures-table"),
        "29.50 s100 MiB1query › join41.00 s3.00 MiB0load › parse"
    );
    assert!(text_of(&mut browser, "legend-bytes").contains("failed"));
    let crosses = assert_crossed(&mut browser, 2);
    // A cross is as far above the curve as was wanted, and never beyond the plot.
    let small = browser.ask(&format!("probe.point(59, probe.at(59).live + {})", 3 << 20));
    assert!((number(&small["y"]) - crosses[1].1).abs() < 1.0);
    browser.hover(crosses[0].0, crosses[0].1 + 30.0);
    let tip = text_of(&mut browser, "tip");
    assert!(tip.contains("failed: 100 MiB on stream 1, query › join"), "{tip}");
    browser.hover(crosses[0].0 - 40.0, crosses[0].1 + 30.0);
    assert!(!text_of(&mut browser, "tip").contains("failed"));
    let chosen = "[...document.querySelectorAll('#failures-table tr')].map((row) => row.ariaSelected)";
    browser.key("Home");
    for (key, step, rows) in
        [("f", 29, ["true", "false"]), ("f", 59, ["false", "true"]), ("F", 29, ["true", "false"])]
    {
        browser.key(key);
        assert_eq!(browser.ask("probe.moment()"), step);
        assert_eq!(browser.value(chosen), json!(rows));
    }
    browser.value("document.querySelectorAll('#failures-table tr')[1].click()");
    browser.settle();
    assert_eq!(browser.ask("probe.moment()"), 59);
    browser.key("x");
    assert_crossed(&mut browser, 2);
    for _ in 0..3 {
        browser.key("+");
    }
    // Wherever the view is, the one that is gone to is in it.
    for step in [29, 59] {
        browser.key("F");
        assert_eq!(browser.ask("probe.moment()"), step);
        assert_crossed(&mut browser, 1);
    }
    keep(&mut browser, "failing-light");
    assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
}

#[test]
fn failures_of_a_replay_are_crosses_too() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let page = Page::draw("tight_drawn.html", &trace_path("etl"), &["--resource", "pool(maximum=64MiB)"]);
    let lost = page.wide("block.place").iter().filter(|place| **place == super::page::NOWHERE).count();
    assert!(lost > 1);
    let path = scratch("tight_drawn.html");
    let path = path.to_str().expect("its name is text");
    browser.open(path);
    assert_eq!(browser.ask("probe.failures().length"), lost);
    assert!(
        browser
            .ask("probe.failures()[0].words")
            .as_str()
            .expect("words")
            .starts_with("failed in the replay: ")
    );
    // More than there are pixels, perhaps, and each pixel has one at most.
    let drawn = browser.ask("probe.crosses().length").as_u64().expect("a number");
    assert!(drawn > 0 && drawn <= lost as u64);
    assert_crossed(&mut browser, drawn as usize);
    assert!(browser.complaints(path).is_empty(), "{:?}", browser.complaints(path));
}

#[test]
fn a_log_of_nothing_but_failures_lists_them() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let log = scratch("only_failures.csv");
    fs::write(
        &log,
        "Thread,Time,Action,Pointer,Size,Stream\n7,10:00:00.000000,allocate failure,(nil),1000000,0\n",
    )
    .expect("it can be written");
    let path = draw("only_failures.html", log.to_str().expect("its name is text"), &[]);
    browser.open(&path);
    assert!(text_of(&mut browser, "time-empty").contains("The log has 1 allocation, and it failed."));
    assert!(text_of(&mut browser, "notes").contains("1 allocation failed"));
    assert_eq!(text_of(&mut browser, "failures-table"), "0 µs977 KiB07");
    for key in ["f", "F", "Home", "x"] {
        browser.key(key);
    }
    assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
}

#[test]
fn a_page_without_failures_does_not_speak_of_them() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let path = draw("unfailing.html", &trace_path("etl"), &[]);
    browser.open(&path);
    assert_eq!(browser.ask("probe.failures()"), json!([]));
    assert_eq!(browser.value("document.getElementById('tab-failures').hidden"), true);
    assert!(!text_of(&mut browser, "facts").contains("Failed"));
    assert!(!text_of(&mut browser, "legend-bytes").contains("failed"));
    browser.key("f");
    assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
}
