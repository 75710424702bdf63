//! What `mallard export` answers.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hyper::StatusCode;
use mallard_inspect::metrics::{self, Format};
use mallard_inspect::request::{Consent, Request};
use mallard_inspect::source::Reader;
use mallard_profile::model::{Profile, Text};
use mallard_profile::names;
use serde_json::{Value, json};

use super::answer::{HTML, PLAIN, Question, Reply, SECONDS_MAX};
use super::page;
use super::profile::{self, Kind};
use super::watched::{Look, Process, Watched};
use crate::processes::request::{self, ANSWER_TIMEOUT};
use crate::profiles::source;

const GET: &str = "GET, HEAD";
const POST: &str = "POST";
const GET_OR_POST: &str = "GET, HEAD, POST";

/// What is served.
pub struct Site {
    watched: Mutex<Watched>,
    search: names::Options,
    known: profile::Known,
    /// Whether clients may switch sampling.
    has_control: bool,
    /// How clients reach this, for those that do not say.
    address: String,
}

/// A path, with what it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Index,
    Health,
    Targets,
    Metrics,
    MetricsOf(u32),
    Profile(u32, Kind),
    Symbol(u32),
    Profiles(u32),
    Start(u32),
    Stop(u32),
}

fn parse(path: &str) -> Option<Path> {
    Some(match path {
        "/" => Path::Index,
        "/healthz" => Path::Health,
        "/targets" => Path::Targets,
        "/metrics" => Path::Metrics,
        other => {
            let (pid, rest) = other.strip_prefix("/pid/")?.split_once('/')?;
            let pid = pid.parse().ok().filter(|&pid| pid > 0)?;
            match rest {
                "metrics" => Path::MetricsOf(pid),
                "prof/start" => Path::Start(pid),
                "prof/stop" => Path::Stop(pid),
                "debug/pprof/symbol" => Path::Symbol(pid),
                "debug/pprof/" | "debug/pprof" => Path::Profiles(pid),
                rest => Path::Profile(pid, Kind::named(rest.strip_prefix("debug/pprof/")?)?),
            }
        }
    })
}

impl Site {
    pub fn new(watched: Watched, search: names::Options, control: bool, address: String) -> Site {
        Site {
            watched: Mutex::new(watched),
            search,
            known: profile::Known::default(),
            has_control: control,
            address,
        }
    }

    /// Answers; a profile of some seconds is what has changed since an earlier one.
    pub fn answer(&self, question: &Question, before: Option<&Profile>) -> Reply {
        let Some(path) = parse(&question.path) else {
            return Reply::not_found("there is no such path; / lists all paths");
        };
        let allowed = match path {
            Path::Start(_) | Path::Stop(_) => POST,
            Path::Symbol(_) => GET_OR_POST,
            _ => GET,
        };
        let is_fine = allowed == GET_OR_POST || question.is_post == (allowed == POST);
        if !question.is_known || !is_fine {
            return Reply::other_method(allowed);
        }
        let host = question.host.as_deref().unwrap_or(&self.address);
        match path {
            Path::Health => Reply::of(PLAIN, "ok\n"),
            Path::Index => {
                let text = page::index(&self.look().processes, self.has_control);
                Reply::of(HTML, text)
            }
            Path::Targets => {
                let targets = targets(&self.look(), host, question.has("sampling"));
                Reply::of("application/json", targets.to_string())
            }
            Path::Metrics => self.metrics(Format::accepted(&question.accept)),
            Path::MetricsOf(pid) => self.metrics_of(pid, Format::accepted(&question.accept)),
            Path::Profile(pid, kind) => self.profile(pid, kind, question, before),
            Path::Symbol(pid) => self.symbols(pid, question),
            Path::Profiles(pid) => self.profiles(pid),
            Path::Start(pid) => self.control(pid, Request::Start(None), question),
            Path::Stop(pid) => self.control(pid, Request::Stop, question),
        }
    }

