//! `mallard export`, with real programs, and with Debian's Prometheus and Go's pprof where they are
//! installed.

mod agreement;
mod contained;
mod http;
mod install;
mod prometheus;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::*;

/// The longest that anything here takes on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Holds some memory as its argument says and goes on allocating, until its standard input ends.
/// What comes and goes is less than the 2 MiB that are a leak in `prometheus.rs`: on a busy machine
/// each reading may contain all of it.
const PROGRAM: &str = r#"
    #include <poll.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    #define COUNT (1 << 18)
    static void *held[512], *some[100], *many[COUNT];
    __attribute__((noinline)) static void *hold(size_t size) {
        return memset(malloc(size), 1, size);
    }
    int main(int argc, char **argv) {
        int leaks = argc > 1 && !strcmp(argv[1], "leaks");
        int wastes = argc > 1 && !strcmp(argv[1], "wastes");
        for (int i = 0; i < 512; i++) held[i] = hold(65536);
        if (wastes) {
            for (int i = 0; i < COUNT; i++) many[i] = hold(256);
            for (int i = 0; i < COUNT; i++) if (i % 50) free(many[i]);
        }
        for (;;) {
            for (int size = 48; size < 20000; size *= 2) {
                for (int i = 0; i < 100; i++) some[i] = malloc(size);
                for (int i = 0; i < 100; i++) free(some[i]);
            }
            if (leaks) for (int i = 0; i < 2; i++) hold(16384);
            struct pollfd in = {.fd = 0, .events = POLLIN};
            char byte;
            if (poll(&in, 1, 5) > 0 && read(0, &byte, 1) <= 0) return 0;
        }
    }
"#;

/// A process that is ended with the value.
struct Running {
    child: Child,
    /// Kept open: the programs end with it.
    input: Option<ChildStdin>,
}

impl Running {
    fn start(command: &mut Command) -> Running {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        Running { child, input }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the program on Mallard under a name of its own.
fn program(place: &Place, name: &str, options: &str, arguments: &[&str]) -> Running {
    let file = place.path().join(name);
    if !file.exists() {
        place.compile(name, PROGRAM, &["-O1", "-g", "-fno-builtin"]);
    }
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("mallard"));
    command.args(["run", "--conf", options, "--"]).arg(file);
    Running::start(command.args(arguments))
}

/// A server, and where it listens.
struct Server {
    _running: Running,
    address: String,
}

impl Server {
    fn start(words: &[&str]) -> Server {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("mallard"));
        command.args(["export", "--listen", "127.0.0.1:0"]);
        command.args(words).stdout(Stdio::piped());
        let mut running = Running::start(&mut command);
        let output = running.child.stdout.take().unwrap();
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("serving http://");
        let address = address.and_then(|rest| rest.strip_suffix("/metrics"));
        Server {
            address: address.expect(&line).to_owned(),
            _running: running,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "")
    }

    fn ask(&self, method: &str, path: &str, headers: &str) -> Reply {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: here:1\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        Reply::parse(&reply)
    }

    /// The answer once this holds.
    fn get_until(&self, path: &str, holds: impl Fn(&Reply) -> bool) -> Reply {
        let begun = Instant::now();
        loop {
            let reply = self.get(path);
            if holds(&reply) {
                return reply;
            }
            assert!(begun.elapsed() < TIMEOUT, "{reply:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Reply {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, body) = bytes.split_at(end.expect("a head") + 4);
        let head = String::from_utf8(head.to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply {
            status,
            head,
            body: body.to_vec(),
        }
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The value of a sample, by its name and a part of its labels.
    fn value(&self, name: &str, labels: &str) -> Option<f64> {
        let mut lines = self.text().lines();
        let line = lines.find(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(labels)
        })?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

/// Runs a program to its end and returns what it printed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}\n{text}\n{said}");
    text
}
