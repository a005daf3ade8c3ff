//! A Chromium without a window, driven over a pipe as its developer tools drive it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// An answer that takes longer never comes: the longest that is waited for opens a page of a million events.
const PATIENCE: Duration = Duration::from_secs(120);

const NAMES: [&str; 5] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];

/// It keeps to itself: no sandbox, which containers forbid, no first run, nothing fetched.
const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
];

/// Where Chromium is: `ALLUVION_CHROMIUM`, or on the path.
pub(crate) fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("ALLUVION_CHROMIUM") {
        return Some(named.into());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .flat_map(|folder| NAMES.map(|name| folder.join(name)))
        .find(|path| path.is_file())
}

/// A browser with one tab.
pub(crate) struct Browser {
    process: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<Value>,
    profile: PathBuf,
    sent: u64,
    session: Value,
    /// What happened unasked.
    events: Vec<Value>,
}

impl Browser {
    pub(crate) fn start(program: &PathBuf, dark: bool) -> Self {
        let profile = crate::page::scratch(&format!("profile-{}-{dark}", std::process::id()));
        let _ = fs::remove_dir_all(&profile);
        fs::create_dir_all(&profile).expect("the profile's folder can be made");
        let log = File::create(profile.join("stderr")).expect("a log can be written");
        // It listens at descriptor 3 and answers at 4; a shell puts the pipes there.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null"])
            .arg(program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the browser starts");
        let orders = process.stdin.take();
        let answers = process.stdout.take().expect("its answers are piped");
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let mut answers = BufReader::new(answers);
            let mut text = Vec::new();
            while answers.read_until(0, &mut text).is_ok_and(|read| read > 0) {
                text.pop();
                let Ok(answer) = serde_json::from_slice(&text) else { break };
                if sender.send(answer).is_err() {
                    break;
                }
                text.clear();
            }
        });
        let mut browser = Self {
            process,
            orders,
            answers: receiver,
            profile,
            sent: 0,
            session: Value::Null,
            events: Vec::new(),
        };
        let target =
            browser.order("Target.createTarget", &json!({ "url": "about:blank" }))["targetId"].take();
        let attached =
            browser.order("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].clone();
        for room in ["Page", "Runtime", "Log", "Network"] {
            browser.order(&format!("{room}.enable"), &json!({}));
        }
        browser.order("Performance.enable", &json!({ "timeDomain": "threadTicks" }));
        let scheme = if dark { "dark" } else { "light" };
        browser.order(
            "Emulation.setEmulatedMedia",
            &json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
        browser.resize(1440, 900);
        browser
    }

    /// Makes the window so many pixels wide and high.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        self.order(
            "Emulation.setDeviceMetricsOverride",
            &json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false }),
        );
    }

    /// Sends an order, and waits for the answer.
    #[track_caller]
    pub(crate) fn order(&mut self, method: &str, parameters: &Value) -> Value {
        self.sent += 1;
        let mut order = json!({ "id": self.sent, "method": method, "params": parameters });
        if !self.session.is_null() {
            order["sessionId"] = self.session.clone();
        }
        let mut text = order.to_string().into_bytes();
        text.push(0);
        let orders = self.orders.as_mut().expect("the browser listens");
        orders.write_all(&text).and_then(|()| orders.flush()).expect("the browser takes orders");
        let since = Instant::now();
        loop {
            let rest = PATIENCE.saturating_sub(since.elapsed());
            let mut answer = match self.answers.recv_timeout(rest) {
                Ok(answer) => answer,
                Err(why) => self.lost(method, why),
            };
            if answer["id"] == self.sent {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    #[track_caller]
    fn lost(&self, method: &str, why: RecvTimeoutError) -> ! {
        let log = fs::read_to_string(self.profile.join("stderr")).unwrap_or_default();
        let end: Vec<_> = log.lines().rev().take(12).collect();
        panic!("{method}: {why}; the browser said last: {end:?}")
    }

    /// Opens a page from disk, and waits until it has drawn. Returns milliseconds from asking for it to its first picture.
    #[track_caller]
    pub(crate) fn open(&mut self, path: &str) -> f64 {
        self.events.clear();
        self.order("Page.navigate", &json!({ "url": format!("file://{path}") }));
        let since = Instant::now();
        // The old document may still be there when the order is answered.
        while self.value("typeof window.alluvion") != "object" {
            assert!(since.elapsed() < PATIENCE, "the page's script never ran");
            thread::sleep(Duration::from_millis(20));
        }
        self.ask("probe.timings().drawn").as_f64().expect("it says when it had drawn")
    }

    /// Milliseconds that a processor has spent on the page's thread so far.
    #[track_caller]
    pub(crate) fn busy(&mut self) -> f64 {
        let metrics = self.order("Performance.getMetrics", &json!({}));
        let metrics = metrics["metrics"].as_array().expect("it counts");
        let tasks = metrics.iter().find(|metric| metric["name"] == "TaskDuration");
        tasks.and_then(|metric| metric["value"].as_f64()).expect("it counts tasks") * 1000.0
    }

    /// What an expression is worth in the page.
    #[track_caller]
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let mut answer = self.order(
            "Runtime.evaluate",
            &json!({ "expression": expression, "awaitPromise": true, "returnByValue": true }),
        );
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].take()
    }

    /// What the page says about itself; `probe` is what it hands to tests.
    #[track_caller]
    pub(crate) fn ask(&mut self, expression: &str) -> Value {
        self.value(&format!("window.alluvion.then((probe) => ({expression}))"))
    }

    /// Waits until what was changed is drawn.
    pub(crate) fn settle(&mut self) {
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
    }

    pub(crate) fn mouse(&mut self, kind: &str, x: f64, y: f64, more: &Value) {
        let mut event = json!({ "type": kind, "x": x, "y": y });
        for (key, value) in more.as_object().into_iter().flatten() {
            event[key] = value.clone();
        }
        self.order("Input.dispatchMouseEvent", &event);
    }

    pub(crate) fn hover(&mut self, x: f64, y: f64) {
        self.mouse("mouseMoved", x, y, &json!({}));
        self.settle();
    }

    pub(crate) fn click(&mut self, x: f64, y: f64) {
        self.mouse("mouseMoved", x, y, &json!({}));
        let left = json!({ "button": "left", "clickCount": 1, "buttons": 1 });
        self.mouse("mousePressed", x, y, &left);
        self.mouse("mouseReleased", x, y, &left);
        self.settle();
    }

    /// Clicks in the middle of an element.
    #[track_caller]
    pub(crate) fn click_on(&mut self, id: &str) {
        let [x, y] = self.middle(id);
        self.click(x, y);
    }

    #[track_caller]
    pub(crate) fn middle(&mut self, id: &str) -> [f64; 2] {
        let place = self.value(&format!(
            "(() => {{ const box = document.getElementById('{id}').getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        ));
        [0, 1].map(|at| place[at].as_f64().expect("it is there"))
    }

    /// Presses a key and lets it go. One letter types itself.
    pub(crate) fn key(&mut self, key: &str) {
        self.key_with(key, 0);
    }

    /// `modifiers`: 8 is shift.
    pub(crate) fn key_with(&mut self, key: &str, modifiers: u32) {
        let mut event = json!({ "type": "keyDown", "key": key, "modifiers": modifiers });
        if key.chars().count() == 1 {
            event["text"] = json!(key);
        }
        // The native number of the key, without which Enter does nothing to a focused control.
        if key == "Enter" {
            event["text"] = json!("\r");
        }
        self.order("Input.dispatchKeyEvent", &event);
        self.order("Input.dispatchKeyEvent", &json!({ "type": "keyUp", "key": key, "modifiers": modifiers }));
        self.settle();
    }

    pub(crate) fn type_text(&mut self, text: &str) {
        self.order("Input.insertText", &json!({ "text": text }));
        self.settle();
    }

    /// A picture of the window, as PNG.
    pub(crate) fn screenshot(&mut self) -> Vec<u8> {
        let shot = self.order("Page.captureScreenshot", &json!({ "format": "png" }));
        BASE64_STANDARD.decode(shot["data"].as_str().expect("it is a picture")).expect("in base64")
    }

    /// Errors and warnings of the page so far, and addresses that it asked for other than its own.
    pub(crate) fn complaints(&mut self, path: &str) -> Vec<String> {
        // An answer to this comes after what has happened before.
        self.settle();
        let own = format!("file://{path}");
        let told = |event: &Value| match event["method"].as_str()? {
            "Runtime.exceptionThrown" | "Log.entryAdded" | "Runtime.consoleAPICalled" => {
                Some(event.to_string())
            }
            "Network.requestWillBeSent" => {
                let url = event["params"]["request"]["url"].as_str()?;
                (url != own && !url.starts_with("data:")).then(|| format!("it asks for {url}"))
            }
            _ => None,
        };
        self.events.iter().filter_map(told).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Closing the pipe ends it; it is given a moment to clean up.
        drop(self.orders.take());
        for _ in 0..100 {
            if matches!(self.process.try_wait(), Ok(Some(_))) {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.profile);
    }
}