    fn look(&self) -> Look {
        // A look that failed halfway leaves nothing that the next one relies on.
        let watched = self.watched.lock();
        watched.unwrap_or_else(PoisonError::into_inner).look()
    }

    fn metrics(&self, format: Format) -> Reply {
        let begun = Instant::now();
        let look = self.look();
        let processes: Vec<metrics::Process<'_>> = (look.processes.iter())
            .map(|process| metrics::Process {
                labels: &process.labels,
                snapshot: &process.snapshot,
                rss: process.rss,
            })
            .collect();
        let mut text = String::new();
        let written = metrics::write(&mut text, format, &processes)
            .and_then(|()| own(&mut text, format, &look, begun))
            .and_then(|()| metrics::end(&mut text, format));
        match written {
            Ok(()) => Reply::of(format.content_type(), text),
            Err(error) => Reply::failure(StatusCode::INTERNAL_SERVER_ERROR, error),
        }
    }

    /// The metrics of one process, without labels of the process: a target has them.
    fn metrics_of(&self, pid: u32, format: Format) -> Reply {
        let look = self.look();
        let found = look.processes.iter().find(|process| process.pid == pid);
        let Some(process) = found else {
            return self.missing(pid);
        };
        let process = metrics::Process {
            labels: "",
            snapshot: &process.snapshot,
            rss: process.rss,
        };
        let mut text = String::new();
        let written = metrics::write(&mut text, format, &[process])
            .and_then(|()| metrics::end(&mut text, format));
        match written {
            Ok(()) => Reply::of(format.content_type(), text),
            Err(error) => Reply::failure(StatusCode::INTERNAL_SERVER_ERROR, error),
        }
    }

    /// Says why there are no figures of a process.
    fn missing(&self, pid: u32) -> Reply {
        let watched = self.watched.lock();
        let watched = watched.unwrap_or_else(PoisonError::into_inner);
        if watched.is_served(pid) {
            refusal(&watched.why_not(pid))
        } else {
            Reply::not_found(format_args!("process {pid} is not served here"))
        }
    }

    fn profile(
        &self,
        pid: u32,
        kind: Kind,
        question: &Question,
        before: Option<&Profile>,
    ) -> Reply {
        if let Some(refusal) = self.refuses(pid, question) {
            return refusal;
        }
        match profile::read(pid, kind, &self.search, &self.known, before) {
            Ok(bytes) => Reply::of("application/octet-stream", bytes),
            Err(error) => profile::failure(&error),
        }
    }

    /// Why there is no profile for this question, if there is none.
    fn refuses(&self, pid: u32, question: &Question) -> Option<Reply> {
        if question.seconds().is_none() {
            return Some(Reply::failure(
                StatusCode::BAD_REQUEST,
                format_args!("`seconds` is a number from 1 to {SECONDS_MAX}"),
            ));
        }
        let watched = self.watched.lock();
        let is_served = (watched.unwrap_or_else(PoisonError::into_inner)).is_served(pid);
        (!is_served).then(|| Reply::not_found(format_args!("process {pid} is not served here")))
    }

    /// The profile with which one of some seconds begins; `None` if the question is about another
    /// path.
    pub fn begin(&self, question: &Question) -> Option<Result<Profile, Reply>> {
        let Some(Path::Profile(pid, _)) = parse(&question.path) else {
            return None;
        };
        if question.is_post || !question.is_known {
            return None;
        }
        Some(match self.refuses(pid, question) {
            Some(refusal) => Err(refusal),
            None => source::unnamed(pid).map_err(|error| profile::failure(&error)),
        })
    }

    /// The profiles of a process, with links to them.
    fn profiles(&self, pid: u32) -> Reply {
        match self
            .look()
            .processes
            .iter()
            .find(|process| process.pid == pid)
        {
            Some(process) => Reply::of(HTML, page::profiles(pid, &process.command)),
            None => self.missing(pid),
        }
    }

