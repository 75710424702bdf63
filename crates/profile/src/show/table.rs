//! The table on the screen: totals with their error, one row for each site, callers below it.

use std::time::Duration;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{Named, ProfilePage};
use crate::model::{Allocated, Profile};
use crate::view::diff::{self, Change};
use crate::view::name::{short, squeezed};
use crate::view::rows::{By, Origin, Row, StackFrame, rows};
use crate::view::stack::short_path;
use crate::view::summary::Summary;
use crate::view::{Absent, SampleTypes, View};
use mallard_report::units::{bytes, count, duration, percent, plus_minus, signed};

/// How a table fits the screen.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The columns to fit into; none for lines as long as they need to be.
    pub width: Option<usize>,
    pub color: bool,
    /// The most rows; none for all.
    pub rows: Option<usize>,
}

/// Sites are readable from here on, so a narrower screen gets longer lines.
const SITE_COLUMNS_MIN: usize = 24;
/// A line names so many callers on a screen.
const CALLERS_MAX: usize = 3;
/// So many modules without names are listed.
const LACKS_MAX: usize = 4;

/// The whole answer, with its head and its notes.
///
/// # Errors
/// The profile lacks the figures.
pub fn table(page: &ProfilePage<'_>, layout: Layout) -> Result<String, Absent> {
    let sheet = sheet(page)?;
    let mut text = format!("{}  {}\n", sheet.name, sheet.facts.join("   "));
    text.push_str(&sheet.render(layout));
    for note in page.notes {
        text.push_str(&format!("note: {}\n", printable(note)));
    }
    for lack in page.names.lacks.iter().take(LACKS_MAX) {
        text.push_str(&format!("note: {lack}\n"));
    }
    if let Some(more) = page
        .names
        .lacks
        .len()
        .checked_sub(LACKS_MAX)
        .filter(|&n| n > 0)
    {
        text.push_str(&format!(
            "note: {more} more modules have no complete names\n"
        ));
    }
    Ok(text)
}

/// The answer without a form.
pub(super) fn sheet(page: &ProfilePage<'_>) -> Result<Sheet, Absent> {
    match page.before {
        Some(before) => compared(page, before),
        None => single(page),
    }
}

/// Cells to be aligned, and the site behind them.
pub(super) struct Sheet {
    /// The profiles' names.
    pub name: String,
    /// Totals, how many samples they come from, how many frames have names.
    pub facts: Vec<String>,
    pub columns: Vec<String>,
    pub lines: Vec<Line>,
    by: By,
}

pub(super) struct Line {
    pub cells: Vec<String>,
    pub key: String,
    pub origin: Origin,
    pub tone: Tone,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Tone {
    Plain,
    Grown,
    Shrunk,
}

fn single(page: &ProfilePage<'_>) -> Result<Sheet, Absent> {
    let profile = page.subject.profile;
    let figures = page.view.figures(profile)?;
    let summary = Summary::of(profile, page.view, figures);
    let mut rows = rows(profile, figures, page.by);
    let columns = Columns::of(page.view, profile, figures, &rows);
    if page.view == View::Lifetime {
        // Blocks that live shortly are the question, so the sites that free most come first.
        rows.sort_by_key(|row| std::cmp::Reverse(row.blocks(figures)));
    }
    let lines = rows.into_iter().map(|row| Line {
        cells: columns.cells(&row, &summary),
        key: row.key,
        origin: row.heaviest,
        tone: Tone::Plain,
    });
    Ok(Sheet {
        name: page.subject.name.to_owned(),
        facts: facts(profile, page.view, &summary),
        lines: lines.collect(),
        columns: columns.heads().into_iter().map(str::to_owned).collect(),
        by: page.by,
    })
}

/// The columns that a view has in this profile.
struct Columns<'p> {
    view: View,
    profile: &'p Profile,
    figures: SampleTypes,
    /// Other views that stand beside the main one, where the profile has them.
    beside: Vec<View>,
}

