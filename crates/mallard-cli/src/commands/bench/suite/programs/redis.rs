//! redis under its own benchmark, and the memory it keeps after everything is deleted.

use std::sync::Mutex;

use mallard_report::model::Latency;

use super::installed::{self, Needed};
use super::once::input;
use super::server;
use crate::commands::bench::suite::{Command, Real, Reported, Running, WorkPlace};

/// The total time of [`LOADS`] is scaled to this number of requests.
pub const SECONDS_ARE: &str = "per 100,000 requests";
const REQUESTS_OF_FIGURE: f64 = 100_000.0;

const SOCKET: &str = "redis.sock";
const CONFIG: &str = input!("redis.conf");
const CHECK: &str = input!("redis-check.lua");

/// One run of redis-benchmark.
struct Load {
    commands: &'static str,
    value_bytes: &'static str,
    /// Requests for each of the commands.
    requests: u32,
}

/// Values are written and then overwritten by longer ones, which cannot reuse the old blocks.
/// Server and benchmark share two CPUs, so short loads give inaccurate figures: with half as many
/// requests, medians of five runs varied by more than the allocators differ.
const LOADS: [Load; 3] = [
    Load {
        commands: "set",
        value_bytes: "60",
        requests: 150_000,
    },
    Load {
        commands: "set",
        value_bytes: "300",
        requests: 100_000,
    },
    Load {
        commands: "get,lpush,hset,sadd,lpop",
        value_bytes: "120",
        requests: 40_000,
    },
];
const KEY_COUNT: u32 = 40_000;

/// The server and its first answer to the check. Every other run, on any allocator, must give the
/// same answer.
#[derive(Debug)]
pub struct Redis {
    answered: Mutex<Option<String>>,
}

pub static REDIS: Redis = Redis {
    answered: Mutex::new(None),
};

impl Real for Redis {
    fn missing(&self) -> Option<String> {
        installed::missing(&[
            Needed {
                name: "redis-server",
                package: "redis-server",
            },
            Needed {
                name: "redis-benchmark",
                package: "redis-tools",
            },
            Needed {
                name: "redis-cli",
                package: "redis-tools",
            },
        ])
    }

    fn prepare(&self, place: &WorkPlace) -> Result<(), String> {
        let path = place.folder.join("redis.conf");
        std::fs::write(&path, CONFIG)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    fn reset(&self, place: &WorkPlace) -> Result<(), String> {
        // A killed server leaves its socket behind, which would look like the next server's.
        let path = place.folder.join(SOCKET);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("cannot remove {}: {error}", path.display()))
            }
            _ => Ok(()),
        }
    }

    fn command(&self, place: &WorkPlace) -> Command {
        Command {
            program: installed::path_or_name("redis-server").into(),
            arguments: vec![
                place.folder.join("redis.conf").into(),
                "--dir".into(),
                place.folder.clone().into(),
            ],
            ..Command::default()
        }
    }

    fn is_server(&self) -> bool {
        true
    }

    fn drive(&self, place: &WorkPlace, server: Running) -> Result<Reported, String> {
        let ask = |words: &[&str]| {
            let words = [&["-s", SOCKET], words].concat();
            server::answer("redis-cli", &place.folder, &words)
        };
        server::wait_until(server.pid, || {
            ask(&["PING"]).is_ok_and(|answer| answer.trim() == "PONG")
        })?;

        let share = if place.quick { 5 } else { 1 };
        let (mut seconds, mut requests, mut worst) = (0.0, 0.0, None::<Line>);
        for load in &LOADS {
            for line in benchmark(place, load, share)? {
                seconds += f64::from(load.requests / share) / line.per_second;
                requests += f64::from(load.requests / share);
                if worst.is_none_or(|worst| line.p99_ms > worst.p99_ms) {
                    worst = Some(line);
                }
            }
        }
        let full = server::memory(server.pid)?;
        ask(&["FLUSHALL"])?;
        std::thread::sleep(server::IDLE_TIME);
        let empty = server::memory(server.pid)?;

        self.check(&ask(&["EVAL", CHECK, "0"])?)?;
        ask(&["SHUTDOWN", "NOSAVE"])?;
        Ok(Reported {
            seconds: Some(seconds / requests * REQUESTS_OF_FIGURE),
            operations: Some(REQUESTS_OF_FIGURE),
            latency: worst.map(Line::latency),
            rss_bytes_max: Some(full.rss.max(empty.rss)),
            end_rss_bytes: Some(empty.rss),
            huge_bytes: Some(full.huge.max(empty.huge)),
        })
    }
}

