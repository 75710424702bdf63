//! `mallard guard`: switches guarded blocks on and off in a running process, and adds the names of
//! functions to what a process reported.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use mallard_inspect::request::Request;
use serde_json::{Map, Value};

use crate::options::search::SearchOptions;
use crate::processes::request;
use crate::profiles::frames::{self, Place};
use crate::terminal::output::say;

/// Guard blocks of a running process, and name the functions of a finding
///
/// A process that guards puts a few of its blocks a second between closed pages. An access beside
/// such a block or after its free, and a second free, end the process with a report: what happened,
/// and the call stacks that did it, that allocated the block and that freed it. The options are the
/// process's own (guard_rate, guard_action); it sees the request when it allocates.
///
/// A report has files and offsets, because the process that writes it is about to end. With
/// --names, its lines are printed again with functions, files and lines.
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    override_usage = "mallard guard <PID> <--on|--off>\n       mallard guard --names <FILE>"
)]
pub struct Options {
    /// The process
    #[arg(
        value_name = "PID",
        required_unless_present = "names",
        conflicts_with = "names"
    )]
    process: Option<u32>,

    /// Guard blocks from now on
    #[arg(long, requires = "process", conflicts_with = "off")]
    on: bool,

    /// Guard no further blocks
    #[arg(long, requires = "process", required_unless_present_any = ["on", "names"])]
    off: bool,

    /// Allow the request to a process that was not started with MALLOC_CONF=export_stats:true; this
    /// writes eight bytes into its memory and requires permission to debug it
    #[arg(long, requires = "process")]
    write_memory: bool,

    /// Name the functions of reports in this file, such as the process's standard error or its
    /// report_file; - for the standard input
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,

    #[command(flatten)]
    search: SearchOptions,
}

const EXAMPLES: &str = "\
Examples:
  MALLOC_CONF=guard_sample:67108864 mallard run -- server 2> log
                                       guard blocks from the start
  mallard guard 4711 --on              or from now on
  mallard guard --names log            which functions a report is about";

pub fn run(options: &Options) -> Result<ExitCode> {
    if let Some(file) = &options.names {
        let text = read(file)?;
        say!(
            "{}",
            with_names(&as_text(&text), &options.search).trim_end()
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let process = options.process.context("a process is required")?;
    let what = if options.on {
        Request::Guard
    } else {
        Request::Unguard
    };
    request::ask(process, what, options.write_memory)
}

/// The text of a file, of which a part may be no text.
fn read(file: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes)?;
    } else {
        bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The text with its lines of JSON, which the option `report_file` asks for, as reports of lines.
fn as_text(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        match serde_json::from_str(line) {
            Ok(Value::Object(report)) if report.contains_key("kind") => write(&report, &mut out),
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

/// Writes a report as the process has printed it, or would have.
fn write(report: &Map<String, Value>, out: &mut String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let field = |name: &str| report.get(name).unwrap_or(&Value::Null);
    out.push_str(&format!(
        "mallard: {} at {}\n",
        text(field("kind")),
        text(field("address"))
    ));
    let block = field("block");
    if let Some(size) = block["size"].as_u64() {
        let address = text(&block["address"]);
        out.push_str(&format!("  the block: {size} bytes at {address}\n"));
    }
    if let (Some(offset), Some(bytes)) = (field("offset").as_i64(), field("bytes").as_u64()) {
        out.push_str(&format!("  changed: {bytes} bytes at offset {offset}\n"));
    }
    for (name, by) in [("now", ", in"), ("allocated", " by"), ("freed", " by")] {
        let Some(stack) = field(name)["stack"].as_array() else {
            continue;
        };
        let thread = match field(name)["thread"].as_u64() {
            Some(thread) => format!("{by} thread {thread}"),
            None => String::new(),
        };
        out.push_str(&format!("  {name}{thread}:\n"));
        for frame in stack {
            let place = match frame["offset"].as_u64() {
                Some(offset) => format!("{}+{offset:#x}", text(&frame["file"])),
                None => text(&frame["address"]),
            };
            let build_id = match frame["build_id"].as_str() {
                Some(id) => format!(" (build id {id})"),
                None => String::new(),
            };
            out.push_str(&format!("    {place}{build_id}\n"));
        }
    }
}

/// A frame as reports have it: `    FILE+0xOFFSET (build id ID)`.
fn frame(line: &str) -> Option<Place> {
    let frame = line.strip_prefix("    ")?;
    let (place, build_id) = match frame.split_once(" (build id ") {
        Some((place, id)) => (place, id.strip_suffix(')')?),
        None => (frame, ""),
    };
    let (path, offset) = place.rsplit_once("+0x")?;
    let offset = u64::from_str_radix(offset, 16).ok()?;
    let is_file = path.starts_with('/') || path.starts_with('[');
    is_file.then(|| Place {
        path: path.to_owned(),
        offset,
        build_id: build_id.to_owned(),
    })
}

/// The text, with the functions of each frame behind its line.
fn with_names(text: &str, search: &SearchOptions) -> String {
    let names = frames::named(text.lines().filter_map(frame), search);
    let mut out = String::new();
    for line in text.lines() {
        out.push_str(line);
        out.push('\n');
        let of_line = frame(line).and_then(|place| names.get(&place));
        for name in of_line.into_iter().flatten() {
            out.push_str(&format!("      in {}", name.function));
            if !name.file.is_empty() {
                out.push_str(&format!(", {}:{}", name.file, name.line));
            }
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_json_become_reports_and_others_stay() {
        let json = r#"{"kind":"write after free","found_by":"check","address":"0x10d8","process":7,"block":{"address":"0x10d8","size":48},"offset":8,"bytes":4,"now":{"thread":7,"stack":[{"file":"/bin/a b","offset":4617,"build_id":"34f1"},{"address":"0x7f00"}]},"allocated":{"stack":[{"file":"/bin/a b","offset":16}]}}"#;
        let text = format!("a line\n{json}\n{{\"other\":1}}\n");
        let expected = "\
a line
mallard: write after free at 0x10d8
  the block: 48 bytes at 0x10d8
  changed: 4 bytes at offset 8
  now, in thread 7:
    /bin/a b+0x1209 (build id 34f1)
    0x7f00
  allocated:
    /bin/a b+0x10
{\"other\":1}
";
        assert_eq!(as_text(&text), expected);
    }

    #[test]
    fn frames_of_a_report_are_read_and_other_lines_are_not() {
        let expected = Place {
            path: "/usr/lib/a b.so".to_owned(),
            offset: 0x1f,
            build_id: "0a1b".to_owned(),
        };
        let line = "    /usr/lib/a b.so+0x1f (build id 0a1b)";
        assert_eq!(frame(line), Some(expected));
        assert_eq!(frame("    /bin/p+0x10").map(|frame| frame.offset), Some(16));
        for other in [
            "  now, in thread 7:",
            "    0x7f00",
            "mallard: double free at 0x10: 0 bytes into a block of 40 bytes",
            "",
        ] {
            assert_eq!(frame(other), None, "{other}");
        }
    }
}
