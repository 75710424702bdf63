use super::*;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// More than any of these programs needs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One test at a time has children: where they are looked for, all are the program's.
static CHILDREN: Mutex<()> = Mutex::new(());

/// Follows a shell's script to the end of its last process, and returns what was told.
fn followed(script: &str, trace: bool) -> (Vec<Event>, bool) {
    let _alone = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    let into = Arc::clone(&told);
    let following = start(command, trace, move |event| {
        into.lock().unwrap().push(event)
    })
    .unwrap();
    let begun = Instant::now();
    while !following.is_over() {
        assert!(begun.elapsed() < TIMEOUT, "{:?}", told.lock().unwrap());
        std::thread::sleep(Duration::from_millis(2));
    }
    if let (true, Some(error)) = (trace, &following.refused) {
        mallard_testing::skipped(format_args!("tracing is not permitted: {error}"));
    }
    let told = told.lock().unwrap().clone();
    (told, following.is_traced())
}

/// The exit code or the signal with which a process ended, for each that did.
fn ends(told: &[Event]) -> Vec<Option<i32>> {
    use std::os::unix::process::ExitStatusExt;
    let mut ends = Vec::new();
    for event in told {
        if let Event::Ended { status, .. } = event {
            ends.push(status.and_then(|status| status.code().or(status.signal())));
        }
    }
    ends
}

#[test]
fn each_process_is_told_from_its_beginning_to_its_end() {
    let script = "(exit 3) & (kill -9 $(sh -c 'echo $PPID')) & wait; (sleep 0.1; exit 5) & exit 7";
    let (told, is_traced) = followed(script, true);
    if !is_traced {
        return;
    }
    let mut found = ends(&told);
    found.sort_unstable();
    // The shell that says its parent's number, and `sleep`, end with 0.
    assert_eq!(
        found,
        [Some(0), Some(0), Some(3), Some(5), Some(7), Some(9)]
    );
    let began = |pid: u32| {
        let of = |event: &&Event| matches!(event, Event::Began { pid: it, .. } if *it == pid);
        told.iter().filter(of).count()
    };
    for event in &told {
        if let Event::Ending { pid, .. } = event {
            assert_eq!(began(*pid), 1, "{told:?}");
        }
    }
    let ending = |event: &&Event| matches!(event, Event::Ending { .. });
    assert_eq!(told.iter().filter(ending).count(), 6, "{told:?}");
}

#[test]
fn a_process_that_outlives_its_parent_is_found_without_tracing_as_well() {
    let (told, is_traced) = followed("(sleep 0.3; exit 5) & sleep 0.1; exit 7", false);
    assert!(!is_traced);
    let found = ends(&told);
    assert!(
        found.contains(&Some(5)) && found.contains(&Some(7)),
        "{told:?}"
    );
}

#[test]
#[expect(clippy::zombie_processes, reason = "the look reaps it")]
fn a_program_that_ends_before_the_first_look_has_its_end_told() {
    use std::os::unix::process::ExitStatusExt;
    let _alone = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    let child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
    let pid = child.id();
    let begun = Instant::now();
    while mallard_procfs::is_alive(pid) {
        assert!(begun.elapsed() < TIMEOUT);
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut told = Vec::new();
    look::run(pid, &AtomicBool::new(false), |event| told.push(event));
    let began = Event::Began {
        pid,
        parent: None,
        memory: Memory::Unknown,
    };
    let status = Some(ExitStatus::from_raw(7 << 8));
    assert_eq!(told, [began, Event::Ended { pid, status }]);
}

#[test]
fn a_program_that_cannot_be_run_is_an_error() {
    let _alone = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    for trace in [true, false] {
        let command = Command::new("/nowhere/program");
        let error = start(command, trace, |_| {}).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        // Nothing is left of it.
        let begun = Instant::now();
        let own = std::process::id();
        while !mallard_procfs::family::children(own).is_empty() {
            assert!(begun.elapsed() < TIMEOUT);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn threads_are_no_processes_and_signals_come_as_they_were_sent() {
    // A process with threads that is stopped and continued, and ends by a handler of its own.
    let script = "trap 'exit 4' TERM; (sleep 0.1; kill -STOP $$; sleep 0.1; kill -CONT $$; \
                  kill -TERM $$) & while :; do sleep 0.01; done";
    let (told, is_traced) = followed(script, true);
    if is_traced {
        assert!(ends(&told).contains(&Some(4)), "{told:?}");
    }
}
