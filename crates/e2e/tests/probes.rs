//! The probes `otel_memory:alloc` and `otel_memory:free`, used as tracers use them. gdb stands for
//! one: it finds the probes by their notes, raises the semaphores and reads the arguments. (A
//! tracer in the kernel does the same, but needs rights that tests do not have.)

use std::collections::BTreeMap;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};
use mallard_testing::lacks;

/// Breakpoints at both probes, which print the arguments.
const SCRIPT: &str = r#"
set confirm off
break main
run
info probes stap otel_memory
break -probe-stap otel_memory:alloc
commands
silent
printf "alloc %lu %lu %lu\n", $_probe_arg0, $_probe_arg1, $_probe_arg2
continue
end
break -probe-stap otel_memory:free
commands
silent
printf "free %lu\n", $_probe_arg0
continue
end
continue
"#;

#[test]
fn a_tracer_switches_sampling_on_and_sees_every_sample_come_and_go() {
    if lacks(&["gdb"]) {
        return;
    }
    let program = Source::new("probed.c").flags(&["-O1", "-g"]).compile();
    let sandbox = Sandbox::temporary(Allocator::System);
    let preload = Library::release().shared.display();
    let script = format!("set environment LD_PRELOAD={preload}{SCRIPT}");
    let script = sandbox.write("script", &script);
    let mut gdb = sandbox.plain_command("gdb");
    gdb.args(["-q", "-nx", "-batch", "-x"])
        .arg(script)
        .arg(program);
    let text = sandbox.run(&mut gdb).expect("gdb runs").stdout_text();

    let (mut live, mut samples, mut weighted, mut requested) = (BTreeMap::new(), 0, 0, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
        match words[..] {
            ["alloc", ..] => {
                let (block, size, bytes) = (number(1), number(2), number(3));
                assert!(bytes >= size && size >= 100, "{line}");
                assert!(live.insert(block, size).is_none(), "twice: {line}");
                (samples, weighted) = (samples + 1, weighted + bytes);
            }
            ["free", _] => assert!(live.remove(&number(1)).is_some(), "unknown: {line}"),
            ["requested", _] => requested = number(1),
            _ => {}
        }
    }
    assert!(samples > 100, "{samples} samples: {text}");
    assert!(live.is_empty(), "never freed: {live:?}");
    let part = weighted as f64 / requested as f64;
    assert!(
        (0.7..1.3).contains(&part),
        "{weighted} bytes of {requested}"
    );
}
