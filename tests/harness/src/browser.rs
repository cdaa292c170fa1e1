//! A headless browser, driven over its DevTools protocol.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// The names of usable programs.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// Generous, because a browser is slow on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running browser with one page. It ends with its test.
#[derive(Debug)]
pub struct Browser {
    process: Child,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    session: String,
    last_id: u64,
}

impl Browser {
    /// Starts a browser with its files in `folder`. Returns `None`, and reports a skipped test, if
    /// none is installed.
    pub fn start(folder: &Path) -> Option<Self> {
        let Some(process) = NAMES.iter().find_map(|name| spawn(name, folder)) else {
            skip::without("chromium");
            return None;
        };
        Some(Self::connect(process))
    }

    fn connect(mut process: Child) -> Self {
        let stderr = process.stderr.take().expect("it is piped");
        let address = BufReader::new(stderr)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("DevTools listening on ").map(str::to_owned))
            .expect("the browser says where it listens");
        let (socket, _) = tungstenite::connect(address).expect("the browser accepts");
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        }
        let mut browser = Self { process, socket, session: String::new(), last_id: 0 };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attached = browser.call(
            "Target.attachToTarget",
            &json!({"targetId": target["targetId"], "flatten": true}),
        );
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    /// Accepts every certificate of the pages that are opened from now on, such as one that a test
    /// has made.
    pub fn accept_any_certificate(&mut self) {
        self.call("Security.setIgnoreCertificateErrors", &json!({"ignore": true}));
    }

    /// Opens a page and waits until it is complete.
    pub fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", &json!({"url": url}));
        assert!(opened.get("errorText").is_none(), "{url} cannot be opened: {opened}");
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// Returns the value of a script.
    ///
    /// # Panics
    ///
    /// Panics if the script throws, or the page is being replaced.
    #[track_caller]
    pub fn evaluate(&mut self, script: &str) -> Value {
        self.try_evaluate(script).unwrap_or_else(|error| panic!("{script} failed: {error}"))
    }

    fn try_evaluate(&mut self, script: &str) -> Result<Value, String> {
        let parameters = json!({"expression": script, "returnByValue": true});
        let result = self.try_call("Runtime.evaluate", &parameters)?;
        match result.get("exceptionDetails") {
            Some(thrown) => Err(thrown.to_string()),
            None => Ok(result["result"]["value"].clone()),
        }
    }

    /// Waits until a script is true. Retries scripts that fail while one page replaces another.
    ///
    /// # Panics
    ///
    /// Panics if it is not true within two minutes.
    #[track_caller]
    pub fn wait_for(&mut self, script: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let told = self.try_evaluate(&format!("Boolean({script})"));
            if told == Ok(Value::Bool(true)) {
                return;
            }
            if Instant::now() >= end {
                let page = self.try_evaluate("document.documentElement.outerHTML");
                panic!("{script} did not become true: {told:?} in {page:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for an element that the selector finds on a complete page, and clicks it.
    #[track_caller]
    pub fn click(&mut self, selector: &str) {
        let element = find(selector);
        self.wait_for(&format!("document.readyState === 'complete' && {element}"));
        self.evaluate(&format!("{element}.click()"));
    }

    /// Waits for a field that the selector finds on a complete page, and types into it.
    #[track_caller]
    pub fn fill(&mut self, selector: &str, text: &str) {
        let element = find(selector);
        self.wait_for(&format!(
            "document.readyState === 'complete' && {element} && ({element}.focus(), \
             {element}.value = '', true)"
        ));
        self.call("Input.insertText", &json!({"text": text}));
        self.wait_for(&format!("{element}.value === {}", json!(text)));
    }

    /// Presses a key, as on a keyboard: a character, or `Enter`.
    pub fn press(&mut self, key: &str) {
        let text = if key == "Enter" { "\r" } else { key };
        let code = text.to_ascii_uppercase().bytes().next();
        let mut parameters =
            json!({"type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", &parameters);
        parameters["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", &parameters);
    }

    /// Sets the size of the window, in pixels of CSS, and whether the person prefers dark pages.
    pub fn show_as(&mut self, width: u32, height: u32, is_dark: bool) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            &json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": true}),
        );
        let scheme = if is_dark { "dark" } else { "light" };
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]}),
        );
    }

    /// Waits until the page shows a text.
    #[track_caller]
    pub fn wait_for_text(&mut self, text: &str) {
        self.wait_for(&format!(
            "document.body && document.body.innerText.includes({})",
            json!(text)
        ));
    }

    /// Waits until the page does not show a text.
    #[track_caller]
    pub fn wait_for_no_text(&mut self, text: &str) {
        self.wait_for(&format!(
            "document.readyState === 'complete' && !document.body.innerText.includes({})",
            json!(text)
        ));
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.try_call(method, parameters).unwrap_or_else(|error| panic!("{method} failed: {error}"))
    }

    fn try_call(&mut self, method: &str, parameters: &Value) -> Result<Value, String> {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(message.to_string())).expect("the browser reads");
        loop {
            let answer = self.socket.read().expect("the browser answers");
            let Ok(text) = answer.to_text() else { continue };
            let Ok(answer) = serde_json::from_str::<Value>(text) else { continue };
            if answer["id"] != json!(self.last_id) {
                continue;
            }
            return match answer.get("error") {
                Some(error) => Err(error.to_string()),
                None => Ok(answer["result"].clone()),
            };
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn find(selector: &str) -> String {
    format!("document.querySelector({})", json!(selector))
}

fn spawn(name: &str, folder: &Path) -> Option<Child> {
    Command::new(name)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args([
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--remote-debugging-port=0",
        ])
        .arg(format!("--user-data-dir={}", folder.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .ok()
}