impl<'p> Columns<'p> {
    fn of(view: View, profile: &'p Profile, figures: SampleTypes, rows: &[Row]) -> Columns<'p> {
        let wanted: &[View] = match view {
            View::Live => &[View::Peak, View::Waste],
            View::Peak | View::Allocs | View::Lifetime => &[View::Live],
            View::Waste | View::Frag => &[View::Live],
        };
        // The peak is known by stack alone, so rows by size or thread have none of it.
        let is_known = |view: &View| {
            let has = |row: &Row| row.of_view(*view, profile).is_some_and(|sum| sum != 0);
            rows.iter().any(has)
        };
        Columns {
            view,
            profile,
            figures,
            beside: wanted.iter().copied().filter(is_known).collect(),
        }
    }

    fn heads(&self) -> Vec<&'static str> {
        let mut heads = vec![self.view.name()];
        heads.push(match self.view {
            View::Lifetime => "of freed",
            _ => "%",
        });
        if self.figures.blocks.is_some() {
            heads.push(if self.view == View::Lifetime {
                "freed"
            } else {
                "blocks"
            });
        }
        if self.has_average() {
            heads.push("avg");
        }
        heads.extend(self.beside.iter().map(|view| view.name()));
        heads
    }

    /// Whether the mean of a block is one of its size.
    fn has_average(&self) -> bool {
        let sizes = matches!(self.view, View::Live | View::Peak | View::Allocs);
        sizes && self.figures.blocks.is_some()
    }

    fn cells(&self, row: &Row, summary: &Summary) -> Vec<String> {
        let main = row.main(self.figures);
        let blocks = row.blocks(self.figures);
        let mut cells = Vec::new();
        if self.view == View::Lifetime {
            cells.push(row.average(self.figures).map_or_else(String::new, duration));
            cells.push(share(blocks.unwrap_or(0), summary.blocks.unwrap_or(0)));
        } else {
            cells.push(bytes(main as f64));
            cells.push(share(main, summary.total));
        }
        cells.extend(blocks.map(|blocks| count(blocks as f64)));
        if self.has_average() {
            cells.push(row.average(self.figures).map_or_else(String::new, bytes));
        }
        for &view in &self.beside {
            let value = row.of_view(view, self.profile).unwrap_or(0);
            // Waste is a share of what it is in.
            cells.push(match view {
                View::Waste => share(value, main),
                _ => bytes(value as f64),
            });
        }
        cells
    }
}

fn share(part: i128, whole: i128) -> String {
    if whole == 0 {
        return String::new();
    }
    percent(part as f64 / whole as f64)
}

fn facts(profile: &Profile, view: View, summary: &Summary) -> Vec<String> {
    let total = summary.total as f64;
    let mut facts = vec![match view {
        View::Lifetime => {
            let freed = summary.blocks.filter(|&blocks| blocks > 0).unwrap_or(1);
            format!("mean lifetime {}", duration(total / freed as f64))
        }
        View::Live => {
            let counted = profile.allocated().map(counted).unwrap_or_default();
            format!("live {}{counted}{}", bytes(total), error_of(summary))
        }
        _ => format!("{} {}{}", view.name(), bytes(total), error_of(summary)),
    }];
    facts.extend(sampling(profile, summary));
    facts.extend(named_share(summary));
    facts
}

/// What the allocator counted. A process writes its figures a few times a second while it
/// allocates, and not while it waits: then they may be of long before.
fn counted(allocated: Allocated) -> String {
    const PRESENT_AGE_MAX: Duration = Duration::from_secs(1);
    let Allocated { bytes: of, age } = allocated;
    let when = match age {
        age if age < PRESENT_AGE_MAX => String::new(),
        age => format!(" {} before", duration(age.as_nanos() as f64)),
    };
    format!(" of {} allocated{when}", bytes(of as f64))
}

fn error_of(summary: &Summary) -> String {
    match summary.error {
        Some(error) if error > 0.0 => format!(" ({})", plus_minus(error)),
        _ => String::new(),
    }
}

fn sampling(profile: &Profile, summary: &Summary) -> Option<String> {
    let number = summary.blocks?;
    let blocks = count(number as f64);
    if profile.period <= 1 {
        return Some(match number {
            1 => "one block, recorded".to_owned(),
            _ => format!("every one of {blocks} blocks"),
        });
    }
    let period = mallard_report::units::size(profile.period);
    match summary.samples {
        Some(samples) => {
            let samples = count(samples);
            Some(format!(
                "sampled {samples} of ~{blocks} blocks, every {period}"
            ))
        }
        None => Some(format!("~{blocks} blocks, sampled every {period}")),
    }
}

