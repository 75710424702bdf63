//! The installation of the command, with its service.

use mallard_testing::lacks;

use super::*;

/// All files in the folder, with paths relative to it.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path)
            } else {
                let name = path.strip_prefix(folder).unwrap();
                found.push(name.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn the_command_is_installed_with_its_service_and_taken_back() {
    if lacks(&["make"]) {
        return;
    }
    let place = Place::new();
    let stage = place.path().join("stage");
    let make = |goal: &str| {
        let mut command = Command::new("make");
        command.args([
            "-s",
            "-C",
            env!("CARGO_MANIFEST_DIR"),
            goal,
            "PREFIX=/opt/mallard",
        ]);
        let binary = assert_cmd::cargo::cargo_bin("mallard");
        command.arg(format!("COMMAND={}", binary.display()));
        command.arg(format!("DESTDIR={}", stage.display()));
        command.arg(format!("BUILD={}", place.path().join("build").display()));
        output(&mut command)
    };
    make("install");
    let prefix = stage.join("opt/mallard");
    let installed = files(&prefix);
    for name in [
        "bin/mallard",
        "lib/systemd/system/mallard-export@.service",
        "lib/systemd/user/mallard-export.service",
        "share/bash-completion/completions/mallard",
        "share/man/man1/mallard-export.1",
        "share/mallard/alerts.yml",
        "share/mallard/grafana.json",
        "share/mallard/parca.yaml",
        "share/mallard/prometheus.yml",
        "share/mallard/pyroscope.alloy",
    ] {
        assert!(
            installed.iter().any(|file| file == name),
            "{name}: {installed:?}"
        );
    }
    for unit in [
        "system/mallard-export@.service",
        "user/mallard-export.service",
    ] {
        let text = std::fs::read_to_string(prefix.join("lib/systemd").join(unit)).unwrap();
        let start = "\nExecStart=/opt/mallard/bin/mallard export $MALLARD_EXPORT\n";
        assert!(text.contains(start) && !text.contains("@BINDIR@"), "{text}");
    }
    for name in [
        "alerts.yml",
        "grafana.json",
        "parca.yaml",
        "prometheus.yml",
        "pyroscope.alloy",
    ] {
        let text = std::fs::read_to_string(prefix.join("share/mallard").join(name)).unwrap();
        assert!(!text.contains("/usr/local"), "{name}: {text}");
    }
    let rules = "\n  - /opt/mallard/share/mallard/alerts.yml\n";
    let settings = std::fs::read_to_string(prefix.join("share/mallard/prometheus.yml")).unwrap();
    assert!(settings.contains(rules), "{settings}");
    verify(&place, &prefix);
    works_without_symbols(&place, &prefix.join("bin/mallard"));
    make("uninstall");
    assert_eq!(files(&stage), Vec::<String>::new());
}

/// What is installed is stripped, and starts programs on the library that it carries, watches them
/// with its probe, and names their code.
fn works_without_symbols(place: &Place, mallard: &Path) {
    let content = std::fs::read(mallard).unwrap();
    let sections = object::File::parse(&*content).unwrap();
    let names: Vec<String> = (object::Object::sections(&sections))
        .map(|section| object::ObjectSection::name(&section).unwrap().to_owned())
        .filter(|name| name == ".debug_info" || name == ".symtab")
        .collect();
    assert_eq!(names, Vec::<String>::new());
    let leaks = "#include <stdlib.h>\nint main(void) { return malloc(9000) == 0; }\n";
    let program = place.compile("leaks", leaks, &["-g", "-fno-builtin"]);
    let program = program.to_str().unwrap();
    for (words, code, says) in [
        (&["run", "--conf", "narenas:3"][..], SUCCESS, ""),
        (&["leak"], FAILED, "leaks.c:2"),
        (&["record", "-o", "leaks.mtrace"], SUCCESS, "recorded"),
        (
            &["diagnose", "--quick"],
            CANNOT_TELL,
            "Is malloc the bottleneck?",
        ),
        (
            &["compare", "-a", "glibc,mallard", "-r", "1"],
            SUCCESS,
            "mallard",
        ),
    ] {
        let mut command = assert_cmd::Command::new(mallard);
        command.current_dir(place.path()).args(words);
        let (stdout, stderr) = command.args(["--", program]).exits(code);
        assert!(
            stdout.contains(says) || stderr.contains(says),
            "{words:?}: {stdout}{stderr}"
        );
    }
}

/// Lets systemd read the unit, for a program that is there.
fn verify(place: &Place, prefix: &Path) {
    if lacks(&["systemd-analyze"]) {
        return;
    }
    let unit = prefix.join("lib/systemd/system/mallard-export@.service");
    let text = std::fs::read_to_string(unit).unwrap();
    let binary = prefix.join("bin/mallard");
    let text = text.replace("/opt/mallard/bin/mallard", &binary.display().to_string());
    // Manual pages of another folder are none to systemd.
    let text = text.replace("Documentation=man:mallard-export(1)\n", "");
    std::fs::write(place.path().join("mallard-export@.service"), text).unwrap();
    let instance = place.path().join("mallard-export@root.service");
    let verified = Command::new("systemd-analyze")
        .arg("verify")
        .arg(instance)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&verified.stderr);
    let ours = said.lines().filter(|line| line.contains("mallard-export"));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new());
}
