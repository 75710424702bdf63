//! bind9's named: answers queries for a zone over UDP and TCP, transfers the zone, reloads its
//! configuration under load, and reports its memory on its statistics channel. dig, the client, is
//! linked with jemalloc too, by itself or through a library of BIND's.

use mallard_e2e::service::{free_ports, poll};
use mallard_e2e::{Sandbox, Service};
use rustix::process::Signal;
use serde_json::Value;

use crate::{Case, Transcript, check_log, check_maps, client, web};

pub fn case() -> Case {
    Case {
        name: "named",
        needs: &["named", "dig"],
        served: &["named", "dig"],
        // Since release 9.20.
        served_behind: &["dig"],
        run,
    }
}

const HOSTS: usize = 1000;

const ZONE: &str = "$TTL 60\n@ IN SOA ns root ( 1 60 60 60 60 )\n@ IN NS ns\nns IN A 192.0.2.1\n\
                    $GENERATE 1-1000 host$ TXT text-of-host-$\n";

fn run(sandbox: &Sandbox) -> Result<Transcript, String> {
    let [port, channel] = free_ports()?;
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
    server.await_log(" running\n")?;
    check_maps(sandbox, &server)?;

    let questions: String = (1..=HOSTS)
        .map(|host| format!("host{host}.example.test TXT\n"))
        .collect();
    sandbox.write("questions", &questions);
    let dig = Dig {
        sandbox,
        port: port.to_string(),
    };
    dig.await_all("by TCP", &["+tcp"])?;
    // The configuration is reloaded while queries arrive, and some of them get no answer.
    server.signal(Signal::HUP)?;
    let _ = dig.ask(&["-f", "questions", "+short"]);
    server.await_log("reloading zones succeeded")?;
    dig.await_all("by UDP, after reading anew", &[])?;
    let mut zone = String::new();
    poll("the whole zone", || {
        zone = dig.ask(&["example.test", "AXFR", "+nostats", "+nocmd"])?;
        Ok(!zone.contains(";;"))
    })?;
    let unknown = dig.ask(&["nobody.example.test", "+noall", "+comments"])?;
    if !unknown.contains("NXDOMAIN") {
        return Err(format!("for an unknown name came {unknown}"));
    }
    check_statistics(channel)?;
    check_maps(sandbox, &server)?;
    server.signal(Signal::TERM)?;
    server.await_end()?;
    let log = server.log();
    // The head of the log lists the compiler's options, some of which mention errors.
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
    Ok(vec![("the zone", zone)])
}

/// The client.
struct Dig<'a> {
    sandbox: &'a Sandbox<'a>,
    port: String,
}

impl Dig<'_> {
    fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = client(self.sandbox, "dig");
        command
            .args(["@127.0.0.1", "-p", &self.port])
            .args(arguments);
        Ok(self.sandbox.run_to_any_end(&mut command)?.stdout_text())
    }

    /// Queries all hosts until each has its answer. When it starts or reloads, the server opens its
    /// sockets one by one, so some queries find none.
    fn await_all(&self, way: &str, arguments: &[&str]) -> Result<(), String> {
        let mut expected: Vec<String> = (1..=HOSTS)
            .map(|host| format!("\"text-of-host-{host}\""))
            .collect();
        expected.sort_unstable();
        poll(&format!("all answers {way}"), || {
            let text = self.ask(&[&["-f", "questions", "+short"], arguments].concat())?;
            let mut answers: Vec<&str> = text.lines().collect();
            answers.sort_unstable();
            Ok(answers == expected)
        })
    }
}

/// Checks named's memory statistics: it sums the sizes that the allocator reports.
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
    // Since release 9.20 it sums blocks in use alone.
    let total = number("TotalUse").or_else(|_| number("Malloced"))?;
    let (in_use, lost) = (number("InUse")?, memory["Lost"].as_u64().unwrap_or(0));
    if in_use < (HOSTS * 100) as u64 || in_use > total || total > 1 << 30 || lost != 0 {
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
