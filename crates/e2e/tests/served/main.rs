//! The server in the process (the option `http`), and clients that are slow, hostile or broken.

mod pprof;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, target};
use mallard_profile::model::{Label, LabelValue, Profile};
use mallard_testing::lacks;

/// The longest that anything here takes on a slow machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

struct Served {
    sandbox: Sandbox<'static>,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Served {
    /// Starts the program (`programs/watched.c`) with these options, in which `DIR` is a folder.
    fn start(what: &str, options: &str) -> (Served, String) {
        let program = Source::new("watched.c")
            .flags(&["-O1", "-rdynamic"])
            .compile();
        let sandbox = Sandbox::temporary(Allocator::Preload(Library::release()));
        let options = options.replace("DIR", &sandbox.path("").display().to_string());
        let mut command = sandbox.command(&program);
        let errors = fs::File::create(sandbox.path("errors")).expect("a file");
        let mut child = command
            .arg(what)
            .env("MALLOC_CONF", options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut served = Served {
            sandbox,
            child,
            output,
        };
        let line = served.line();
        (served, line)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.sandbox.path("errors")).expect("text")
    }

    fn socket(&self) -> PathBuf {
        self.sandbox.path("socket")
    }

    fn ask(&self, request: &str) -> Vec<u8> {
        ask(&self.socket(), request)
    }

    fn get(&self, path: &str) -> String {
        let answer = self.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        String::from_utf8(answer).expect("text")
    }

    /// The entries of a folder of `/proc/PID`.
    fn count(&self, what: &str) -> usize {
        let folder = format!("/proc/{}/{what}", self.child.id());
        fs::read_dir(folder).expect("it lives").count()
    }

    /// Ends the program, which says that it lives until then.
    fn end(mut self) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        let status = self.child.wait().expect("it ends");
        assert!(
            status.success() && rest.ends_with("lives\n"),
            "{status}: {rest}"
        );
    }
}

fn ask(socket: &std::path::Path, request: &str) -> Vec<u8> {
    let mut client = UnixStream::connect(socket).expect("it listens");
    client.set_read_timeout(Some(STEP_TIMEOUT)).expect("a time");
    client.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    client
        .read_to_end(&mut answer)
        .expect("it answers and closes");
    answer
}

fn body(answer: &str) -> &str {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    body
}

/// The profile in an answer.
fn profile_in(answer: &[u8]) -> Profile {
    let mut fours = answer.windows(4);
    let head = fours.position(|four| four == b"\r\n\r\n").expect("a head");
    mallard_profile::read::profile(&answer[head + 4..]).expect("a profile")
}

/// The bytes of this sample type in the blocks that the program holds, which are of 64 KiB. It
/// allocates and frees smaller ones all the time, up to 36 MB at once.
fn held_in(profile: &Profile, place: usize) -> i64 {
    let of_64_kib = |label: &Label| {
        let size = LabelValue::Number {
            value: 64 << 10,
            unit: "bytes".into(),
        };
        label.key.to_string() == "bytes" && label.value == size
    };
    let samples = profile.samples.iter();
    let held = samples.filter(|sample| sample.labels.iter().any(of_64_kib));
    held.map(|sample| sample.values[place]).sum()
}

