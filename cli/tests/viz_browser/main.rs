//! The pages of `alluvion viz` in a real browser: what is drawn, what the mouse and the keys do, and how fast.
//!
//! `ci/viz` runs it, and there a missing browser is a failure. Elsewhere it says that it was not run.

#![expect(clippy::disallowed_types, reason = "loom does not see the program")]

mod browser;
mod colours;
mod curves;
mod devices;
mod failures;
mod keys;
mod layout;
mod map;
#[allow(dead_code, reason = "each test file uses its part")]
#[path = "../page/mod.rs"]
mod page;
mod search;
mod snapshots;
mod speed;

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use browser::Browser;
use page::{Page, scratch};
use serde_json::Value;

/// One browser at a time: what is measured must not compete with its neighbours.
static ALONE: Mutex<()> = Mutex::new(());

/// A browser, or `None` with the reason printed.
fn browser(dark: bool) -> Option<(MutexGuard<'static, ()>, Browser)> {
    if std::env::var_os("ALLUVION_BROWSER_TESTS").is_none() {
        println!("not run: it needs a browser, and ci/viz finds one");
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let program = browser::find().expect("a Chromium is on the path, or ALLUVION_CHROMIUM names one");
    Some((alone, Browser::start(&program, dark)))
}

/// Draws `input`, and returns the name of the page.
fn draw(name: &str, input: &str, more: &[&str]) -> String {
    Page::draw(name, input, more);
    scratch(name).to_str().expect("its name is text").to_owned()
}

/// Keeps a picture where `ALLUVION_SCREENSHOTS` says.
fn keep(browser: &mut Browser, name: &str) {
    let picture = browser.screenshot();
    if let Some(folder) = std::env::var_os("ALLUVION_SCREENSHOTS") {
        fs::write(PathBuf::from(folder).join(format!("{name}.png")), &picture).expect("it can be kept");
    }
    assert!(picture.len() > 20_000, "{name} is a picture of something");
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is a number"))
}

/// Red, green and blue, of a colour of the style sheet or of a pixel that covers what is under it.
fn colour(value: &Value) -> [i64; 3] {
    [0, 1, 2].map(|part| value[part].as_i64().unwrap_or_else(|| panic!("{value} is a colour")))
}

fn is_near(left: [i64; 3], right: [i64; 3], most: i64) -> bool {
    left.iter().zip(right).all(|(left, right)| (left - right).abs() <= most)
}

fn pixel(browser: &mut Browser, plot: &str, x: f64, y: f64) -> [i64; 3] {
    colour(&browser.ask(&format!("probe.pixel('{plot}', {x}, {y})")))
}

fn named(browser: &mut Browser, name: &str) -> [i64; 3] {
    colour(&browser.ask(&format!("probe.colour('{name}')")))
}

fn text_of(browser: &mut Browser, id: &str) -> String {
    browser
        .value(&format!("document.getElementById('{id}').textContent"))
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Goes to an event as a user does who has no mouse.
fn go_to(browser: &mut Browser, step: usize) {
    browser.value(&format!(
        "(() => {{ const scrub = document.getElementById('scrub'); scrub.value = {step}; \
         scrub.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
    ));
    browser.settle();
    assert_eq!(browser.ask("probe.moment()"), step);
}
