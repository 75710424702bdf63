//! Drives a headless Chromium over its DevTools protocol: opens a page with a given width and
//! theme, and reports console messages, requests and rendered content.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use mallard_procfs::{Stat, family};
use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// Long enough for a busy machine; a browser that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The browser on this machine, if any.
fn find() -> Option<PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |f| f.join(name)))
        .find(|path| path.is_file())
}

/// A browser; none if the machine has none and the test is optional.
pub fn for_test() -> Option<Browser> {
    let found = find();
    if found.is_none() {
        crate::not_installed("chromium");
    }
    found.map(|program| Browser::start(&program))
}

pub struct Browser {
    process: Child,
    socket: WebSocket<MaybeTlsStream<std::net::TcpStream>>,
    /// The page that commands apply to, once there is one.
    session: Option<String>,
    next_id: u64,
    /// Events that arrived while waiting for an answer.
    events: Vec<Value>,
    /// Also has the browser's temporary files.
    profile: tempfile::TempDir,
}

/// What a page did while it loaded.
#[derive(Debug)]
pub struct Visit {
    /// Uncaught exceptions, `console.error`, and the errors that the browser itself logs.
    pub errors: Vec<String>,
    /// Everything that the page requested besides itself.
    pub requests: Vec<String>,
}

impl Browser {
    pub fn start(program: &Path) -> Browser {
        let profile = tempfile::tempdir().expect("a folder for the browser's profile");
        let temporary = profile.path().join("tmp");
        std::fs::create_dir(&temporary).expect("a folder for the browser's temporary files");
        let mut process = Command::new(program)
            .args("--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage".split(' '))
            .args([
                "--no-first-run",
                "--hide-scrollbars",
                "--disable-background-networking",
                "--disable-component-update",
            ])
            .args([
                "--remote-debugging-port=0",
                "--force-device-scale-factor=1",
                "about:blank",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("TMPDIR", temporary)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {}: {e}", program.display()));
        let address = page_address(&mut process);
        let (socket, _) = tungstenite::connect(&address).expect("the browser's debugging socket");
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream
                .set_read_timeout(Some(TIMEOUT))
                .expect("a time limit on the socket");
        }
        let mut browser = Browser {
            process,
            socket,
            session: None,
            next_id: 1,
            events: Vec::new(),
            profile,
        };
        browser.attach();
        browser
    }

    /// Creates a page that all further commands apply to.
    fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let answer = self.call("Target.attachToTarget", attach);
        self.session = Some(
            answer["sessionId"]
                .as_str()
                .expect("a session id")
                .to_owned(),
        );
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.call("Page.setLifecycleEventsEnabled", json!({"enabled": true}));
    }

    /// Opens a page at a width in a theme (`light` or `dark`) and waits until it has settled.
    pub fn visit(&mut self, page: &Path, width: u32, theme: &str) -> Visit {
        let metrics =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!([{"name": "prefers-color-scheme", "value": theme}]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({"media": "", "features": features}),
        );
        self.load("about:blank");
        self.events.clear();
        let url = format!("file://{}", page.display());
        self.load(&url);
        // After two frames the first layout is done, and its events have been reported.
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))");
        let events = std::mem::take(&mut self.events);
        let requests = events
            .iter()
            .filter(|e| e["method"] == "Network.requestWillBeSent");
        let requests = requests.filter_map(|e| e["params"]["request"]["url"].as_str());
        let requests = requests.filter(|u| *u != url).map(str::to_owned).collect();
        Visit {
            errors: events.iter().filter_map(console_error).collect(),
            requests,
        }
    }

    /// The value of an expression, evaluated in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let what = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", what);
        assert!(
            answer.get("exceptionDetails").is_none(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// A picture of the whole page as PNG.
    pub fn picture(&mut self) -> Vec<u8> {
        let answer = self.call(
            "Page.captureScreenshot",
            json!({"format": "png", "captureBeyondViewport": true}),
        );
        let data = answer["data"].as_str().expect("a picture");
        base64::engine::general_purpose::STANDARD
            .decode(data)
            .expect("base64")
    }

    /// The page as PDF, as it would be printed.
    #[allow(dead_code)] // Not every test that takes a browser prints.
    pub fn pdf(&mut self) -> Vec<u8> {
        let answer = self.call("Page.printToPDF", json!({"printBackground": true}));
        base64::engine::general_purpose::STANDARD
            .decode(answer["data"].as_str().expect("a PDF"))
            .expect("base64")
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.socket
            .send(Message::text(message.to_string()))
            .expect("the browser listens");
        loop {
            let answer = self.receive();
            if answer["id"] == json!(id) {
                assert!(answer.get("error").is_none(), "{message}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    /// Goes to an address and waits until that has loaded, and not what was shown before it.
    fn load(&mut self, url: &str) {
        let answer = self.call("Page.navigate", json!({"url": url}));
        let loader = &answer["loaderId"];
        assert!(loader.is_string(), "{url}: {answer}");
        let is_loaded = |event: &Value| {
            let params = &event["params"];
            event["method"] == "Page.lifecycleEvent"
                && params["name"] == "load"
                && params["loaderId"] == *loader
        };
        while !self.events.iter().any(is_loaded) {
            let received = self.receive();
            self.events.push(received);
        }
    }

    fn receive(&mut self) -> Value {
        loop {
            match self
                .socket
                .read()
                .expect("an answer of the browser in time")
            {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Close(_) => panic!("the browser went away"),
                _ => {}
            }
        }
    }
}

impl Drop for Browser {
    /// Ends the browser. Its other processes end by themselves, and until then write into the
    /// profile, which can only be removed behind the last one.
    fn drop(&mut self) {
        let others = descendants(self.process.id());
        let _ = self.process.kill();
        let _ = self.process.wait();
        let begun = Instant::now();
        while others.iter().any(is_alive) && begun.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(5));
        }
        // A process that left the others may write once more.
        let removed = (0..100).any(|_| {
            let removed = std::fs::remove_dir_all(self.profile.path()).is_ok();
            if !removed {
                std::thread::sleep(Duration::from_millis(20));
            }
            removed
        });
        if !removed {
            eprintln!("{} is left", self.profile.path().display());
        }
    }
}

/// A process: its number, and when it began, which tells it from a later one of the same number.
type Process = (u32, u64);

/// A process that runs.
fn look(process: u32) -> Option<Process> {
    let stat = Stat::of(process).filter(|stat| !stat.has_ended())?;
    Some((process, stat.start_ticks))
}

fn is_alive(process: &Process) -> bool {
    look(process.0).as_ref() == Some(process)
}

/// The processes that a process started, and those that they did.
fn descendants(process: u32) -> Vec<Process> {
    let family = family::of(process).into_iter().skip(1);
    family.filter_map(look).collect()
}

/// The address that the browser prints once it listens.
fn page_address(process: &mut Child) -> String {
    let mut lines = BufReader::new(process.stderr.take().expect("its standard error"));
    let (mut seen, mut line) = (String::new(), String::new());
    while lines.read_line(&mut line).expect("text") > 0 {
        if let Some((_, address)) = line.split_once("DevTools listening on ") {
            let address = address.trim().to_owned();
            // Keep reading, so that the browser never blocks on a full pipe.
            std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
            return address;
        }
        seen.push_str(&line);
        line.clear();
    }
    panic!("the browser ended before it listened:\n{seen}");
}

fn console_error(event: &Value) -> Option<String> {
    let params = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled" if params["type"] == "error" => Some(params["args"].to_string()),
        "Log.entryAdded" if params["entry"]["level"] == "error" => {
            Some(params["entry"].to_string())
        }
        _ => None,
    }
}
