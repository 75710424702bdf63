//! A process in a container: another user, process and mount namespace, and a root of its own, with
//! a program that is in there alone.

use std::path::PathBuf;

use mallard_procfs::{about, family};
use mallard_testing::{lacks, skipped};

use super::*;
use crate::place::*;

/// Makes the root `$1`, with the program `$2` in a file system of its own, and runs it there.
const CONTAIN: &str = r#"
    mount --rbind / "$1" && mount -t tmpfs none "$1/mnt" && cp "$2" "$1/mnt/inner" &&
        exec chroot "$1" /mnt/inner
"#;

/// The process below this one that runs the program.
fn below(pid: u32) -> Option<u32> {
    let mut family = family::of(pid).into_iter();
    family.find(|process| about::name(*process).is_some_and(|name| name == "inner"))
}

#[test]
fn a_process_of_a_container_is_seen_as_any_other() {
    if lacks(&["unshare", "chroot", "mount"]) {
        return;
    }
    let place = Place::new();
    let program = place.compile("outer", PROGRAM, &["-O1", "-g", "-fno-builtin"]);
    let root: PathBuf = place.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let apart = [
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--",
    ];
    let script = |script: &str| {
        let mut words = apart.map(str::to_owned).to_vec();
        words.extend(["sh", "-c", script, "sh"].map(str::to_owned));
        words.extend([&root, &program].map(|path| path.display().to_string()));
        words
    };
    let tried = Command::new("unshare")
        .args(script(&CONTAIN.replace(
            "exec chroot \"$1\" /mnt/inner",
            "exec chroot \"$1\" true",
        )))
        .output()
        .unwrap();
    if !tried.status.success() {
        let why = String::from_utf8_lossy(&tried.stderr);
        return skipped(why.trim_end());
    }
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("mallard"));
    command
        .args("run --conf export_stats:true,prof:true,lg_prof_sample:14 -- unshare".split(' '))
        .args(script(CONTAIN));
    let running = Running::start(&mut command);
    let begun = Instant::now();
    let inner = loop {
        match below(running.child.id()) {
            Some(inner) => break inner.to_string(),
            None => assert!(begun.elapsed() < TIMEOUT, "it does not start"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(
        !std::path::Path::new("/mnt/inner").exists(),
        "it is in there alone"
    );

    let server = Server::start(&["--pid", &inner]);
    let of_it = format!("pid=\"{inner}\"");
    let holds = |reply: &Reply| reply.value("mallard_allocated_bytes", &of_it) >= Some(33e6);
    let metrics = server.get_until("/metrics", holds);
    assert!(
        metrics.text().contains("command=\"inner\""),
        "{}",
        metrics.text()
    );
    let top = || outcome(&mut place.mallard(&["top", "--json", "--interval", "0.3", &inner]));
    let begun = Instant::now();
    loop {
        let (code, stdout, stderr) = top();
        if code == Some(SUCCESS) && stdout.contains("\"inner\"") {
            break;
        }
        assert!(begun.elapsed() < TIMEOUT, "{stdout}{stderr}");
    }
    // Its functions have names, out of a file that is in there alone.
    let (stdout, stderr) = place.mallard(&["profile", "--text", &inner]).exits(SUCCESS);
    assert!(stdout.contains("hold"), "{stdout}{stderr}");
    let heap = server.get(&format!("/pid/{inner}/debug/pprof/heap"));
    assert_eq!(heap.status, 200, "{}", heap.head);
    let profile = mallard_profile::read::profile(&heap.body).unwrap();
    let frames = profile
        .locations
        .iter()
        .flat_map(|location| &location.frames);
    let names: Vec<String> = frames.map(|frame| frame.function.to_string()).collect();
    assert!(names.iter().any(|name| name == "hold"), "{names:?}");
}
