#!/usr/bin/env python3
"""What a release is made of: the crates that are compiled into the library and the lab.

  scripts/release/crates.py sbom TARGET [--library-only]       CycloneDX 1.5, on standard output
  scripts/release/crates.py licences TARGET [--library-only]   each licence's text, with its crates

TARGET is Rust's name of the target. Both read what cargo resolved, and print the same for the same
commit: SOURCE_DATE_EPOCH is the time that the first gives.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The package that is released, and the manifest of its workspace.
LIBRARY = ("mallard-c", ROOT / "crates/mallard-c/Cargo.toml")
LAB = ("mallard-cli", ROOT / "Cargo.toml")
PROBE = ("mallard-probe", ROOT / "crates/probe/Cargo.toml")
CHECKED = ("mallard-checked", ROOT / "crates/checked/Cargo.toml")


def used(package, manifest, target):
    """The packages that are linked into `package`, with itself: name and version to description."""
    command = ["cargo", "metadata", "--format-version=1", "--locked"]
    command += ["--filter-platform", target, "--manifest-path", str(manifest)]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    packages = {each["id"]: each for each in metadata["packages"]}
    nodes = {each["id"]: each for each in metadata["resolve"]["nodes"]}
    waiting = [next(id for id, each in packages.items() if each["name"] == package)]
    found = {}
    while waiting:
        id = waiting.pop()
        if id in found:
            continue
        linked = [
            dep["pkg"]
            for dep in nodes[id]["deps"]
            if any(kind["kind"] is None for kind in dep["dep_kinds"])
            and not any(
                "proc-macro" in part["kind"] for part in packages[dep["pkg"]]["targets"]
            )
        ]
        found[id] = linked
        waiting += linked
    key = lambda id: (packages[id]["name"], packages[id]["version"])
    return {key(id): (packages[id], sorted(map(key, deps))) for id, deps in found.items()}


def checksums(lock):
    """The SHA-256 of each archive in a Cargo.lock."""
    sums, entry = {}, {}
    for line in lock.read_text().splitlines() + ["[[package]]"]:
        if line == "[[package]]":
            if "checksum" in entry:
                sums[entry["name"], entry["version"]] = entry["checksum"]
            entry = {}
        elif " = \"" in line:
            name, value = line.split(" = ", 1)
            entry[name] = value.strip('"')
    return sums


def reference(key):
    return "pkg:cargo/{}@{}".format(*key)


def sbom(packages, target):
    sums = {**checksums(ROOT / "Cargo.lock"), **checksums(ROOT / "crates/Cargo.lock")}
    components, dependencies = [], []
    for key, (package, deps) in sorted(packages.items()):
        component = {
            "type": "library",
            "bom-ref": reference(key),
            "name": key[0],
            "version": key[1],
            "scope": "required",
            "purl": reference(key),
        }
        if package["license"]:
            expression = package["license"].replace("/", " OR ")
            component["licenses"] = [{"expression": expression}]
        if key in sums:
            component["hashes"] = [{"alg": "SHA-256", "content": sums[key]}]
        if package["repository"]:
            component["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        components.append(component)
        dependencies.append({"ref": reference(key), "dependsOn": [reference(dep) for dep in deps]})
    rust = subprocess.run(["rustc", "--version"], check=True, stdout=subprocess.PIPE)
    rust = rust.stdout.decode().split()[1]
    components.append(
        {
            "type": "library",
            "bom-ref": "rust-std@" + rust,
            "name": "rust-std",
            "version": rust,
            "licenses": [{"expression": "MIT OR Apache-2.0"}],
        }
    )
    names = [package[0] for package in (LIBRARY, LAB, PROBE, CHECKED)]
    roots = [reference(key) for key in packages if key[0] in names]
    roots.append("rust-std@" + rust)
    version = next(key[1] for key in packages if key[0] == LIBRARY[0])
    own = f"mallard@{version}-{target}"
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    time = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    content = json.dumps([own, components], sort_keys=True)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": "urn:uuid:" + str(uuid.uuid5(uuid.NAMESPACE_URL, content)),
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "mallard",
                "version": version,
                "licenses": [{"license": {"id": "MIT"}}],
                "properties": [{"name": "target", "value": target}],
            },
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": sorted(roots)}] + dependencies,
    }
    return json.dumps(document, indent=2) + "\n"


def licences(packages):
    """Each text once, with the crates that it is of. Mallard's own is a file of its own."""
    by_text, without = {}, []
    for key, (package, _) in sorted(packages.items()):
        if package["source"] is None:
            continue
        name = "{} {} ({})".format(*key, package["license"] or "see its text")
        folder = pathlib.Path(package["manifest_path"]).parent
        files = sorted(
            path
            # Crates of C libraries have that library's in a folder of its own.
            for path in [*folder.iterdir(), *folder.glob("*/*")]
            if path.is_file()
            and path.name.upper().startswith(("LICEN", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE"))
        )
        for path in files:
            text = "\n".join(
                line.rstrip() for line in path.read_text(errors="replace").strip().splitlines()
            )
            by_text.setdefault(text, []).append(name)
        if not files:
            without.append(name)
    parts = [
        "Mallard is compiled with the crates of others below. Rust's standard library, which is\n"
        "compiled in as well, is Copyright (c) The Rust Project Contributors, under the Apache\n"
        "License 2.0 or the MIT licence, both of which are below.\n"
    ]
    if without:
        parts.append(
            "These crates name their licence and carry no text of it:\n"
            + "".join(f"  {name}\n" for name in without)
        )
    for text, names in sorted(by_text.items(), key=lambda item: item[1]):
        names = sorted(set(names))
        parts.append("".join(f"* {name}\n" for name in names) + "\n" + text + "\n")
    return ("\n" + "-" * 80 + "\n\n").join(parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["sbom", "licences"])
    parser.add_argument("target")
    parser.add_argument("--library-only", action="store_true")
    options = parser.parse_args()
    packages = used(*LIBRARY, options.target)
    if not options.library_only:
        for carrier in (LAB, PROBE, CHECKED):
            packages = {**used(*carrier, options.target), **packages}
    print(sbom(packages, options.target) if options.what == "sbom" else licences(packages), end="")


if __name__ == "__main__":
    main()
