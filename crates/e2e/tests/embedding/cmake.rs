//! CMake finds the package, in the versions that it is, wherever its folder lies.

use std::path::{Path, PathBuf};

use mallard_e2e::Sandbox;

use crate::{can_build, example, installation, output, sandbox};

/// Configures and builds the CMake example from the prefix.
fn cmake(sandbox: &Sandbox, build: &str, prefix: &Path) -> PathBuf {
    let folder = sandbox.path(build);
    output(
        sandbox,
        sandbox
            .plain_command("cmake")
            .arg("-S")
            .arg(example("cmake"))
            .arg("-B")
            .arg(&folder)
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())),
    );
    output(
        sandbox,
        sandbox.plain_command("cmake").arg("--build").arg(&folder),
    );
    folder
}

fn check_request(text: &str) {
    let number = |label: &str| -> u64 {
        text.lines()
            .find_map(|line| line.strip_prefix(label)?.strip_prefix(": ")?.parse().ok())
            .unwrap_or_else(|| panic!("no {label} in {text}"))
    };
    assert!(
        number("filled") > 20_000 * 4 && number("filled") < 1_000_000,
        "{text}"
    );
    assert_eq!(number("emptied"), 0, "{text}");
    assert!(number("leaked") > 5000 * 2600, "{text}");
    assert_eq!(number("reset"), 0, "{text}");
    assert_eq!(number("lines"), 100_000, "{text}");
}

#[test]
fn a_cpp_program_finds_both_libraries_by_cmake_also_in_a_tree_that_was_moved() {
    if !can_build(&["make", "objcopy", "cmake", "c++"]) {
        return;
    }
    let sandbox = sandbox();
    let moved = sandbox.path("moved");
    output(
        &sandbox,
        sandbox
            .plain_command("cp")
            .arg("-a")
            .arg(installation())
            .arg(&moved),
    );
    for (build, prefix) in [("build", installation()), ("build-moved", moved.as_path())] {
        let folder = cmake(&sandbox, build, prefix);
        for program in ["request", "request-static"] {
            // CMake writes the library's folder into programs that run from the build folder.
            check_request(&output(
                &sandbox,
                &mut sandbox.plain_command(folder.join(program)),
            ));
        }
    }
}

#[test]
fn the_cmake_package_refuses_versions_that_it_is_not() {
    if !can_build(&["make", "objcopy", "cmake", "c++"]) {
        return;
    }
    let sandbox = sandbox();
    sandbox.write(
        "project/CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.13)\nproject(asks LANGUAGES CXX)\n\
         find_package(Mallard ${ASKED})\n\
         message(STATUS \"${ASKED}: ${Mallard_FOUND}\")\n",
    );
    for (asked, found) in [
        ("0.1", true),
        ("0.1.0", true),
        ("0.0.9", false),
        ("0.2", false),
        ("1.0", false),
    ] {
        let text = output(
            &sandbox,
            sandbox
                .plain_command("cmake")
                .args(["-S", "project", "-B", &format!("build-{asked}")])
                .arg(format!("-DASKED={asked}"))
                .arg(format!("-DCMAKE_PREFIX_PATH={}", installation().display())),
        );
        let answer = format!("{asked}: {}", i32::from(found));
        assert!(text.contains(&answer), "no '{answer}' in:\n{text}");
    }
}
