//! The outcome of `mallard doctor` as data, as text and as a page.

use std::fmt::Write as _;

use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::html::{Frame, STYLE};
use crate::outcomes::diagnosis::text::wrapped;

/// The version of the structure.
pub const SCHEMA: u32 = 1;
/// Columns of a terminal.
const COLUMNS: usize = 80;

/// What a doctor found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Doctor {
    pub schema: u32,
    pub sentence: String,
    pub findings: Vec<Finding>,
    pub runs: Vec<Run>,
    /// What a reader has to know besides, one sentence each.
    pub notes: Vec<String>,
    pub command: Vec<String>,
}

/// A run of the program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What it was for.
    pub purpose: String,
    /// The options of the library.
    pub options: String,
    pub seconds: f64,
    pub processes: Vec<Process>,
}

/// A process of the program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    pub program: String,
    pub end: String,
    /// Whether its blocks were checked; null if that is not known.
    pub checked: Option<bool>,
    pub findings: usize,
    /// Whether a signal ended it for a mistake of its own that is not among the findings.
    pub crashed: bool,
    /// Where it was then; null if that is not known.
    pub crashed_at: Option<Call>,
}

/// A misuse of a block.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The library's own word, such as `write after free`.
    pub kind: String,
    pub sentence: String,
    /// The line that a reader looks at first; null if no name is known.
    pub at: Option<Call>,
    /// The number of the run in which it was found, from 1 on.
    pub run: usize,
    /// Whether the stack of `now` is that of the mistake itself; it is later otherwise.
    pub exact: bool,
    pub process: u32,
    pub program: String,
    /// The address of the mistake.
    pub address: String,
    pub block: Option<Block>,
    pub now: Option<Event>,
    pub allocated: Option<Event>,
    pub freed: Option<Event>,
    /// The block and its neighbours, a line each.
    pub picture: Vec<String>,
    pub look_for: String,
    /// How often it was reported, in all runs and processes.
    pub times: usize,
}

/// The block that a finding is about.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Block {
    pub address: String,
    pub size: u64,
    /// Bytes from the beginning of the block to the address.
    pub offset: i64,
}

/// What a thread did, and its call stack, the innermost frame first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub thread: u64,
    pub stack: Vec<Call>,
}

/// A frame of a call stack. What is not known is empty or 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub function: String,
    pub file: String,
    pub line: u32,
    /// The program or library, and the place in it.
    pub module: String,
    pub offset: u64,
}

impl Call {
    /// `FUNCTION, FILE:LINE`, as far as it is known.
    pub fn shown(&self) -> String {
        if self.function.is_empty() {
            return format!("{}+{:#x}", self.module, self.offset);
        }
        match self.place() {
            place if place.is_empty() => format!("{}, in {}", self.function, self.module_name()),
            place => format!("{}, {place}", self.function),
        }
    }

    /// `FILE:LINE`; empty if it is not known.
    pub fn place(&self) -> String {
        match (self.file.is_empty(), self.line) {
            (true, _) => String::new(),
            (false, 0) => self.file.clone(),
            (false, line) => format!("{}:{line}", self.file),
        }
    }

    fn module_name(&self) -> &str {
        self.module.rsplit('/').next().unwrap_or_default()
    }
}

