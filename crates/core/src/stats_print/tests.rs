use super::write::{Cell, Column, Digits, Emitter, column};
use super::*;
use crate::ctl::Value;

/// Returns what a caller of the emitter writes, in its pieces.
fn emitted(json: bool, emit: impl FnOnce(&mut Emitter<'_>)) -> Vec<String> {
    let mut pieces = vec![];
    let mut out = |text: &CStr| pieces.push(text.to_str().expect("this is UTF-8").to_owned());
    let mut e = Emitter::new(json, &mut out);
    emit(&mut e);
    e.end();
    pieces
}

#[test]
fn letters_leave_parts_out_and_others_mean_nothing() {
    let all = Parts::of(b"");
    assert!(!all.json && all.general && all.merged && all.huge);
    assert_eq!(Parts::of(b"z?"), all);
    let few = Parts::of(b"Jxg");
    assert!(few.json && !few.locks && !few.general && few.bins);
}

#[test]
fn one_saying_gives_text_and_json() {
    let say = |e: &mut Emitter<'_>| {
        e.section("opt", "Options");
        e.both("on", format_args!("opt.on"), Value::Bool(true));
        e.noted(
            "n",
            format_args!("opt.n"),
            Value::Signed(-1),
            Some(("now", Value::Unsigned(2))),
        );
        e.end_section();
        e.array("list");
        e.element();
        e.number("a", 1);
        e.end_object();
        e.element();
        e.end_object();
        e.end_array();
    };
    let text = "Options\n  opt.on: true\n  opt.n: -1 (now: 2)\n--- End jemalloc statistics ---\n";
    assert_eq!(emitted(false, say), [text]);
    let json = "\"opt\":{\"on\":true,\"n\":-1},\"list\":[{\"a\":1},{}]}}\n";
    assert_eq!(emitted(true, say), [json]);
}

#[test]
fn what_would_break_json_is_escaped() {
    let text = c"a\"b\\c\n\xff";
    let json = emitted(true, |e| e.both("t", format_args!("t"), Value::Text(text)));
    assert_eq!(json, ["\"t\":\"a\\\"b\\\\c\\u000a\\u00ff\"}}\n"]);
}

#[test]
fn long_reports_go_out_in_pieces_of_which_none_is_lost() {
    let pieces = emitted(true, |e| (0..10_000).for_each(|n| e.number("n", n)));
    assert!(pieces.len() > 10 && pieces.iter().all(|p| p.len() < 4096));
    let whole: Vec<String> = (0..10_000).map(|n| format!("\"n\":{n}")).collect();
    assert_eq!(pieces.concat(), whole.join(",") + "}}\n");
}

#[test]
fn tables_have_columns() {
    const COLUMNS: [Column; 2] = [column("name", -6), column("n", 5)];
    let text = emitted(false, |e| {
        e.text(format_args!("t:"));
        e.titles(COLUMNS.iter().rev(), 2);
        e.row(
            COLUMNS.iter(),
            [Cell::Text("x"), Cell::Number(12)].into_iter(),
        );
    });
    assert_eq!(
        text,
        ["t:  nname  \nx        12\n--- End jemalloc statistics ---\n"]
    );
}

#[test]
fn rates_and_shares_are_what_they_say() {
    assert_eq!(
        [(7, 0), (7, 999), (7, 3_500_000_000)].map(|(n, ns)| rate(n, ns)),
        [0, 7, 2]
    );
    let share = |part, whole| Digits::new().share(part, whole).to_owned();
    assert_eq!(
        [share(0, 10), share(1, 3), share(3, 3), share(0, 0)],
        ["0.000", "0.333", "1", "1"]
    );
}
