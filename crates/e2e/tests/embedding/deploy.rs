//! The manifests in `examples/deploy`: what reads them on a real system reads them here, the files
//! that they name are there, and Mallard takes their option strings without a word.

use std::path::PathBuf;
use std::process::Command;

use mallard_e2e::{Allocator, Library, Sandbox};
use mallard_testing::{lacks, skipped};

use crate::{example, output, sandbox};

fn manifest(name: &str) -> String {
    let path = example("deploy").join(name);
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

#[test]
fn the_manifests_options_are_read_without_a_word() {
    let library = Library::release();
    if !library.is_mallard_or_skipped() {
        return;
    }
    for (name, before) in [
        ("systemd/mallard.conf", "MALLARD_CONF="),
        ("docker/Dockerfile", "MALLARD_CONF="),
        ("docker/alpine.Dockerfile", "MALLARD_CONF="),
        ("kubernetes/deployment.yaml", "MALLARD_CONF, value: \""),
    ] {
        let text = manifest(name);
        let (_, rest) = text.split_once(before).expect("it sets options");
        let options = rest.split(['"', '\n']).next().expect("it is a value");
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let options = options.replace("%%", "%");
        let outcome = sandbox.run_own(sandbox.command("true").env("MALLARD_CONF", &options));
        outcome.expect_success();
        assert_eq!(outcome.stderr_text(), "", "{name}: {options}");
    }
}

#[test]
fn the_drop_in_is_one_that_systemd_reads() {
    if lacks(&["systemd-analyze"]) {
        return;
    }
    let sandbox = sandbox();
    sandbox.write(
        "server.service",
        "[Unit]\nDescription=a server\n[Service]\nExecStart=/bin/true\n",
    );
    let said = |dropped: &str| {
        sandbox.write("server.service.d/mallard.conf", dropped);
        let mut command = Command::new("systemd-analyze");
        let unit = sandbox.path("server.service");
        let output = command.args(["verify", "--man=no"]).arg(unit).output();
        let output = output.expect("systemd-analyze starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let ours = said.lines().filter(|line| line.contains("mallard.conf"));
        ours.collect::<Vec<_>>().join("\n")
    };
    let text = manifest("systemd/mallard.conf");
    assert_eq!(said(&text), "");
    // The check is worth something only if it finds a mistake.
    assert_ne!(said(&text.replace("MemoryMax=4G", "MemoryMax=4Q")), "");
}

/// An image's stages, each as its instructions: a word and the rest, continued lines joined.
fn stages(name: &str) -> Vec<Vec<(String, String)>> {
    let text = manifest(name).replace("\\\n", "");
    let lines = (text.lines()).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut stages = Vec::new();
    for line in lines {
        let (word, rest) = line.split_once(' ').expect("an instruction has operands");
        if word == "FROM" {
            stages.push(Vec::new());
        }
        let stage = stages.last_mut().expect("an image begins with FROM");
        stage.push((word.to_owned(), rest.trim().to_owned()));
    }
    stages
}

/// All operands of an instruction in a stage.
fn operands<'a>(stage: &'a [(String, String)], word: &str) -> Vec<&'a str> {
    let found = stage.iter().filter(|(found, _)| found == word);
    found.map(|(_, rest)| rest.as_str()).collect()
}

/// Whether a pattern with `*` is for the name.
fn is_for(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, rest)) => name.strip_prefix(before).is_some_and(|name| {
            (0..=name.len()).any(|at| name.is_char_boundary(at) && is_for(rest, &name[at..]))
        }),
    }
}

/// `scripts/release-test.sh` does what the first image says in a root of Debian.
#[test]
fn the_images_take_what_a_release_has() {
    let install = mallard_e2e::repository().join("docs/install.md");
    let install = std::fs::read_to_string(install).expect("the book has a page on packages");
    let packages: Vec<&str> = install
        .split([' ', '\n', '`', '/'])
        .filter(|word| word.ends_with(".deb") || word.ends_with(".apk"))
        .collect();
    assert!(packages.len() >= 3, "{packages:?}");
    let deployment = manifest("kubernetes/deployment.yaml");
    for name in ["docker/Dockerfile", "docker/alpine.Dockerfile"] {
        let stages = stages(name);
        let [first, last] = stages.as_slice() else {
            panic!("{name} has {} stages", stages.len());
        };
        // Both have one C library, and the shell reads what they run.
        let base = operands(last, "FROM")[0];
        assert_eq!(operands(first, "FROM"), [format!("{base} AS mallard")]);
        for command in operands(first, "RUN").iter().chain(&operands(last, "RUN")) {
            let status = Command::new("sh").args(["-nc", command]).status();
            assert!(status.expect("sh starts").success(), "{name}: {command}");
        }
        let copied = operands(first, "COPY")[0].replace("${TARGETARCH}", "amd64");
        let mut patterns: Vec<&str> = copied.split(' ').collect();
        assert_eq!(patterns.pop(), Some("/packages/"));
        for pattern in patterns {
            assert!(
                packages.iter().any(|package| is_for(pattern, package)),
                "{name}: no package is called {pattern}: {packages:?}"
            );
        }
        let made = "/libmallard.so.0 /out/lib/";
        assert!(operands(first, "RUN")[0].contains(made), "{name}");
        assert_eq!(operands(last, "COPY"), ["--from=mallard /out/ /usr/local/"]);
        let preload = "LD_PRELOAD=/usr/local/lib/libmallard.so.0";
        assert!(operands(last, "ENV").contains(&preload), "{name}");
    }
    assert!(deployment.contains("[cp, /out/lib/libmallard.so.0, /mallard/]"));
    assert!(deployment.contains("LD_PRELOAD, value: /mallard/libmallard.so.0"));
}

/// The deployment as Kubernetes' own reader gives it back.
#[test]
fn the_deployment_is_one_that_kubectl_reads() {
    if mallard_testing::find("kubectl").is_none() {
        return skipped("there is no kubectl");
    }
    let sandbox = sandbox();
    let folder: PathBuf = example("deploy/kubernetes");
    let mut kubectl = sandbox.plain_command("kubectl");
    let read = output(&sandbox, kubectl.arg("kustomize").arg(folder));
    for part in [
        "kind: Deployment",
        "initContainers:",
        "name: LD_PRELOAD",
        "name: MALLARD_CONF",
        "memory: 512Mi",
    ] {
        assert!(read.contains(part), "{part} is missing in\n{read}");
    }
    // Each volume that a container mounts is one of the pod's.
    let mounts = read.matches("mountPath: /mallard").count();
    assert_eq!(
        (mounts, read.matches("emptyDir:").count()),
        (2, 1),
        "{read}"
    );
}
