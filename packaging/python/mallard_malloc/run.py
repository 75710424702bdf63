"""The command `mallard-run`: becomes a program that runs on Mallard."""

import errno
import os
import re
import struct
import sys

from . import library

USAGE = """\
usage: mallard-run [--conf OPTIONS] [--python-malloc] PROGRAM [ARGUMENT...]

Runs a program on the memory allocator Mallard. The program replaces this command's process, so
input, output, signals and the exit code are the program's own.

  --conf OPTIONS    options for the allocator, such as dirty_decay_ms:1000,narenas:4; they come
                    behind those of MALLARD_CONF
  --python-malloc   set PYTHONMALLOC=malloc: CPython's own small blocks are Mallard's, too
  --library         print the path of the library, and end
  --version         print the version, and end

Exit codes: 2 for a mistake in this command line, 126 for a program that cannot run on Mallard, 127
for one that is not there; else the program's.
"""

# How the machines of an ELF file are called.
MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv"}


class Refused(Exception):
    """One line for the user, and the exit code."""

    def __init__(self, line, code=126):
        super().__init__(line)
        self.code = code


class Elf:
    """What decides whether a library can be loaded into a program."""

    def __init__(self, path):
        with open(path, "rb") as file:
            head = file.read(64)
            self.is_elf = head[:4] == b"\x7fELF" and len(head) >= 52
            if not self.is_elf:
                self.first_line = head.split(b"\n")[0] if head[:2] == b"#!" else b""
                return
            self.bits = 64 if head[4] == 2 else 32
            order = "<" if head[5] == 1 else ">"
            self.machine = struct.unpack_from(order + "H", head, 18)[0]
            self.loader = ""
            if self.bits != 64:
                return
            start, = struct.unpack_from(order + "Q", head, 32)
            size, count = struct.unpack_from(order + "HH", head, 54)
            file.seek(start)
            table = file.read(size * count)
            for entry in range(0, len(table) - 55, size or 56):
                kind, = struct.unpack_from(order + "I", table, entry)
                if kind == 3:
                    at, = struct.unpack_from(order + "Q", table, entry + 8)
                    length, = struct.unpack_from(order + "Q", table, entry + 32)
                    file.seek(at)
                    self.loader = file.read(length).rstrip(b"\0").decode(errors="replace")

    @property
    def machine_name(self):
        return MACHINES.get(self.machine, "machine {}".format(self.machine))


def find(program):
    """The program's file, as execvp would find it."""
    if os.sep in program:
        candidates = [program]
    else:
        candidates = [os.path.join(folder or ".", program) for folder in os.get_exec_path()]
    there = [path for path in candidates if os.path.exists(path)]
    for path in there:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    if not there:
        where = "" if os.sep in program else " in PATH"
        raise Refused("there is no program '{}'{}".format(program, where), 127)
    what = "a folder" if os.path.isdir(there[0]) else "not executable"
    raise Refused("{} is {}".format(there[0], what))


def interpreter(line):
    """The program that runs a script with this first line; none where we cannot tell."""
    words = line[2:].decode(errors="replace").split()
    if not words:
        return None
    if os.path.basename(words[0]) == "env":
        names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        try:
            return find(names[0]) if names else None
        except Refused:
            return None
    return words[0] if os.path.exists(words[0]) else None


def check(path):
    """Refuses a program into which the library would not be loaded."""
    own = Elf(library())
    for _ in range(5):
        try:
            program = Elf(path)
        except OSError:
            return  # One that can be run and not read.
        if program.is_elf:
            break
        path = interpreter(program.first_line)
        if path is None:
            return
    else:
        return
    if (program.machine, program.bits) != (own.machine, own.bits):
        raise Refused(
            "{} is for {}, and this library for {}: install the wheel for that machine".format(
                path, program.machine_name, own.machine_name
            )
        )
    if not program.loader:
        raise Refused("{} is statically linked: nothing can be preloaded into it".format(path))
    libraries = {True: "musl", False: "glibc"}
    ours, theirs = is_of_musl(), "ld-musl" in program.loader
    if ours != theirs:
        raise Refused(
            "{} runs on {}, and this library is for {}: install mallard-malloc with a Python "
            "that runs on {}".format(path, libraries[theirs], libraries[ours], libraries[theirs])
        )


def is_of_musl():
    """Whether the library of this wheel is for musl, by what it is linked with."""
    with open(library(), "rb") as file:
        return b"libc.so.6\0" not in file.read()


def preload(environment):
    """Puts the library before what is preloaded already."""
    path = library()
    if re.search(r"[\s:]", path):
        raise Refused(
            "the library's path has a space or a colon, at which LD_PRELOAD would be split: "
            "{}: install it elsewhere".format(path)
        )
    others = [each for each in re.split(r"[\s:]+", environment.get("LD_PRELOAD", "")) if each]
    environment["LD_PRELOAD"] = ":".join([path] + [each for each in others if each != path])


def version():
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in os.listdir(folder):
        found = re.match(r"mallard_malloc-(.+)\.dist-info$", name)
        if found:
            return found.group(1)
    return "unknown"


def parse(words):
    """The options and the program with its arguments."""
    options = {"conf": None, "python_malloc": False}
    while words:
        word = words[0]
        if word == "--conf":
            if len(words) < 2:
                raise Refused("--conf needs options, such as narenas:4", 2)
            options["conf"] = words[1]
            words = words[2:]
            continue
        if word.startswith("--conf="):
            options["conf"] = word[len("--conf=") :]
        elif word == "--python-malloc":
            options["python_malloc"] = True
        elif word in ("-h", "--help"):
            sys.stdout.write(USAGE)
            sys.exit(0)
        elif word == "--version":
            print("mallard-run", version())
            sys.exit(0)
        elif word == "--library":
            print(library())
            sys.exit(0)
        elif word == "--":
            words = words[1:]
            break
        elif word.startswith("-"):
            raise Refused("unknown option '{}'; see mallard-run --help".format(word), 2)
        else:
            break
        words = words[1:]
    if not words:
        raise Refused("which program? See mallard-run --help", 2)
    return options, words


def run(words):
    options, words = parse(words)
    path = find(words[0])
    check(path)
    environment = dict(os.environ)
    preload(environment)
    if options["conf"]:
        before = environment.get("MALLARD_CONF", "")
        environment["MALLARD_CONF"] = ",".join(filter(None, [before, options["conf"]]))
    if options["python_malloc"]:
        environment["PYTHONMALLOC"] = "malloc"
    # Python's start has changed what a program inherits: it ignores SIGPIPE and SIGXFSZ.
    import signal

    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    sys.stdout.flush()
    try:
        os.execve(path, words, environment)
    except OSError as error:
        why = error.strerror
        if error.errno == errno.ENOENT:
            why = "the program that it names as its interpreter or loader is not there"
        elif error.errno == errno.ENOEXEC:
            why = "it is no program, and a script begins with #!"
        raise Refused("cannot run {}: {}".format(path, why))


def main():
    try:
        run(sys.argv[1:])
    except Refused as refused:
        sys.stderr.write("mallard-run: {}\n".format(refused))
        sys.exit(refused.code)


if __name__ == "__main__":
    main()
