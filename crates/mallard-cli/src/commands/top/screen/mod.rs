//! The program on a terminal.
//!
//! Keys and new readings change the state; drawing only reads it. Only lines of text are drawn, so
//! it works on any terminal. Colour and weight are additions, and NO_COLOR leaves the colour out.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mallard_inspect::request::{Consent, Request};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout as Split, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};

use super::columns::{self, Column, Layout, ORDER, clipped};
use super::details::{self, TABS, Tab};
use super::options::Options;
use super::sites::Sites;
use super::unread;
use crate::processes::figures::bytes;
use crate::processes::request;
use crate::processes::row::{Row, Watch};

/// How long a request may hold up the screen.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1500);

pub fn run(options: &Options) -> Result<ExitCode> {
    let mut top = Top::new(options);
    top.look();
    let is_empty = top.rows.is_empty() && options.matching.is_none();
    if let (Some(&pid), true) = (options.pids.first(), is_empty) {
        return Err(top.watch.why_not(pid).into());
    }
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let outcome = top.run(&mut terminal);
    let restored = ratatui::try_restore().context("cannot leave the terminal as it was");
    outcome.and(restored)?;
    Ok(ExitCode::SUCCESS)
}

/// What the keys mean at the moment.
#[derive(Debug, Clone, PartialEq)]
enum Mode {
    List,
    Details(Tab),
    /// A text is being typed; what was sought before it.
    Search(String),
    /// Waits for `y`.
    Confirm(Request),
    Help,
}

struct Top<'o> {
    options: &'o Options,
    watch: Watch,
    rows: Vec<Row>,
    sort: Column,
    search: String,
    /// The process that is selected, and the place on the list that it had.
    selected: Option<u32>,
    place: usize,
    /// Lines scrolled away.
    scrolled: usize,
    mode: Mode,
    /// Of the process whose sites were shown last.
    sites: Option<Sites>,
    message: String,
    ended: bool,
    next: Instant,
}

impl<'o> Top<'o> {
    fn new(options: &'o Options) -> Top<'o> {
        Top {
            options,
            watch: Watch::default(),
            rows: Vec::new(),
            sort: options.sort.0,
            search: options.matching.clone().unwrap_or_default(),
            selected: None,
            place: 0,
            scrolled: 0,
            mode: Mode::List,
            sites: None,
            message: String::new(),
            ended: false,
            next: Instant::now(),
        }
    }

    fn run(&mut self, terminal: &mut DefaultTerminal) -> Result<()> {
        // Rates need a second look soon.
        self.next = Instant::now() + self.options.interval.0.min(Duration::from_millis(300));
        while !self.ended {
            terminal
                .draw(|frame| self.draw(frame))
                .context("cannot draw")?;
            let wait = self.next.saturating_duration_since(Instant::now());
            if event::poll(wait).context("cannot read the terminal")? {
                if let Event::Key(key) = event::read().context("cannot read the terminal")?
                    && key.kind == KeyEventKind::Press
                {
                    self.key(key);
                }
            } else {
                self.look();
            }
        }
        Ok(())
    }

    fn look(&mut self) {
        let search = (!self.search.is_empty()).then_some(self.search.as_str());
        self.rows = self.watch.look(&self.options.pids, search);
        columns::sort(&mut self.rows, self.sort);
        self.settle();
        self.next = Instant::now() + self.options.interval.0;
    }

    /// Keeps the selection on its process, or on its place once that has ended.
    fn settle(&mut self) {
        let found = self
            .rows
            .iter()
            .position(|row| Some(row.pid()) == self.selected);
        match found {
            Some(place) => self.place = place,
            None => {
                if let (Some(pid), Mode::Details(_)) = (self.selected, &self.mode) {
                    self.message = format!("process {pid} has ended or cannot be read any more");
                    self.mode = Mode::List;
                }
                self.place = self.place.min(self.rows.len().saturating_sub(1));
                self.selected = self.rows.get(self.place).map(Row::pid);
            }
        }
    }

    fn row(&self) -> Option<&Row> {
        self.rows.get(self.place)
    }

    fn key(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            self.ended = true;
            return;
        }
        self.message.clear();
        match self.mode.clone() {
            Mode::Search(before) => self.type_search(key.code, before),
            Mode::Confirm(request) => {
                self.mode = Mode::List;
                if key.code == KeyCode::Char('y') {
                    self.ask(request, Consent::WriteMemory);
                }
            }
            Mode::Help => self.mode = Mode::List,
            Mode::Details(tab) => self.key_in_details(key.code, tab),
            Mode::List => self.key_in_list(key.code),
        }
    }

