//! The figures of a measured process are correct and include no other process.

use std::time::Duration;

use mallard_runner::{
    COUNTED_SYSCALLS_MAX, Cpus, End, Error, Launcher, Measurement, Purpose, Spec, Stop,
};
use mallard_testing::skipped;

const MIB: u64 = 1 << 20;

fn launcher() -> Launcher {
    Launcher::new(Stop::default()).unwrap()
}

fn shell(script: &str) -> Spec {
    Spec {
        program: "sh".into(),
        arguments: vec!["-c".into(), script.into()],
        ..Spec::default()
    }
}

fn run(spec: &Spec) -> Measurement {
    launcher().run(spec).unwrap()
}

fn said(measurement: &Measurement) -> String {
    measurement.stdout.head(1000).unwrap()
}

/// Whether the process, which has been killed, ends soon. A zombie that waits for its parent counts
/// as ended.
fn ends(process: &str) -> bool {
    let process = process.trim().parse().unwrap();
    (0..12_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        !mallard_procfs::is_alive(process)
    })
}

#[test]
fn the_peak_of_a_small_program_is_its_own_and_not_that_of_a_large_parent() {
    // The lab itself uses much memory.
    let ballast = std::hint::black_box(vec![1_u8; 200 * MIB as usize]);
    let measured = run(&Spec {
        program: "true".into(),
        ..Spec::default()
    });
    assert_eq!(measured.end, End::Code(0));
    let peak = measured.peak_rss_bytes;
    assert!((MIB / 4..4 * MIB).contains(&peak), "{peak} bytes");
    assert_eq!(ballast.len() as u64, 200 * MIB);
}

const NO_PTRACE: &str = "ptrace is not permitted here";

/// Whether tracing other processes is permitted; says that the test is skipped if not, as only the
/// peak that a parent sees is then known.
fn looking_is_permitted() -> bool {
    let counted = launcher().run_beside(&shell("exit 0"), Purpose::Syscalls, |_| Ok::<(), ()>(()));
    let permitted = !matches!(counted, Err(Error::NotPermitted));
    if !permitted {
        skipped(NO_PTRACE);
    }
    permitted
}

fn weighed(script: &str) -> Measurement {
    run(&Spec {
        exact_peak: true,
        ..shell(script)
    })
}

#[test]
fn the_exact_peak_is_at_least_what_the_program_reads_itself() {
    if !looking_is_permitted() {
        return;
    }
    // The shell reads its own peak, which can only grow afterwards.
    let script =
        "while read -r name size rest; do [ $name != VmHWM: ] || echo $size; done </proc/$$/status";
    let differences: Vec<i64> = (0..8)
        .map(|_| {
            let measured = weighed(script);
            let own: i64 = said(&measured).trim().parse().unwrap();
            (measured.peak_rss_bytes / 1024) as i64 - own
        })
        .collect();
    let right = |difference: &i64| (0..256).contains(difference);
    assert!(differences.iter().all(right), "KiB more: {differences:?}");
}

#[test]
fn weighing_preserves_signals_stops_and_exit() {
    assert_eq!(weighed("exit 7").end, End::Code(7));
    assert_eq!(weighed("kill -KILL $$").end, End::Signal(9));
    assert_eq!(weighed("kill -TERM $$").end, End::Signal(15));
    let caught = weighed("trap 'exit 5' USR1; kill -USR1 $$; exit 1");
    assert_eq!(caught.end, End::Code(5));
    // Continued again and again, because the first time it may not have stopped yet.
    let stopped = weighed(
        "(sleep 0.1; echo on; while kill -CONT $$; do sleep 0.01; done) 2>/dev/null & \
         kill -STOP $$; echo done; exit 3",
    );
    assert_eq!(
        (said(&stopped).as_str(), stopped.end),
        ("on\ndone\n", End::Code(3))
    );
    let children = weighed("for i in 1 2 3; do (exit $i); done; sh -c 'exit 4'");
    assert_eq!(children.end, End::Code(4));
    let late = run(&Spec {
        exact_peak: true,
        timeout: Some(Duration::from_millis(200)),
        ..shell("sleep 60")
    });
    assert_eq!(late.end, End::TimedOut);
}

#[test]
fn the_peak_of_a_large_program_is_seen() {
    // dd allocates a buffer of this block size.
    let measured = run(&shell("exec dd if=/dev/zero of=/dev/null bs=100M count=1"));
    let peak = measured.peak_rss_bytes;
    assert!((100 * MIB..150 * MIB).contains(&peak), "{peak} bytes");
    assert!(measured.minor_faults > 0);
}

