//! Pages of one moment, and of nothing.

use std::fs;

use serde_json::{Value, json};

use super::page::{scratch, snapshot_path};
use super::{browser, draw, is_near, keep, named, number, pixel, text_of};

#[test]
fn a_snapshot_is_a_map_of_one_moment() {
    for dark in [false, true] {
        let Some((_alone, mut browser)) = browser(dark) else { return };
        let path = draw("snapshot_drawn.html", &snapshot_path("pool"), &[]);
        browser.open(&path);
        assert_eq!(browser.ask("probe.kind"), "snapshot");
        assert!(text_of(&mut browser, "time-empty").contains("One moment has no curve"));
        assert_eq!(browser.value("document.getElementById('time-empty').hidden"), false);
        // Blocks 0, 5 and 3 are live, cached and pending; 6 is free, and so a hole.
        let states = [(0, "live"), (5, "cached"), (3, "pending"), (6, "hole")];
        for (block, state) in states {
            let wanted = named(&mut browser, state);
            let part =
                browser.ask(&format!("probe.rectangles({block}).sort((a, b) => b.width - a.width)[0]"));
            let [x, y, width, height] = ["x", "y", "width", "height"].map(|key| number(&part[key]));
            let drawn = pixel(&mut browser, "map", x + width / 2.0, y + height / 2.0);
            assert!(is_near(drawn, wanted, 2), "block {block} is {state}: {drawn:?}, {wanted:?}");
        }
        let shown = browser.ask("probe.map()");
        assert_eq!(shown.as_array().unwrap().len(), 6);
        assert_eq!(shown[0], json!([0, "0x1000000200000", 1_048_576]));
        assert_eq!(browser.ask("probe.holders().map((row) => row.name)"), json!(["no tag", "query › join"]));
        assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
        keep(&mut browser, if dark { "snapshot-dark" } else { "snapshot-light" });
    }
}

#[test]
fn figures_of_pages_are_shown_where_there_are_some() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let mut file: Value = serde_json::from_str(&fs::read_to_string(snapshot_path("pool")).unwrap()).unwrap();
    let mut facts = |file: &Value| {
        let input = scratch("pages.json");
        fs::write(&input, file.to_string()).unwrap();
        let path = draw("pages.html", input.to_str().unwrap(), &[]);
        browser.open(&path);
        assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
        text_of(&mut browser, "now-facts")
    };
    let words = ["mapped1 page", "moved3 pages · 6.00 MiB", "asleep5.00 MiB"];

    // With zeros, and as an older program has written it: without the keys.
    let with_zeros = facts(&file);
    let status = file["status"].as_object_mut().unwrap();
    status.retain(|name, _| !["pages", "moves", "moved_bytes"].contains(&name.as_str()));
    let without = facts(&file);
    for shown in [with_zeros, without] {
        assert!(shown.contains("memory of the host"), "{shown}");
        for name in ["mapped", "moved", "asleep", "undefined", "NaN"] {
            assert!(!shown.contains(name), "{shown}");
        }
    }

    for (name, number) in [("pages", 1), ("moves", 3), ("moved_bytes", 6 << 20), ("asleep_bytes", 5 << 20)] {
        file["status"][name] = json!(number);
    }
    let shown = facts(&file);
    for words in words {
        assert!(shown.contains(words), "{shown}");
    }
}

#[test]
fn nothing_is_drawn_of_nothing_and_the_page_says_so() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let log = scratch("nothing.csv");
    fs::write(&log, "Thread,Time,Action,Pointer,Size,Stream\n").unwrap();
    let path = draw("nothing.html", log.to_str().unwrap(), &[]);
    browser.open(&path);
    assert!(text_of(&mut browser, "time-empty").contains("Nothing was allocated"));
    for key in ["Home", "End", "ArrowRight", "p", "+", "0", "x", "l", " ", " "] {
        browser.key(key);
    }
    assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
}