    /// Names addresses, as pprof asks for it: a GET says that there are names, and a POST of
    /// `0x1000+0x2000` gets a line for each address that has a name.
    fn symbols(&self, pid: u32, question: &Question) -> Reply {
        let watched = self.watched.lock();
        let is_served = (watched.unwrap_or_else(PoisonError::into_inner)).is_served(pid);
        if !is_served {
            return Reply::not_found(format_args!("process {pid} is not served here"));
        }
        let asked = if question.is_post {
            question.body.trim()
        } else {
            question.query.trim()
        };
        if asked.is_empty() {
            return Reply::of(PLAIN, "num_symbols: 1\n");
        }
        let mut addresses = Vec::new();
        for text in asked.split('+') {
            let digits = text.trim().strip_prefix("0x");
            let address = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let Some(address) = address else {
                return Reply::failure(
                    StatusCode::BAD_REQUEST,
                    "addresses are written as in 0x1000+0x2000",
                );
            };
            addresses.push(address);
        }
        match source::functions(pid, &addresses, &self.search) {
            Ok(names) => Reply::of(PLAIN, symbol_lines(&addresses, &names)),
            Err(error) => profile::failure(&error),
        }
    }

    fn control(&self, pid: u32, request: Request, question: &Question) -> Reply {
        let refuse = |why| Reply::failure(StatusCode::FORBIDDEN, why);
        if !self.has_control {
            return refuse("this server was started without --control");
        }
        if question.is_of_a_page {
            return refuse("pages in a browser may not switch sampling");
        }
        let watched = self.watched.lock();
        let is_served = (watched.unwrap_or_else(PoisonError::into_inner)).is_served(pid);
        if !is_served {
            return Reply::not_found(format_args!("process {pid} is not served here"));
        }
        let asked = Reader::open(pid, &mut Default::default())
            .and_then(|reader| reader.ask(request, Consent::SharedOnly, ANSWER_TIMEOUT));
        match asked {
            Ok(()) => {
                let done = request::done(request);
                Reply::of(PLAIN, format!("process {pid} {done}\n"))
            }
            Err(error) => refusal(&error),
        }
    }
}

/// A line for each address that has a name.
fn symbol_lines(addresses: &[u64], names: &[Option<Text>]) -> String {
    let mut lines = String::new();
    for (address, name) in addresses.iter().zip(names) {
        if let Some(name) = name {
            lines += &format!("{address:#x}\t{name}\n");
        }
    }
    lines
}

