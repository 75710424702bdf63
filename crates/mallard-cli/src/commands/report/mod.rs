//! `mallard report`: a result of the lab, shown again.
//!
//! Every command of the lab writes its result as JSON. [`read`] finds out which kind of file it is,
//! and this module writes the text, the Markdown and the page from it again, with this version's
//! forms. Nothing is measured.

pub mod read;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use mallard_report::{TerminalOptions, diagnosis, history, misuse, soak, tuning};

use crate::session::folder;
use crate::terminal::output::{self, say};
use read::Found;

/// Show results again: as text, as Markdown and as a web page
///
/// Takes what the commands of the lab wrote: results.json and misuse.json (bench), compare.json
/// (compare, replay), diagnose.json, tune.json, soak.json, the file of a baseline, what `baseline
/// check --json` and `profile --json` print, or a folder with one of them. Writes the page beside
/// it and prints the text.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// A file of the lab in JSON, or a folder with one
    #[arg(value_name = "FILE", default_value = "mallard-results/latest")]
    pub file: PathBuf,

    /// Open the page in the browser
    #[arg(long)]
    pub open: bool,

    /// Where to write the page [default: beside the file; a baseline's in mallard-results]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Write the tables as Markdown to a file, or to standard output for `-`, to paste into a pull
    /// request
    #[arg(long, value_name = "FILE|-")]
    pub export_markdown: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  mallard report                                      the last session
  mallard report --open mallard-results/diagnose-web
  mallard report .mallard/baselines/web.json          how a baseline changed from save to save
  mallard report --export-markdown - tune.json >> notes.md

To know what changed between two results, use `mallard diff`: it compares round by round.";

/// A result in every form.
struct Forms {
    text: String,
    markdown: String,
    page: String,
    /// Where the page goes if the user says nothing.
    place: PathBuf,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let (path, found) = read::read(&options.file)?;
    let forms = forms(&path, &found)?;
    let to_stdout = options.export_markdown.as_deref() == Some(Path::new("-"));
    match &options.export_markdown {
        Some(_) if to_stdout => output::text(&forms.markdown)?,
        Some(file) => folder::write(file, &forms.markdown)?,
        None => {}
    }
    if !to_stdout {
        output::text(&forms.text)?;
    }
    let page = options.output.as_ref().unwrap_or(&forms.place);
    // A page beside such a file may be another's: the user named the file.
    let may_be_others = matches!(found, Found::Check(_) | Found::Profile(_));
    let is_same = |text: String| text == forms.page;
    if options.output.is_none()
        && may_be_others
        && !std::fs::read_to_string(page).is_ok_and(is_same)
    {
        folder::keep_earlier(page)?;
    }
    folder::write(page, &forms.page)?;
    if to_stdout {
        eprintln!("Report: {}", page.display())
    } else {
        say!("Report: {}", page.display())?
    }
    if options.open {
        open(page)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The width of the terminal.
fn width() -> usize {
    let size = console::Term::stdout().size_checked();
    size.map_or(120, |(_, width)| width.into())
}

fn forms(path: &Path, found: &Found) -> Result<Forms> {
    let beside = |name: &str| path.with_file_name(name);
    let options = TerminalOptions {
        width: width(),
        color: console::colors_enabled(),
    };
    Ok(match found {
        Found::Results(r) => {
            let mut markdown = Vec::new();
            mallard_report::write_markdown(r, &mut markdown)?;
            Forms {
                text: mallard_report::terminal(r, options),
                markdown: String::from_utf8_lossy(&markdown).into_owned(),
                page: mallard_report::html(r),
                place: beside(folder::page_of(r.kind)),
            }
        }
        Found::Diagnosis(d) => Forms {
            text: diagnosis::text(d, width()),
            markdown: diagnosis::markdown(d),
            page: diagnosis::page(d),
            place: beside("diagnose.html"),
        },
        Found::Tuning(t) => Forms {
            text: tuning::text(t),
            markdown: tuning::markdown(t),
            page: tuning::page(t),
            place: beside("tune.html"),
        },
        Found::Misuse(m) => Forms {
            text: misuse::text(m, options),
            markdown: misuse::markdown(m),
            page: misuse::page(m),
            place: beside("misuse.html"),
        },
        Found::Soak(s) => Forms {
            text: soak::text(s),
            markdown: soak::markdown(s),
            page: soak::page(s),
            place: beside("soak.html"),
        },
        // Beside its file the page would come into version control.
        Found::Baseline(h) => Forms {
            text: history::text(h),
            markdown: history::markdown(h),
            page: history::page(h),
            place: folder::in_results(&format!("baseline-{}.html", h.name)),
        },
        Found::Check(c) => Forms {
            text: c.text.clone(),
            markdown: c.markdown(),
            page: c.page(),
            place: path.with_extension("html"),
        },
        Found::Profile(s) => Forms {
            text: s.text(),
            markdown: s.markdown(),
            page: s.page(),
            place: path.with_extension("html"),
        },
    })
}

/// Shows a page by the program that the user chose for pages.
fn open(page: &Path) -> Result<()> {
    let browser = std::env::var_os("BROWSER").unwrap_or_else(|| "xdg-open".into());
    let mut command = Command::new(&browser);
    let quiet = command.arg(page).stdin(Stdio::null()).stdout(Stdio::null());
    quiet.stderr(Stdio::null()).spawn().with_context(|| {
        format!(
            "cannot open {} with {}; BROWSER names another program",
            page.display(),
            browser.to_string_lossy()
        )
    })?;
    Ok(())
}