impl Redis {
    fn check(&self, answer: &str) -> Result<(), String> {
        let answer = answer.trim();
        // The answer is a hash in hexadecimal; an error of the script is a sentence.
        if answer.len() != 40 || !answer.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("the server failed the check: {answer}"));
        }
        let mut first = self
            .answered
            .lock()
            .unwrap_or_else(|poison| poison.into_inner());
        let first = first.get_or_insert_with(|| answer.to_owned());
        if first == answer {
            Ok(())
        } else {
            Err(format!(
                "the server's data differ from the first run's: {answer} instead of {first}"
            ))
        }
    }
}

/// What redis-benchmark reports on one command.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Line {
    fn latency(self) -> Latency {
        Latency {
            p50_ns: self.p50_ms * 1e6,
            p99_ns: self.p99_ms * 1e6,
            p999_ns: None,
            max_ns: self.max_ms * 1e6,
            slow_calls: None,
        }
    }
}

fn benchmark(place: &WorkPlace, load: &Load, share: u32) -> Result<Vec<Line>, String> {
    let (requests, keys) = (load.requests / share, KEY_COUNT / share);
    let (requests, keys) = (requests.to_string(), keys.to_string());
    let arguments = [
        "-s",
        SOCKET,
        "-c",
        "16",
        "-P",
        "4",
        "--csv",
        "-t",
        load.commands,
        "-d",
        load.value_bytes,
        "-n",
        &requests,
        "-r",
        &keys,
    ];
    let reported = server::answer("redis-benchmark", &place.folder, &arguments)?;
    let lines = table(&reported)?;
    let expected = load.commands.split(',').count();
    if lines.len() != expected {
        return Err(format!(
            "redis-benchmark reported {} commands instead of {expected}",
            lines.len()
        ));
    }
    Ok(lines)
}

/// Reads redis-benchmark's CSV. It needs version 6.2: older ones report no percentiles.
fn table(text: &str) -> Result<Vec<Line>, String> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim().split(',');
        cells
            .map(|cell| cell.trim_matches('"').to_owned())
            .collect()
    };
    let mut lines = text.lines().filter(|line| line.starts_with('"'));
    let head = lines.next().map(cells).unwrap_or_default();
    let column = |name: &str| {
        let found = head.iter().position(|cell| cell == name);
        found.ok_or_else(|| {
            format!("redis-benchmark does not report `{name}`; version 6.2 or newer does")
        })
    };
    let columns = [
        column("rps")?,
        column("p50_latency_ms")?,
        column("p99_latency_ms")?,
        column("max_latency_ms")?,
    ];
    let line = |line: &str| {
        let cells = cells(line);
        let figure = |at: usize| cells.get(columns[at])?.parse::<f64>().ok();
        let all = (|| {
            Some(Line {
                per_second: figure(0).filter(|rate| *rate > 0.0)?,
                p50_ms: figure(1)?,
                p99_ms: figure(2)?,
                max_ms: figure(3)?,
            })
        })();
        all.ok_or_else(|| format!("redis-benchmark wrote an unknown line: {line}"))
    };
    lines.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#""test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms""#;

    #[test]
    fn the_table_of_the_benchmark_is_parsed_by_its_header() {
        let text = format!(
            "{HEAD}\n\"SET\",\"50000.00\",\"0.5\",\"0.1\",\"0.4\",\"0.7\",\"0.9\",\"3.0\"\n"
        );
        let expected = Line {
            per_second: 50_000.0,
            p50_ms: 0.4,
            p99_ms: 0.9,
            max_ms: 3.0,
        };
        assert_eq!(table(&text).unwrap(), [expected]);
        assert_eq!(expected.latency().p99_ns, 900_000.0);
        assert!(table(&format!("{HEAD}\n\"SET\",\"nothing\"\n")).is_err());
        let old = table("\"SET\",\"50000.00\"\n").unwrap_err();
        assert!(old.contains("6.2"), "{old}");
    }

    #[test]
    fn a_server_whose_data_differ_from_the_first_run_is_detected() {
        let redis = Redis {
            answered: Mutex::new(None),
        };
        let (one, other) = ("ab".repeat(20), "cd".repeat(20));
        assert!(redis.check("ERR out of memory").is_err());
        assert_eq!(redis.check(&one), Ok(()));
        assert_eq!(redis.check(&one), Ok(()));
        assert!(redis.check(&other).unwrap_err().contains(&one));
    }
}
