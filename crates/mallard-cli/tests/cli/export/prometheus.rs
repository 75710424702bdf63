//! Debian's Prometheus scrapes the command, evaluates the rules and the dashboard that are
//! installed with it, and answers queries.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use mallard_testing::lacks;
use serde_json::Value;

use super::*;

/// A file that the installation carries.
fn shared(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("share")
        .join(name)
}

/// A running Prometheus.
pub struct Prometheus {
    running: Running,
    address: String,
}

impl Prometheus {
    /// Starts a Prometheus with these rules; it scrapes the server twice: all at once, and each
    /// process.
    pub fn start(place: &Place, server: &Server, rules: &str) -> Prometheus {
        let folder = place.path();
        std::fs::write(folder.join("rules.yml"), rules).unwrap();
        let settings = format!(
            "\
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: mallard
    static_configs: [{{targets: ['{address}']}}]
  - job_name: each
    http_sd_configs: [{{url: 'http://{address}/targets', refresh_interval: 1s}}]
",
            rules = folder.join("rules.yml").display(),
            address = server.address,
        );
        std::fs::write(folder.join("prometheus.yml"), settings).unwrap();
        // Whoever asks for a port may get this one before Prometheus takes it.
        loop {
            let port = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = port.local_addr().unwrap().to_string();
            drop(port);
            if let Some(prometheus) = Prometheus::start_at(place, address) {
                return prometheus;
            }
        }
    }

    /// Starts a Prometheus with the settings in the folder, unless another program has the address.
    fn start_at(place: &Place, address: String) -> Option<Prometheus> {
        let folder = place.path();
        let log = std::fs::File::create(folder.join("prometheus.log")).unwrap();
        let data = folder.join("data").display().to_string();
        let mut command = Command::new("prometheus");
        command
            .arg("--config.file=prometheus.yml")
            .arg(format!("--storage.tsdb.path={data}"))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            .current_dir(folder)
            .stderr(log);
        let mut prometheus = Prometheus {
            running: Running::start(&mut command),
            address,
        };
        let begun = Instant::now();
        while !prometheus.is_ready(&data) {
            let log = || place.text("prometheus.log");
            if let Some(status) = prometheus.running.child.try_wait().unwrap() {
                let log = log();
                assert!(log.contains("address already in use"), "{status}: {log}");
                return None;
            }
            assert!(begun.elapsed() < TIMEOUT, "{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(prometheus)
    }

    /// Whether it serves: it alone, of all that may listen at the address, has its data there.
    fn is_ready(&self, data: &str) -> bool {
        let ok = |path: &str| self.get(path).filter(|reply| reply.status == 200);
        ok("/-/ready").is_some()
            && ok("/api/v1/status/flags").is_some_and(|reply| reply.text().contains(data))
    }

    /// The answer; none before it listens, and none from a program that talks otherwise.
    fn get(&self, path: &str) -> Option<Reply> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        // The older version of HTTP knows no answers in chunks.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).ok()?;
        reply.starts_with(b"HTTP/").then(|| Reply::parse(&reply))
    }

    /// The series of an expression, now.
    pub fn query(&self, expression: &str) -> Vec<Value> {
        let mut escaped = String::new();
        for byte in expression.bytes() {
            if byte.is_ascii_alphanumeric() {
                escaped.push(byte.into())
            } else {
                escaped.push_str(&format!("%{byte:02X}"))
            }
        }
        let reply = self
            .get(&format!("/api/v1/query?query={escaped}"))
            .expect("it runs");
        let reply: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(reply["status"], "success", "{expression}: {reply}");
        reply["data"]["result"].as_array().expect("series").clone()
    }

    /// The series once this holds.
    pub fn query_until(&self, expression: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let series = self.query(expression);
            if holds(&series) {
                return series;
            }
            assert!(begun.elapsed() < TIMEOUT, "{expression}: {series:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// The rules with spans of seconds, and with small bounds.
fn hurried(rules: &str) -> String {
    let mut hurried = rules.to_owned();
    for (long, short) in [
        ("[10m] offset 1h", "[2s] offset 4s"),
        ("[10m]", "[2s]"),
        ("for: 1h", "for: 1s"),
        ("for: 30m", "for: 1s"),
        ("for: 15m", "for: 1s"),
        ("> 64 * 2^20", "> 2 * 2^20"),
        ("> 256 * 2^20", "> 16 * 2^20"),
    ] {
        assert!(hurried.contains(long), "the rules have no {long}");
        hurried = hurried.replace(long, short);
    }
    hurried
}

/// Long, because a leak takes seconds to be one.
#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn alerts_fire_on_a_leak_and_on_fragmentation_and_every_panel_shows_something() {
    if lacks(&["prometheus"]) {
        return;
    }
    let place = Place::new();
    let options = "export_stats:true,prof:true";
    let _leaks = program(&place, "leaks", options, &["leaks"]);
    let _wastes = program(&place, "wastes", options, &["wastes"]);
    let _sound = program(&place, "sound", options, &[]);
    let folder = place.path().display().to_string();
    let server = Server::start(&["--match", &folder]);
    let rules = std::fs::read_to_string(shared("alerts.yml")).unwrap();
    let prometheus = Prometheus::start(&place, &server, &hurried(&rules));

    prometheus.query_until("up{job='each'} == 1", |series| series.len() == 3);
    let commands = |series: &[Value]| -> Vec<String> {
        let name = |series: &Value| series["metric"]["command"].as_str().unwrap().to_owned();
        let mut names: Vec<String> = series.iter().map(name).collect();
        names.sort();
        names
    };
    let all = "mallard_allocated_bytes{job='mallard'}";
    let series = prometheus.query_until(all, |series| series.len() == 3);
    assert_eq!(commands(&series), ["leaks", "sound", "wastes"]);

    // Each panel of the dashboard, for all processes.
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(shared("grafana.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let mut shown = 0;
    for target in targets {
        let expression = target["expr"].as_str().unwrap();
        let expression = expression
            .replace("$__rate_interval", "5s")
            .replace("$command", ".*")
            .replace("$pid", ".*");
        assert!(!expression.contains('$'), "{expression}");
        prometheus.query_until(&expression, |series| !series.is_empty());
        shown += 1;
    }
    assert!(shown > 20, "{shown}");

    for (alert, command) in [("MallardLeak", "leaks"), ("MallardFragmentation", "wastes")] {
        let firing = format!("ALERTS{{alertname='{alert}',alertstate='firing',job='mallard'}}");
        let series = prometheus.query_until(&firing, |series| !series.is_empty());
        assert_eq!(commands(&series), [command], "{series:?}");
    }
}

#[test]
fn rules_of_alerts_do_what_they_say() {
    if lacks(&["promtool"]) {
        return;
    }
    let promtool = |words: &[&str], file: &Path| {
        output(Command::new("promtool").args(words).arg(file));
    };
    promtool(&["check", "rules"], &shared("alerts.yml"));
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/export/alerts_test.yml");
    promtool(&["test", "rules"], &tests);
    let place = Place::new();
    let settings = std::fs::read_to_string(shared("prometheus.yml")).unwrap();
    let rules = shared("alerts.yml").display().to_string();
    let settings = settings.replace("/usr/local/share/mallard/alerts.yml", &rules);
    let file = place.path().join("prometheus.yml");
    std::fs::write(&file, settings).unwrap();
    promtool(&["check", "config"], &file);
}
