//! nghttpx: an HTTP/2 proxy in C++ in front of a small server. Its load generator, h2load, is
//! linked with jemalloc as well.

use mallard_e2e::service::free_ports;
use mallard_e2e::{Sandbox, Service};
use rustix::process::Signal;

use crate::web::{self, Backend};
use crate::{Case, Transcript, check_log, check_maps, client, without_numbers};

pub fn case() -> Case {
    Case {
        name: "nghttpx",
        needs: &["nghttpx", "h2load"],
        served: &["nghttpx", "h2load"],
        served_behind: &[],
        run,
    }
}

fn run(sandbox: &Sandbox) -> Result<Transcript, String> {
    let backend = Backend::start()?;
    let [port] = free_ports()?;
    let mut server = Service::start(
        sandbox,
        "nghttpx",
        client(sandbox, "nghttpx").args([
            "--conf=/dev/null",
            "--workers=2",
            "--accesslog-file=/dev/null",
            &format!("--frontend=127.0.0.1,{port};no-tls"),
            &format!("--backend=127.0.0.1,{}", backend.port),
        ]),
    )?;
    server.await_port(port)?;
    check_maps(sandbox, &server)?;

    let page = web::get(port, "/page/300000")?;
    let mut loads = String::new();
    for path in ["/small/20", "/large/60000"] {
        loads += &load(sandbox, &format!("http://127.0.0.1:{port}{path}"))?;
    }
    if backend.requests() < 8001 {
        return Err(format!(
            "only {} requests came through the proxy",
            backend.requests()
        ));
    }
    check_maps(sandbox, &server)?;
    server.signal(Signal::QUIT)?;
    server.await_end()?;
    let log = server.log();
    check_log(&log, &["error", "warn", "crit"])?;
    if !log.contains("exited normally") {
        return Err(format!("the worker did not end by itself:\n{log}"));
    }
    Ok(vec![
        ("a page's length", page.len().to_string()),
        ("what the load found", loads),
        ("the number of log lines", log.lines().count().to_string()),
    ])
}

/// Four thousand requests over twenty connections, ten at a time on each.
fn load(sandbox: &Sandbox, url: &str) -> Result<String, String> {
    let output =
        sandbox.run(client(sandbox, "h2load").args(["-n", "4000", "-c", "20", "-m", "10", url]))?;
    let text = output.stdout_text();
    let counts: String = text
        .lines()
        .filter(|line| line.starts_with("requests:") || line.starts_with("status codes:"))
        .map(|line| format!("{line}\n"))
        .collect();
    if counts.contains("4000 succeeded, 0 failed, 0 errored, 0 timeout") {
        Ok(without_numbers(&counts))
    } else {
        Err(format!(
            "not all requests were answered: {}",
            output.account()
        ))
    }
}
