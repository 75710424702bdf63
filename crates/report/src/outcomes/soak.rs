//! The outcome of `mallard soak` as data, as text and as a page with the curve of the memory.

use std::fmt::Write as _;

use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::html::{Frame, STYLE, cell, copy};
use crate::model::Machine;
use crate::outcomes::diagnosis::text::wrapped;
use crate::units;

/// The version of the structure.
pub const SCHEMA: u32 = 1;
/// Phases in the tables of the text and of Markdown; the file has all.
const SHOWN_PHASES_MAX: usize = 30;

/// What a soak found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Soak {
    pub schema: u32,
    /// The allocator's name and version.
    pub allocator: String,
    pub sentence: String,
    /// The bounds, in the order of a reader.
    pub bounds: Vec<Bound>,
    pub phases: Vec<Phase>,
    pub command: Vec<String>,
    pub machine: Machine,
}

/// A bound that must hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    pub name: String,
    /// None if the run cannot tell, such as for a slope over minutes.
    pub holds: Option<bool>,
    pub text: String,
}

/// The process after a phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    pub name: String,
    /// Since the start.
    pub seconds: f64,
    /// Bytes of the model's blocks, as they were asked for.
    pub live: u64,
    /// Their usable bytes.
    pub usable: u64,
    /// What the allocator counts as allocated, if it says so.
    pub counted: Option<u64>,
    pub rss: u64,
    pub metadata: Option<u64>,
    pub mappings: u64,
    pub threads: u64,
    /// Since the start.
    pub forks: u64,
    pub operations: u64,
    pub threads_made: u64,
    pub decay_ms: u64,
}

/// Columns of a terminal.
const COLUMNS: usize = 80;

/// The head of the lines of phases in a terminal.
pub fn head() -> String {
    row([
        "time", "phase", "live", "RSS", "metadata", "mappings", "threads", "forks",
    ])
}

/// A line of at most 80 columns.
fn row([time, phase, live, rss, metadata, mappings, threads, forks]: [&str; 8]) -> String {
    format!(
        "{time:>9}  {phase:<7} {live:>9}  {rss:>9}  {metadata:>9}  {mappings:>8}  {threads:>7}  \
         {forks:>6}"
    )
}

impl Phase {
    /// Its line in a terminal.
    pub fn line(&self) -> String {
        let [time, phase, live, rss, metadata, mappings, threads] = cells(self);
        let forks = self.forks.to_string();
        row([
            &time, &phase, &live, &rss, &metadata, &mappings, &threads, &forks,
        ])
    }
}

impl Bound {
    fn sign(&self) -> &'static str {
        match self.holds {
            Some(true) => "holds",
            Some(false) => "BROKEN",
            None => "open",
        }
    }
}

impl Soak {
    /// # Errors
    /// It is no soak of the lab.
    pub fn from_json(text: &str) -> Result<Soak, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// The phases that fit into a table: the last ones.
    fn shown(&self) -> &[Phase] {
        &self.phases[self.phases.len().saturating_sub(SHOWN_PHASES_MAX)..]
    }
}

/// The sentence and the bounds, which follow the lines of the phases in a terminal.
pub fn verdict(s: &Soak) -> String {
    let mut text = format!("{}\n\n", s.sentence);
    for bound in &s.bounds {
        let head = format!("  {:<6}  {:<12} ", bound.sign(), bound.name);
        text += &wrapped(&head, &bound.text, COLUMNS);
    }
    text
}

/// The text for a terminal.
pub fn text(s: &Soak) -> String {
    let lines: Vec<String> = s.shown().iter().map(Phase::line).collect();
    format!("{}\n{}\n\n{}", head(), lines.join("\n"), verdict(s))
}

/// The outcome as Markdown, to paste into an issue.
pub fn markdown(s: &Soak) -> String {
    let mut text = format!("**{}** (`{}`)\n\n", s.sentence, s.allocator);
    text += "| bound | | |\n| --- | --- | --- |\n";
    for bound in &s.bounds {
        let (name, sign) = (&bound.name, bound.sign());
        let _ = writeln!(text, "| {name} | {sign} | {} |", cell(&bound.text));
    }
    text += "\n| after | phase | live | RSS | metadata | mappings | threads |\n";
    text += "| ---: | --- | ---: | ---: | ---: | ---: | ---: |\n";
    for phase in s.shown() {
        let cells = cells(phase).map(|text| cell(&text)).join(" | ");
        let _ = writeln!(text, "| {cells} |");
    }
    text
}

fn cells(phase: &Phase) -> [String; 7] {
    let bytes = |bytes: u64| units::bytes(bytes as f64);
    [
        units::elapsed(phase.seconds),
        phase.name.clone(),
        bytes(phase.live),
        bytes(phase.rss),
        phase.metadata.map_or(units::ABSENT.to_owned(), bytes),
        phase.mappings.to_string(),
        phase.threads.to_string(),
    ]
}

