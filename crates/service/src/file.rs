//! The description of a service, and the TOML file that has it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use regex_lite::Regex;
use serde::Deserialize;

use crate::metrics::{Better, Metric, Source};
use crate::readiness::Ready;
use crate::words::Words;

const READY_TIMEOUT: Duration = Duration::from_secs(30);
const SETTLE_TIME: Duration = Duration::from_secs(1);
const LOAD_TIMEOUT: Duration = Duration::from_secs(600);
/// What must be made for a server, such as a database, takes its time.
const PREPARATION_TIMEOUT: Duration = Duration::from_secs(600);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether the load waits for each answer before it sends the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loop {
    Closed,
    Open,
    Unknown,
}

/// How a server is stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    pub signal: i32,
    /// Runs instead of the signal.
    pub command: Option<Words>,
    pub within: Duration,
}

/// A server and what is done with it in one run.
#[derive(Debug, Clone)]
pub struct Service {
    pub name: String,
    pub about: String,
    /// The program on which the loader must put the allocator; `start` names it otherwise.
    pub program: Option<String>,
    /// Programs that must be there, with their Debian packages.
    pub needs: Vec<(String, String)>,
    /// Folders before those of PATH.
    pub path: Vec<String>,
    /// Variables for all commands.
    pub environment: Vec<(String, String)>,
    /// Files of `{folder}`.
    pub files: Vec<(String, String)>,
    pub setup: Option<Words>,
    pub setup_within: Duration,
    pub prepare: Option<Words>,
    pub prepare_within: Duration,
    pub start: Words,
    pub ready: Ready,
    pub ready_within: Duration,
    pub load: Words,
    pub load_within: Duration,
    pub closed: Loop,
    pub settle: Duration,
    pub stop: Stop,
    pub metrics: Vec<Metric>,
    /// The folder in which commands run; none for a folder of the run itself.
    pub here: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    service: Part,
    #[serde(default)]
    metrics: BTreeMap<String, MetricPart>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    name: Option<String>,
    #[serde(default)]
    about: String,
    program: Option<String>,
    #[serde(default)]
    needs: BTreeMap<String, String>,
    #[serde(default)]
    path: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    setup: Option<Words>,
    setup_within: Option<String>,
    prepare: Option<Words>,
    prepare_within: Option<String>,
    start: Words,
    ready: ReadyPart,
    load: Words,
    load_within: Option<String>,
    #[serde(rename = "loop")]
    closed: Option<Loop>,
    settle: Option<String>,
    #[serde(default)]
    stop: StopPart,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadyPart {
    tcp: Option<String>,
    socket: Option<String>,
    log: Option<String>,
    command: Option<Words>,
    expect: Option<String>,
    within: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StopPart {
    signal: Option<String>,
    command: Option<Words>,
    within: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricPart {
    regex: Option<String>,
    column: Option<String>,
    row: Option<String>,
    json: Option<String>,
    unit: Option<String>,
    better: Option<Better>,
    scale: Option<f64>,
}

impl Service {
    /// Reads a file. Its commands run in the folder of the file.
    ///
    /// # Errors
    /// A sentence: what is wrong, and where.
    pub fn read(path: &Path) -> Result<Service, String> {
        let shown = path.display();
        let text =
            std::fs::read_to_string(path).map_err(|e| format!("cannot read {shown}: {e}"))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let mut service = Service::parse(&stem, &text).map_err(|e| format!("{shown}: {e}"))?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let here = std::path::absolute(folder.unwrap_or(Path::new(".")));
        service.here = Some(here.map_err(|e| format!("{shown}: {e}"))?);
        Ok(service)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// A sentence: what is wrong, and where.
    pub fn parse(name: &str, text: &str) -> Result<Service, String> {
        let file: File = toml::from_str(text).map_err(|error| in_one_line(&error, text))?;
        let part = file.service;
        let closed = part.closed.unwrap_or_else(|| guess(&part.load));
        let preparing =
            |key, text: &Option<String>| time(key, text.as_deref(), PREPARATION_TIMEOUT);
        let service = Service {
            name: part.name.unwrap_or_else(|| name.to_owned()),
            about: part.about,
            program: part.program,
            needs: part.needs.into_iter().collect(),
            path: part.path,
            environment: part.environment.into_iter().collect(),
            files: part.files.into_iter().collect(),
            setup: part.setup,
            setup_within: preparing("setup_within", &part.setup_within)?,
            prepare: part.prepare,
            prepare_within: preparing("prepare_within", &part.prepare_within)?,
            start: part.start,
            ready_within: time("ready.within", part.ready.within.as_deref(), READY_TIMEOUT)?,
            ready: ready(part.ready)?,
            load: part.load,
            load_within: time("load_within", part.load_within.as_deref(), LOAD_TIMEOUT)?,
            closed,
            settle: time("settle", part.settle.as_deref(), SETTLE_TIME)?,
            stop: Stop {
                signal: signal(part.stop.signal.as_deref().unwrap_or("TERM"))?,
                command: part.stop.command,
                within: time("stop.within", part.stop.within.as_deref(), STOP_TIMEOUT)?,
            },
            metrics: metrics(file.metrics)?,
            here: None,
        };
        for (key, words) in [("start", &service.start), ("load", &service.load)] {
            if words.is_empty() {
                return Err(format!("service.{key} is empty"));
            }
        }
        Ok(service)
    }
}

/// An error of the TOML reader with its line, but without the picture.
fn in_one_line(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().replace('\n', " ");
    match error.span() {
        Some(span) if !text.is_empty() => {
            let before = &text[..span.start.min(text.len())];
            format!("line {}: {message}", before.matches('\n').count() + 1)
        }
        _ => message,
    }
}

/// Whether a load of a known program is a closed loop.
pub fn guess(load: &Words) -> Loop {
    let shown = load.shown();
    let words: Vec<&str> = shown
        .split(|c: char| c.is_whitespace() || c == '/')
        .collect();
    let has = |names: &[&str]| words.iter().any(|word| names.contains(word));
    let paced =
        (has(&["pgbench"]) && has(&["-R", "--rate"])) || (has(&["oha", "hey"]) && has(&["-q"]));
    if paced || has(&["wrk2", "vegeta"]) {
        Loop::Open
    } else if has(&[
        "redis-benchmark",
        "wrk",
        "ab",
        "pgbench",
        "memtier_benchmark",
        "memcslap",
        "oha",
        "hey",
        "siege",
        "h2load",
    ]) {
        Loop::Closed
    } else {
        Loop::Unknown
    }
}

fn time(key: &str, text: Option<&str>, default: Duration) -> Result<Duration, String> {
    let Some(text) = text else { return Ok(default) };
    humantime::parse_duration(text)
        .map_err(|_| format!("service.{key} = \"{text}\": expected a time such as 500ms or 10s"))
}

fn regex(key: &str, text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| format!("{key} = '{text}': {error}"))
}

fn ready(part: ReadyPart) -> Result<Ready, String> {
    let expect = part
        .expect
        .as_deref()
        .map(|text| regex("service.ready.expect", text));
    let expect = expect.transpose()?;
    if expect.is_some() && part.command.is_none() {
        return Err("service.ready.expect is for the output of service.ready.command".to_owned());
    }
    match (part.tcp, part.socket, part.log, part.command) {
        (Some(address), None, None, None) => Ok(Ready::Tcp(address)),
        (None, Some(path), None, None) => Ok(Ready::Socket(path)),
        (None, None, Some(text), None) => Ok(Ready::Log(regex("service.ready.log", &text)?)),
        (None, None, None, Some(command)) if !command.is_empty() => {
            Ok(Ready::Command { command, expect })
        }
        _ => Err("service.ready takes one of tcp, socket, log and command".to_owned()),
    }
}

/// The signals by which servers are stopped.
const SIGNALS: [(&str, i32); 6] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("USR1", 10),
    ("USR2", 12),
    ("TERM", 15),
];

/// The number of a signal.
///
/// # Errors
/// A sentence that names the known ones.
pub fn signal(name: &str) -> Result<i32, String> {
    let plain = name.strip_prefix("SIG").unwrap_or(name);
    let known = SIGNALS.iter().find(|(known, _)| *known == plain);
    known.map(|(_, number)| *number).ok_or_else(|| {
        let names = SIGNALS.map(|(name, _)| name).join(", ");
        format!("service.stop.signal = \"{name}\": expected one of {names}")
    })
}

/// The name of a signal of [`signal`].
pub fn signal_name(number: i32) -> String {
    let known = SIGNALS.iter().find(|(_, known)| *known == number);
    known.map_or(format!("signal {number}"), |(name, _)| format!("SIG{name}"))
}

fn metrics(parts: BTreeMap<String, MetricPart>) -> Result<Vec<Metric>, String> {
    let mut metrics = parts
        .into_iter()
        .map(|(name, part)| metric(name, part))
        .collect::<Result<Vec<_>, _>>()?;
    // Throughput first, then the latencies in their order.
    metrics.sort_by_key(|metric| (metric.better == Better::Lower, rank(&metric.name)));
    Ok(metrics)
}

/// The percentile that a name has, in tenths, so that p99 comes before p99.9 and p999.
fn rank(name: &str) -> (u32, String) {
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    let percentile = match digits.len() {
        // Others come last: max, errors.
        0 => 1000,
        1 | 2 => digits.parse::<u32>().unwrap_or(0) * 10,
        _ => digits[..3].parse().unwrap_or(0),
    };
    (percentile, name.to_owned())
}

/// The time that a load takes where the description leaves it open.
pub const LOAD_SECONDS: u32 = 3;

/// The names of figures that every run has; see [`crate::run::Driven`].
pub const BUILT_IN: [&str; 6] = [
    "cpu",
    "rss_peak",
    "rss_mean",
    "rss_end",
    "faults",
    "load_time",
];

fn metric(name: String, part: MetricPart) -> Result<Metric, String> {
    let key = format!("metrics.{name}");
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!(
            "{key}: a name has letters, digits, '_' and '.' only"
        ));
    }
    if BUILT_IN.contains(&name.as_str()) {
        return Err(format!(
            "{key}: every service has a metric of this name already"
        ));
    }
    let source = match (part.regex, part.column, part.json) {
        (Some(text), None, None) => Source::Regex(regex(&format!("{key}.regex"), &text)?),
        (None, Some(title), None) => Source::Column {
            title,
            row: part.row,
        },
        (None, None, Some(pointer)) if pointer.starts_with('/') => Source::Json(pointer),
        (None, None, Some(pointer)) => {
            return Err(format!(
                "{key}.json = \"{pointer}\": a pointer begins with /"
            ));
        }
        _ => return Err(format!("{key} takes one of regex, column and json")),
    };
    let (better, unit) = Metric::usual(&name);
    let scale = part.scale.unwrap_or(1.0);
    if !(scale.is_finite() && scale > 0.0) {
        return Err(format!("{key}.scale = {scale}: expected a number above 0"));
    }
    Ok(Metric {
        source,
        unit: part.unit.unwrap_or_else(|| unit.to_owned()),
        better: part.better.unwrap_or(better),
        scale,
        name,
    })
}

