//! The page for people.

use maud::{DOCTYPE, html};

use super::profile::Kind;
use super::watched::Process;
use crate::processes::figures::{bytes, percent};

const STYLE: &str = "\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #8884; text-align: right }
th:nth-child(2), td:nth-child(2), td:last-child, th:last-child { text-align: left }
:root { color-scheme: light dark }";

/// The profiles of a process, with links that hold under `/debug/pprof` and `/debug/pprof/`.
pub fn profiles(pid: u32, command: &str) -> String {
    let folder = format!("/pid/{pid}/debug/pprof/");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "mallard export: " (command) }
                style { (STYLE) }
            }
            body {
                h1 { "Heap profiles of " (command) ", process " (pid) }
                ul {
                    @for kind in Kind::ALL {
                        li { a href=(format!("{folder}{}", kind.name())) { (kind.name()) } ": " (kind.meaning()) }
                    }
                    li { a href=(format!("{folder}symbol")) { "symbol" } ": names of addresses, for pprof" }
                }
                p { code { "go tool pprof URL" } " shows a profile; " code { "?seconds=30" } " shows what changes meanwhile." }
            }
        }
    };
    page.into_string()
}

/// The processes, with links to what is served of each.
pub fn index(processes: &[Process], has_control: bool) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "mallard export" }
                style { (STYLE) }
            }
            body {
                h1 { "Processes on Mallard" }
                p {
                    a href="metrics" { "metrics" } " for Prometheus · "
                    a href="targets" { "targets" } " for its discovery · "
                    a href="healthz" { "healthz" }
                }
                @if processes.is_empty() {
                    p { "No process on Mallard can be read. MALLOC_CONF=export_stats:true makes one readable." }
                } @else {
                    (table(processes))
                }
                p {
                    "A heap profile is there once the process samples: start it with "
                    code { "MALLOC_CONF=prof:true" } ", or run "
                    code { "mallard profile --start PID" } ". "
                    code { "go tool pprof URL" } " shows it."
                    @if has_control {
                        " POST to /pid/N/prof/start and /pid/N/prof/stop switches sampling."
                    }
                }
            }
        }
    };
    page.into_string()
}

fn table(processes: &[Process]) -> maud::Markup {
    html! {
        table {
            thead {
                tr {
                    th { "PID" } th { "command" } th { "container" } th { "allocated" }
                    th { "resident" } th { "fragmentation" } th { "sampling" } th { "heap profile" }
                }
            }
            tbody {
                @for process in processes {
                    @let totals = &process.snapshot.totals;
                    tr {
                        td { a href=(format!("pid/{}/metrics", process.pid)) { (process.pid) } }
                        td { (process.command) }
                        td { (process.container) }
                        td { (bytes(totals.allocated)) }
                        td { (bytes(totals.resident)) }
                        td { (percent(totals.fragmentation())) }
                        td { (totals.sampling().map_or("off".to_owned(), bytes)) }
                        td {
                            @for kind in Kind::ALL {
                                a href=(format!("pid/{}/debug/pprof/{}", process.pid, kind.name())) {
                                    (kind.name())
                                }
                                " "
                            }
                        }
                    }
                }
            }
        }
    }
}