#[test]
fn exit_codes_and_signals_are_told_apart() {
    assert_eq!(run(&shell("exit 0")).end, End::Code(0));
    assert_eq!(run(&shell("exit 143")).end, End::Code(143));
    assert_eq!(run(&shell("kill -SEGV $$")).end, End::Signal(11));
    assert_eq!(run(&shell("kill -KILL $$")).end, End::Signal(9));
}

#[test]
fn both_streams_are_kept_apart_and_hashed() {
    let measured = run(&shell("printf abc; echo problem >&2"));
    assert_eq!(said(&measured), "abc");
    assert_eq!(measured.stderr.last_lines(5).unwrap(), ["problem"]);
    assert!(measured.stdout.sha256.starts_with("ba7816bf"));
    assert_eq!(measured.stdout.bytes, 3);
}

#[test]
fn the_environment_is_set_and_cleared_for_the_program_alone() {
    let spec = Spec {
        environment: vec![("MALLARD_TEST".to_owned(), "a=b c".to_owned())],
        without: vec!["PATH".to_owned()],
        program: "/bin/sh".into(),
        ..shell("echo \"$MALLARD_TEST|$(/usr/bin/env | /usr/bin/grep -c ^HOME=)\"; /usr/bin/env")
    };
    let text = said(&run(&spec));
    assert!(text.starts_with("a=b c|"), "{text}");
    assert!(
        !text.lines().any(|line| line.starts_with("PATH=/")),
        "{text}"
    );
    assert!(std::env::var_os("MALLARD_TEST").is_none());
}

#[test]
fn a_program_is_pinned_to_the_given_cpus() {
    let first = Cpus::allowed().to_string();
    let first = first.split([',', '-']).next().unwrap();
    let spec = Spec {
        cpus: Some(first.parse().unwrap()),
        ..shell("grep Cpus_allowed_list /proc/self/status")
    };
    let text = said(&run(&spec));
    assert_eq!(text.split_ascii_whitespace().last(), Some(first), "{text}");
}

#[test]
fn a_program_that_does_not_end_is_killed_with_its_children() {
    // On a busy machine it may take the shell long to start its child.
    let child = [200, 2_000, 20_000, 200_000].into_iter().find_map(|ms| {
        let measured = run(&Spec {
            timeout: Some(Duration::from_millis(ms)),
            ..shell("sleep 1000 & echo $!; wait")
        });
        assert_eq!(measured.end, End::TimedOut);
        Some(said(&measured)).filter(|child| !child.is_empty())
    });
    let child = child.expect("it starts its child");
    assert!(ends(&child), "sleep {child} still runs");
}

#[test]
fn processes_left_behind_do_not_run_beside_the_next_program() {
    let measured = run(&shell("sleep 1000 & echo $!"));
    assert_eq!(measured.end, End::Code(0));
    let child = said(&measured);
    assert!(ends(&child), "sleep {child} still runs");
}

#[test]
fn a_signal_to_the_launcher_is_a_stop() {
    let stop = Stop::default();
    let launcher = Launcher::new(stop.clone()).unwrap();
    let measured = launcher.run(&shell("kill -TERM $PPID; exec sleep 1000"));
    assert_eq!(measured.unwrap().end, End::Stopped);
    assert!(stop.requested());
}

#[test]
fn a_stop_ends_the_running_process_and_prevents_new_ones() {
    let stop = Stop::default();
    let launcher = Launcher::new(stop.clone()).unwrap();
    let marker = launcher.folder().join("started");
    let script = format!("touch {}; exec sleep 1000", marker.display());
    let measured = std::thread::scope(|scope| {
        let runner = scope.spawn(|| launcher.run(&shell(&script)));
        while !marker.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.request();
        runner.join().unwrap()
    });
    assert_eq!(measured.unwrap().end, End::Stopped);
    assert!(matches!(
        launcher.run(&shell("exit 0")),
        Err(Error::Stopped)
    ));
}

