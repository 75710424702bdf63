//! redis-server, which uses more of its allocator than any other server: fragmentation figures, the
//! whole report, purging and background threads.
//!
//! Debian's build has no active defragmentation, which needs a hint that only redis's own copy of
//! jemalloc gives. The test checks that the server says so.

use std::collections::HashMap;
use std::process::Stdio;

use mallard_e2e::service::poll;
use mallard_e2e::{Sandbox, Service};

use crate::{Case, Transcript, check_log, check_maps, client};

pub fn case() -> Case {
    Case {
        name: "redis",
        needs: &["redis-server", "redis-benchmark", "redis-cli"],
        served: &["redis-server", "redis-benchmark", "redis-cli"],
        served_behind: &[],
        run,
    }
}

const CONF: &str = "port 0\nunixsocket redis.sock\nsave \"\"\ndaemonize no\nappendonly no\n\
                    enable-debug-command yes\n";

/// Headings of the report that its readers look for.
const REPORT: &[&str] = &[
    "Begin jemalloc statistics",
    "Version:",
    "Run-time option settings",
    "opt.dirty_decay_ms: ",
    "Allocated: ",
    "assigned threads:",
    "decaying:",
    "bins:",
    "large:",
    "extents:",
    "End jemalloc statistics",
];

/// What redis's doctor must find after every second string was deleted, with any allocator, since
/// it relies on the allocator's own figures.
const ADVICE: &[&str] = &[
    "Sam",
    "* Peak memory:",
    "* High total RSS:",
    "* High allocator fragmentation:",
];

fn run(sandbox: &Sandbox) -> Result<Transcript, String> {
    let configuration = sandbox.write("redis.conf", CONF);
    let mut server = Service::start(
        sandbox,
        "redis",
        client(sandbox, "redis-server").arg(configuration),
    )?;
    server.await_socket(&sandbox.path("redis.sock"))?;
    check_maps(sandbox, &server)?;
    let start = settled_memory(sandbox, "at the start")?;

    // Fifty megabytes of strings, half of them deleted: the rest is spread over all pages.
    cli(sandbox, &["DEBUG", "POPULATE", "100000", "string", "400"])?;
    cli(
        sandbox,
        &[
            "EVAL",
            "for i = 0, 99999, 2 do redis.call('UNLINK', 'string:' .. i) end",
            "0",
        ],
    )?;
    let fragmented = settled_memory(sandbox, "fragmented")?;
    let asked = cli(sandbox, &["MEMORY", "MALLOC-STATS"])?;
    if let Some(missing) = REPORT.iter().find(|&&heading| !asked.contains(heading)) {
        return Err(format!(
            "MEMORY MALLOC-STATS tells no '{missing}':\n{asked}"
        ));
    }
    save_under_load(sandbox)?;
    let loaded = settled_memory(sandbox, "loaded")?;
    let doctor = cli(sandbox, &["MEMORY", "DOCTOR"])?;
    if let Some(missing) = ADVICE.iter().find(|&&issue| !doctor.contains(issue)) {
        return Err(format!("MEMORY DOCTOR does not see '{missing}':\n{doctor}"));
    }
    let defragmentation = cli_any(sandbox, &["CONFIG", "SET", "activedefrag", "yes"])?;
    for switch in ["no", "yes"] {
        expect(
            sandbox,
            &["CONFIG", "SET", "jemalloc-bg-thread", switch],
            "OK",
        )?;
    }
    let digest = cli(sandbox, &["DEBUG", "DIGEST"])?;

    expect(sandbox, &["FLUSHALL", "SYNC"], "OK")?;
    expect(sandbox, &["MEMORY", "PURGE"], "OK")?;
    await_return(sandbox, &start, &loaded)?;
    check_maps(sandbox, &server)?;
    // The server ends before it can answer.
    let _ = cli_any(sandbox, &["SHUTDOWN", "NOSAVE"])?;
    server.await_end()?;

    if figure(&fragmented, "used_memory")? > figure(&loaded, "used_memory_peak")? {
        return Err("the peak of used memory is below what was in use".to_owned());
    }
    let log = server.log();
    check_log(&log, &["bug report", "crashed", "error", "out of memory"])?;
    if !log.contains("bye bye") {
        return Err(format!("redis-server did not say goodbye:\n{log}"));
    }
    Ok(vec![
        ("the allocator's name", loaded["mem_allocator"].clone()),
        ("the answer about defragmentation", defragmentation),
        ("the digest", digest),
        ("what the log warns of", warnings(&log)),
    ])
}

