//! Every console line of the READMEs and the book runs as it stands there.
//!
//! [`lines`] reads the lines. Each chapter has a [`stage`]: namespaces with Mallard in
//! `/usr/local`, the process 4711, a `/tmp` of its own, and a folder with the files that the
//! documentation names (`your-program`, `./server`, `server.c`, `web.toml`, …). The lines of a
//! chapter run in it one after the other. A `mallard.toml` in the folder makes long commands short.
//!
//! **A new line** in a `console` block needs nothing here if it runs within a minute and succeeds.
//! Otherwise:
//!
//! - a file or program that it names goes into `files/`, or is made by `files/prepare.sh`; one that
//!   cannot be made everywhere has a row in [`table::OPTIONAL_FILES`];
//! - an option that makes it short goes into `files/mallard.toml`, or another that
//!   [`table::DEFAULTS`] names;
//! - a server or an earlier command that it needs goes into [`table::BEFORE`];
//! - another exit code than 0, a line that does not end by itself, one of which another command
//!   does a part, and one that cannot run in a test have a row in [`table::WAYS`].
//!
//! Where a chapter shows output after a line, the command must have printed a line that begins with
//! the same word, apart from figures, for each line that is shown.
//!
//! `MALLARD_CHAPTER=docs/lab.md` tests one page and prints the time of each line.

mod lines;
mod stage;
mod table;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use lines::{Chapter, Line};
use stage::{Outcome, Stage, Template};
use table::Way;

/// What takes longer hangs, even on a loaded machine.
const SECONDS_MAX: u32 = 600;
/// How long a line is watched that does not end by itself, and how long if it has not printed by
/// then what is shown.
const LASTING_SECONDS: [u32; 2] = [2, 60];
/// Many lines wait, and a machine of two CPUs has time for others meanwhile.
const THREADS: usize = 2;
/// The exit code of `timeout` for a command that it ended.
const TIMED_OUT: i32 = 124;

/// How many lines were tested how.
#[derive(Default)]
struct Counts {
    /// Whether the time of each line is printed.
    speaks: bool,
    ran: usize,
    /// Those of a translation that its original has as well.
    same: usize,
    lasted: usize,
    checked: usize,
    /// The places of the lines that did not run, by the reason.
    not_run: BTreeMap<String, Vec<String>>,
    failed: Vec<String>,
}

/// The text of the first row of a table that is for a line.
fn row<T: Copy>(table: &[(&str, T)], line: &Line) -> Option<T> {
    let found = table.iter().find(|(text, _)| line.typed.contains(text));
    found.map(|(_, value)| *value)
}

