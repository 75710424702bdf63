//! `mallard profile` on files: its forms, its files and its exit codes.

use std::fs;

use crate::place::*;

/// A profile of addresses that no file has.
const HEAP: &str = "\
heap_v2/4096
  t*: 140: 8600000 [280: 17200000]
@ 0x1001 0x2001
  t*: 100: 8192000 [100: 8192000]
  t1: 60: 4915200 [60: 4915200]
@ 0x3001
  t*: 40: 408000 [180: 9008000]

MAPPED_LIBRARIES:
1000-4000 r-xp 00000000 fe:00 9 /nowhere/prog
";

/// A folder with `HEAP` as `before.7.0.f.heap`, and with one of twice the live blocks as
/// `after.7.1.f.heap`.
fn place() -> Place {
    let place = Place::new();
    fs::write(place.path().join("before.7.0.f.heap"), HEAP).unwrap();
    let after = HEAP.replace("t*: 40: 408000", "t*: 80: 816000");
    fs::write(place.path().join("after.7.1.f.heap"), after).unwrap();
    place
}

#[track_caller]
fn answer(place: &Place, words: &[&str]) -> String {
    let words = [&["profile"], words].concat();
    let (ended, stdout, stderr) = outcome(&mut place.mallard(&words));
    assert_eq!(
        (ended, stderr.as_str()),
        (Some(SUCCESS), ""),
        "{words:?}: {stdout}"
    );
    stdout
}

#[track_caller]
fn refusal(place: &Place, words: &[&str], code: i32) -> String {
    let words = [&["profile"], words].concat();
    let (ended, stdout, stderr) = outcome(&mut place.mallard(&words));
    assert_eq!(
        (ended, stdout.as_str()),
        (Some(code), ""),
        "{words:?}: {stderr}"
    );
    assert!(stderr.starts_with("error: "), "{stderr}");
    stderr
}

#[test]
fn a_table_is_printed_and_a_page_is_written_beside_it() {
    let place = place();
    let text = answer(&place, &["before.7.0.f.heap"]);
    let lines: Vec<&str> = text.lines().collect();
    let head = "before.7.0.f.heap  live 8.24 MiB (±0.2 %)   sampled 140 of ~144 blocks, every 4 KiB   names: 0 %";
    assert_eq!(lines[0], head);
    assert!(
        lines[2].contains("7.81 MiB") && lines[2].ends_with("prog+0x0"),
        "{text}"
    );
    assert!(
        text.contains("note: prog is not here: /nowhere/prog: No such file"),
        "{text}"
    );
    assert_eq!(
        lines.last(),
        Some(&"wrote profile.html (flame graphs: live, allocated)")
    );
    let page = place.text("profile.html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("prog+0x0"));
}

#[test]
fn the_other_forms_write_nothing_but_what_was_asked_for() {
    let place = place();
    let collapsed = answer(&place, &["--collapsed", "before.7.0.f.heap"]);
    assert_eq!(
        collapsed.lines().next(),
        Some("prog+0x1000;prog+0x0 8192000")
    );
    let json = answer(&place, &["--json", "--by", "thread", "before.7.0.f.heap"]);
    assert!(
        json.contains("\"schema\": 1") && json.contains("\"key\": \"1\""),
        "{json}"
    );
    // The lab shows that file again.
    fs::write(place.path().join("sites.json"), &json).unwrap();
    let shown = place.mallard(&["report", "sites.json"]).exits(SUCCESS).0;
    assert!(
        shown.contains("1 has most") && shown.ends_with("Report: sites.html\n"),
        "{shown}"
    );
    assert!(place.text("sites.html").contains("mallard profile"));
    let text = answer(&place, &["--text", "--allocs", "before.7.0.f.heap"]);
    assert!(
        text.contains("allocated") && !text.contains("wrote"),
        "{text}"
    );
    answer(&place, &["--no-html", "before.7.0.f.heap"]);
    assert!(!place.path().join("profile.html").exists());

    let text = answer(
        &place,
        &[
            "--html",
            "x.html",
            "--pprof",
            "x.pb.gz",
            "before.7.0.f.heap",
        ],
    );
    assert!(
        text.ends_with("wrote x.html (flame graphs: live, allocated), x.pb.gz\n"),
        "{text}"
    );
    let again = answer(&place, &["--collapsed", "x.pb.gz"]);
    assert_eq!(again, collapsed);
}

#[test]
fn a_comparison_tells_what_grew() {
    let place = place();
    let text = answer(
        &place,
        &[
            "--no-html",
            "--diff",
            "before.7.0.f.heap",
            "after.7.1.f.heap",
        ],
    );
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("before.7.0.f.heap → after.7.1.f.heap  live 8.24 MiB"),
        "{text}"
    );
    assert!(
        lines[2].starts_with("+434 KiB") && lines[2].ends_with("prog+0x2000"),
        "{text}"
    );
    assert_eq!(
        text.matches("prog+0x").count(),
        1,
        "what did not change is left out: {text}"
    );
}

#[test]
fn a_profile_is_read_from_standard_input() {
    let place = place();
    let stdout = place
        .mallard(&["profile", "--text", "-"])
        .write_stdin(HEAP)
        .exits(SUCCESS)
        .0;
    assert!(
        stdout.starts_with("standard input  live 8.24 MiB"),
        "{stdout}"
    );
}

