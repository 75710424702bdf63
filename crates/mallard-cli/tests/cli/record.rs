//! `mallard record` and `mallard trace`: programs whose calls are known exactly.

use crate::place::typed;
use std::path::PathBuf;

use mallard_testing::not_installed;
use serde_json::Value;

use crate::place::*;

const COUNT: usize = 20_000;

fn program(place: &Place) -> PathBuf {
    let source = include_str!("../recorded/recorded.c");
    place.compile("recorded", source, &["-O1", "-fno-builtin", "-pthread"])
}

/// Records the program and returns its exit code, what was said, and `trace info --json`.
#[track_caller]
fn recorded(place: &Place, what: &str, options: &[&str]) -> (Option<i32>, String, Value) {
    let program = program(place);
    let mut command = place.mallard(&["record", "-o", "r.mtrace"]);
    command.args(options).arg("--").arg(program).arg(what);
    let (code, _, stderr) = outcome(&mut command);
    let (read, stdout, error) =
        outcome(&mut place.mallard(&["trace", "info", "--json", "r.mtrace"]));
    assert_eq!(read, Some(SUCCESS), "{stderr}{error}");
    (code, stderr, serde_json::from_str(&stdout).unwrap())
}

/// The events with this kind and size in all processes.
fn events(place: &Place, kind: &str, size: usize) -> usize {
    let (_, stdout, _) = outcome(&mut place.mallard(&["trace", "dump", "r.mtrace"]));
    let end = format!(" {size}");
    let lines = stdout.lines();
    lines
        .filter(|line| line.contains(&format!(" {kind} ")) && line.ends_with(&end))
        .count()
}

/// Sums of a figure over all processes.
fn sum(info: &Value, field: &str) -> u64 {
    let processes = info["processes"].as_array().unwrap().iter();
    processes
        .map(|process| process[field].as_u64().unwrap())
        .sum()
}

#[track_caller]
fn assert_whole(info: &Value) {
    for field in ["lost", "unknown"] {
        assert_eq!(sum(info, field), 0, "{field}: {info:#}");
    }
    assert_eq!(info["end"]["dropped"], 0);
}

#[test]
fn every_kind_of_call_is_recorded_on_every_allocator_that_is_ready() {
    let place = Place::new();
    let mut on = vec![vec![], vec!["-a", "mallard"]];
    let jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
    let add = format!("jemalloc-here={jemalloc}");
    if std::path::Path::new(jemalloc).exists() {
        on.push(vec!["--add", &add, "-a", "jemalloc-here"]);
    } else {
        not_installed("libjemalloc.so.2");
    }
    for options in on {
        let (code, stderr, info) = recorded(&place, "all", &options);
        assert_eq!(code, Some(SUCCESS), "{options:?}: {stderr}");
        assert_whole(&info);
        for (kind, size) in [
            ("malloc", 12345),
            ("calloc", 12345),
            ("realloc-to", 54321),
            ("malloc", 64 << 20),
            ("failed", 1 << 60),
        ] {
            let found = events(&place, kind, size);
            assert_eq!(found, 1, "{options:?}: {kind} {size}: {stderr}");
        }
        let (_, dump, _) = outcome(&mut place.mallard(&["trace", "dump", "r.mtrace"]));
        assert!(dump.contains(" 12800 align 64\n"), "{options:?}");
        // Half of the large block was touched; with huge pages a little more.
        let touched = dump.lines().filter_map(|line| line.split_once(" touched "));
        let touched: Vec<u32> = touched.map(|(_, share)| share.parse().unwrap()).collect();
        assert!(
            touched.iter().any(|share| (120..=140).contains(share)),
            "{options:?}: {touched:?}"
        );
    }
}

#[test]
fn threads_and_blocks_that_change_hands_are_exact() {
    let place = Place::new();
    let (code, stderr, info) = recorded(&place, "handoff", &[]);
    assert_eq!(code, Some(SUCCESS), "{stderr}");
    assert!(
        stderr.contains("3 threads") && stderr.contains("0 out of order"),
        "{stderr}"
    );
    assert_whole(&info);
    assert_eq!(sum(&info, "freed_by_another_thread"), COUNT as u64);
    assert_eq!(events(&place, "malloc", 12345), COUNT);
    assert!(sum(&info, "peak_live_bytes") >= 12345);
    let per_event = std::fs::metadata(place.path().join("r.mtrace"))
        .unwrap()
        .len() as f64
        / sum(&info, "calls") as f64;
    assert!(per_event <= 4.0, "{per_event} bytes an event");
}

