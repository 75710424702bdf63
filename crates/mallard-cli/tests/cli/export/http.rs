//! What clients get, good ones and bad ones.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use mallard_testing::lacks;
use serde_json::Value;

use super::*;

/// A process that holds more and more blocks, 33 MB so far, and a server that may control it.
struct Exported {
    pid: String,
    server: Server,
    /// Ends the process and removes its folder when dropped.
    _kept: (Running, Place),
}

impl Exported {
    fn new() -> Exported {
        let place = Place::new();
        let running = program(&place, "exported", "export_stats:true", &["leaks"]);
        let pid = running.pid();
        let folder = place.path().display().to_string();
        let server = Server::start(&["--match", &folder, "--control"]);
        let labels = labels(&pid);
        server.get_until("/metrics", |reply| {
            reply.value("mallard_allocated_bytes", &labels) >= Some(33e6)
        });
        let _kept = (running, place);
        Exported { pid, server, _kept }
    }

    fn get(&self, of_process: &str) -> Reply {
        self.server.get(&format!("/pid/{}{of_process}", self.pid))
    }

    fn post(&self, of_process: &str, headers: &str) -> Reply {
        let path = format!("/pid/{}{of_process}", self.pid);
        self.server.ask("POST", &path, headers)
    }
}

fn labels(pid: &str) -> String {
    format!("pid=\"{pid}\",command=\"exported\"")
}

#[test]
fn scrapers_get_metrics_in_prometheus_form() {
    let Exported { pid, server, .. } = &Exported::new();
    let reply = server.get("/metrics");
    let form = "content-type: text/plain; version=0.0.4";
    assert!(reply.head.contains(form), "{}", reply.head);
    let read = reply.value("mallard_export_processes", "state=\"read\"");
    assert_eq!(read, Some(1.0));
    let labels = labels(pid);
    assert!(reply.value("mallard_process_resident_bytes", &labels) >= Some(33e6));
    assert!(reply.value("mallard_purged_bytes_total", &labels).is_some());
    if lacks(&["promtool"]) {
        return;
    }
    let mut check = assert_cmd::Command::new("promtool");
    check.args(["check", "metrics"]).write_stdin(reply.body);
    assert_eq!(check.exits(SUCCESS), (String::new(), String::new()));
}

#[test]
fn scrapers_get_openmetrics_if_they_ask_for_them() {
    let exported = Exported::new();
    let form = "application/openmetrics-text; version=1.0.0";
    let accept = "Accept: application/openmetrics-text;version=1.0.0\r\n";
    let reply = exported.server.ask("GET", "/metrics", accept);
    assert!(reply.head.contains(form), "{}", reply.head);
    assert!(reply.text().ends_with("\n# EOF\n"));
    let counter = "# TYPE mallard_purged_bytes counter\n# UNIT mallard_purged_bytes bytes\n";
    assert!(reply.text().contains(counter));
    let of_one = exported.get("/metrics");
    let allocated = of_one.value("mallard_allocated_bytes", " ");
    assert!(allocated >= Some(33e6), "{}", of_one.text());
}

#[test]
fn targets_and_the_index_lead_to_each_process() {
    let Exported { pid, server, .. } = &Exported::new();
    let mut targets: Value = serde_json::from_slice(&server.get("/targets").body).unwrap();
    // Tests may run in a container of their own.
    let labels = targets[0]["labels"].as_object_mut().unwrap();
    labels.remove("container");
    let expected = serde_json::json!([{
        "targets": ["here:1"],
        "labels": {
            "pid": pid,
            "command": "exported",
            "__metrics_path__": format!("/pid/{pid}/metrics"),
            "__profile_path_prefix__": format!("/pid/{pid}"),
        },
    }]);
    assert_eq!(targets, expected);
    let index = server.get("/");
    let heap = format!("pid/{pid}/debug/pprof/heap");
    assert!(index.text().contains(&heap), "{}", index.text());
    assert_eq!(server.get("/healthz").text(), "ok\n");
}

#[test]
fn addresses_have_names_whether_or_not_the_process_samples() {
    let exported = Exported::new();
    let symbol = "/debug/pprof/symbol";
    assert_eq!(exported.get(symbol).text(), "num_symbols: 1\n");
    let main = address_of_main(&exported.pid);
    let post = |body: &str| {
        let headers = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        exported.post(symbol, &headers)
    };
    let reply = post(&format!("0x1+{main:#x}"));
    assert_eq!(reply.text(), format!("{main:#x}\tmain\n"));
    let reply = post("main");
    assert_eq!((reply.status, reply.text().lines().count()), (400, 1));
    assert_eq!(post(&"0x1+".repeat(300_000)).status, 413);
}

#[test]
fn a_process_has_a_profile_once_it_samples() {
    let exported = Exported::new();
    let Exported { pid, server, .. } = &exported;
    let heap = "/debug/pprof/heap";
    let reply = exported.get(heap);
    assert_eq!(reply.status, 409, "{}", reply.text());
    let why = "sampling was never on";
    assert!(reply.text().contains(why), "{}", reply.text());
    assert_eq!(server.get("/targets?sampling").text(), "[]");

    let reply = exported.post("/prof/start", "");
    assert_eq!(reply.text(), format!("process {pid} samples now\n"));
    server.get_until(&format!("/pid/{pid}/metrics"), |r| {
        r.value("mallard_prof_samples", " ") > Some(0.0)
    });
    assert_ne!(server.get("/targets?sampling").text(), "[]");
    let reply = exported.get(heap);
    assert_eq!(reply.status, 200);
    assert!(reply.body.starts_with(&[0x1f, 0x8b]), "gzipped");
    let reply = exported.post("/prof/stop", "");
    let stopped = format!("process {pid} does not sample any more\n");
    assert_eq!(reply.text(), stopped);
}

