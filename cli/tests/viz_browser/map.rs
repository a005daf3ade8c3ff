//! The address map: who holds what at any moment, and what is said of it.

use std::collections::BTreeMap;

use alluvion::trace::{EventKind, Trace};

use super::page::{read_trace, trace_path};
use super::{browser, colour, draw, go_to, is_near, named, number, pixel, text_of};

/// The blocks that are live after event `last`: number, address and length.
fn blocks_at(trace: &Trace, last: usize) -> BTreeMap<u64, (String, u64)> {
    let mut live = BTreeMap::new();
    for (event, moment) in trace.events.iter().zip(&trace.moments).take(last + 1) {
        if event.kind == EventKind::Allocate {
            let place = (format!("{:#x}", moment.address), event.bytes.next_multiple_of(256));
            live.insert(u64::from(event.block), place);
        } else {
            live.remove(&u64::from(event.block));
        }
    }
    live
}

#[test]
fn the_map_shows_who_holds_what_at_any_moment() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let path = draw("map.html", &trace_path("serve_streams"), &["--recorded"]);
    browser.open(&path);
    let trace = read_trace(&trace_path("serve_streams"));
    let hole = named(&mut browser, "hole");
    for share in [0, 2, 13, 27, 50, 77, 100] {
        let step = (trace.events.len() - 1) * share / 100;
        go_to(&mut browser, step);
        let wanted = blocks_at(&trace, step);
        let shown = browser.ask("probe.map()");
        let shown: BTreeMap<u64, (String, u64)> = shown
            .as_array()
            .unwrap()
            .iter()
            .map(|block| {
                let [number, bytes] = [0, 2].map(|at| block[at].as_u64().unwrap());
                (number, (block[1].as_str().unwrap().to_owned(), bytes))
            })
            .collect();
        assert_eq!(shown, wanted, "event {step}");
        let mut ranges: Vec<(u64, u64)> = shown
            .values()
            .map(|(address, bytes)| {
                let begin = u64::from_str_radix(&address[2..], 16).unwrap();
                (begin, begin + bytes)
            })
            .collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "event {step}: no two overlap");
        // The largest blocks have the colours of their streams, in every row that they reach into.
        let mut largest: Vec<_> = shown.iter().map(|(block, (_, bytes))| (*bytes, *block)).collect();
        largest.sort_unstable();
        for &(_, block) in largest.iter().rev().take(6) {
            let parts = browser.ask(&format!("probe.rectangles({block})"));
            let parts = parts.as_array().unwrap();
            assert!(!parts.is_empty());
            for part in parts.iter().filter(|part| number(&part["width"]) > 6.0) {
                let [x, y, width, height] = ["x", "y", "width", "height"].map(|key| number(&part[key]));
                let drawn = pixel(&mut browser, "map", x + width / 2.0, y + height / 2.0);
                let rank = browser.ask(&format!("probe.colourOf({block})"));
                assert!(is_near(drawn, colour(&rank), 2), "event {step}, block {block}: {drawn:?}");
                assert!(!is_near(drawn, hole, 8));
            }
        }
    }
    assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
}

#[test]
fn no_two_rectangles_of_a_replay_overlap() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let path = draw("rectangles.html", &trace_path("streams"), &[]);
    browser.open(&path);
    let events = number(&browser.ask("probe.events")) as usize;
    for share in [1, 9, 35, 60, 90] {
        go_to(&mut browser, events * share / 100);
        let rectangles = browser.ask("probe.map().flatMap(([block]) => probe.rectangles(block))");
        let mut rows: BTreeMap<i64, Vec<(f64, f64)>> = BTreeMap::new();
        for part in rectangles.as_array().unwrap() {
            let [x, y, width] = ["x", "y", "width"].map(|key| number(&part[key]));
            rows.entry((y * 8.0) as i64).or_default().push((x, x + width));
        }
        for row in rows.values_mut() {
            row.sort_by(|left, right| left.0.total_cmp(&right.0));
            // A thousandth of a pixel: they are quotients.
            assert!(row.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-3), "{share} %");
        }
    }
}

#[test]
fn hovering_says_what_is_there() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let path = draw("hover.html", &trace_path("serve_streams"), &["--recorded"]);
    browser.open(&path);
    let trace = read_trace(&trace_path("serve_streams"));
    let step = browser.ask("probe.moment()").as_u64().unwrap() as usize;
    let blocks = blocks_at(&trace, step);
    let (block, (address, _)) = blocks.iter().max_by_key(|(_, (_, bytes))| *bytes).unwrap();
    let event = trace.events.iter().find(|event| u64::from(event.block) == *block).unwrap();
    let part = browser.ask(&format!("probe.rectangles({block})[0]"));
    let [x, y, width, height] = ["x", "y", "width", "height"].map(|key| number(&part[key]));
    browser.hover(x + width / 2.0, y + height / 2.0);
    let tip = text_of(&mut browser, "tip");
    for part in [format!("block #{block}"), address.clone(), with_commas(event.bytes), "stream".to_owned()] {
        assert!(tip.contains(&part), "{part} in {tip}");
    }
    let point = browser.ask(&format!("probe.point({step}, 1)"));
    browser.hover(number(&point["x"]), number(&point["y"]) - 20.0);
    let tip = text_of(&mut browser, "tip");
    assert!(tip.contains("live ") && tip.contains("fragmentation ") && tip.contains("event "), "{tip}");
    // In the gutter there is nothing to say.
    let left = number(&browser.value("document.getElementById('plot-bytes').getBoundingClientRect().x"));
    browser.hover(left + 5.0, number(&point["y"]) - 20.0);
    assert_eq!(browser.value("document.getElementById('tip').hidden"), true);
    // Over a hole it says how long it is. There is one between two neighbours that do not touch.
    let mut sorted: Vec<_> =
        blocks.iter().map(|(number, (address, bytes))| (address, *bytes, *number)).collect();
    sorted.sort_by_key(|(address, ..)| u64::from_str_radix(&address[2..], 16).unwrap());
    let begins = |at: usize| u64::from_str_radix(&sorted[at].0[2..], 16).unwrap();
    let gap = |at: usize| begins(at + 1) - begins(at) - sorted[at].1;
    let widest = (0..sorted.len() - 1).max_by_key(|&at| gap(at)).unwrap();
    let last = browser.ask(&format!("probe.rectangles({}).at(-1)", sorted[widest].2));
    let [x, y, width, height] = ["x", "y", "width", "height"].map(|key| number(&last[key]));
    browser.hover(x + width + 4.0, y + height / 2.0);
    let tip = text_of(&mut browser, "tip");
    let bytes = with_commas(gap(widest));
    assert!(tip.starts_with("hole of ") && tip.contains(&bytes), "{bytes} in {tip}");
}

/// `1,234,567 B`
fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + " B"
}