/// The page.
pub fn page(s: &Soak) -> String {
    let machine = &s.machine;
    let frame = Frame {
        title: &format!("Soak of {}", s.allocator),
        styles: vec![STYLE, OWN_STYLE],
        command: "soak",
        header: html! {
            h1 { (s.sentence) }
            p class="machine" { (s.allocator) " · " (machine.cpu) " · " (machine.cpus) " CPUs · " (machine.kernel) }
        },
        main: html! {
            section { h2 { "Bounds" } div class="scroll" { (bounds(s)) } }
            section {
                h2 { "Memory over time" }
                p class="about" { "After each phase and twice the decay time. Solid: RSS. Dashed: the live bytes of the model." }
                div class="scroll" { (curve(s)) }
            }
            section { h2 { "Phases" } div class="scroll" { (phases(s)) } }
            section { h2 { "To repeat it" } pre { (s.command.join(" ")) } (copy(&markdown(s))) }
        },
        footer: "All phases are in soak.json beside this page.",
        ..Frame::default()
    };
    frame.page()
}

fn bounds(s: &Soak) -> Markup {
    html! { table { tbody { @for bound in &s.bounds {
        tr { th class="left" { (bound.name) } td { (bound.sign()) } td class="left" { (bound.text) } }
    } } } }
}

fn phases(s: &Soak) -> Markup {
    let heads = [
        "after", "phase", "live", "RSS", "metadata", "mappings", "threads",
    ];
    html! { table {
        thead { tr { @for head in heads { th { (head) } } } }
        tbody { @for phase in s.shown() { tr { @for text in cells(phase) { td { (text) } } } } }
    } }
}

const WIDTH_PX: f64 = 760.0;
const HEIGHT_PX: f64 = 300.0;
const MARGIN_PX: f64 = 48.0;

fn curve(s: &Soak) -> Markup {
    let most = s.phases.iter().map(|phase| phase.rss.max(phase.live)).max();
    let top = most.unwrap_or(0).max(1) as f64;
    let end = s.phases.last().map_or(1.0, |phase| phase.seconds.max(1e-3));
    let line = |bytes: fn(&Phase) -> u64| {
        let point = |phase: &Phase| {
            let x = MARGIN_PX + phase.seconds / end * (WIDTH_PX - 2.0 * MARGIN_PX);
            let y =
                HEIGHT_PX - MARGIN_PX - bytes(phase) as f64 / top * (HEIGHT_PX - 2.0 * MARGIN_PX);
            format!("{x:.1},{y:.1}")
        };
        s.phases.iter().map(point).collect::<Vec<_>>().join(" ")
    };
    let (bottom, right) = (HEIGHT_PX - MARGIN_PX, WIDTH_PX - MARGIN_PX);
    html! {
        svg class="soak" viewBox=(format!("0 0 {WIDTH_PX} {HEIGHT_PX}")) role="img" aria-label="RSS and live bytes over time" {
            line x1=(MARGIN_PX) x2=(right) y1=(bottom) y2=(bottom) {}
            line x1=(MARGIN_PX) x2=(MARGIN_PX) y1=(MARGIN_PX) y2=(bottom) {}
            text x=(MARGIN_PX) y=(MARGIN_PX - 12.0) { (units::bytes(top)) }
            text x=(right) y=(bottom + 18.0) text-anchor="end" { (units::elapsed(end)) }
            polyline class="rss" points=(line(|phase| phase.rss)) {}
            polyline class="live" points=(line(|phase| phase.live)) {}
        }
    }
}

const OWN_STYLE: &str = "
.soak { width: 100%; max-width: 60rem; height: auto; min-width: 26rem; }
.soak text { fill: var(--soft); font-size: 12px; }
.soak line { stroke: var(--line); }
.soak polyline { fill: none; stroke: var(--k0); stroke-width: 1.4; }
.soak .live { stroke: var(--soft); stroke-dasharray: 4 3; }
";

#[cfg(test)]
mod tests {
    use super::*;

    fn soak() -> Soak {
        let phase = |name: &str, seconds, live, rss| Phase {
            name: name.to_owned(),
            seconds,
            live,
            rss,
            metadata: Some(4096),
            mappings: 40,
            threads: 1,
            ..Phase::default()
        };
        Soak {
            schema: SCHEMA,
            allocator: "mallard <0.1>".to_owned(),
            sentence: "A bound is broken: live.".to_owned(),
            bounds: vec![
                Bound {
                    name: "live".to_owned(),
                    holds: Some(false),
                    text: "100 bytes more".to_owned(),
                },
                Bound {
                    name: "RSS slope".to_owned(),
                    holds: None,
                    text: "too short".to_owned(),
                },
            ],
            phases: vec![
                phase("growth", 10.0, 2 << 20, 3 << 20),
                phase("rest", 20.0, 1 << 20, 2 << 20),
            ],
            ..Soak::default()
        }
    }

    #[test]
    fn every_form_has_the_bounds_and_the_phases() {
        let s = soak();
        for form in [text(&s), markdown(&s), page(&s)] {
            for part in ["BROKEN", "open", "too short", "growth", "3 MiB"] {
                assert!(form.contains(part), "{part} is missing: {form}");
            }
        }
        let page = page(&s);
        assert_eq!(page.matches("<polyline").count(), 2);
        assert!(page.contains("mallard &lt;0.1&gt;") && !page.contains("NaN"));
        assert!(!super::page(&Soak::default()).contains("NaN"));
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let s = soak();
        let file = serde_json::to_string(&s).unwrap();
        assert_eq!(Soak::from_json(&file).unwrap(), s);
        assert!(Soak::from_json("{}").is_err());
    }
}