impl Doctor {
    /// # Errors
    /// It is no outcome of a doctor.
    pub fn from_json(text: &str) -> Result<Doctor, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

impl Finding {
    /// The heads and stacks of its events, the one of the mistake first.
    fn events(&self) -> impl Iterator<Item = (String, &Event)> {
        let now = if self.exact { "now, in" } else { "found by" };
        let all = [
            (now, &self.now),
            ("allocated by", &self.allocated),
            ("freed by", &self.freed),
        ];
        all.into_iter().filter_map(|(what, event)| {
            let event = event.as_ref()?;
            let head = match (event.thread, what.split_once(' ')) {
                // Of a block's own record, which has no room for threads.
                (0, Some((what, _))) => what.trim_end_matches(',').to_owned(),
                (thread, _) => format!("{what} thread {thread}"),
            };
            Some((head, event))
        })
    }
}

/// The text for a terminal.
pub fn text(d: &Doctor) -> String {
    let mut text = String::new();
    for (number, finding) in (1..).zip(&d.findings) {
        text += &of_finding(number, finding);
        text.push('\n');
    }
    for note in &d.notes {
        text += &wrapped("note: ", note, COLUMNS);
    }
    text += &wrapped("", &d.sentence, COLUMNS);
    text
}

fn of_finding(number: usize, f: &Finding) -> String {
    let mut text = format!("{number}. {}\n", f.sentence);
    if let Some(at) = &f.at {
        let _ = writeln!(text, "   at {}", at.shown());
    }
    for (head, event) in f.events() {
        let _ = writeln!(text, "\n   {head}:");
        for call in &event.stack {
            let _ = writeln!(text, "     {}", call.shown());
        }
    }
    if !f.picture.is_empty() {
        text.push('\n');
        for line in &f.picture {
            let _ = writeln!(text, "   {line}");
        }
    }
    text.push('\n');
    text += &wrapped("   look for: ", &f.look_for, COLUMNS);
    text
}

/// The page.
pub fn page(d: &Doctor) -> String {
    let frame = Frame {
        title: "Heap bugs",
        styles: vec![STYLE, OWN_STYLE],
        command: "doctor",
        header: html! {
            h1 { (d.sentence) }
            p class="machine" { code { (d.command.join(" ")) } }
        },
        main: html! {
            @for (number, f) in (1..).zip(&d.findings) { (finding(number, f)) }
            section { h2 { "Runs" } @for (number, run) in (1..).zip(&d.runs) { (of_run(number, run)) } }
            @if !d.notes.is_empty() {
                section { h2 { "Notes" } ul { @for note in &d.notes { li { (note) } } } }
            }
        },
        ..Frame::default()
    };
    frame.page()
}

fn finding(number: usize, f: &Finding) -> Markup {
    html! {
        section {
            h2 { (number) ". " (f.sentence) }
            @if let Some(at) = &f.at { p class="at" { code { (at.shown()) } } }
            p { b { "Look for: " } (f.look_for) }
            @if !f.picture.is_empty() { pre class="picture" { (f.picture.join("\n")) } }
            div class="stacks" {
                @for (head, event) in f.events() {
                    div {
                        h3 { (head) }
                        ol { @for call in &event.stack {
                            li title={ (call.module) "+0x" (format!("{:x}", call.offset)) } { code { (call.shown()) } }
                        } }
                    }
                }
            }
            p class="faint" { (f.program) " (" (f.process) "), run " (f.run) ", reported " (f.times) "×" }
        }
    }
}

fn of_run(number: usize, run: &Run) -> Markup {
    html! {
        h3 { "Run " (number) ": " (run.purpose) }
        p class="about" { code { (run.options) } }
        div class="scroll" { table {
            thead { tr { th { "pid" } th class="left" { "program" } th class="left" { "ended" } th class="left" { "checked" } th { "reports" } } }
            tbody { @for process in &run.processes {
                tr {
                    td { (process.pid) }
                    td class="left" { (process.program) }
                    td class="left" {
                        (process.end)
                        @if let Some(at) = &process.crashed_at { " at " code { (at.shown()) } }
                    }
                    td class="left" { (match process.checked { Some(true) => "yes", Some(false) => "no", None => "not known" }) }
                    td { (process.findings) }
                }
            } }
        } }
    }
}

const OWN_STYLE: &str = "
.at { font-size: 1.15rem; }
.picture { white-space: pre; }
.stacks { display: flex; flex-wrap: wrap; gap: 0 2.5rem; }
.stacks ol { margin: .2rem 0; padding-left: 1.4rem; }
";

#[cfg(test)]
mod tests {
    use super::*;

    fn call(function: &str, line: u32) -> Call {
        Call {
            function: function.to_owned(),
            file: "a.c".to_owned(),
            line,
            module: "/bin/a".to_owned(),
            offset: 16,
        }
    }

    fn doctor() -> Doctor {
        let event = |function: &str, line| {
            Some(Event {
                thread: 7,
                stack: vec![call(function, line)],
            })
        };
        Doctor {
            schema: SCHEMA,
            sentence: "1 heap bug found.".to_owned(),
            findings: vec![Finding {
                kind: "write after free".to_owned(),
                sentence: "write after free, 4 bytes into a block of 40 <bytes>".to_owned(),
                at: Some(call("use_it", 12)),
                exact: true,
                now: event("use_it", 12),
                allocated: event("make_it", 3),
                freed: event("drop_it", 5),
                picture: vec!["0x10  closed page".to_owned()],
                look_for: "a pointer that is kept".to_owned(),
                ..Finding::default()
            }],
            runs: vec![Run::default()],
            notes: vec!["one process was not checked".to_owned()],
            command: vec!["mallard".to_owned(), "doctor".to_owned()],
        }
    }

    #[test]
    fn every_form_has_the_line_the_stacks_and_the_picture() {
        let d = doctor();
        for form in [text(&d), page(&d)] {
            for part in [
                "use_it, a.c:12",
                "make_it, a.c:3",
                "drop_it, a.c:5",
                "0x10  closed page",
                "a pointer that is kept",
                "one process was not checked",
            ] {
                assert!(form.contains(part), "{part} is missing: {form}");
            }
        }
        assert!(page(&d).contains("40 &lt;bytes&gt;"));
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let d = doctor();
        let file = serde_json::to_string(&d).unwrap();
        assert_eq!(Doctor::from_json(&file).unwrap(), d);
        assert!(Doctor::from_json("{}").is_err());
    }

    #[test]
    fn a_frame_without_a_name_is_its_place_in_the_file() {
        let bare = Call {
            module: "/bin/a".to_owned(),
            offset: 16,
            ..Call::default()
        };
        assert_eq!(bare.shown(), "/bin/a+0x10");
        let named = Call {
            function: "f".to_owned(),
            ..bare
        };
        assert_eq!(named.shown(), "f, in a");
    }
}
