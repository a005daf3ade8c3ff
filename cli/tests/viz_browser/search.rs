//! The search, and the list of the largest holders.

use std::fmt::Write;
use std::fs;

use serde_json::{Value, json};

use super::browser::Browser;
use super::page::scratch;
use super::{browser, draw, is_near, keep, number, pixel, text_of};

/// A log with tags: three scopes, two streams, two threads.
pub(super) fn tagged_log() -> String {
    let mut log = "Thread,Time,Action,Pointer,Size,Stream,Tag,Reserved\n".to_owned();
    let tags = ["load;parse", "load;decode", "query;join"];
    for at in 0..60_u64 {
        let (tag, stream) = (tags[at as usize % 3], if at % 2 == 0 { "0" } else { "0x7f653d" });
        let (thread, address, bytes) = (100 + at % 2, 0x7f00_0000_0000_u64 + (at << 16), 1000 * (at + 1));
        let reserved = (at + 1) << 16;
        writeln!(
            log,
            "{thread},10:00:00.{:06},allocate,{address:#x},{bytes},{stream},{tag},{reserved}",
            at * 100
        )
        .unwrap();
        if at >= 40 {
            let (old, size) = (0x7f00_0000_0000_u64 + ((at - 40) << 16), 1000 * (at - 39));
            writeln!(log, "{thread},10:00:00.{:06},free,{old:#x},{size},{stream},,{reserved}", at * 100 + 50)
                .unwrap();
        }
    }
    let path = scratch("tagged.csv");
    fs::write(&path, log).expect("it can be written");
    path.to_str().unwrap().to_owned()
}

#[test]
fn search_finds_tags_addresses_numbers_sizes_and_streams() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let path = draw("search.html", &tagged_log(), &[]);
    browser.open(&path);
    let mut search = |words: &str| {
        browser.key("Escape");
        browser.key("Escape");
        browser.key("/");
        browser.type_text(words);
        browser.ask("probe.hits()")
    };
    assert_eq!(search("#17"), json!([17]));
    assert_eq!(search("17"), json!([17]));
    assert_eq!(search("0x7f0000010010"), json!([1]), "inside of the block");
    assert_eq!(search("join"), json!((0..60).filter(|at| at % 3 == 2).collect::<Vec<_>>()));
    assert_eq!(search("load › PARSE"), json!((0..60).step_by(3).collect::<Vec<_>>()));
    assert_eq!(search("stream 1"), json!((0..60).filter(|at| at % 2 == 1).collect::<Vec<_>>()));
    assert_eq!(search("stream 0x7f653d"), json!((0..60).filter(|at| at % 2 == 1).collect::<Vec<_>>()));
    assert_eq!(search("thread 100"), json!((0..60).step_by(2).collect::<Vec<_>>()));
    assert_eq!(search("> 57k"), json!([58, 59]));
    assert_eq!(search("nothing of the kind"), json!([]));
    assert!(text_of(&mut browser, "hits").contains("Nothing found"));
    // Chosen with the keys, a block is selected, and the moment is one at which it is live.
    browser.key("Escape");
    browser.key("Escape");
    browser.key("/");
    browser.type_text("parse");
    browser.key("ArrowDown");
    browser.key("ArrowDown");
    browser.key("Enter");
    assert_eq!(browser.ask("probe.selected()"), 3);
    assert!(text_of(&mut browser, "block").contains("load › parse"));
    let moment = browser.ask("probe.moment()").as_u64().unwrap();
    let shown = browser.ask("probe.map().map(([block]) => block)");
    assert!(shown.as_array().unwrap().contains(&json!(3)), "event {moment}");
    let faded = pixel_of_block(&mut browser, 2);
    browser.key("Escape");
    browser.value("document.activeElement.blur()");
    browser.key("Escape");
    assert_eq!(browser.ask("probe.selected()"), Value::Null);
    assert!(!is_near(pixel_of_block(&mut browser, 2), faded, 10), "what is not found was faded");
    // The largest holders, by tag: three rows that add up to the live bytes.
    browser.key("p");
    let rows = browser.ask("probe.holders()");
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 3);
    let sum: f64 = rows.iter().map(|row| number(&row["bytes"])).sum();
    assert_eq!(sum, number(&browser.ask("probe.at(probe.moment()).live")));
    let bars = browser.ask("probe.bars().reduce((sum, bar) => sum + bar.bytes, 0)");
    assert_eq!(number(&bars), sum);
    assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
    keep(&mut browser, "tagged-light");
}

fn pixel_of_block(browser: &mut Browser, block: u32) -> [i64; 3] {
    let part = browser.ask(&format!("probe.rectangles({block})[0]"));
    let [x, y, width, height] = ["x", "y", "width", "height"].map(|key| number(&part[key]));
    pixel(browser, "map", x + width / 2.0, y + height / 2.0)
}