/// Where a process has its `main`.
fn address_of_main(pid: &str) -> u64 {
    let symbols = output(Command::new("nm").arg(format!("/proc/{pid}/exe")));
    let main = symbols
        .lines()
        .find_map(|line| line.strip_suffix(" T main"));
    let main = u64::from_str_radix(main.expect("a symbol"), 16).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let start = maps.split('-').next().unwrap();
    let start = u64::from_str_radix(start, 16).unwrap();
    // Programs that are never moved have it where the file says.
    if main < start { start + main } else { main }
}

#[test]
fn go_s_pprof_shows_the_profile_of_a_process_with_names() {
    if lacks(&["go"]) {
        return;
    }
    let place = Place::new();
    let options = "export_stats:true,prof:true,lg_prof_sample:14";
    let running = program(&place, "profiled", options, &[]);
    let pid = running.pid();
    let server = Server::start(&["--pid", &pid]);
    server.get_until(&format!("/pid/{pid}/metrics"), |r| {
        r.value("mallard_prof_samples", " ") > Some(400.0)
    });
    for (kind, shown) in [
        ("heap", "inuse_space"),
        ("allocs", "alloc_space"),
        ("peak", "peak_space"),
        ("lifetime", "lifetime"),
        ("frag", "frag_space"),
    ] {
        let url = server.url(&format!("/pid/{pid}/debug/pprof/{kind}"));
        let text = output(
            Command::new("go")
                .args(["tool", "pprof", "-top", "-nodecount=20", &url])
                .env("PPROF_TMPDIR", place.path()),
        );
        assert!(text.contains(&format!("Type: {shown}")), "{text}");
        // Of all that was ever allocated, what it holds is too little to be listed.
        let has_hold = text.contains(" hold") || kind == "allocs";
        // It frees none of what it holds, and leaves no page half empty.
        let is_of_others = ["lifetime", "frag"].contains(&kind);
        assert!(is_of_others || has_hold && text.contains(" main"), "{text}");
    }
    let changes = server.url(&format!("/pid/{pid}/debug/pprof/heap?seconds=1"));
    let mut command = Command::new("go");
    command.args(["tool", "pprof", "-raw", &changes]);
    let text = output(command.env("PPROF_TMPDIR", place.path()));
    // It goes on to allocate, and holds what it held.
    assert!(
        text.contains("inuse_space") && text.contains("main"),
        "{text}"
    );
    let index = server.get(&format!("/pid/{pid}/debug/pprof/"));
    let link = format!("href=\"/pid/{pid}/debug/pprof/frag\"");
    assert!(index.text().contains(&link), "{}", index.text());
    // Another process than the one that is served.
    let reply = server.get("/pid/1/debug/pprof/heap");
    assert_eq!(
        (reply.status, reply.text()),
        (404, "process 1 is not served here\n")
    );
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn silent_and_senseless_clients_cost_their_connections_alone() {
    let server = Server::start(&["--pid", "1"]);
    let connect = || TcpStream::connect(&server.address).unwrap();
    let silent: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    for nonsense in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET /%00%ff/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /pid/4294967296/metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    ] {
        let mut stream = connect();
        stream.write_all(nonsense).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = String::new();
        // It may be closed without an answer.
        let _ = stream.read_to_string(&mut reply);
        assert!(!reply.contains(" 200 "), "{reply}");
    }
    let mut endless = connect();
    let header = [b'x'; 64 << 10];
    let sent = endless
        .write_all(b"GET / HTTP/1.1\r\nX: ")
        .and_then(|()| endless.write_all(&header));
    let mut reply = String::new();
    let _ = endless.read_to_string(&mut reply);
    assert!(
        sent.is_err() || reply.contains(" 431 ") || reply.is_empty(),
        "{reply}"
    );
    assert_eq!(server.get("/healthz").text(), "ok\n");
    // More than there is room for: the next client waits until the silent ones are closed.
    let more: Vec<TcpStream> = (0..64).map(|_| connect()).collect();
    assert_eq!(server.get("/healthz").text(), "ok\n");
    drop((silent, more));
}

#[test]
fn an_address_that_is_none_or_taken_is_told_in_a_line() {
    let place = Place::new();
    let server = Server::start(&["--pid", "1"]);
    for (address, code, why) in [
        ("9700", 2, "expected HOST:PORT"),
        ("[::1:80", 2, "needs brackets"),
        ("127.0.0.1:99999", 2, "is not a port"),
        ("203.0.113.1:80", 1, "cannot listen on 203.0.113.1:80"),
        (
            "no.such.host.invalid:80",
            1,
            "cannot listen on no.such.host.invalid:80",
        ),
        (server.address.as_str(), 1, "in use"),
    ] {
        let words = ["export", "--listen", address];
        let (got, _, stderr) = crate::place::outcome(&mut place.mallard(&words));
        assert_eq!(got, Some(code), "{address}: {stderr}");
        assert!(stderr.contains(why), "{address}: {stderr}");
    }
}
