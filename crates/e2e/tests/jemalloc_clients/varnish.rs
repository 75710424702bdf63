//! varnishd: a cache in front of a small server. Its manager compiles the configuration. Its child
//! serves with many threads and keeps its objects in memory from `malloc`.

use mallard_e2e::service::free_ports;
use mallard_e2e::{Sandbox, Service};
use rustix::process::Signal;

use crate::web::{self, Backend};
use crate::{Case, Transcript, check_log, check_maps, client, without_numbers};

pub fn case() -> Case {
    Case {
        name: "varnish",
        needs: &["varnishd", "varnishstat", "h2load", "cc"],
        served: &["varnishd", "h2load"],
        served_behind: &[],
        run,
    }
}

/// Each connection of the load requests every object. The first time, an object comes from the
/// backend.
const OBJECTS: usize = 1000;
const CONNECTIONS: usize = 4;

fn run(sandbox: &Sandbox) -> Result<Transcript, String> {
    let backend = Backend::start()?;
    let [port] = free_ports()?;
    let vcl = sandbox.write(
        "default.vcl",
        &format!(
            "vcl 4.1;\nbackend default {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}\n\
             sub vcl_recv {{ if (req.url ~ \"^/pass/\") {{ return (pass); }} }}\n",
            backend.port
        ),
    );
    let mut server = Service::start(
        sandbox,
        "varnishd",
        client(sandbox, "varnishd")
            .args(["-F", "-j", "none", "-T", "none", "-s", "malloc,64m"])
            .arg("-n")
            .arg(sandbox.path("varnish"))
            .arg("-a")
            .arg(format!("127.0.0.1:{port}"))
            .arg("-f")
            .arg(vcl),
    )?;
    server.await_port(port)?;
    check_maps(sandbox, &server)?;

    let urls: String = (0..OBJECTS)
        .map(|number| format!("http://127.0.0.1:{port}/object-{number}/{}\n", number * 17))
        .collect();
    let objects = sandbox.write("urls", &urls);
    let pass = sandbox.write("pass", &format!("http://127.0.0.1:{port}/pass/5000\n"));
    let mut loads = String::new();
    for list in [&objects, &pass, &objects] {
        let requests = CONNECTIONS * OBJECTS;
        let output = sandbox.run(
            client(sandbox, "h2load")
                .args(["--h1", "-c", &CONNECTIONS.to_string()])
                .args(["-n", &requests.to_string(), "-i"])
                .arg(list),
        )?;
        let text = output.stdout_text();
        if !text.contains(&format!("{requests} succeeded, 0 failed, 0 errored")) {
            return Err(format!(
                "not all requests were answered: {}",
                output.account()
            ));
        }
        loads += text
            .lines()
            .find(|line| line.starts_with("status codes:"))
            .unwrap_or_default();
    }
    let page = web::get(port, "/page/300000")?;
    check_statistics(sandbox)?;
    check_maps(sandbox, &server)?;
    server.signal(Signal::TERM)?;
    server.await_end()?;
    let log = server.log();
    // varnishd logs its own end by SIGTERM as an error.
    check_log(
        &log.replace("Error: Manager got SIGTERM", ""),
        &["error", "panic", "died", "unexpected"],
    )?;
    Ok(vec![
        ("a page's length", page.len().to_string()),
        ("what the load found", loads),
        ("the log", without_numbers(&log)),
    ])
}

/// Checks varnish's own statistics: hits and the bytes of its store.
fn check_statistics(sandbox: &Sandbox) -> Result<(), String> {
    let output = sandbox.run(
        client(sandbox, "varnishstat")
            .arg("-1")
            .arg("-n")
            .arg(sandbox.path("varnish")),
    )?;
    let text = output.stdout_text();
    let counter = |name: &str| -> Result<usize, String> {
        text.lines()
            .find_map(|line| {
                line.strip_prefix(name)?
                    .split_whitespace()
                    .next()?
                    .parse()
                    .ok()
            })
            .ok_or_else(|| format!("varnishstat has no {name}:\n{text}"))
    };
    let (hits, stored) = (counter("MAIN.cache_hit ")?, counter("SMA.s0.g_bytes ")?);
    if hits < OBJECTS || stored < OBJECTS * OBJECTS * 17 / 2 {
        return Err(format!("{hits} hits and {stored} bytes stored are too few"));
    }
    for never in [
        "MAIN.threads_failed ",
        "MAIN.sess_fail ",
        "MGT.child_died ",
        "SMA.s0.c_fail ",
    ] {
        if counter(never)? != 0 {
            return Err(format!("{never}is not 0:\n{text}"));
        }
    }
    Ok(())
}
