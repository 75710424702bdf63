use super::*;
use clap::Parser;
use mallard_inspect::process::{About, Identity};
use mallard_inspect::snapshot::Snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
}

fn row(pid: u32, name: &str, resident: u64) -> Row {
    let mut snapshot = Snapshot::default();
    snapshot.totals.resident = resident;
    snapshot.totals.allocated = resident / 2;
    Row {
        about: About {
            identity: Identity { pid, started: 1 },
            name: name.into(),
            state: 'S',
            cpu: 0,
        },
        command: format!("/bin/{name} --x"),
        snapshot,
        rates: None,
        is_shared: false,
        rss: 0,
        cpu: Duration::ZERO,
    }
}

fn shown(top: &mut Top<'_>, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| top.draw(frame)).unwrap();
    terminal.backend().to_string()
}

fn press(top: &mut Top<'_>, code: KeyCode) {
    top.key(KeyEvent::new(code, KeyModifiers::NONE));
}

fn with_rows(test: impl FnOnce(&mut Top<'_>)) {
    let options = Args::parse_from(["top"]).options;
    let mut top = Top::new(&options);
    top.rows = vec![row(7, "small", 1 << 20), row(8, "large", 1 << 30)];
    columns::sort(&mut top.rows, top.sort);
    top.settle();
    test(&mut top);
}

#[test]
fn the_largest_process_is_first_and_selected() {
    with_rows(|top| {
        assert_eq!(top.selected, Some(8));
        let screen = shown(top, 80, 12);
        let (large, small) = (screen.find("large").unwrap(), screen.find("small").unwrap());
        assert!(large < small, "{screen}");
        assert!(
            screen.contains("1.00G") && screen.contains("2 processes"),
            "{screen}"
        );
    });
}

#[test]
fn the_selection_stays_with_its_process_and_details_end_with_it() {
    with_rows(|top| {
        press(top, KeyCode::Down);
        assert_eq!(top.selected, Some(7));
        top.rows[1].snapshot.totals.resident = 1 << 40;
        columns::sort(&mut top.rows, top.sort);
        top.settle();
        assert_eq!((top.selected, top.place), (Some(7), 0));
        press(top, KeyCode::Enter);
        assert!(shown(top, 80, 30).contains("an upper bound of the sum"));
        press(top, KeyCode::Char('l'));
        assert_eq!(top.mode, Mode::Details(Tab::Locks));
        top.rows.remove(0);
        top.settle();
        assert_eq!((top.mode.clone(), top.selected), (Mode::List, Some(8)));
        assert!(top.message.contains("7 has ended"));
    });
}

#[test]
fn keys_that_move_scroll_the_details_and_leave_their_process() {
    with_rows(|top| {
        press(top, KeyCode::Down);
        press(top, KeyCode::Enter);
        let first = shown(top, 80, 8);
        for key in [
            KeyCode::End,
            KeyCode::Down,
            KeyCode::PageDown,
            KeyCode::Home,
            KeyCode::PageUp,
        ] {
            press(top, key);
            assert_eq!((top.selected, top.place), (Some(7), 1), "{key:?}");
        }
        assert_eq!(top.scrolled, 0);
        press(top, KeyCode::End);
        let last = shown(top, 80, 8);
        assert_ne!(first, last);
        press(top, KeyCode::Down);
        assert_eq!(shown(top, 80, 8), last, "there is no further line");
        press(top, KeyCode::Home);
        assert_eq!(shown(top, 80, 8), first);
        press(top, KeyCode::Esc);
        press(top, KeyCode::Home);
        assert_eq!(top.selected, Some(8));
    });
}

#[test]
fn a_process_is_not_written_to_without_a_yes() {
    with_rows(|top| {
        press(top, KeyCode::Char('P'));
        assert_eq!(top.mode, Mode::Confirm(Request::Start(None)));
        assert!(shown(top, 90, 12).contains("write eight bytes"));
        press(top, KeyCode::Char('n'));
        assert_eq!((top.mode.clone(), top.message.as_str()), (Mode::List, ""));
    });
}

#[test]
fn any_size_of_terminal_is_drawn() {
    with_rows(|top| {
        for key in ['h', ' ', 'c', 'a', 'l', 'p', 't'] {
            press(top, KeyCode::Char(key));
            for (width, height) in [(1, 1), (10, 2), (40, 5), (80, 24), (300, 60)] {
                shown(top, width, height);
            }
        }
    });
}

#[test]
fn a_process_that_works_and_publishes_nothing_shows_the_age_of_its_figures() {
    let mut row = row(7, "small", 1 << 20);
    row.snapshot.age = Duration::from_secs(65);
    row.cpu = Duration::from_millis(900);
    assert_eq!(row.title(), "small", "an idle process has no other figures");
    row.cpu = Duration::from_millis(1100);
    assert_eq!(row.title(), "small (65 s ago)");
}
