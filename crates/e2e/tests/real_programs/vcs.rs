//! Git: on the repository itself, and on a generated one whose history is long enough for threads
//! and large packs.

use std::fmt::Write;
use std::process::Command;

use mallard_e2e::{Sandbox, repository};

use crate::{Case, Transcript, piece};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "git_own_repository",
            needs: &["git"],
            served: &["git"],
            own_allocator: &[],
            run: own_repository,
        },
        Case {
            name: "git_long_history",
            needs: &["git"],
            served: &["git"],
            own_allocator: &[],
            run: long_history,
        },
    ]
}

fn git(sandbox: &Sandbox, arguments: &[&str]) -> Command {
    let mut command = sandbox.command("git");
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        // The checkout may belong to another user than the tests' own.
        .args([
            "-c",
            "safe.directory=*",
            "-c",
            "pack.threads=4",
            "-c",
            "gc.auto=0",
            // A twelfth of the default, which takes seconds on this repository.
            "-c",
            "gc.aggressiveWindow=20",
        ])
        .args(arguments);
    command
}

/// The commits of this repository that are cloned. [`long_history`] has a long history.
const DEPTH: &str = "50";

/// Clones, reads, repacks and checks this repository. A source archive without history is first
/// made into a repository.
fn own_repository(sandbox: &Sandbox) -> Result<Transcript, String> {
    let root = repository().to_string_lossy().into_owned();
    let url = format!("file://{root}");
    if repository().join(".git").exists() {
        sandbox.run(&mut git(
            sandbox,
            &["clone", "--quiet", "--depth", DEPTH, &url, "clone"],
        ))?;
    } else {
        sandbox.run(&mut git(sandbox, &["init", "--quiet", "clone"]))?;
        let script = "cp -r \"$0/crates\" \"$0/docs\" . && rm -rf crates/*/target && git add . \
                      && GIT_COMMITTER_DATE='1700000000 +0000' git -c user.name=t -c user.email=t@example.org \
                      commit --quiet --date='1700000000 +0000' -m all";
        let mut commit = sandbox.command("sh");
        sandbox.run(
            commit
                .args(["-c", script, &root])
                .current_dir(sandbox.path("clone")),
        )?;
    }
    read_pack_check(sandbox, "clone")
}

/// A stream for `git fast-import`: many commits that each change some of a few hundred files.
fn history() -> String {
    let mut stream = String::new();
    let mut state = 1_u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    for commit in 0..300 {
        let message = format!("change {commit}");
        let time = 1_700_000_000 + commit * 60;
        write!(stream, "commit refs/heads/main\ncommitter T <t@example.org> {time} +0000\ndata {}\n{message}\n", message.len())
            .expect("writing to a string succeeds");
        for _ in 0..6 {
            let file = next() % 200;
            let mut text = String::new();
            for line in 0..60 {
                let word = if next() % 20 == 0 {
                    next() % 1000
                } else {
                    file * 100 + line
                };
                writeln!(text, "line {line} of file {file} says {word}")
                    .expect("writing to a string succeeds");
            }
            write!(
                stream,
                "M 100644 inline folder{}/file{file}.txt\ndata {}\n{text}\n",
                file % 9,
                text.len()
            )
            .expect("writing to a string succeeds");
        }
    }
    stream
}

fn long_history(sandbox: &Sandbox) -> Result<Transcript, String> {
    sandbox.run(&mut git(
        sandbox,
        &["init", "--quiet", "--initial-branch=main", "generated"],
    ))?;
    let mut import = git(sandbox, &["fast-import", "--quiet"]);
    sandbox.run_with_input(
        import.current_dir(sandbox.path("generated")),
        history().as_bytes(),
    )?;
    sandbox.run(&mut git(
        sandbox,
        &["-C", "generated", "reset", "--quiet", "--hard"],
    ))?;
    let mut transcript = read_pack_check(sandbox, "generated")?;
    let blame = sandbox.run(&mut git(
        sandbox,
        &[
            "-C",
            "generated",
            "blame",
            "--porcelain",
            "folder3/file12.txt",
        ],
    ))?;
    let found = sandbox.run(&mut git(
        sandbox,
        &[
            "-C",
            "generated",
            "grep",
            "--threads=4",
            "-n",
            "-E",
            "says [0-9]{1,3}$",
        ],
    ))?;
    transcript.extend([piece("blame", blame.stdout), piece("grep", found.stdout)]);
    Ok(transcript)
}

fn read_pack_check(sandbox: &Sandbox, name: &str) -> Result<Transcript, String> {
    let read = |arguments: &[&str]| {
        let all: Vec<&str> = ["-C", name].iter().chain(arguments).copied().collect();
        sandbox
            .run(&mut git(sandbox, &all))
            .map(|outcome| outcome.stdout)
    };
    let log = read(&["log", "-p", "--stat", "-M", "--no-color"])?;
    read(&[
        "repack",
        "-a",
        "-d",
        "-f",
        "--quiet",
        "--window=10",
        "--depth=20",
    ])?;
    read(&["gc", "--aggressive", "--prune=now", "--quiet"])?;
    Ok(vec![
        piece("log -p", log),
        piece(
            "fsck",
            read(&["fsck", "--full", "--strict", "--no-progress"])?,
        ),
        piece(
            "the objects after gc",
            read(&["cat-file", "--batch-check", "--batch-all-objects"])?,
        ),
        piece(
            "the log after gc",
            read(&["log", "-p", "--no-color", "--patience"])?,
        ),
    ])
}