/// Reads a metric of the command line: `NAME=regex:…`, `NAME=column:TITLE[@ROW]` or
/// `NAME=json:/…`.
///
/// # Errors
/// A sentence with the form.
pub fn metric_of(text: &str) -> Result<Metric, String> {
    let form = "expected NAME=regex:EXPRESSION, NAME=column:TITLE[@ROW] or NAME=json:/POINTER";
    let wrong = || format!("--metric '{text}': {form}");
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (kind, source) = rest.split_once(':').ok_or_else(wrong)?;
    let mut part = MetricPart {
        regex: None,
        column: None,
        row: None,
        json: None,
        unit: None,
        better: None,
        scale: None,
    };
    match kind {
        "regex" => part.regex = Some(source.to_owned()),
        "json" => part.json = Some(source.to_owned()),
        "column" => match source.split_once('@') {
            Some((title, row)) => {
                (part.column, part.row) = (Some(title.to_owned()), Some(row.to_owned()));
            }
            None => part.column = Some(source.to_owned()),
        },
        _ => return Err(wrong()),
    }
    metric(name.to_owned(), part).map_err(|problem| format!("--metric '{text}': {problem}"))
}

/// Reads the sign of readiness of the command line: `tcp:ADDRESS`, `socket:PATH`, `log:REGEX`, or a
/// command for the shell that must succeed.
///
/// # Errors
/// The expression cannot be read.
pub fn ready_of(text: &str) -> Result<Ready, String> {
    Ok(match text.split_once(':') {
        Some(("tcp", address)) => Ready::Tcp(address.to_owned()),
        Some(("socket", path)) => Ready::Socket(path.to_owned()),
        Some(("log", expression)) => Ready::Log(regex("--ready log", expression)?),
        _ => Ready::Command {
            command: Words::Shell(text.to_owned()),
            expect: None,
        },
    })
}