fn named_share(summary: &Summary) -> Option<String> {
    let named = summary.named? * 100.0;
    // No rounding may hide that some names are missing.
    let shown = if named == 100.0 {
        named
    } else {
        named.min(99.9)
    };
    let text = format!("{shown:.1}");
    Some(format!("names: {} %", text.trim_end_matches(".0")))
}

fn compared(page: &ProfilePage<'_>, before: Named<'_>) -> Result<Sheet, Absent> {
    let (old, new) = (before.profile, page.subject.profile);
    let (of_old, of_new) = (page.view.figures(old)?, page.view.figures(new)?);
    let shown = |value: f64| match page.view {
        View::Lifetime => duration(value),
        _ => bytes(value),
    };
    let changes = diff::changes(old, new, page.view, page.by)?;
    let has_blocks = of_old.blocks.is_some() && of_new.blocks.is_some();
    let growth = page.apart.map(|apart| format!("+{}", seconds(apart)));
    let mut columns = vec![
        growth.unwrap_or_else(|| "growth".to_owned()),
        "before".to_owned(),
        "after".to_owned(),
    ];
    if has_blocks {
        columns.push("blocks".to_owned());
    }
    let cells = |change: &Change| {
        let mut cells = vec![
            signed(change.growth() as f64, shown),
            shown(change.before as f64),
            shown(change.after as f64),
        ];
        if has_blocks {
            let growth = change.blocks_growth().unwrap_or(0);
            cells.push(signed(growth as f64, count));
        }
        cells
    };
    Ok(Sheet {
        name: match page.apart {
            Some(_) => page.subject.name.to_owned(),
            None => format!("{} → {}", before.name, page.subject.name),
        },
        facts: growth_facts(page, (old, of_old), (new, of_new), shown),
        columns,
        lines: changes
            .into_iter()
            .map(|change| Line {
                cells: cells(&change),
                tone: if change.growth() > 0 {
                    Tone::Grown
                } else {
                    Tone::Shrunk
                },
                key: change.key,
                origin: change.heaviest,
            })
            .collect(),
        by: page.by,
    })
}

/// The totals of two profiles, their growth, and how many of the later one's names are known.
fn growth_facts(
    page: &ProfilePage<'_>,
    (old, of_old): (&Profile, SampleTypes),
    (new, of_new): (&Profile, SampleTypes),
    shown: impl Fn(f64) -> String + Copy,
) -> Vec<String> {
    let (total_before, total_after) = diff::totals((old, of_old), (new, of_new));
    let (sum_old, sum_new) = (
        Summary::of(old, page.view, of_old),
        Summary::of(new, page.view, of_new),
    );
    let totals = format!(
        "{} {}{} → {}{}",
        page.view.name(),
        shown(total_before as f64),
        error_of(&sum_old),
        shown(total_after as f64),
        error_of(&sum_new),
    );
    let growth = (total_after - total_before) as f64;
    let mut facts = vec![totals, signed(growth, shown)];
    if let Some(apart) = page.apart.filter(|apart| !apart.is_zero()) {
        let rate = signed(growth / apart.as_secs_f64(), shown);
        facts[1] = format!("{} in {} ({rate}/s)", facts[1], seconds(apart));
    }
    facts.extend(named_share(&sum_new));
    facts
}

/// A time between two profiles: `30 s`.
fn seconds(apart: Duration) -> String {
    duration(apart.as_nanos() as f64)
}