/// A child saves the store while the parent serves two benchmarks. Both must succeed.
fn save_under_load(sandbox: &Sandbox) -> Result<(), String> {
    let benchmark = |keys: &str| {
        let mut command = client(sandbox, "redis-benchmark");
        command
            .args([
                "-s",
                "redis.sock",
                "-q",
                "-c",
                "20",
                "-d",
                "100",
                "-P",
                "8",
                "-r",
                keys,
            ])
            .args("--dbnum 1 -n 20000 -t set,lpush,lpop,sadd,hset,zadd,get".split(' '));
        command
    };
    let mut beside = benchmark("5000")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start redis-benchmark: {error}"))?;
    let saved = cli(sandbox, &["BGSAVE"]);
    let output = sandbox.run(&mut benchmark("3000"));
    let ended = beside.wait();
    saved?;
    let output = output?;
    if !output.stdout_text().contains("requests per second") {
        return Err(format!("the benchmark did nothing: {}", output.account()));
    }
    if !ended.is_ok_and(|status| status.success()) {
        return Err("the second benchmark failed".to_owned());
    }
    poll("the end of BGSAVE", || {
        Ok(cli(sandbox, &["INFO", "persistence"])?.contains("rdb_bgsave_in_progress:0"))
    })?;
    if !cli(sandbox, &["INFO", "persistence"])?.contains("rdb_last_bgsave_status:ok") {
        return Err("the child of BGSAVE failed".to_owned());
    }
    // The benchmark's keys are random, so only the rest can be compared.
    expect(sandbox, &["-n", "1", "FLUSHDB", "SYNC"], "OK")
}

/// Waits until resident memory has fallen to about its start, after everything was deleted.
fn await_return(
    sandbox: &Sandbox,
    start: &HashMap<String, String>,
    loaded: &HashMap<String, String>,
) -> Result<(), String> {
    const SLACK_BYTES: f64 = 12e6;
    let mut last = memory(sandbox)?;
    poll("the return of the memory", || {
        last = memory(sandbox)?;
        Ok(
            figure(&last, "used_memory_rss")? < figure(start, "used_memory_rss")? + SLACK_BYTES
                && figure(&last, "allocator_resident")?
                    < figure(start, "allocator_resident")? + SLACK_BYTES,
        )
    })
    .map_err(|error| {
        let name = "used_memory_rss";
        format!(
            "{error}: {name} {}, {}, {}",
            start[name], loaded[name], last[name]
        )
    })?;
    if figure(&last, "allocator_allocated")? > figure(loaded, "allocator_allocated")? / 4.0 {
        return Err(format!(
            "after FLUSHALL the allocator still counts {last:?}"
        ));
    }
    Ok(())
}

/// Checks that the allocator's figures fit each other and redis's own counts.
fn check_memory(info: &HashMap<String, String>) -> Result<(), String> {
    let figure = |name| figure(info, name);
    let (used, allocated) = (figure("used_memory")?, figure("allocator_allocated")?);
    let (active, resident) = (figure("allocator_active")?, figure("allocator_resident")?);
    // redis counts usable sizes, and other parts of the process allocate too.
    let is_ordered = used < allocated * 1.02 + 100e3
        && allocated < used + 8e6
        && allocated <= active
        && active <= resident;
    // Since release 8, redis counts the small bins only.
    let fits = figure("allocator_frag_bytes")? <= active - allocated
        && figure("allocator_rss_bytes")? == resident - active
        && (1.0..4.0).contains(&figure("allocator_frag_ratio")?)
        && figure("allocator_rss_ratio")? >= 1.0
        && figure("mem_fragmentation_ratio")? > 0.5;
    if is_ordered && fits {
        Ok(())
    } else {
        Err(format!("the figures do not fit: {info:#?}"))
    }
}

/// The lines of `INFO memory` once they are consistent. redis asks its allocator ten times a
/// second, and its own figures are newer until then.
fn settled_memory(sandbox: &Sandbox, when: &str) -> Result<HashMap<String, String>, String> {
    let mut info = HashMap::new();
    let mut fault = String::new();
    poll("memory figures that fit", || {
        info = memory(sandbox)?;
        Ok(check_memory(&info).map_err(|error| fault = error).is_ok())
    })
    .map_err(|error| format!("{when}, {error}: {fault}"))?;
    Ok(info)
}

/// The lines of `INFO memory`.
fn memory(sandbox: &Sandbox) -> Result<HashMap<String, String>, String> {
    Ok(cli(sandbox, &["INFO", "memory"])?
        .lines()
        .filter_map(|line| line.trim_end().split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

fn figure(info: &HashMap<String, String>, name: &str) -> Result<f64, String> {
    info.get(name)
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| format!("INFO memory tells no number {name}: {info:#?}"))
}

/// The log's warnings, without process numbers and times.
fn warnings(log: &str) -> String {
    log.lines()
        .filter_map(|line| line.split_once(" # "))
        .map(|(_, text)| text.split(", pid=").next().unwrap_or(text))
        .collect::<Vec<&str>>()
        .join("\n")
}

fn expect(sandbox: &Sandbox, command: &[&str], answer: &str) -> Result<(), String> {
    let text = cli(sandbox, command)?;
    if text.trim_end() == answer {
        Ok(())
    } else {
        Err(format!("redis answered to {command:?}: {text}"))
    }
}

fn cli(sandbox: &Sandbox, command: &[&str]) -> Result<String, String> {
    let text = cli_any(sandbox, command)?;
    if text.starts_with("ERR") || text.contains("(error)") || text.contains("BUSY") {
        return Err(format!("redis answered to {command:?}: {text}"));
    }
    Ok(text)
}

/// Like [`cli`], for a command that may be refused.
fn cli_any(sandbox: &Sandbox, command: &[&str]) -> Result<String, String> {
    let mut redis_cli = client(sandbox, "redis-cli");
    sandbox
        .run(redis_cli.args(["-s", "redis.sock"]).args(command))
        .map(|output| output.stdout_text())
}
