//! The keys of what commands print as JSON stay. `tests/keys` has a file for each command: a line
//! for each key, `[]` for the items of a list, and `*` for a name that is data. After new ones,
//! `MALLARD_BLESS=1 cargo test -p mallard-cli --test cli keys::` adds them; a test still fails
//! if one is missing, because programs of users read them (`docs/versioning.md`).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::place::*;

/// How long a program may take to have its figures read.
const TIMEOUT: Duration = Duration::from_secs(60);

fn keys(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            let is_data = ["/kinds", "/[]/subject", "/[]/anchor"]
                .iter()
                .any(|end| path.ends_with(end));
            let path = format!("{path}/{}", if is_data { "*" } else { key });
            into.insert(path.clone());
            keys(value, &path, into);
        }),
        Value::Array(items) => items
            .iter()
            .for_each(|value| keys(value, &format!("{path}/[]"), into)),
        _ => {}
    }
}

/// Compares the keys of a command's JSON with those recorded.
#[track_caller]
pub fn stay(command: &str, json: &str) {
    let value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let mut found = BTreeSet::new();
    keys(&value, "", &mut found);
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/keys")
        .join(command)
        .with_extension("txt");
    let recorded = fs::read_to_string(&file).unwrap_or_default();
    let mut recorded: BTreeSet<String> = recorded.lines().map(str::to_owned).collect();
    if std::env::var_os("MALLARD_BLESS").is_some() {
        recorded.extend(found.iter().cloned());
        let text: Vec<&str> = recorded.iter().map(String::as_str).collect();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text.join("\n") + "\n").unwrap();
    }
    let lost: Vec<_> = recorded.difference(&found).collect();
    assert!(lost.is_empty(), "{command} lacks {lost:?}: {json}");
    let new: Vec<_> = found.difference(&recorded).collect();
    assert!(new.is_empty(), "{} lacks {new:?}", file.display());
}

fn printed(place: &Place, words: &[&str]) -> String {
    let (_, stdout, stderr) = outcome(&mut place.mallard(words));
    assert!(!stdout.is_empty(), "{words:?}: {stderr}");
    stdout
}

#[test]
fn allocators_keeps_its_keys() {
    let place = Place::new();
    let text = printed(&place, &["allocators", "--json"]);
    // Which ones are ready differs from machine to machine.
    let all: Vec<Value> = serde_json::from_str(&text).unwrap();
    for is in ["ready", "buildable", "unavailable"] {
        let one = all.iter().find(|allocator| allocator["is"] == is);
        if let Some(one) = one {
            stay(&format!("allocators-{is}"), &one.to_string());
        }
    }
    assert!(all.iter().any(|allocator| allocator["is"] == "ready"));
}

#[test]
fn trace_info_keeps_its_keys() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../trace/tests/version-2.mtrace"
    );
    let place = Place::new();
    stay(
        "trace-info",
        &printed(&place, &["trace", "info", "--json", file]),
    );
}

#[test]
fn leak_keeps_its_keys() {
    let place = Place::new();
    let source = "#include <stdlib.h>\nvoid *volatile sink;\n\
        __attribute__((noinline)) void lose(void) { sink = malloc(5000); }\n\
        int main(void) { lose(); sink = 0; lose(); sink = 0; return 0; }";
    let program = place.compile("losing", source, &["-g", "-O1", "-fno-builtin"]);
    let words = ["leak", "--json", "--", program.to_str().unwrap()];
    stay("leak", &printed(&place, &words));
}

#[test]
fn top_keeps_its_keys() {
    let place = Place::new();
    let source = "#include <stdlib.h>\n#include <unistd.h>\nvoid *volatile sink;\n\
        int main(void) { sink = malloc(64 << 20); sleep(1000); return 0; }";
    let program = place.compile("resting", source, &["-O1"]);
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("mallard"));
    command.args(["run", "--conf", "export_stats:true", "--"]);
    let mut running = command.arg(program).spawn().unwrap();
    let pid = running.id().to_string();
    let until = Instant::now() + TIMEOUT;
    // The first publication may know of no block yet.
    let is_whole = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        value["arena_rows"][0].is_object() && value["classes"][0].is_object()
    };
    let text = loop {
        let (_, stdout, _) = outcome(&mut place.mallard(&["top", "--json", &pid]));
        if is_whole(&stdout) || Instant::now() > until {
            break stdout;
        }
        sleep(Duration::from_millis(50));
    };
    running.kill().unwrap();
    running.wait().unwrap();
    stay("top", &text);
}