#[test]
fn a_small_buffer_makes_threads_wait_and_loses_nothing_unless_it_is_asked_to() {
    let place = Place::new();
    let (code, stderr, info) = recorded(&place, "pairs", &["--buffer", "512k"]);
    assert_eq!(code, Some(SUCCESS), "{stderr}");
    assert_whole(&info);
    assert_eq!(events(&place, "malloc", 12345), 2 * COUNT);
    let (_, stderr, info) = recorded(&place, "pairs", &["--buffer", "512k", "--lossy"]);
    let dropped = info["end"]["dropped"].as_u64().unwrap() as usize;
    // Of what is dropped, at most all are allocations.
    assert!(
        events(&place, "malloc", 12345) + dropped >= 2 * COUNT,
        "{stderr}"
    );
}

#[test]
fn ten_thousand_short_threads_that_free_in_destructors() {
    let place = Place::new();
    let (code, stderr, info) = recorded(&place, "brief", &[]);
    assert_eq!(code, Some(SUCCESS), "{stderr}");
    assert_whole(&info);
    assert_eq!(sum(&info, "threads"), 10_001);
    assert_eq!(events(&place, "malloc", 12345), 10_000);
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn ten_thousand_threads_of_twenty_events_share_chunks() {
    let place = Place::new();
    let (code, stderr, info) = recorded(&place, "tiny", &[]);
    assert_eq!(code, Some(SUCCESS), "{stderr}");
    assert_whole(&info);
    assert_eq!(sum(&info, "threads"), 10_001);
    assert_eq!(events(&place, "malloc", 12345), 10_000);
    let path = place.path().join("r.mtrace");
    let whole = std::fs::read(&path).unwrap();
    let per_event = whole.len() as f64 / sum(&info, "calls") as f64;
    eprintln!("10,000 threads of 20 events: {per_event:.2} bytes an event");
    assert!(per_event <= 12.0, "{per_event} bytes an event");
    // A file that is cut is read to its last whole chunk.
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let stdout = place
        .mallard(&["trace", "info", "--json", "r.mtrace"])
        .exits(SUCCESS)
        .0;
    let info: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(info["damaged_chunks"], 0);
    assert!((3000..9500).contains(&sum(&info, "threads")), "{info:#}");
}

#[test]
fn a_fork_begins_with_its_parent_s_blocks_and_an_exec_is_an_image_of_its_own() {
    let place = Place::new();
    let (code, stderr, info) = recorded(&place, "fork", &[]);
    assert_eq!(code, Some(SUCCESS), "{stderr}");
    assert_whole(&info);
    let processes = info["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 3, "{info:#}");
    let child = processes
        .iter()
        .find(|process| !process["process"]["forked_from"].is_null())
        .unwrap();
    assert_eq!(child["process"]["forked_from"], 1);
    assert!(child["ended"].as_u64().unwrap() >= 101, "{child:#}");
    assert_eq!(events(&place, "malloc", 54321), 1);
    assert_eq!(events(&place, "realloc-to", 54321), 1);
}

#[test]
fn a_program_that_is_killed_loses_nothing() {
    let place = Place::new();
    let (code, stderr, info) = recorded(&place, "kill", &[]);
    assert_eq!(code, Some(137), "{stderr}");
    assert!(stderr.contains("SIGKILL"), "{stderr}");
    assert_whole(&info);
    assert_eq!(events(&place, "malloc", 12345), COUNT);
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn limits_end_the_recording() {
    let place = Place::new();
    let (code, stderr, info) = recorded(&place, "endless", &["--for", "3s"]);
    assert_eq!(code, Some(SUCCESS), "{stderr}");
    assert!(stderr.contains("ended after --for"), "{stderr}");
    assert_eq!(sum(&info, "lost"), 0, "{info:#}");
    let (code, stderr, _) = recorded(&place, "pairs", &["--limit", "4k"]);
    assert_eq!(code, Some(SUCCESS), "{stderr}");
    assert!(stderr.contains("--limit"), "{stderr}");
}

/// Where the chunks of a recording end.
fn ends_of_chunks(bytes: &[u8]) -> Vec<usize> {
    let mut reader = mallard_trace::Reader::new(std::io::Cursor::new(bytes)).unwrap();
    let frames = std::iter::from_fn(|| reader.next_frame().unwrap());
    frames
        .map(|(frame, content)| content as usize + frame.packed as usize)
        .collect()
}

#[test]
fn a_file_that_is_cut_is_read_to_its_last_whole_chunk() {
    let place = Place::new();
    recorded(&place, "pairs", &[]);
    let path = place.path().join("r.mtrace");
    let whole = std::fs::read(&path).unwrap();
    let ends = ends_of_chunks(&whole);
    let nth = ends.len() * 2 / 3;
    let (end, next) = (ends[nth], ends[nth + 1]);
    // After a chunk, within the head of the next one, and within its content.
    for bytes in [end, end + 2, next - 1] {
        let warning = match bytes - end {
            0 => "it has no end".to_string(),
            cut => format!("cut: {cut} bytes after the last whole chunk"),
        };
        std::fs::write(&path, &whole[..bytes]).unwrap();
        let (stdout, stderr) = place.mallard(&["trace", "info", "r.mtrace"]).exits(SUCCESS);
        assert!(stderr.contains(&warning), "{stderr}");
        assert!(stdout.contains("malloc"), "{stdout}");
    }
    for (name, content, error) in [
        ("empty", &b""[..], "it is not a recording"),
        ("text", b"hello, this is a text", "it is not a recording"),
        ("later", b"mtrace\0\x09\0\0\0\0\0\0\0\0", "later version"),
        ("none", &whole[..16], "holds no events"),
    ] {
        std::fs::write(place.path().join(name), content).unwrap();
        let stderr = place.mallard(&["trace", "info", name]).exits(FAILED).1;
        assert!(stderr.contains(error) && stderr.contains(name), "{stderr}");
    }
}

#[test]
fn what_cannot_be_recorded_is_refused_with_the_reason() {
    let place = Place::new();
    let source = "int main(void) { return 0; }";
    place.compile("static", source, &["-static"]);
    for (words, code, reason) in [
        (vec!["record", "--", "./static"], 126, "static"),
        (vec!["record", "--", "passwd"], 126, "passwd"),
        (
            vec!["record", "--", "no-such-program"],
            127,
            "no-such-program",
        ),
        (
            vec!["record", "-o", "/no/such/x", "--", "true"],
            1,
            "/no/such/x",
        ),
        (
            vec!["record", "-o", "/dev/full", "--", "true"],
            1,
            "/dev/full",
        ),
        (vec!["record", "--limit", "x", "--", "true"], 2, "such as"),
        (vec!["record", "-a", "nothing", "--", "true"], 2, "nothing"),
        (vec!["record", "--conf", "narenas:1", "--", "true"], 2, "-a"),
        (vec!["record"], 2, "PROGRAM"),
        (vec!["trace", "info", "absent"], 1, "absent"),
    ] {
        let (found, _, stderr) = outcome(&mut place.mallard(&words));
        assert_eq!(found, Some(code), "{words:?}: {stderr}");
        assert!(stderr.contains(reason), "{words:?}: {stderr}");
    }
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_part_of_a_recording_is_one_and_begins_with_what_lives() {
    let place = Place::new();
    recorded(&place, "fork", &[]);
    let cut = typed("trace cut r.mtrace -o part.mtrace --process 2");
    let stdout = place.mallard(&cut).exits(SUCCESS).0;
    assert!(stdout.starts_with("part.mtrace: "), "{stdout}");
    let (_, stdout, _) = outcome(&mut place.mallard(&["trace", "info", "--json", "part.mtrace"]));
    let info: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(sum(&info, "unknown"), 0, "{info:#}");
    assert!(sum(&info, "ended") >= 101, "{info:#}");
    for words in [
        vec!["trace", "cut", "r.mtrace", "-o", "r.mtrace"],
        vec![
            "trace", "cut", "r.mtrace", "-o", "x", "--from", "2s", "--to", "1s",
        ],
        vec!["trace", "cut", "r.mtrace", "-o", "x", "--process", "77"],
    ] {
        place.mallard(&words).exits(USAGE);
    }
    let (_, _, info) = recorded(&place, "endless", &["--for", "4s", "--skip", "1s"]);
    assert_eq!(sum(&info, "lost") + sum(&info, "unknown"), 0, "{info:#}");
    assert!(
        info["start"]["notes"][0]
            .as_str()
            .unwrap()
            .starts_with("cut from 1.0")
    );
}

#[test]
fn another_tool_s_recording_is_imported() {
    let place = Place::new();
    let text = "v 10400\nX ./web\na 10 1\n+ 0\n+ 0\n- 0\n";
    std::fs::write(place.path().join("web.heaptrack"), text).unwrap();
    std::fs::write(place.path().join("bad.heaptrack"), "v 10400\na 10 1\n+ 3\n").unwrap();
    std::fs::write(place.path().join("what.txt"), "hello\n").unwrap();
    let (code, stdout, stderr) = outcome(&mut place.mallard(&["trace", "import", "web.heaptrack"]));
    assert_eq!(
        (code, stdout.as_str()),
        (Some(SUCCESS), "web.mtrace: 3 events\n"),
        "{stderr}"
    );
    let stdout = place
        .mallard(&["trace", "info", "web.mtrace"])
        .exits(SUCCESS)
        .0;
    assert!(stdout.contains("imported from heaptrack"), "{stdout}");
    for (file, code, reason) in [
        ("bad.heaptrack", 1, "line 3"),
        ("what.txt", 2, "--from"),
        ("absent", 1, "absent"),
    ] {
        let (found, _, stderr) = outcome(&mut place.mallard(&["trace", "import", file]));
        assert_eq!(found, Some(code), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
        assert!(!place.path().join("bad.mtrace").exists());
    }
}
