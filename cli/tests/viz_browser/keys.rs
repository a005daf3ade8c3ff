//! Keys, mouse, and names for those who do not see the page.

use std::time::{Duration, Instant};

use serde_json::json;

use super::browser::Browser;
use super::page::trace_path;
use super::{browser, draw, number};

#[test]
fn everything_can_be_done_with_the_keys() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let path = draw("keys.html", &trace_path("etl"), &[]);
    browser.open(&path);
    let last = number(&browser.ask("probe.events")) - 1.0;
    let peak = number(&browser.ask("probe.peak().step"));
    let moment = |browser: &mut Browser| number(&browser.ask("probe.moment()"));
    browser.key("Home");
    assert_eq!(moment(&mut browser), 0.0);
    browser.key("ArrowRight");
    browser.key("ArrowRight");
    browser.key("ArrowLeft");
    assert_eq!(moment(&mut browser), 1.0);
    browser.key_with("ArrowRight", 8);
    assert_eq!(moment(&mut browser), 1.0 + (last / 100.0).round());
    browser.key("End");
    assert_eq!(moment(&mut browser), last);
    browser.key("ArrowRight");
    assert_eq!(moment(&mut browser), last, "there is nothing beyond");
    browser.key("p");
    assert_eq!(moment(&mut browser), peak);
    let view = |browser: &mut Browser| {
        let view = browser.ask("probe.view()");
        (number(&view["from"]), number(&view["to"]), view["byTime"].as_bool().unwrap())
    };
    let (from, to, _) = view(&mut browser);
    browser.key("+");
    let (closer, _, _) = view(&mut browser);
    let (_, end, _) = view(&mut browser);
    assert!((end - closer - (to - from) / 2.0).abs() < 1.0, "half of it");
    browser.key("[");
    assert!(view(&mut browser).0 < closer || closer == 0.0);
    browser.key("]");
    browser.key("-");
    browser.key("-");
    assert_eq!(view(&mut browser).0, 0.0);
    browser.key("+");
    browser.key("0");
    assert_eq!((view(&mut browser).0, view(&mut browser).1), (0.0, last + 1.0));
    browser.key("x");
    assert!(view(&mut browser).2);
    browser.key("x");
    assert!(!view(&mut browser).2);
    browser.key("y");
    let pressed = "document.getElementById('fit-height').getAttribute('aria-pressed')";
    assert_eq!(browser.value(pressed), "true");
    browser.key("l");
    assert!(browser.ask("probe.lanes()[0].name").as_str().unwrap().starts_with("thread"));
    browser.key("t");
    assert_eq!(browser.value("document.documentElement.dataset.theme"), "dark");
    browser.key("t");
    browser.key("?");
    assert_eq!(browser.value("document.getElementById('help').open"), true);
    browser.order(
        "Input.dispatchKeyEvent",
        &json!({ "type": "keyDown", "key": "Escape", "windowsVirtualKeyCode": 27 }),
    );
    browser.settle();
    if browser.value("document.getElementById('help').open") == true {
        browser.value("document.getElementById('help').close()");
    }
    browser.key("Home");
    browser.key(" ");
    let since = Instant::now();
    while moment(&mut browser) == 0.0 {
        assert!(since.elapsed() < Duration::from_secs(120), "it plays");
        browser.settle();
    }
    browser.key(" ");
    let stopped = moment(&mut browser);
    browser.settle();
    browser.settle();
    assert_eq!(moment(&mut browser), stopped);
    // A click on the curve goes there; a drag moves the view; two clicks show everything.
    browser.key("0");
    let point = browser.ask("probe.point(4000, 1)");
    let (x, y) = (number(&point["x"]), number(&point["y"]) - 30.0);
    browser.click(x, y);
    assert!((moment(&mut browser) - 4000.0).abs() <= 10.0, "a pixel is a few events");
    browser.key("+");
    let before = view(&mut browser);
    let left = json!({ "button": "left", "buttons": 1 });
    browser.mouse("mousePressed", x, y, &left);
    browser.mouse("mouseMoved", x - 50.0, y, &left);
    browser.mouse("mouseMoved", x - 100.0, y, &left);
    browser.mouse("mouseReleased", x - 100.0, y, &left);
    browser.settle();
    assert!(view(&mut browser).0 > before.0, "what was right of the view comes in");
    browser.mouse("mouseWheel", x, y, &json!({ "deltaX": 0, "deltaY": 400 }));
    browser.settle();
    let after = view(&mut browser);
    assert!(after.1 - after.0 > before.1 - before.0);
    assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
}

#[test]
fn everything_has_a_name_for_those_who_do_not_see_it() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    let path = draw("names_of_parts.html", &trace_path("etl"), &[]);
    browser.open(&path);
    let unnamed = browser.value(
        "[...document.querySelectorAll('canvas.data, button, input, select, section, [role=img]')].filter((part) => \
         !(part.getAttribute('aria-label') || part.textContent.trim() || part.labels?.length)).map((part) => part.outerHTML)",
    );
    assert_eq!(unnamed, json!([]));
    let label = browser.value("document.querySelector('#plot-bytes canvas').getAttribute('aria-label')");
    assert!(label.as_str().unwrap().starts_with("Bytes over time. Live peak 376 MiB"), "{label}");
    let scrub = browser.value("document.getElementById('scrub').getAttribute('aria-valuetext')");
    assert!(scrub.as_str().unwrap().contains("376 MiB live"), "{scrub}");
}