    fn type_search(&mut self, key: KeyCode, before: String) {
        match key {
            KeyCode::Enter => self.mode = Mode::List,
            KeyCode::Esc => {
                self.search = before;
                self.mode = Mode::List;
            }
            KeyCode::Backspace => {
                self.search.pop();
            }
            KeyCode::Char(c) => self.search.push(c),
            _ => return,
        }
        self.look();
    }

    fn key_in_list(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => self.ended = true,
            KeyCode::Enter if self.row().is_some() => self.show(Tab::Summary),
            KeyCode::Char('s' | '>') => self.sort_by_next(1),
            KeyCode::Char('S' | '<') => self.sort_by_next(ORDER.len() - 1),
            KeyCode::Char('/') => self.mode = Mode::Search(self.search.clone()),
            KeyCode::Char('h' | '?') => self.mode = Mode::Help,
            KeyCode::Down | KeyCode::Char('j') => self.select(self.place + 1),
            KeyCode::Up | KeyCode::Char('k') => self.select(self.place.saturating_sub(1)),
            KeyCode::PageDown => self.select(self.place + 10),
            KeyCode::PageUp => self.select(self.place.saturating_sub(10)),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            key => self.key_anywhere(key),
        }
    }

    fn key_in_details(&mut self, key: KeyCode, tab: Tab) {
        let place = TABS
            .iter()
            .position(|(known, ..)| *known == tab)
            .unwrap_or(0);
        match key {
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter | KeyCode::Left => {
                self.mode = Mode::List;
            }
            KeyCode::Tab | KeyCode::Right => self.show(TABS[(place + 1) % TABS.len()].0),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(10),
            KeyCode::PageUp => self.scroll(-10),
            KeyCode::Home => self.scrolled = 0,
            // Drawing stops at the last line.
            KeyCode::End => self.scrolled = usize::MAX,
            key => self.key_anywhere(key),
        }
    }

    /// Keys of the list and the details alike.
    fn key_anywhere(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('P') => {
                let is_on = self
                    .row()
                    .is_some_and(|row| row.snapshot.totals.is_sampling != 0);
                self.request(if is_on {
                    Request::Stop
                } else {
                    Request::Start(None)
                });
            }
            KeyCode::Char('R') => self.request(Request::Purge),
            KeyCode::Char(c) => {
                if let Some((tab, ..)) = TABS.iter().find(|(_, key, _)| *key == c)
                    && self.row().is_some()
                {
                    self.show(*tab);
                }
            }
            _ => {}
        }
    }

    fn show(&mut self, tab: Tab) {
        self.scrolled = 0;
        self.mode = Mode::Details(tab);
    }

    fn scroll(&mut self, lines: isize) {
        self.scrolled = self.scrolled.saturating_add_signed(lines);
    }

    fn select(&mut self, place: usize) {
        self.place = place.min(self.rows.len().saturating_sub(1));
        self.selected = self.row().map(Row::pid);
    }

    fn sort_by_next(&mut self, steps: usize) {
        let place = ORDER
            .iter()
            .position(|&column| column == self.sort)
            .unwrap_or(0);
        self.sort = ORDER[(place + steps) % ORDER.len()];
        columns::sort(&mut self.rows, self.sort);
        self.settle();
    }

    /// Asks the selected process, after a question where its memory has to be written.
    fn request(&mut self, request: Request) {
        let Some(row) = self.row() else { return };
        if row.is_shared || self.options.write_memory {
            self.ask(request, request::consent(self.options.write_memory));
        } else {
            self.mode = Mode::Confirm(request);
        }
    }

    fn ask(&mut self, request: Request, consent: Consent) {
        let Some(pid) = self.row().map(Row::pid) else {
            return;
        };
        let Some(reader) = self.watch.scanner().reader(pid) else {
            return;
        };
        self.message = match reader.ask(request, consent, ANSWER_TIMEOUT) {
            Ok(()) => format!("process {pid} {}", request::done(request)),
            Err(error) => error.to_string(),
        };
        self.look();
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [head, body, foot] = Split::vertical([
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let width = usize::from(frame.area().width);
        frame.render_widget(Line::raw(clipped(&self.head(), width)), head);
        match &self.mode {
            Mode::Details(tab) => self.draw_details(frame, body, *tab),
            Mode::Help => frame.render_widget(Paragraph::new(HELP), body),
            _ => self.draw_list(frame, body),
        }
        frame.render_widget(Line::raw(clipped(&self.foot(), width)), foot);
    }

    fn head(&self) -> String {
        if let (Mode::Details(_), Some(row)) = (&self.mode, self.row()) {
            let command = if row.command.is_empty() {
                row.title()
            } else {
                row.command.clone()
            };
            return format!("{} {command}", row.pid());
        }
        let sum = |of: fn(&Row) -> u64| bytes(self.rows.iter().map(of).sum());
        let mut head = format!(
            "{} on Mallard: {} allocated, {} resident, by {}",
            match self.rows.len() {
                1 => "1 process".to_owned(),
                n => format!("{n} processes"),
            },
            sum(|row| row.snapshot.totals.allocated),
            sum(|row| row.snapshot.totals.resident),
            self.sort.title(),
        );
        if !self.search.is_empty() {
            head += &format!(", with \"{}\"", self.search);
        }
        if let Some(unread) = unread(&self.watch) {
            head += &format!("; {unread}");
        }
        head
    }

    fn foot(&self) -> String {
        if !self.message.is_empty() {
            return self.message.clone();
        }
        match &self.mode {
            Mode::Search(_) => format!("search: {}_   [enter] keep  [esc] undo", self.search),
            Mode::Confirm(_) => {
                let pid = self.row().map_or(0, Row::pid);
                format!("write eight bytes into the page that {pid} keeps for requests? [y] yes  [n] no")
            }
            Mode::Help => "[any key] back".to_owned(),
            Mode::Details(_) => {
                "[t]otals [c]lasses [a]renas [l]ocks [p] sites  [P] sampling  [R] return  [q] back".to_owned()
            }
            Mode::List => {
                "[enter] details  [s]ort  [/] search  [P] sampling  [R] return memory  [h]elp  [q]uit"
                    .to_owned()
            }
        }
    }

    fn draw_list(&self, frame: &mut Frame<'_>, area: Rect) {
        let layout = Layout::new(Some(usize::from(area.width)), self.sort);
        let room = usize::from(area.height).saturating_sub(1);
        let first = (self.place + 1).saturating_sub(room);
        let mut lines = vec![heading(&layout.header(), area)];
        for (i, row) in self.rows.iter().enumerate().skip(first).take(room) {
            let text = layout.row(row);
            lines.push(if i == self.place {
                Line::styled(
                    padded(&text, area),
                    Style::new().add_modifier(Modifier::REVERSED),
                )
            } else {
                Line::raw(text)
            });
        }
        if self.rows.is_empty() {
            lines.push(Line::raw(""));
            lines.push(Line::raw("No process on Mallard can be read."));
            lines.push(Line::raw(
                "MALLOC_CONF=export_stats:true makes one readable.",
            ));
        }
        frame.render_widget(Paragraph::new(Text::from(lines)), area);
    }

    fn draw_details(&mut self, frame: &mut Frame<'_>, area: Rect, tab: Tab) {
        let Some(row) = self.rows.get(self.place) else {
            return;
        };
        let lines = match tab {
            Tab::Sites => {
                let known = self.sites.take().filter(|sites| sites.pid() == row.pid());
                let sites = known.unwrap_or_else(|| Sites::of(row.pid()));
                self.sites.insert(sites).lines().to_vec()
            }
            tab => details::lines(row, tab),
        };
        let room = usize::from(area.height).saturating_sub(1);
        self.scrolled = self.scrolled.min(lines.len().saturating_sub(1 + room));
        let (head, rest) = lines.split_first().expect("a heading");
        let mut shown = vec![heading(head, area)];
        let width = usize::from(area.width);
        let rest = rest.iter().skip(self.scrolled).take(room);
        shown.extend(rest.map(|line| Line::raw(clipped(line, width))));
        frame.render_widget(Paragraph::new(Text::from(shown)), area);
    }
}

/// A line of headings, over the whole width.
fn heading(text: &str, area: Rect) -> Line<'static> {
    let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    let style = if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        style
    } else {
        style.fg(Color::Cyan)
    };
    Line::styled(padded(text, area), style)
}

fn padded(text: &str, area: Rect) -> String {
    let width = usize::from(area.width);
    let text = clipped(text, width);
    let space = width.saturating_sub(unicode_width::UnicodeWidthStr::width(text.as_str()));
    text + &" ".repeat(space)
}

const HELP: &str = "\
ALLOC     bytes of blocks that the program holds
ACTIVE    pages with slabs and large blocks
RESID     an upper bound of the allocator's memory
FRAG      the part of ACTIVE that holds no block
DIRTY     free pages that wait for their return to the system
CACHED    free blocks in thread caches and transfer caches
META      the allocator's own records
ALLOC/s   blocks a second that thread caches took from arenas; blocks that a
          thread reuses from its own cache are not counted
RETURN/s  memory a second that was returned to the system
THR       threads with a cache
WORST     the size class with the most unused memory, and how full it is
PROF      mean bytes between samples of the heap profiler, or off

up, down  select            enter     details of a process
s, S      sort by the next column or the one before
/         search            P         start or stop sampling
R         return free memory           q         quit";

#[cfg(test)]
mod tests;
