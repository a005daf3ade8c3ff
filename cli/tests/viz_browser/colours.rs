//! Both themes can be read, and a colour has one meaning.

use super::page::trace_path;
use super::{browser, draw, is_near, keep, named, number, pixel};

/// How much lighter one colour is than another, as the guidelines for the web count it: 1 to 21.
pub(super) fn contrast(left: [i64; 3], right: [i64; 3]) -> f64 {
    let light = |colour: [i64; 3]| {
        let [red, green, blue] = colour.map(|part| {
            let part = part as f64 / 255.0;
            if part <= 0.03928 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    };
    let (left, right) = (light(left), light(right));
    (left.max(right) + 0.05) / (left.min(right) + 0.05)
}

#[test]
fn both_themes_can_be_read() {
    let mut drawn = Vec::new();
    for dark in [false, true] {
        let Some((_alone, mut browser)) = browser(dark) else { return };
        let path = draw("themes.html", &trace_path("serve_streams"), &[]);
        browser.open(&path);
        let theme = if dark { "dark" } else { "light" };
        assert_eq!(browser.value("document.documentElement.dataset.theme"), theme, "as the system asks");
        for ground in ["panel", "ground"] {
            let ground_colour = named(&mut browser, ground);
            for ink in ["ink", "soft", "faint", "accent"] {
                let ratio = contrast(named(&mut browser, ink), ground_colour);
                assert!(ratio >= 4.5, "{theme}: {ink} on {ground} has {ratio:.2}");
            }
        }
        let panel = named(&mut browser, "panel");
        for part in ["live", "cached", "reserved", "fragmentation", "mark", "pending"] {
            let ratio = contrast(named(&mut browser, part), panel);
            assert!(ratio >= 3.0, "{theme}: {part} has {ratio:.2}");
        }
        let [live, cached, held] = ["live", "cached", "held"].map(|name| named(&mut browser, name));
        for (left, right, names) in
            [(live, held, "live, held"), (live, cached, "live, cached"), (cached, held, "cached, held")]
        {
            let apart: i64 = left.iter().zip(right).map(|(left, right)| (left - right).abs()).sum();
            assert!(apart > 90, "{theme}: {names}");
        }
        let peak = browser.ask("probe.peak()");
        let point = browser.ask(&format!("probe.point({}, {})", peak["step"], number(&peak["live"]) / 2.0));
        drawn.push(pixel(&mut browser, "bytes", number(&point["x"]), number(&point["y"])));
        keep(&mut browser, &format!("trace-{theme}"));
        // The toggle draws everything again, in the other colours.
        browser.click_on("theme");
        let other = if dark { "light" } else { "dark" };
        assert_eq!(browser.value("document.documentElement.dataset.theme"), other);
        let turned = pixel(&mut browser, "bytes", number(&point["x"]), number(&point["y"]));
        assert!(is_near(turned, named(&mut browser, "live"), 2));
        assert!(browser.complaints(&path).is_empty(), "{:?}", browser.complaints(&path));
    }
    assert_ne!(drawn[0], drawn[1]);
}

/// How far apart two colours look: their distance in the space L*a*b*.
fn distance(left: [i64; 3], right: [i64; 3]) -> f64 {
    let lab = |colour: [i64; 3]| {
        let [red, green, blue] = colour.map(|part| {
            let part = part as f64 / 255.0;
            if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        });
        let part = |value: f64| if value > 0.008_856 { value.cbrt() } else { 7.787 * value + 16.0 / 116.0 };
        let x = part((0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.950_47);
        let y = part(0.2126 * red + 0.7152 * green + 0.0722 * blue);
        let z = part((0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.088_83);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    };
    lab(left).iter().zip(lab(right)).map(|(left, right)| (left - right).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn no_group_has_a_colour_that_means_something_else() {
    for dark in [false, true] {
        let Some((_alone, mut browser)) = browser(dark) else { return };
        browser.open(&draw("meanings.html", &trace_path("etl"), &[]));
        let mut colours = |names: &[&str]| {
            names.iter().map(|name| ((*name).to_owned(), named(&mut browser, name))).collect::<Vec<_>>()
        };
        let groups = colours(&["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "other"]);
        let meanings = colours(&["live", "cached", "held", "pending", "failure", "hole", "mark"]);
        for (at, (group, colour)) in groups.iter().enumerate() {
            for (other, its) in groups[at + 1..].iter().chain(&meanings) {
                let apart = distance(*colour, *its);
                assert!(apart > 18.0, "dark {dark}: {group} and {other} are {apart:.0} apart");
            }
        }
        let meanings = &meanings[..5];
        for (at, (meaning, colour)) in meanings.iter().enumerate() {
            for (other, its) in &meanings[at + 1..] {
                let apart = distance(*colour, *its);
                assert!(apart > 25.0, "dark {dark}: {meaning} and {other} are {apart:.0} apart");
            }
        }
    }
}

#[test]
fn lanes_have_colours_only_where_the_map_has_the_same() {
    let Some((_alone, mut browser)) = browser(false) else { return };
    browser.open(&draw("lane_colours.html", &super::search::tagged_log(), &[]));
    let [right, _] = browser.middle("plot-lanes");
    let top = number(&browser.value("document.getElementById('plot-lanes').getBoundingClientRect().y"));
    let live = named(&mut browser, "live");
    let lane =
        |browser: &mut super::Browser, row: f64| pixel(browser, "lanes", right, top + row * 29.0 + 20.0);
    assert_eq!(browser.value("document.getElementById('map-by').value"), "tag");
    for row in [0.0, 1.0] {
        assert!(is_near(lane(&mut browser, row), live, 2), "one colour is not a tag and a stream at once");
    }
    for (by, coloured) in [("stream", true), ("thread", false), ("stream", true)] {
        browser.value(&format!(
            "(() => {{ const by = document.getElementById('map-by'); by.value = '{by}'; \
             by.dispatchEvent(new Event('change')); }})()"
        ));
        browser.settle();
        let drawn = [0.0, 1.0].map(|row| lane(&mut browser, row));
        assert_eq!(drawn[0] != drawn[1], coloured, "by {by}: {drawn:?}");
        assert_eq!(is_near(drawn[0], live, 2), !coloured, "by {by}: {drawn:?}");
    }
}