/// A service that the command line describes; see [`Service::parse`] for the rest.
pub fn of_commands(name: &str, start: &str, ready: Ready, load: &str) -> Service {
    let load = Words::Shell(load.to_owned());
    Service {
        name: name.to_owned(),
        about: String::new(),
        program: None,
        needs: Vec::new(),
        path: Vec::new(),
        environment: Vec::new(),
        files: Vec::new(),
        setup: None,
        setup_within: PREPARATION_TIMEOUT,
        prepare: None,
        prepare_within: PREPARATION_TIMEOUT,
        // The shell gives way to the server, which then is the process to be stopped.
        start: Words::Shell(format!("exec {start}")),
        ready,
        ready_within: READY_TIMEOUT,
        closed: guess(&load),
        load,
        load_within: LOAD_TIMEOUT,
        settle: SETTLE_TIME,
        stop: Stop {
            signal: 15,
            command: None,
            within: STOP_TIMEOUT,
        },
        metrics: Vec::new(),
        here: std::env::current_dir().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLEST: &str = r#"
        [service]
        start = ["server"]
        ready = { tcp = "127.0.0.1:{port}" }
        load = ["wrk", "http://127.0.0.1:{port}/"]
        [metrics]
        p999 = { json = "/a" }
        p50 = { column = "p50" }
        qps = { regex = 'rps (\d+)' }
        p99 = { regex = 'p99 (\d+)', unit = "us", scale = 0.001 }
    "#;

    #[test]
    fn the_rest_has_defaults_and_metrics_are_in_the_order_of_a_reader() {
        let service = Service::parse("web", SMALLEST).unwrap();
        assert_eq!(
            (service.name.as_str(), service.closed),
            ("web", Loop::Closed)
        );
        assert_eq!(service.stop.signal, 15);
        let names: Vec<&str> = service.metrics.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, ["qps", "p50", "p99", "p999"]);
        assert_eq!(service.metrics[0].better, Better::Higher);
        assert_eq!(service.metrics[1].unit, "ms");
    }

    #[test]
    fn a_mistake_is_one_line_that_names_its_place() {
        let with = |from: &str, to: &str| SMALLEST.replace(from, to);
        for (text, part) in [
            (with("start", "begin"), "begin"),
            (with("ready =", "redy ="), "redy"),
            (with("tcp =", "udp ="), "udp"),
            (
                with(r#"{ tcp = "127.0.0.1:{port}" }"#, "{}"),
                "one of tcp, socket, log and command",
            ),
            (
                with("regex = 'rps (\\d+)'", "regex = '('"),
                "metrics.qps.regex",
            ),
            (with("json = \"/a\"", "json = \"a\""), "begins with /"),
            (
                with("[metrics]", "stop = { signal = \"KILL\" }\n[metrics]"),
                "HUP, INT",
            ),
            (with("[metrics]", "settle = \"soon\"\n[metrics]"), "500ms"),
            (
                with("[metrics]", "setup_within = \"long\"\n[metrics]"),
                "service.setup_within",
            ),
            (with("p50 =", "rss_end ="), "already"),
            (with("[\"server\"]", "[]"), "service.start is empty"),
            (with("[service]", "[service"), "line 2"),
        ] {
            let error = Service::parse("web", &text).unwrap_err();
            assert!(
                error.contains(part) && !error.contains('\n'),
                "{part}: {error}"
            );
        }
    }

    #[test]
    fn the_command_line_describes_metrics_too() {
        let m = metric_of("p99=column:p99_latency_ms@SET").unwrap();
        assert!(matches!(m.source, Source::Column { row: Some(row), .. } if row == "SET"));
        assert_eq!(
            metric_of("qps=regex:rps: (.*)").unwrap().better,
            Better::Higher
        );
        for wrong in ["qps", "qps=rps", "qps=awk:1", "cpu=json:/a"] {
            assert!(metric_of(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn loads_of_known_programs_are_open_or_closed() {
        let of = |text: &str| guess(&Words::Shell(text.to_owned()));
        assert_eq!(of("/usr/bin/wrk -c 8 http://x"), Loop::Closed);
        assert_eq!(of("wrk2 -R 1000 http://x"), Loop::Open);
        assert_eq!(of("pgbench -R 100 db"), Loop::Open);
        assert_eq!(of("pgbench -c 4 db"), Loop::Closed);
        assert_eq!(of("./own"), Loop::Unknown);
    }
}
