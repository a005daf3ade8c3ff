//! The curves are those of the trace.

use alluvion::trace::{EventKind, Trace};

use super::page::{read_trace, trace_path};
use super::{browser, draw, is_near, named, number, pixel, text_of};

/// The live bytes after each event, as the trace counts them.
fn live_curve(trace: &Trace) -> Vec<u64> {
    let mut live = 0;
    let step = |event: &alluvion::trace::Event| {
        let bytes = event.bytes.next_multiple_of(256);
        live = if event.kind == EventKind::Allocate { live + bytes } else { live - bytes };
        live
    };
    trace.events.iter().map(step).collect()
}

#[test]
fn the_curves_are_those_of_the_trace() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    for name in ["etl", "streams", "serve_streams"] {
        let path = draw(&format!("curves_{name}.html"), &trace_path(name), &[]);
        browser.open(&path);
        let trace = read_trace(&trace_path(name));
        let curve = live_curve(&trace);
        let peak = browser.ask("probe.peak()");
        assert_eq!(peak["live"], trace.peak_live_bytes(), "{name}");
        let at = peak["step"].as_u64().unwrap() as usize;
        assert_eq!(curve[at], trace.peak_live_bytes());
        assert_eq!(browser.ask("probe.moment()"), at, "it begins at the peak");
        assert!(text_of(&mut browser, "facts").contains("Live peak"));
        for step in (0..curve.len()).step_by(curve.len() / 40) {
            let said = browser.ask(&format!("probe.at({step})"));
            assert_eq!(said["live"], curve[step], "{name}, event {step}");
            assert!(number(&said["reserved"]) >= curve[step] as f64);
        }
        // The area under the curve has the colour of what is live, and what is above all has none.
        // So near that each event has pixels of its own.
        for _ in 0..14 {
            browser.key("+");
        }
        let (live, held) = (named(&mut browser, "live"), named(&mut browser, "held"));
        let middle = browser.ask(&format!("probe.point({at}, {})", curve[at] / 2));
        let (x, y) = (number(&middle["x"]), number(&middle["y"]));
        assert!(is_near(pixel(&mut browser, "bytes", x, y), live, 2), "{name}");
        let most = number(&peak["reserved"]);
        let over = browser.ask(&format!("probe.point({at}, {})", most * 1.03));
        let (x, y) = (number(&over["x"]), number(&over["y"]));
        assert!(
            !is_near(pixel(&mut browser, "bytes", x, y), held, 2),
            "{name}: nothing is over what is reserved"
        );
        assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
    }
}