/// Whether something becomes true within a time that no machine needs.
fn settles(is_true: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is_true() {
        if begun.elapsed() > STEP_TIMEOUT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[test]
fn clients_get_metrics_reports_and_profiles_and_control_nothing() {
    let options = "http:unix:DIR/socket,prof:true,lg_prof_sample:14,prof_final:false";
    let (served, _) = Served::start("hold", options);
    let openmetrics = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";
    let openmetrics = String::from_utf8(served.ask(openmetrics)).expect("text");
    assert!(openmetrics.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
    assert!(
        body(&openmetrics).ends_with("# EOF\n")
            && openmetrics.contains("\nmallard_prof_active 1\n")
    );
    let text = served.get("/metrics");
    assert!(text.contains("Content-Type: text/plain; version=0.0.4") && !text.contains("# EOF"));
    if !lacks(&["promtool"]) {
        let mut promtool = served.sandbox.plain_command("promtool");
        promtool.args(["check", "metrics"]);
        let found = served
            .sandbox
            .run_with_input(&mut promtool, body(&text).as_bytes());
        found.unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(body(&served.get("/stats")).starts_with("___ Begin jemalloc statistics ___"));
    let json: serde_json::Value =
        serde_json::from_str(body(&served.get("/stats.json"))).expect("JSON");
    assert!(json["jemalloc"]["stats"]["allocated"].as_u64() > Some(32 << 20));
    let heap = served.get("/debug/pprof/heap?debug=1");
    assert!(body(&heap).starts_with("heap_v2/16384\n") && heap.contains("MAPPED_LIBRARIES"));
    let heap = served.ask("GET /debug/pprof/heap HTTP/1.0\r\n\r\n");
    let profile = profile_in(&heap);
    let kinds = profile.types.iter();
    let live = kinds
        .map(|kind| kind.kind.to_string())
        .position(|kind| kind == "inuse_space");
    let live = live.expect("what is in use");
    let held = held_in(&profile, live);
    assert!(
        (24 << 20..48 << 20).contains(&held),
        "{held} bytes of 32 MiB"
    );
    expect_other_profiles(&served, &profile, live);
    expect_refusals(&served);
    served.end();
}

/// The same profile, which shows other figures at first, and what changes in a second. `live` is
/// the place of what is in use.
fn expect_other_profiles(served: &Served, profile: &Profile, live: usize) {
    for (path, kind) in [
        ("allocs", "alloc_space"),
        ("peak", "peak_space"),
        ("lifetime", "lifetime"),
        ("frag", "frag_space"),
    ] {
        let request = format!("GET /debug/pprof/{path} HTTP/1.1\r\n\r\n");
        let profile = profile_in(&served.ask(&request));
        let shown = profile.default_type.expect("one is shown");
        assert_eq!(profile.types[shown].kind.to_string(), kind);
    }
    let later = std::thread::scope(|scope| {
        let request = "GET /debug/pprof/heap?seconds=1 HTTP/1.1\r\n\r\n";
        let later = scope.spawn(|| served.ask(request));
        // Others are served meanwhile.
        assert!(served.get("/metrics").contains("mallard_allocated_bytes"));
        later.join().expect("it is answered")
    });
    let later = profile_in(&later);
    let sum = |profile: &Profile, place: usize| -> i64 {
        let values = profile.samples.iter().map(|sample| sample.values[place]);
        values.sum()
    };
    // What is held stays.
    assert!(
        held_in(&later, live).abs() < 24 << 20,
        "{}",
        held_in(&later, live)
    );
    let (meanwhile, ever) = (sum(&later, 1), sum(profile, 1));
    assert!(meanwhile > 0 && ever > 0, "{meanwhile} and {ever} bytes");
}

/// Wrong queries are answered as such, and a request to control something is refused.
fn expect_refusals(served: &Served) {
    for query in [
        "seconds=0",
        "seconds=x",
        "seconds=3601",
        "seconds=1&debug=1",
    ] {
        let answer = served.get(&format!("/debug/pprof/heap?{query}"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{query}: {answer}");
    }
    let text = served.get("/debug/pprof/peak?debug=1");
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    assert!(body(&served.get("/debug/pprof/cmdline")).contains("watched"));
    assert!(body(&served.get("/")).contains("/metrics\n"));
    assert_eq!(body(&served.get("/debug/pprof/")), body(&served.get("/")));

    for (request, status) in [
        ("GET /other HTTP/1.1\r\n\r\n", "404"),
        ("GET /debug/pprof/profile?seconds=1 HTTP/1.1\r\n\r\n", "404"),
        ("PUT / HTTP/1.1\r\n\r\n", "405"),
        ("POST /prof/stop HTTP/1.1\r\n\r\n", "403"),
        (
            "GET /metrics HTTP/1.1\r\nOrigin: http://evil\r\n\r\n",
            "403",
        ),
        ("no request\r\n\r\n", "400"),
    ] {
        let answer = String::from_utf8(served.ask(request)).expect("text");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
    assert!(served.get("/metrics").contains("\nmallard_prof_active 1\n"));
}

#[test]
fn a_client_that_sends_much_gets_the_whole_answer() {
    let (served, _) = Served::start("hold", "http:unix:DIR/socket");
    let addresses = "0x55d2c0ffee00+".repeat(100_000);
    for (path, answer) in [
        ("/debug/pprof/symbol", "HTTP/1.1 200 OK\r\n"),
        (
            "/prof/start",
            "HTTP/1.1 403 Forbidden: http_control is false\r\n",
        ),
    ] {
        let request = format!(
            "POST {path} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{addresses}",
            addresses.len()
        );
        let said = String::from_utf8(served.ask(&request)).expect("text");
        assert!(said.starts_with(answer), "{path}: {said}");
    }
    assert_eq!(body(&served.get("/debug/pprof/symbol")), "num_symbols: 0\n");
    served.end();
}

#[test]
fn sampling_is_controlled_where_the_options_allow_it() {
    let (served, _) = Served::start("hold", "http:unix:DIR/socket,http_control:true");
    for (verb, active) in [("start", 1), ("reset", 1), ("stop", 0)] {
        let answer = served.ask(&format!("POST /prof/{verb} HTTP/1.1\r\n\r\n"));
        assert!(answer.ends_with(b"\r\n\r\ndone\n"), "{verb}");
        let line = format!("\nmallard_prof_active {active}\n");
        assert!(served.get("/metrics").contains(&line), "{verb}");
    }
    served.end();
}

#[test]
fn hostile_clients_cost_the_process_no_more_than_their_connections() {
    let (served, _) = Served::start("hold", "http:unix:DIR/socket");
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{}/status", served.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
            .expect("a number")
    };
    assert!(served.get("/metrics").contains("mallard_"));
    let (files, threads, before) = (served.count("fd"), served.count("task"), resident());
    let silent = say_nothing(&served, files);
    let connect = || UnixStream::connect(served.socket());
    // Many that wait for an answer of later, one of which says more, and goes.
    let waiting: Vec<_> = (0..6)
        .filter_map(|_| {
            let mut client = connect().ok()?;
            client
                .write_all(b"GET /debug/pprof/heap?seconds=3600 HTTP/1.1\r\n\r\nmore")
                .ok()?;
            Some(client)
        })
        .collect();
    assert!(served.get("/metrics").contains("mallard_allocated_bytes"));
    drop(waiting);
    send_nonsense(&served);
    // Some ask for much and read nothing.
    let unread: Vec<_> = (0..3)
        .filter_map(|_| {
            let mut client = connect().ok()?;
            client.write_all(b"GET /stats.json HTTP/1.1\r\n\r\n").ok()?;
            Some(client)
        })
        .collect();
    let begun = Instant::now();
    assert!(served.get("/metrics").contains("mallard_allocated_bytes"));
    assert!(begun.elapsed() < STEP_TIMEOUT);
    drop((silent, unread));
    assert!(served.get("/metrics").contains("mallard_allocated_bytes"));
    let begun = Instant::now();
    while served.count("fd") > files && begun.elapsed() < STEP_TIMEOUT {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((served.count("fd"), served.count("task")), (files, threads));
    // The program's own records may come late.
    assert!(
        resident() < before + 4096,
        "{before} KiB, then {}",
        resident()
    );
    served.end();
}

/// Many clients that say nothing, and some that say it slowly. `files` are the descriptors of the
/// process without clients.
fn say_nothing(served: &Served, files: usize) -> Vec<UnixStream> {
    let connect = || UnixStream::connect(served.socket());
    let mut silent = Vec::new();
    for i in 0..40 {
        // The queue of the kernel may be full: others are in it.
        let Ok(mut client) = connect() else { continue };
        let _ = client.write_all(&b"GET /metrics HTTP/1.1\r\nX: "[..i % 20]);
        silent.push(client);
        if i % 8 == 7 {
            assert!(
                served.get("/metrics").contains("mallard_allocated_bytes"),
                "after {i}"
            );
        }
        // One more is open for the moment in which the server takes it and closes another.
        assert!(
            settles(|| served.count("fd") <= files + 4),
            "at most four clients"
        );
    }
    silent
}

/// Requests that are none, and ones that do not end.
fn send_nonsense(served: &Served) {
    let connect = || UnixStream::connect(served.socket());
    let mut seed = 7u64;
    for length in [1, 10, 100, 4096, 5000, 100_000] {
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 33) as u8
            })
            .collect();
        for bytes in [
            bytes,
            vec![b'a'; length],
            b"GET / HTTP/1.1\r\n".repeat(length / 16 + 1),
        ] {
            let Ok(mut client) = connect() else { continue };
            let _ = client.write_all(&bytes);
            let _ = client.shutdown(std::net::Shutdown::Write);
            client.set_read_timeout(Some(STEP_TIMEOUT)).expect("a time");
            let _ = client.read_to_end(&mut Vec::new());
        }
    }
}

#[test]
fn a_process_that_did_not_ask_has_no_thread_and_no_descriptor() {
    let counts = |options: &str| {
        let (served, _) = Served::start("small", options);
        let counts = (served.count("task"), served.count("fd"));
        served.child.kill_and_wait();
        counts
    };
    let (threads, files) = counts("background_thread:false");
    assert_eq!(threads, 1);
    let with = counts("background_thread:false,http:unix:DIR/socket");
    // One that listens, and the mark of its address.
    assert_eq!(with, (2, files + 2));
}

trait KillAndWait {
    fn kill_and_wait(self);
}

impl KillAndWait for Child {
    fn kill_and_wait(mut self) {
        let _ = self.kill();
        let _ = self.wait();
    }
}

#[test]
fn what_cannot_be_served_is_one_line_and_the_program_goes_on() {
    for (address, why) in [
        (
            "nowhere",
            "no address; valid: PORT, ADDRESS:PORT, unix:PATH or @NAME",
        ),
        ("1.2.3.4:5", "the system refuses"),
        ("unix:/no/such/folder/socket", "the system refuses"),
    ] {
        let (served, line) = Served::start("hold", &format!("http:{address}"));
        assert_eq!(line, "ready");
        assert_eq!(served.errors(), format!("mallard: http:{address}: {why}\n"));
        served.end();
    }
}

/// Runs a program on the library that starts ten more, one after another and at once, waits until
/// they have said something, and returns it with what they say then.
fn said_by_a_family(address: &str) -> String {
    let sandbox = Sandbox::temporary(Allocator::Preload(Library::release()));
    let errors = sandbox.path("errors");
    let mut child = sandbox
        .command("sh")
        .args([
            "-c",
            // None of them is left when the shell ends: it could take the address.
            "for i in 1 2 3 4; do sh -c 'env true; true'; done; env true & env true & wait; read line",
        ])
        .env("MALLOC_CONF", format!("tcache:true,http:{address}"))
        .stdin(Stdio::piped())
        .stderr(fs::File::create(&errors).expect("a file"))
        .spawn()
        .expect("it starts");
    let said = || fs::read_to_string(&errors).expect("text");
    assert!(settles(|| said().ends_with('\n')), "{}", said());
    drop(child.stdin.take());
    child.wait().expect("it ends");
    said()
}

#[test]
fn a_family_says_once_that_its_address_is_taken() {
    if target().lacks_host("the shell of the family is of another C library") {
        return;
    }
    let free = free_address();
    let each = "http:unix:/tmp/%p.sock gives each process a server\n";
    let in_use = format!("mallard: http:{free}: in use; {each}");
    // The first process serves.
    let none = format!("mallard: http:{free}: serves this process, not its children; {each}");
    assert_eq!(said_by_a_family(&free), none);
    // Another program has the address.
    let other = TcpListener::bind(&free).expect("it is free again");
    assert_eq!(said_by_a_family(&free), in_use);
    release(other, &free);
    // One of ours has it, which is no relative.
    let (served, _) = Served::start("hold", &format!("http:{free}"));
    let said = said_by_a_family(&free);
    assert_eq!(said, in_use, "{}", served.errors());
    assert!(settles(|| served.errors() == none), "{}", served.errors());
    assert_eq!(said_by_a_family(&free), in_use);
    assert_eq!(served.errors(), none);
    served.end();
}

/// An address of this machine that nothing else uses.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has one").to_string();
    release(listener, &address);
    address
}

/// Closes a listener and waits until nothing listens there: a process that another test starts has
/// a copy of it until it executes its program.
fn release(listener: TcpListener, address: &str) {
    drop(listener);
    let is_free = || TcpStream::connect(address).is_err();
    assert!(settles(is_free), "{address}");
}

#[test]
fn a_socket_file_is_taken_over_from_a_process_that_has_ended_and_from_no_other() {
    let (first, _) = Served::start("hold", "http:unix:DIR/socket");
    let path = first.socket();
    let options = format!("http:unix:{}", path.display());
    let (second, _) = Served::start("hold", &options);
    let said = second.errors();
    assert!(
        said.contains(": in use; ") && said.ends_with(" a server\n"),
        "{said}"
    );
    second.end();
    let Served { child, sandbox, .. } = first;
    child.kill_and_wait();
    assert!(path.exists(), "it is left");
    let (third, _) = Served::start("hold", &options);
    assert_eq!(third.errors(), "");
    assert!(ask(&path, "GET /metrics HTTP/1.1\r\n\r\n").len() > 1000);
    third.end();
    drop(sandbox);
}

#[test]
fn a_child_of_a_fork_has_a_server_only_if_the_address_is_its_own() {
    for (name, has_own) in [("socket", false), ("socket.%p", true)] {
        let (served, line) = Served::start("fork", &format!("http:unix:DIR/{name}"));
        let child: u32 = line
            .strip_prefix("child ")
            .and_then(|n| n.parse().ok())
            .expect(&line);
        let socket = |pid: u32| served.sandbox.path(&name.replace("%p", &pid.to_string()));
        let own = served.child.id();
        assert!(ask(&socket(own), "GET /metrics HTTP/1.1\r\n\r\n").len() > 1000);
        if has_own {
            // The file is there a moment before the child accepts clients.
            let accepts = || UnixStream::connect(socket(child)).is_ok();
            assert!(settles(accepts), "the child has a server");
            let request = "GET /debug/pprof/cmdline HTTP/1.1\r\n\r\n";
            assert!(!ask(&socket(child), request).is_empty());
        } else {
            let sockets = || {
                let files = fs::read_dir(format!("/proc/{child}/fd")).expect("it lives");
                let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
                let is_socket = |link: &PathBuf| link.to_string_lossy().starts_with("socket:");
                links.filter(is_socket).count()
            };
            // The child closes them after the fork.
            assert!(settles(|| sockets() == 0), "the parent's are closed");
        }
        let Served {
            mut child, output, ..
        } = served;
        drop((child.stdin.take(), output));
        assert!(child.wait().expect("it ends").success());
    }
}

#[test]
fn a_program_that_closes_all_descriptors_ends_the_server_and_lives() {
    let (served, line) = Served::start("closes", "http:unix:DIR/socket");
    assert_eq!(line, "opened 3");
    let _ = UnixStream::connect(served.socket());
    served.end();
}