#[test]
fn a_missing_program_is_an_error_with_its_name() {
    let spec = Spec {
        program: "/nowhere/program".into(),
        ..Spec::default()
    };
    let error = launcher().run(&spec).unwrap_err();
    assert!(matches!(error, Error::Start { .. }), "{error:?}");
    assert!(error.to_string().contains("/nowhere/program"), "{error}");
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[test]
fn a_program_reads_the_given_file_as_standard_input_and_nothing_else() {
    let launcher = launcher();
    let file = launcher.folder().join("input");
    std::fs::write(&file, "hello").unwrap();
    let given = Spec {
        input: Some(file.clone()),
        ..shell("cat")
    };
    assert_eq!(said(&launcher.run(&given).unwrap()), "hello");
    assert_eq!(said(&launcher.run(&shell("cat")).unwrap()), "");
    let missing = Spec {
        input: Some(file.with_file_name("missing")),
        ..shell("cat")
    };
    let error = launcher.run(&missing).unwrap_err().to_string();
    assert!(
        error.contains("missing") && error.contains("No such file"),
        "{error}"
    );
}

#[test]
fn the_folder_is_removed_with_the_launcher() {
    let launcher = launcher();
    let folder = launcher.folder().to_owned();
    launcher.run(&shell("exit 0")).unwrap();
    assert_eq!(
        std::fs::read_dir(&folder).unwrap().count(),
        1,
        "only the launcher stays"
    );
    drop(launcher);
    assert!(!folder.exists());
}

/// The system calls of a script; none if tracing is not permitted.
fn calls(script: &str) -> Option<u64> {
    match launcher().run_beside(&shell(script), Purpose::Syscalls, |_| Ok::<(), ()>(())) {
        Ok((measured, _)) => {
            assert_eq!(measured.end, End::Code(0), "{script}");
            Some(measured.syscalls.expect("they were counted"))
        }
        Err(Error::NotPermitted) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn system_calls_are_counted_with_those_of_children() {
    let (Some(none), Some(some)) = (calls("exit 0"), calls("umask; umask; exit 0")) else {
        return skipped(NO_PTRACE);
    };
    // Only the two calls and the two writes of their output.
    assert!((none + 2..none + 12).contains(&some), "{none} and {some}");
    let blocks = |count: u32| {
        calls(&format!(
            "dd if=/dev/zero of=/dev/null bs=1 count={count} 2>&1; true"
        ))
        .unwrap()
    };
    // Each block is a read and a write by a child.
    let (few, many) = (blocks(100), blocks(1100));
    assert!((2000..2010).contains(&(many - few)), "{few} and {many}");
    assert_eq!(blocks(12_000), COUNTED_SYSCALLS_MAX);
}

#[test]
fn counting_does_not_change_how_a_program_ends() {
    let within = |ms: u64, script: &str| {
        let spec = Spec {
            timeout: Some(Duration::from_millis(ms)),
            ..shell(script)
        };
        let nothing = |_| Ok::<(), ()>(());
        let run = launcher().run_beside(&spec, Purpose::Syscalls, nothing);
        match run {
            Ok((measured, _)) => Some(measured.end),
            Err(Error::NotPermitted) => None,
            Err(error) => panic!("{error}"),
        }
    };
    let outcome = |script| within(300_000, script);
    if outcome("exit 0").is_none() {
        return skipped(NO_PTRACE);
    }
    assert_eq!(outcome("(exit 3) || exit 4"), Some(End::Code(4)));
    assert_eq!(outcome("kill -SEGV $$"), Some(End::Signal(11)));
    assert_eq!(outcome("trap 'exit 5' TERM; kill $$"), Some(End::Code(5)));
    assert_eq!(within(300, "sleep 60"), Some(End::TimedOut));
    let missing = Spec {
        program: "no-such-program".into(),
        ..Spec::default()
    };
    let error = launcher()
        .run_beside(&missing, Purpose::Syscalls, |_| Ok::<(), ()>(()))
        .unwrap_err();
    assert!(error.to_string().contains("no-such-program"), "{error}");
}

#[test]
fn the_driver_beside_a_program_knows_its_id_and_may_end_it() {
    let (measured, driven) = launcher()
        .run_beside(&shell("echo $$; sleep 60"), Purpose::Cost, |pid| {
            let alive = std::path::Path::new(&format!("/proc/{pid}")).exists();
            Err::<(), _>((pid, alive))
        })
        .unwrap();
    let (pid, alive) = driven.unwrap_err();
    assert!(alive);
    assert_eq!(measured.end, End::Stopped);
    let output = said(&measured);
    assert!(
        output.is_empty() || output.trim() == pid.to_string(),
        "{output}"
    );
    assert!(ends(&pid.to_string()));
}
