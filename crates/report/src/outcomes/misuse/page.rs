//! The page of a session: one HTML file that needs no network.

use maud::{Markup, html};

use super::text::{caption, counts, ends, only_glibc};
use super::{ALL, Heap, Misuse, Program, markdown};
use crate::html::{Frame, STYLE, copy};

/// The page.
pub fn page(m: &Misuse) -> String {
    let main = html! {
        section {
            p class="about" { (caption(m)) " Caught: stopped by the allocator or by a fault, or without effect." }
            (kinds(m))
        }
        @for (heap, lines) in only_glibc(m) {
            section {
                h2 { "What glibc catches on " (heap) ", and mallard does not" }
                ul { @for line in lines { li { (line) } } }
            }
        }
        section {
            h2 { "Each program" }
            p class="about" {
                "How it ended on the fresh heap, and on how many aged ones it was caught. "
                "Point at a result to see what the program wrote to standard error."
            }
            (programs(m))
        }
        section {
            h2 { "The allocators" }
            dl class="lines" {
                @for a in &m.allocators {
                    div { dt { (a.name) } dd { @if let Some(why) = &a.unavailable { "not there: " (why) } @else { (a.version) } } }
                }
            }
        }
        section { h2 { "To repeat it" } pre { (m.command.join(" ")) } (copy(&markdown(m))) }
    };
    let frame = Frame {
        title: "Misuse of the heap",
        styles: vec![STYLE, OWN_STYLE],
        command: "bench misuse",
        header: html! {
            h1 { (m.sentence()) }
            p class="machine" { (m.started) " · " (m.machine.cpu) " · " (m.machine.cpus) " CPUs · " (m.machine.kernel) }
        },
        main,
        footer: "Every outcome is in misuse.json beside this page.",
        ..Frame::default()
    };
    frame.page()
}

fn kinds(m: &Misuse) -> Markup {
    let names = m.names();
    html! {
        div class="scroll" {
            table {
                thead { tr { th { "kind" } th { "programs" } @for name in &names { th { (name) } } } }
                tbody {
                    @for (kind, programs) in m.rows() {
                        tr class=[(kind == ALL).then_some("sum")] {
                            th { (kind) } td { (programs.len()) }
                            @for name in &names { td { (counts(m, &programs, name)) } }
                        }
                    }
                }
            }
        }
    }
}

fn programs(m: &Misuse) -> Markup {
    let names = m.names();
    html! {
        div class="scroll" {
            table class="programs" {
                thead { tr { th { "program" } th class="left" { "what it does" } @for name in &names { th { (name) } } } }
                tbody {
                    @for program in &m.misuses {
                        tr {
                            th { (program.shown()) } td class="left" { (program.what) }
                            @for name in &names { (end(program, name)) }
                        }
                    }
                }
            }
        }
    }
}

fn end(program: &Program, allocator: &str) -> Markup {
    let ran = program.on(allocator);
    let said = ran
        .map(|ran| ran.said.as_str())
        .filter(|said| !said.is_empty());
    let missed = ran.is_some_and(|ran| !ran.is_caught(Heap::Fresh));
    html! { td title=[said] class=[missed.then_some("missed")] { (ends(program, allocator)) } }
}

const OWN_STYLE: &str = "
.programs .left { white-space: normal; min-width: 14rem; }
.sum th, .sum td { font-weight: 650; }
.missed { color: var(--soft); }
.lines div { display: grid; grid-template-columns: 8rem 1fr; gap: .6rem; margin: .25rem 0; }
.lines dt { color: var(--soft); }
.lines dd { margin: 0; overflow-wrap: anywhere; }
";