#[test]
fn what_cannot_be_answered_is_one_clear_error() {
    let place = place();
    let absent = refusal(&place, &["--peak", "before.7.0.f.heap"], 1);
    assert!(
        absent.contains("no figures of the peak (peak_space)"),
        "{absent}"
    );
    assert!(
        absent.contains("prof_format:pprof"),
        "how to get them: {absent}"
    );
    let missing = refusal(&place, &["nothing.heap"], 1);
    assert!(
        missing.contains("cannot read nothing.heap: No such file"),
        "{missing}"
    );
    fs::write(place.path().join("cut.heap"), &HEAP[..100]).unwrap();
    let cut = refusal(&place, &["cut.heap"], 1);
    assert_eq!(
        cut,
        "error: cut.heap: the file is cut short: it has no MAPPED_LIBRARIES\n"
    );
    fs::write(
        place.path().join("wrong.heap"),
        HEAP.replace("[100:", "[x:"),
    )
    .unwrap();
    let wrong = refusal(&place, &["wrong.heap"], 1);
    assert!(
        wrong.starts_with("error: wrong.heap: line 4: neither a stack"),
        "{wrong}"
    );
    let page = refusal(
        &place,
        &["--html", "/nowhere/x.html", "--json", "before.7.0.f.heap"],
        1,
    );
    assert!(page.contains("cannot write /nowhere/x.html"), "{page}");
    assert_eq!(
        fs::read_dir(place.path()).unwrap().count(),
        4,
        "nothing else was written"
    );
}

#[test]
fn mistakes_on_the_command_line_have_a_code_of_their_own() {
    let place = place();
    for words in [
        &[][..],
        &["--peak", "--allocs", "before.7.0.f.heap"],
        &["--json", "--text", "before.7.0.f.heap"],
        &["--diff", "before.7.0.f.heap"],
        &["--by", "colour", "before.7.0.f.heap"],
        &[
            "--collapsed",
            "--diff",
            "before.7.0.f.heap",
            "after.7.1.f.heap",
        ],
        &["--each", "--json", "before.7.0.f.heap", "after.7.1.f.heap"],
        &["--by-program", "before.7.0.f.heap"],
        &["--for", "1s", "1", "2"],
    ] {
        refusal(&place, words, 2);
    }
}

#[test]
fn an_address_is_told_from_a_file_and_its_answer_is_read_from_standard_input() {
    let place = place();
    let url = "http://127.0.0.1:6060/debug/pprof/heap";
    let said = refusal(&place, &[url], 1);
    let remedy = format!("`curl -s {url} | mallard profile -`");
    assert!(said.contains(&remedy), "{said}");
    let said = refusal(&place, &["--diff", url, "after.7.1.f.heap"], 1);
    assert!(said.contains(&remedy), "{said}");
    let mut command = place.mallard(&["profile", "--no-html", "-"]);
    let stdout = command.write_stdin(HEAP).exits(SUCCESS).0;
    assert!(
        stdout.starts_with("standard input  live 8.24 MiB"),
        "{stdout}"
    );
}

#[test]
fn several_files_are_summed_up_or_shown_each_and_what_is_left_out_is_named() {
    let place = Place::new();
    let write = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    write(
        "jeprof.7.0.i0.heap",
        &HEAP.replace("t*: 40: 408000", "t*: 80: 816000"),
    );
    write("jeprof.7.1.f.heap", HEAP);
    write("jeprof.8.0.f.heap", HEAP);
    write("jeprof.9.0.f.heap", "");
    write("other.heap", "not a profile");
    let files = [
        "jeprof.7.0.i0.heap",
        "jeprof.7.1.f.heap",
        "jeprof.8.0.f.heap",
        "jeprof.9.0.f.heap",
        "other.heap",
    ];
    let text = answer(&place, &[&["--text"], &files[..]].concat());
    assert!(
        text.starts_with("2 profiles together  live 16.5 MiB"),
        "{text}"
    );
    for note in [
        "left out: jeprof.7.0.i0.heap: an earlier profile of the process of jeprof.7.1.f.heap\n",
        "left out: jeprof.9.0.f.heap: it is empty\n",
        "left out: other.heap: ",
    ] {
        assert!(text.contains(note), "{note}: {text}");
    }
    let text = answer(&place, &[&["--each"], &files[..]].concat());
    for name in &files[..3] {
        assert!(text.contains(&format!("{name}  live ")), "{name}: {text}");
    }
    assert!(text.contains("left out: other.heap: "), "{text}");
    let none = refusal(&place, &files[3..], FAILED);
    assert!(none.contains("none of these is a profile: "), "{none}");
    let two = refusal(&place, &[&["--diff"], &files[..3]].concat(), USAGE);
    assert!(two.contains("--diff takes one profile"), "{two}");
    // A pattern that matches one file is that file.
    let one = answer(&place, &["--text", "jeprof.8.0.f.heap"]);
    assert!(one.starts_with("jeprof.8.0.f.heap  live 8.24 MiB"), "{one}");
}
