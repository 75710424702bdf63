"""Objects, dictionaries, strings and sorted lists, as in programs that read, group and print records.

Usage: python3 objects.py ROUNDS    (the suite sets PYTHONMALLOC=malloc)
"""

import json
import re
import sys
from collections import Counter, defaultdict, deque


class Random:
    """Our own, so that every version of Python does the same work."""

    def __init__(self):
        self.state = 42

    def __call__(self, n):
        self.state = (self.state * 1103515245 + 12345) & 0x7FFFFFFF
        return (self.state >> 16) % n


class Record:
    def __init__(self, key, name, tags, amount):
        self.key = key
        self.name = name
        self.tags = tags
        self.amount = amount


def records(random, count, words):
    for key in range(count):
        tags = [words[random(len(words))] for _ in range(random(6))]
        name = " ".join(words[random(len(words))] for _ in range(2 + random(5)))
        yield Record(key, name, tags, random(10000) / 8)


def main(rounds):
    random = Random()
    words = ["".join(chr(97 + random(26)) for _ in range(2 + random(11))) for _ in range(600)]
    recent, total, lines = deque(maxlen=6), 0, 0
    for round_ in range(rounds):
        batch = list(records(random, 1500, words))
        groups = defaultdict(list)
        for record in batch:
            for tag in record.tags:
                groups[tag].append(record)
        text = json.dumps(
            [{"key": r.key, "name": r.name, "tags": r.tags, "amount": r.amount} for r in batch]
        )
        again = json.loads(text)
        again.sort(key=lambda item: (-item["amount"], item["name"]))
        counted = Counter(re.findall(r"[a-z]{4,}", " ".join(item["name"] for item in again[:700])))
        report = [f"{word:>14}: {n}" for word, n in sorted(counted.items())]
        lines += len(report)
        total = (total * 31 + sum(len(line) for line in report) + len(text)) % 1000000007
        # Some batches stay alive, with the objects parsed from their text.
        if round_ % 3 == 0:
            recent.append((batch, groups, again))
        tree = None
        for record in batch[:800]:
            tree = (record.amount, tree, {record.name: record.tags})
        while tree is not None:
            total = (total + int(tree[0])) % 1000000007
            tree = tree[1]
    print("lines", lines, "total", total, "kept", len(recent))


main(int(sys.argv[1]))