/// Why a line cannot run on this machine, if it cannot.
fn lacking(line: &Line) -> Option<String> {
    let is_word = |word: &&&str| {
        let mut words = line.typed.split([' ', '\n', '/', '(', '$', '\'', '|']);
        words.any(|other| other == **word)
    };
    let missing: Vec<&str> = (table::PROGRAMS.iter().filter(is_word))
        .filter(|program| !is_installed(program))
        .copied()
        .collect();
    if !missing.is_empty() {
        let advice = mallard_testing::advice(&missing.join(", "));
        assert!(!mallard_testing::are_required(), "{}: {advice}", line.at);
        return Some(advice);
    }
    let mut files = table::KERNEL_FILES.iter();
    let file = files.find(|file| line.typed.contains(**file) && !Path::new(file).exists());
    file.map(|file| format!("this machine has no {file}"))
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

impl Counts {
    /// Tests a chapter's lines, but for those that its original has, of which it is a translation.
    fn chapter(&mut self, chapter: &Chapter, original: Option<&Chapter>, stage: &mut Stage) {
        let mut code = 0;
        let of_original = original.map_or(&[][..], |original| &original.lines);
        for line in &chapter.lines {
            if of_original
                .iter()
                .any(|other| other.command() == line.command())
            {
                self.same += 1;
            } else {
                code = self.line(line, code, stage).unwrap_or(code);
            }
        }
    }

    fn add(&mut self, other: Counts) {
        self.ran += other.ran;
        self.same += other.same;
        self.lasted += other.lasted;
        self.checked += other.checked;
        for (why, places) in other.not_run {
            self.not_run.entry(why).or_default().extend(places);
        }
        self.failed.extend(other.failed);
    }

    /// Tests a line after one that ended with `before`; the exit code if it ran.
    fn line(&mut self, line: &Line, before: i32, stage: &mut Stage) -> Option<i32> {
        let way = row(table::WAYS, line).unwrap_or(Way::Ends(&[0]));
        let lacks = match way {
            Way::NotRun(why) => Some(why.to_owned()),
            _ => lacking(line).or_else(|| {
                let why = row(table::OPTIONAL_FILES, line)?;
                let (file, _) = table::OPTIONAL_FILES.iter().find(|it| it.1 == why)?;
                (!stage.has(file)).then(|| why.to_owned())
            }),
        };
        if let Some(why) = lacks {
            self.not_run.entry(why).or_default().push(line.at.clone());
            return None;
        }
        if let Some(script) = row(table::BEFORE, line) {
            let outcome = stage.run(script, SECONDS_MAX);
            self.expect(line, &outcome, &[0], script);
        }
        let drawn = format!(
            "cat >../typed <<'TYPED'\n{}\nTYPED\nscript -qec 'bash ../typed' ../drawn",
            line.typed
        );
        let (typed, codes, limits) = match way {
            Way::Checked(command) => (command, &[0][..], &[SECONDS_MAX][..]),
            Way::Lasts => (line.typed.as_str(), &[TIMED_OUT][..], &LASTING_SECONDS[..]),
            Way::Draws => (drawn.as_str(), &[TIMED_OUT][..], &LASTING_SECONDS[..1]),
            Way::Ends(codes) => (line.typed.as_str(), codes, &[SECONDS_MAX][..]),
            Way::NotRun(_) => unreachable!("it has a reason"),
        };
        // What runs in the background stays for the lines after it.
        let stays = line.typed.ends_with('&');
        let mut settings = String::new();
        if stays {
            settings += "export SERVER_SECONDS=3600\n";
        }
        if let Some(file) = row(table::DEFAULTS, line) {
            settings += &format!("export MALLARD_TOML={file}\n");
        }
        let script = format!("{settings}(exit {before})\n{typed}\n");
        let begun = std::time::Instant::now();
        let is_compared = row(table::FREE_OUTPUT, line).is_none();
        let mut outcome = stage.run(&script, limits[0]);
        for seconds in &limits[1..] {
            if is_compared && outcome.code == TIMED_OUT && unlike(line, &outcome).is_some() {
                outcome = stage.run(&script, *seconds);
            }
        }
        if self.speaks {
            let seconds = begun.elapsed().as_secs_f64();
            eprintln!("{seconds:5.1} s  {} {}", line.at, line.typed);
        }
        if stays {
            stage.run(&until_it_serves(typed), SECONDS_MAX);
        }
        match way {
            Way::Checked(_) => self.checked += 1,
            Way::Lasts | Way::Draws => self.lasted += 1,
            _ => self.ran += 1,
        }
        let fits = self.expect(line, &outcome, codes, typed);
        if fits && is_compared {
            self.failed.extend(unlike(line, &outcome));
        }
        Some(outcome.code)
    }

    fn expect(&mut self, line: &Line, outcome: &Outcome, codes: &[i32], script: &str) -> bool {
        let fits = codes.contains(&outcome.code);
        if !fits {
            self.failed.push(format!(
                "{}: {script}\n  exit code {}\n{}{}",
                line.at, outcome.code, outcome.stdout, outcome.stderr
            ));
        }
        fits
    }
}

/// A script that waits for the port of a server in the background, and for its first statistics.
fn until_it_serves(line: &str) -> String {
    let port = line.split("http:").nth(1);
    let port = port.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    let listens = port.map_or(String::new(), |port| {
        format!("until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.1; done\n")
    });
    format!("{listens}sleep 1.2\n")
}

/// Says what is shown in a chapter and was not printed.
fn unlike(line: &Line, outcome: &Outcome) -> Option<String> {
    let printed: Vec<String> = (outcome.stdout.lines().chain(outcome.stderr.lines()))
        .map(beginning)
        .collect();
    let mut shown = line.shown.iter().filter(|shown| is_compared(shown));
    let missing = shown.find(|shown| !printed.contains(&beginning(shown)))?;
    Some(format!(
        "{}: {}\n  shown: {missing}\n  printed:\n{}{}",
        line.at, line.typed, outcome.stdout, outcome.stderr
    ))
}

/// Whether a line that is shown begins with a word that is always there: it is not left out, goes
/// on a sentence below its beginning, or draws a bar.
fn is_compared(shown: &str) -> bool {
    let word = shown.trim_start();
    let indent = shown.len() - word.len();
    !word.is_empty() && indent < 10 && !word.starts_with(['…', '█', '▓', '▒'])
}

/// The first word of a line of output, with `#` for figures.
fn beginning(line: &str) -> String {
    let word = line.split_whitespace().next().unwrap_or_default();
    let mut text = String::new();
    for letter in word.chars() {
        let is_figure = letter.is_ascii_digit() || letter == '.';
        match is_figure {
            true if text.ends_with('#') => {}
            true => text.push('#'),
            false => text.push(letter),
        }
    }
    text
}

#[test]
fn no_row_of_the_tables_is_left_over() {
    let chapters = lines::chapters();
    let all: Vec<&Line> = chapters.iter().flat_map(|chapter| &chapter.lines).collect();
    assert!(
        all.len() > 150,
        "the documentation has lines: {}",
        all.len()
    );
    let texts = (table::WAYS.iter().map(|row| row.0))
        .chain(table::BEFORE.iter().map(|row| row.0))
        .chain(table::DEFAULTS.iter().map(|row| row.0))
        .chain(table::FREE_OUTPUT.iter().map(|row| row.0))
        .chain(table::OPTIONAL_FILES.iter().map(|row| row.0))
        .chain(table::KERNEL_FILES.iter().copied())
        .chain(table::PROGRAMS.iter().copied());
    let unused: Vec<&str> = texts
        .filter(|text| !all.iter().any(|line| line.typed.contains(text)))
        .collect();
    assert_eq!(unused, Vec::<&str>::new(), "no line has this text");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn every_console_line_runs_as_it_stands() {
    if mallard_testing::lacks(&["unshare", "mount", "make", "timeout", "ip"]) {
        return;
    }
    let only = std::env::var("MALLARD_CHAPTER").unwrap_or_default();
    let template = match Template::new() {
        Ok(template) => template,
        Err(why) => return mallard_testing::skipped(why),
    };
    let chapters = lines::chapters();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut counts = Counts {
            speaks: !only.is_empty(),
            ..Counts::default()
        };
        while let Some(chapter) = chapters.get(next.fetch_add(1, Ordering::Relaxed)) {
            if chapter.name.contains(&only) {
                let original = chapter.name.replace(".zh-CN", "");
                let mut others = chapters.iter().filter(|other| other.name != chapter.name);
                let original = others.find(|other| other.name == original);
                let folder = chapter.name.replace('/', "-");
                let mut stage = template.stage(&folder).expect("there was one before");
                counts.chapter(chapter, original, &mut stage);
            }
        }
        counts
    };
    let mut counts = Counts::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            counts.add(worker.join().expect("its failures are counted"));
        }
    });
    let mut said = format!(
        "console lines: {} ran to their end, {} ran until they were stopped, {} were checked \
         by another command, {} of translations are those of the original\n",
        counts.ran, counts.lasted, counts.checked, counts.same
    );
    for (why, places) in &counts.not_run {
        said += &format!("  {} not run: {why}: {}\n", places.len(), places.join(", "));
    }
    // The harness shows this even if the test passes.
    let _ = std::io::stderr().write_all(said.as_bytes());
    let failed = &counts.failed;
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
}
