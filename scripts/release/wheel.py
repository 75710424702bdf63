#!/usr/bin/env python3
"""Makes the Python wheel of scripts/release.sh: the library, and the command `mallard-run`.

The file depends on its contents and SOURCE_DATE_EPOCH alone.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "packaging/python/mallard_malloc"
# The names that older versions of pip know these tags by, and the oldest that PyPI takes.
ALIASES = {"2_17": "manylinux2014", "2_12": "manylinux2010", "2_5": "manylinux1"}

METADATA = """\
Metadata-Version: 2.1
Name: mallard-malloc
Version: {version}
Summary: Runs Python, and any other program, on the memory allocator Mallard
License: MIT
License-File: LICENSE
License-File: crates.txt
Keywords: malloc,allocator,memory,preload
Classifier: License :: OSI Approved :: MIT License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Software Development :: Libraries
Requires-Python: >=3.6
Description-Content-Type: text/markdown

{readme}"""


def tag(arch, glibc):
    """The platform: a C library that is as new as the file demands, and no older than 2.17."""
    if glibc is None:
        return f"musllinux_1_2_{arch}"
    parts = max((2, 17), tuple(int(part) for part in glibc.split(".")[:2]))
    version = "_".join(map(str, parts))
    tags = [f"manylinux_{version}_{arch}"]
    if version in ALIASES:
        tags.append(f"{ALIASES[version]}_{arch}")
    return ".".join(tags)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", required=True)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--glibc", help="the version that the library demands; without: musl")
    parser.add_argument("--library", required=True, type=pathlib.Path)
    parser.add_argument("--licences", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    options = parser.parse_args()

    platform = tag(options.arch, options.glibc)
    tags = [f"py3-none-{each}" for each in platform.split(".")]
    info = f"mallard_malloc-{options.version}.dist-info"
    readme = (ROOT / "packaging/python/README.md").read_text()
    files = {f"mallard_malloc/{path.name}": path.read_bytes() for path in PACKAGE.glob("*.py")}
    files["mallard_malloc/libmallard.so.0"] = options.library.read_bytes()
    texts = {
        "METADATA": METADATA.format(version=options.version, readme=readme),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: mallard\nRoot-Is-Purelib: false\n"
        + "".join(f"Tag: {each}\n" for each in tags),
        "entry_points.txt": "[console_scripts]\nmallard-run = mallard_malloc.run:main\n",
        "licenses/LICENSE": (ROOT / "LICENSE").read_text(),
        "licenses/crates.txt": options.licences.read_text(),
    }
    for name, text in texts.items():
        files[f"{info}/{name}"] = text.encode()

    # What is within comes last, with its own line without a sum.
    record = []
    for name, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(content)}\n")
    own = f"{info}/RECORD"
    record.append(f"{own},,\n")

    # The form has no time before 1980.
    stamp = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]
    path = options.out / f"mallard_malloc-{options.version}-py3-none-{platform}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in sorted(files.items()) + [(own, "".join(record).encode())]:
            entry = zipfile.ZipInfo(name, stamp)
            entry.create_system = 3
            mode = 0o755 if ".so" in name else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content, compresslevel=9)


if __name__ == "__main__":
    main()
