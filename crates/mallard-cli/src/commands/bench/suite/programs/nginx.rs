//! nginx under wrk. wrk sends requests for a given time rather than a given number of them, so the
//! row's figure is the time that a fixed number takes at the measured rate.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use mallard_report::model::Latency;

use super::installed::{self, Needed};
use super::once::input;
use super::server;
use crate::commands::bench::suite::{Command, Real, Reported, Running, WorkPlace};

pub const SECONDS_ARE: &str = "per 5,000 requests";
const REQUESTS_OF_FIGURE: f64 = 5_000.0;

const CONFIG: &str = input!("nginx.conf");
const SCRIPT: &str = input!("wrk.lua");
/// wrk accepts only whole seconds, so a shorter run is interrupted.
const QUICK_TIME: Duration = Duration::from_millis(300);

/// The server and its latest port.
#[derive(Debug)]
pub struct Nginx {
    port: AtomicU16,
}

pub static NGINX: Nginx = Nginx {
    port: AtomicU16::new(0),
};

/// The pages by file name. Their content is made up and does not matter.
fn pages() -> [(&'static str, String); 4] {
    const SOURCES: [&str; 4] = [
        input!("templates.cpp"),
        input!("objects.py"),
        input!("documents.lua"),
        input!("records.pl"),
    ];
    let all = SOURCES.concat();
    // Whole lines only: nginx takes a `<` at the very end for a truncated instruction.
    let part = |bytes: usize| {
        let end = all[..bytes.min(all.len())]
            .rfind('\n')
            .map_or(0, |newline| newline + 1);
        all[..end].to_owned()
    };
    let parts = "<p><!--# include virtual=\"/small.html\" -->|\
                 <!--# include virtual=\"/middle.html\" --></p>\n";
    [
        ("small.html", part(1_000)),
        ("middle.html", part(4_000)),
        ("large.html", part(8_000)),
        ("parts.html", parts.to_owned()),
    ]
}

/// A page as a client receives it: the server assembles `parts.html`.
fn served(name: &str) -> String {
    let pages = pages();
    let page = |name: &str| {
        let found = pages.iter().find(|(file, _)| *file == name);
        found.map_or("", |(_, content)| content.as_str())
    };
    match name {
        "parts.html" => format!("<p>{}|{}</p>\n", page("small.html"), page("middle.html")),
        name => page(name).to_owned(),
    }
}

impl Real for Nginx {
    fn missing(&self) -> Option<String> {
        installed::missing(&[
            Needed {
                name: "nginx",
                package: "nginx-light",
            },
            Needed {
                name: "wrk",
                package: "wrk",
            },
        ])
    }

    fn prepare(&self, place: &WorkPlace) -> Result<(), String> {
        fs::create_dir_all(place.folder.join("tmp"))
            .map_err(|error| format!("cannot make {}/tmp: {error}", place.folder.display()))?;
        write(place, "wrk.lua", SCRIPT)?;
        for (name, content) in pages() {
            write(place, name, &content)?;
        }
        Ok(())
    }

    /// Picks a new port for every run: closing connections may still hold the previous one.
    fn reset(&self, place: &WorkPlace) -> Result<(), String> {
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr();
        let free = free().map_err(|error| format!("no free port on the loopback: {error}"))?;
        self.port.store(free.port(), Ordering::Relaxed);
        let config = CONFIG.replace("@PORT@", &free.port().to_string());
        write(place, "nginx.conf", &config)
    }

    fn command(&self, place: &WorkPlace) -> Command {
        // nginx needs a slash at the end of the prefix.
        let mut prefix = place.folder.clone().into_os_string();
        prefix.push("/");
        Command {
            program: installed::path_or_name("nginx").into(),
            arguments: vec![
                "-p".into(),
                prefix,
                "-c".into(),
                "nginx.conf".into(),
                "-e".into(),
                "stderr".into(),
            ],
            ..Command::default()
        }
    }

    fn is_server(&self) -> bool {
        true
    }

    fn drive(&self, place: &WorkPlace, server: Running) -> Result<Reported, String> {
        let port = self.port.load(Ordering::Relaxed);
        server::wait_until(server.pid, || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        })?;
        for (name, _) in pages() {
            let answer = get(port, name).map_err(|error| format!("cannot get /{name}: {error}"))?;
            let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
            if body != Some(&served(name)) {
                let status = answer.lines().next().unwrap_or("nothing");
                return Err(format!(
                    "the server sent a wrong answer for /{name}: {status}"
                ));
            }
        }

        let address = format!("http://127.0.0.1:{port}");
        let arguments = ["-t", "1", "-c", "32", "-d", "1", "-s", "wrk.lua", &address];
        let limit = place.quick.then_some(QUICK_TIME);
        let reported = server::answer_within("wrk", &place.folder, &arguments, limit)?;
        let load = Load::read(&reported).ok_or("wrk did not print its figures")?;
        let full = server::memory(server.pid)?;
        std::thread::sleep(server::IDLE_TIME);
        let idle = server::memory(server.pid)?;
        server::quit(server.pid);
        if load.errors > 0.0 {
            return Err(format!("{} requests failed", load.errors));
        }
        Ok(Reported {
            seconds: Some(load.seconds / load.requests * REQUESTS_OF_FIGURE),
            operations: Some(REQUESTS_OF_FIGURE),
            latency: Some(load.latency),
            rss_bytes_max: Some(full.rss.max(idle.rss)),
            end_rss_bytes: Some(idle.rss),
            huge_bytes: Some(full.huge.max(idle.huge)),
        })
    }
}

