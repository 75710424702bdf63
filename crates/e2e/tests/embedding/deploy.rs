//! The manifests in `examples/deploy`: what reads them on a real system reads them here, the files
//! that they name are there, and Mallard takes their option strings without a word.

use std::path::PathBuf;
use std::process::Command;

use mallard_e2e::{Allocator, Library, Sandbox};
use mallard_testing::{lacks, skipped};

use crate::{can_build, example, installation, output, sandbox};

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

#[test]
fn the_image_copies_what_the_installation_has() {
    if !can_build(&["make", "objcopy"]) {
        return;
    }
    let text = manifest("docker/Dockerfile");
    let stages = text.lines().filter(|line| line.starts_with("FROM "));
    let releases: Vec<&str> = stages.map(|line| &line["FROM ".len()..]).collect();
    assert!(
        releases.len() == 2 && releases.iter().all(|image| image.contains("bookworm")),
        "both stages have one glibc: {releases:?}"
    );
    // What it installs into /out is what `make install` makes, and what the variable names is
    // there.
    let copied = text
        .lines()
        .find_map(|line| line.strip_prefix("COPY --from=mallard /out/"))
        .and_then(|line| line.split_once(' '))
        .expect("it copies the library");
    assert!(installation().join(copied.0).is_file(), "{copied:?}");
    let name = copied.0.rsplit('/').next().expect("it has a name");
    assert!(text.contains(&format!("LD_PRELOAD={}{name}", copied.1)));
    let deployment = manifest("kubernetes/deployment.yaml");
    assert!(deployment.contains(&format!("[cp, /out/{}, /mallard/]", copied.0)));
    assert!(deployment.contains(&format!("LD_PRELOAD, value: /mallard/{name}")));
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
