//! named of bind9: answers questions for a zone by UDP and TCP, hands the zone over, reads its
//! configuration again under load, and tells of its memory on its statistics channel. dig, which asks,
//! is linked with jemalloc as well.

use mallard_e2e::service::free_port;
use mallard_e2e::{Sandbox, Service};
use rustix::process::Signal;
use serde_json::Value;

use crate::{Case, Transcript, check_log, check_maps, client, web};

pub fn case() -> Case {
    Case {
        name: "named",
        needs: &["named", "dig"],
        served: &["named", "dig"],
        run,
    }
}

const HOSTS: usize = 1000;

const ZONE: &str = "$TTL 60\n@ IN SOA ns root ( 1 60 60 60 60 )\n@ IN NS ns\nns IN A 192.0.2.1\n\
                    $GENERATE 1-1000 host$ TXT text-of-host-$\n";

fn run(sandbox: &Sandbox) -> Result<Transcript, String> {
    let (port, channel) = (free_port()?, free_port()?);
    sandbox.write("example.test.zone", ZONE);
    let configuration = sandbox.write(
        "named.conf",
        &format!(
            "options {{ directory \"{}\"; listen-on port {port} {{ 127.0.0.1; }};\n\
             listen-on-v6 {{ none; }}; pid-file none; session-keyfile none; recursion no;\n\
             dnssec-validation no; allow-transfer {{ any; }}; notify no; }};\n\
             controls {{ }};\n\
             statistics-channels {{ inet 127.0.0.1 port {channel} allow {{ 127.0.0.1; }}; }};\n\
             zone \"example.test\" {{ type primary; file \"example.test.zone\"; }};\n",
            sandbox.path("").display()
        ),
    );
    let mut server = Service::start(
        sandbox,
        "named",
        client(sandbox, "named")
            .args(["-g", "-n", "2", "-c"])
            .arg(configuration),
    )?;
    server.await_port(port)?;
    server.await_log("all zones loaded")?;
    check_maps(sandbox, &server)?;

    let port = port.to_string();
    let dig = |arguments: &[&str]| {
        sandbox
            .run(
                client(sandbox, "dig")
                    .args(["@127.0.0.1", "-p", &port])
                    .args(arguments),
            )
            .map(|output| output.stdout_text())
    };
    let questions: String = (1..=HOSTS)
        .map(|host| format!("host{host}.example.test TXT\n"))
        .collect();
    sandbox.write("questions", &questions);
    let by_udp = dig(&["-f", "questions", "+short"])?;
    // The configuration is read again while questions come in.
    server.signal(Signal::HUP)?;
    let by_tcp = dig(&["-f", "questions", "+short", "+tcp"])?;
    server.await_log("reloading configuration succeeded")?;
    let whole = dig(&["example.test", "AXFR", "+nostats", "+nocmd"])?;
    let unknown = dig(&["nobody.example.test", "+noall", "+comments"])?;
    let expected: String = (1..=HOSTS)
        .map(|host| format!("\"text-of-host-{host}\"\n"))
        .collect();
    for (way, answers) in [("UDP", &by_udp), ("TCP", &by_tcp)] {
        if *answers != expected {
            return Err(format!(
                "by {way} came wrong answers, {} in number",
                answers.lines().count()
            ));
        }
    }
    if !unknown.contains("NXDOMAIN") {
        return Err(format!("for an unknown name came {unknown}"));
    }
    check_statistics(channel)?;
    check_maps(sandbox, &server)?;
    server.signal(Signal::TERM)?;
    server.await_end()?;
    let log = server.log();
    // The head of the log has the compiler's options, among them some about errors.
    let (_, work) = log
        .split_once("loading configuration")
        .ok_or_else(|| format!("named read no configuration:\n{log}"))?;
    check_log(
        work,
        &["error", "warning", "failed", "critical", "out of memory"],
    )?;
    if !log.trim_end().ends_with("exiting") {
        return Err(format!("named did not say goodbye:\n{log}"));
    }
    Ok(vec![("the zone", whole)])
}

/// What named counts of its memory: the sizes it sums are those the allocator told it.
fn check_statistics(channel: u16) -> Result<(), String> {
    let text = web::get(channel, "/json/v1/mem")?;
    let statistics: Value = serde_json::from_str(&text)
        .map_err(|error| format!("the statistics are no JSON ({error}): {text}"))?;
    let memory = &statistics["memory"];
    let number = |name: &str| {
        memory[name]
            .as_u64()
            .ok_or_else(|| format!("no number {name}: {memory}"))
    };
    let (in_use, total) = (number("InUse")?, number("TotalUse")?);
    if in_use < (HOSTS * 100) as u64 || in_use > total || total > 1 << 30 || number("Lost")? != 0 {
        return Err(format!("the figures cannot be: {memory}"));
    }
    if memory["contexts"]
        .as_array()
        .is_none_or(|contexts| contexts.len() <= 3)
    {
        return Err(format!("there are no contexts: {memory}"));
    }
    let xml = web::get(channel, "/xml/v3/mem")?;
    if !xml.contains("<memory>") || !xml.contains("</statistics>") {
        return Err(format!("the XML statistics are not whole: {xml}"));
    }
    Ok(())
}
