#!/usr/bin/env bash
# How long names take: `mallard profile` on a heap profile of 10,000 addresses in a program with
# 500 MB of debug information, whose pages are not in memory at first. Prints the time, the peak of
# memory, and for how many addresses a function, a line and inlined functions were found. Ends with
# status 1 if it takes more than 5 s or 1 GiB, or if more than 1 % lack a function or a line.
#
#   scripts/names.sh             in the folder of temporary files, of which it takes 2 GB
#   scripts/names.sh FOLDER      in another one, which keeps the program for the next time
#
# The program has units of C++, compiled from a few sources with templates of the standard library.
# Each is there many times: all its functions are local, so that the linker keeps every copy, with
# addresses and debug information of its own. That takes a minute on two CPUs.
#
# Needs a C++ compiler, binutils and Python 3.
set -euo pipefail
cd "$(dirname "$0")/.."

addresses=10000
least_mb=500
export addresses least_mb
cargo build --release --locked -p mallard-cli --target-dir target
mallard=$PWD/target/release/mallard
if [ $# = 0 ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
else
  mkdir -p "$1"
  work=$(realpath "$1")
fi

# A unit: types, and for each some functions that use containers of it.
source_of() {
  cat <<'CPLUSPLUS'
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace SHOP {
namespace {

template <int N> struct Item {
    std::string name;
    std::vector<int> counts;
    std::map<std::string, std::shared_ptr<Item>> parts;
    double prices[N + 1];
    bool operator<(const Item &other) const { return name < other.name; }
};

template <int N> struct Shelf {
    std::map<std::string, Item<N>> by_name;
    std::unordered_map<int, std::vector<Item<N>>> by_place;
    std::vector<std::function<int(const Item<N> &)>> rules;

    int total(const std::vector<Item<N>> &items) const {
        int sum = 0;
        for (const auto &item : items)
            for (const auto &rule : rules) sum += rule(item);
        return sum;
    }
    void add(int place, Item<N> item) {
        by_name[item.name] = item;
        auto &there = by_place[place];
        there.push_back(std::move(item));
        std::sort(there.begin(), there.end());
    }
};

template <int N> __attribute__((noinline)) int work(int seed) {
    Shelf<N> shelf;
    shelf.rules.push_back([seed](const Item<N> &item) { return seed + int(item.counts.size()); });
    shelf.rules.push_back([](const Item<N> &item) { return int(item.parts.size()) * N; });
    for (int i = 0; i < seed; i++) {
        Item<N> item{std::to_string(i + N), {i, seed}, {}, {}};
        item.parts[item.name] = std::make_shared<Item<N>>(item);
        shelf.add(i % 7, item);
    }
    int sum = 0;
    for (const auto &[place, items] : shelf.by_place) sum += place * shelf.total(items);
    return sum;
}

} // namespace
} // namespace SHOP

extern "C" int unit(int seed) {
    using namespace SHOP;
    return work<FIRST>(seed) + work<FIRST + 1>(seed) + work<FIRST + 2>(seed) + work<FIRST + 3>(seed);
}
CPLUSPLUS
}

make_program() {
  local sources=6 copies n
  source_of >"$work/unit.cpp"
  seq $sources | xargs -P 2 -I N c++ -std=c++17 -O2 -g -fno-weak -fno-rtti \
    -ffunction-sections -DSHOP=shopN -DFIRST=N0 -c -o "$work/source-N.o" "$work/unit.cpp"
  # What a copy of each adds: the linker keeps equal strings once.
  local bytes
  bytes=$(size -A "$work"/source-*.o | awk '/^\.debug_/ && !/_str/ { sum += $2 } END { print sum }')
  copies=$((least_mb * 1000000 * 102 / 100 / bytes + 1))
  for n in $(seq $sources); do
    seq $copies | xargs -P 2 -I C objcopy --redefine-sym unit=unit_${n}_C "$work/source-$n.o" \
      "$work/copy-$n-C.o"
  done
  echo 'int main() { return 0; }' | c++ -x c++ -c -o "$work/main.o" -
  c++ -no-pie -o "$work/program" "$work"/main.o "$work"/copy-*.o
  rm "$work"/*.o
}

[ -e "$work/program" ] || make_program

WORK=$work MALLARD=$mallard python3 - <<'PYTHON'
import gzip, os, random, subprocess, sys, time

work, mallard = os.environ["WORK"], os.environ["MALLARD"]
program, heap = f"{work}/program", f"{work}/program.1.0.f.heap"
named, wanted = f"{work}/named.pb.gz", int(os.environ["addresses"])
most_seconds, most_bytes, least_share = 5, 1 << 30, 0.99

def lines(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

# The size of the debug information.
sizes = {}
for line in lines("size", "-A", program):
    words = line.split()
    if words and words[0].startswith(".debug_"):
        sizes[words[0]] = int(words[1])
total = sum(sizes.values())
most = sorted(sizes.items(), key=lambda item: -item[1])[:5]
shown = ", ".join(f"{name} {bytes / 1e6:.0f}" for name, bytes in most)
print(f"debug information   {total / 1e6:8.0f} MB ({shown})")
if total < int(os.environ["least_mb"]) * 1_000_000:
    sys.exit("the program has less than it should")

# Addresses in functions of the units, evenly spread over them.
functions = []
for line in lines("nm", "-S", "-n", "--defined-only", program):
    words = line.split()
    if len(words) == 4 and words[2] == "t" and int(words[1], 16) > 16:
        functions.append((int(words[0], 16), int(words[1], 16)))
chance = random.Random(1)
chosen = set()
for i in range(wanted):
    start, size = functions[i * len(functions) // wanted]
    chosen.add(start + chance.randrange(1, size))
while len(chosen) < wanted:
    start, size = chance.choice(functions)
    chosen.add(start + chance.randrange(1, size))
chosen = sorted(chosen)
chance.shuffle(chosen)

# The profile: stacks of four frames.
for line in lines("readelf", "-lW", program):
    words = line.split()
    if words[:1] == ["LOAD"] and "E" in words[6:-1]:
        offset, start, size = (int(words[i], 16) for i in (1, 2, 4))
end = (start + size + 4095) & ~4095
with open(heap, "w") as file:
    stacks = [chosen[i:i + 4] for i in range(0, wanted, 4)]
    file.write(f"heap_v2/524288\n  t*: {len(stacks)}: {len(stacks) << 20} [0: 0]\n")
    for stack in stacks:
        file.write("@" + "".join(f" {at:#x}" for at in stack))
        file.write("\n  t*: 1: 1048576 [0: 0]\n")
    file.write("\nMAPPED_LIBRARIES:\n")
    file.write(f"{start:x}-{end:x} r-xp {offset:08x} 00:00 1 {program}\n")

# Out of the page cache.
for path in (program, heap):
    with open(path) as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

began = time.monotonic()
child = subprocess.Popen([mallard, "profile", "--text", "--pprof", named, heap],
                         stdout=subprocess.DEVNULL)
_, status, used = os.wait4(child.pid, 0)
seconds = time.monotonic() - began
peak = used.ru_maxrss << 10
if status != 0:
    sys.exit("mallard profile failed")

def fields(message):
    """The fields of a protocol buffer: numbers and values."""
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = varint()
            yield key >> 3, message[at:at + size]
            at += size

strings, functions, locations = [], {}, []
for number, value in fields(gzip.open(named).read()):
    if number == 4:
        locations.append([dict(fields(line)) for n, line in fields(value) if n == 4])
    elif number == 5:
        function = dict(fields(value))
        functions[function[1]] = function
    elif number == 6:
        strings.append(value.decode())

def has_function(line):
    return strings[functions[line.get(1)].get(2, 0)] != ""

count = len(locations)
with_function = sum(bool(l) and all(map(has_function, l)) for l in locations)
with_line = sum(bool(l) and all(line.get(2) for line in l) for l in locations)
with_inlined = sum(len(l) > 1 for l in locations)
print(f"addresses           {count:8}")
print(f"with a function     {with_function / count:8.1%}")
print(f"with a line         {with_line / count:8.1%}")
print(f"with inlined frames {with_inlined / count:8.1%}")
print(f"time                {seconds:8.2f} s")
print(f"CPU time            {used.ru_utime + used.ru_stime:8.2f} s")
print(f"peak of memory      {peak / (1 << 20):8.0f} MiB")
failed = []
if seconds > most_seconds:
    failed.append(f"over {most_seconds} s")
if peak > most_bytes:
    failed.append("over 1 GiB")
if count != wanted:
    failed.append(f"{count} addresses instead of {wanted}")
if min(with_function, with_line) < least_share * count:
    failed.append(f"less than {least_share:.0%} with a function and a line")
if failed:
    sys.exit("; ".join(failed))
PYTHON