fn write(place: &WorkPlace, name: &str, content: &str) -> Result<(), String> {
    let path = place.folder.join(name);
    fs::write(&path, content).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Requests a page and returns the answer, uncompressed. HTTP/1.0 ends it with the connection.
fn get(port: u16, name: &str) -> std::io::Result<String> {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    connection.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(connection, "GET /{name} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
}

/// What `wrk.lua` prints.
#[derive(Debug, PartialEq)]
struct Load {
    requests: f64,
    seconds: f64,
    errors: f64,
    latency: Latency,
}

impl Load {
    fn read(text: &str) -> Option<Load> {
        let field = |name: &str| -> Option<f64> {
            let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
            let (_, value) = pairs.find(|(key, _)| *key == name)?;
            value.parse().ok()
        };
        let nanoseconds = |name| field(name).map(|microseconds| microseconds * 1e3);
        Some(Load {
            requests: field("requests").filter(|requests| *requests > 0.0)?,
            seconds: field("microseconds")? / 1e6,
            errors: field("errors")?,
            latency: Latency {
                p50_ns: nanoseconds("p50")?,
                p99_ns: nanoseconds("p99")?,
                p999_ns: Some(nanoseconds("p99.9")?),
                max_ns: nanoseconds("max")?,
                slow_calls: None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "Running 1s test @ http://127.0.0.1:1\n  8 requests in 1.00s\nrequests 8\n\
        microseconds 500000\nbytes 7\nerrors 0\np50 10\np99 20\np99.9 30\nmax 40\n";

    #[test]
    fn the_figures_of_the_load_are_parsed_and_all_are_needed() {
        let load = Load::read(REPORT).unwrap();
        assert_eq!((load.requests, load.seconds, load.errors), (8.0, 0.5, 0.0));
        assert_eq!(load.latency.p999_ns, Some(30_000.0));
        for line in [
            "requests 8\n",
            "microseconds 500000\n",
            "p99.9 30\n",
            "errors 0\n",
        ] {
            assert_eq!(
                Load::read(&REPORT.replace(line, "")),
                None,
                "without {line}"
            );
        }
        assert_eq!(
            Load::read(&REPORT.replace("requests 8", "requests 0")),
            None
        );
    }

    #[test]
    fn pages_contain_only_the_intended_instructions() {
        for (name, content) in pages() {
            assert_eq!(content.contains("<!--#"), name == "parts.html", "{name}");
            assert!(content.is_ascii() && !content.is_empty(), "{name}");
        }
        assert!(served("parts.html").contains(&served("middle.html")));
    }
}