impl Sheet {
    fn render(&self, layout: Layout) -> String {
        let most = layout.rows.unwrap_or(usize::MAX);
        let shown = self.picked(most);
        let mut widths: Vec<usize> = self.columns.iter().map(|head| head.width()).collect();
        for line in &shown {
            for (width, cell) in widths.iter_mut().zip(&line.cells) {
                *width = (*width).max(cell.width());
            }
        }
        let indent = widths.iter().map(|width| width + 2).sum::<usize>();
        let room = layout
            .width
            .map(|width| width.saturating_sub(indent).max(SITE_COLUMNS_MIN));
        let mut text = String::new();
        let heads: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let heads = aligned(&heads, &widths);
        let heads = format!("{heads}{}", self.row_name());
        text.push_str(&styled(&heads, "1", layout.color));
        text.push('\n');
        for line in &shown {
            let cells: Vec<&str> = line.cells.iter().map(String::as_str).collect();
            let tone = match line.tone {
                Tone::Plain => "",
                Tone::Grown => "31",
                Tone::Shrunk => "32",
            };
            text.push_str(&styled(&aligned(&cells, &widths), tone, layout.color));
            text.push_str(&self.site(line, room));
            text.push('\n');
            for caller in self.callers(&line.origin, room) {
                let caller = format!("{:indent$}{caller}", "");
                text.push_str(&styled(&caller, "2", layout.color));
                text.push('\n');
            }
        }
        if shown.len() < self.lines.len() {
            let more = self.lines.len() - shown.len();
            let line = format!("{more} more; --text shows all\n");
            text.push_str(&styled(&line, "2", layout.color));
        }
        text
    }

    /// What a row is.
    pub fn row_name(&self) -> &'static str {
        match self.by {
            By::Function | By::Line => "site",
            by => by.name(),
        }
    }

    /// The lines to show: the first, and of a comparison also the last, which shrank most.
    fn picked(&self, most: usize) -> Vec<&Line> {
        let shrunk = self
            .lines
            .iter()
            .filter(|line| line.tone == Tone::Shrunk)
            .count();
        if self.lines.len() <= most {
            return self.lines.iter().collect();
        }
        let tail = shrunk.min(most / 2);
        let head = self.lines.iter().take(most - tail);
        head.chain(&self.lines[self.lines.len() - tail..]).collect()
    }

    fn site(&self, line: &Line, room: Option<usize>) -> String {
        let site = line.origin.site.as_ref();
        let (name, place) = match (self.by, site) {
            (By::Function | By::Line, Some(site)) => (short(&site.function), place_of(site)),
            _ => (printable(&line.key), String::new()),
        };
        let name = printable(&name);
        match room {
            None if place.is_empty() => name,
            None => format!("{name}  {place}"),
            Some(room) => {
                let gap = 2 + place.width();
                let fits = !place.is_empty() && gap + SITE_COLUMNS_MIN <= room;
                let for_name = if fits { room - gap } else { room };
                let name = squeezed(&name, for_name).into_owned();
                if fits {
                    format!("{}  {place}", padded(&name, for_name.min(40)))
                } else {
                    name
                }
            }
        }
    }

    /// The lines of callers: on a screen one, else one for each. Where the row is no site, the site
    /// of its heaviest stack comes first.
    fn callers(&self, origin: &Origin, room: Option<usize>) -> Vec<String> {
        let is_site = matches!(self.by, By::Function | By::Line);
        let site = origin.site.iter().filter(|_| !is_site);
        let names = site.chain(&origin.callers).map(|place| {
            let inlined = if place.inlined { " (inlined)" } else { "" };
            printable(&format!("↳ {}{inlined}", short(&place.function)))
        });
        match room {
            None => names.collect(),
            Some(room) => {
                let line = names.take(CALLERS_MAX).collect::<Vec<_>>().join("  ");
                if line.is_empty() {
                    Vec::new()
                } else {
                    vec![clipped(&line, room)]
                }
            }
        }
    }
}

pub(super) fn place_of(place: &StackFrame) -> String {
    if place.line == 0 || place.file.is_empty() {
        return String::new();
    }
    printable(&format!("{}:{}", short_path(&place.file), place.line))
}

/// Right-aligned cells, each with two spaces after it.
fn aligned(cells: &[&str], widths: &[usize]) -> String {
    let mut text = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        text.push_str(&" ".repeat(width.saturating_sub(cell.width())));
        text.push_str(cell);
        text.push_str("  ");
    }
    text
}

fn padded(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.width());
    format!("{text}{}", " ".repeat(missing))
}

/// The text in at most `width` columns, with a sign if something is left out.
fn clipped(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 1);
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(c);
    }
    kept.push('…');
    kept
}

/// Names come from files that anybody may have written, so they must not steer the terminal.
fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "\u{fffd}")
}

fn styled(text: &str, code: &str, color: bool) -> String {
    if color && !code.is_empty() {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}