/// The answer to a process that cannot be read or asked.
fn refusal(error: &mallard_inspect::Error) -> Reply {
    use mallard_inspect::Error;
    let status = match error {
        Error::Gone(_) | Error::NoMallard(_) | Error::NoPage(_) => StatusCode::NOT_FOUND,
        Error::Foreign(_) | Error::Hidden(_) | Error::Refused(_) | Error::NeedsConsent(_) => {
            StatusCode::FORBIDDEN
        }
        Error::NoAnswer(_) | Error::Torn(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Reply::failure(status, error)
}

/// The metrics of this command itself.
fn own(text: &mut String, format: Format, look: &Look, begun: Instant) -> std::fmt::Result {
    let processes = (
        "mallard_export_processes",
        "",
        "Processes on Mallard, by what became of them: read, refused by the system, or without statistics.",
    );
    let samples = [
        ("state=\"read\"", look.processes.len() as f64),
        ("state=\"refused\"", look.refused as f64),
        ("state=\"without_statistics\"", look.without as f64),
    ];
    metrics::own(text, format, processes, &samples)?;
    let time = (
        "mallard_export_look_seconds",
        "seconds",
        "Time that reading all processes took.",
    );
    metrics::own(text, format, time, &[("", begun.elapsed().as_secs_f64())])
}

/// A target for each process, as Prometheus discovers them. Parca and Pyroscope read the same.
fn targets(look: &Look, host: &str, sampling_only: bool) -> Value {
    let wanted =
        |process: &&Process| !sampling_only || process.snapshot.totals.sampling().is_some();
    let target = |process: &Process| {
        let mut labels = json!({
            "pid": process.pid.to_string(),
            "command": process.command,
            "__metrics_path__": format!("/pid/{}/metrics", process.pid),
            "__profile_path_prefix__": format!("/pid/{}", process.pid),
        });
        if !process.container.is_empty() {
            labels["container"] = process.container.as_str().into();
        }
        json!({ "targets": [host], "labels": labels })
    };
    look.processes.iter().filter(wanted).map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_processes_and_kinds() {
        for (path, expected) in [
            ("/", Some(Path::Index)),
            ("/metrics", Some(Path::Metrics)),
            ("/pid/7/metrics", Some(Path::MetricsOf(7))),
            (
                "/pid/7/debug/pprof/heap",
                Some(Path::Profile(7, Kind::Heap)),
            ),
            (
                "/pid/7/debug/pprof/frag",
                Some(Path::Profile(7, Kind::Frag)),
            ),
            ("/pid/7/prof/stop", Some(Path::Stop(7))),
            ("/pid/7/debug/pprof/symbol", Some(Path::Symbol(7))),
            ("/pid/7/debug/pprof/", Some(Path::Profiles(7))),
            ("/pid/7/debug/pprof", Some(Path::Profiles(7))),
            ("/pid/0/metrics", None),
            ("/pid/-1/metrics", None),
            ("/pid/7/debug/pprof/goroutine", None),
            ("/pid/7/debug/pprof/heap/", None),
            ("/pid/99999999999/metrics", None),
            ("/pid/../metrics", None),
            ("", None),
        ] {
            assert_eq!(parse(path), expected, "{path}");
        }
    }

    fn site(control: bool) -> Site {
        let address = "127.0.0.1:1".to_owned();
        Site::new(
            Watched::of(vec![u32::MAX], None),
            names::Options::default(),
            control,
            address,
        )
    }

    fn get(path: &str) -> Question {
        Question {
            is_known: true,
            path: path.to_owned(),
            ..Question::default()
        }
    }

    #[test]
    fn what_is_not_served_is_answered_by_a_line_that_says_why() {
        let post = |path: &str, is_of_a_page| Question {
            is_post: true,
            is_of_a_page,
            ..get(path)
        };
        let delete = Question {
            is_known: false,
            ..get("/metrics")
        };
        let with_seconds = Question {
            query: "seconds=0".to_owned(),
            ..get("/pid/7/debug/pprof/heap")
        };
        for (control, question, status) in [
            (false, get("/nothing"), 404),
            (false, delete, 405),
            (false, post("/metrics", false), 405),
            (true, get("/pid/7/prof/start"), 405),
            (false, post("/pid/7/prof/start", false), 403),
            (true, post("/pid/7/prof/start", true), 403),
            (true, post("/pid/7/prof/start", false), 404),
            (false, get("/pid/7/metrics"), 404),
            (false, get("/pid/7/debug/pprof/heap"), 404),
            (false, with_seconds, 400),
            (false, get("/pid/7/debug/pprof/symbol"), 404),
            (false, get("/pid/7/debug/pprof/"), 404),
        ] {
            let answer = site(control).answer(&question, None);
            assert_eq!(answer.status.as_u16(), status, "{question:?}");
            let text = String::from_utf8(answer.body).unwrap();
            assert!(text.ends_with('\n') && text.lines().count() == 1, "{text}");
        }
    }

    #[test]
    fn without_processes_there_are_the_command_s_own_metrics() {
        let question = Question {
            accept: "application/openmetrics-text".to_owned(),
            ..get("/metrics")
        };
        let answer = site(false).answer(&question, None);
        let text = String::from_utf8(answer.body).unwrap();
        assert!(
            text.contains("mallard_export_processes{state=\"read\"} 0\n"),
            "{text}"
        );
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        let targets = site(false).answer(&get("/targets"), None);
        assert_eq!(targets.body, b"[]");
    }
}
