# Work for the end-to-end test. Every object comes from malloc (PYTHONMALLOC=malloc), and the output
# must not depend on addresses, time or scheduling.
import collections
import concurrent.futures
import ctypes
import decimal
import gc
import hashlib
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import threading
import warnings
import zlib


def documents(seed, count):
    rng = random.Random(seed)
    return [
        {
            "id": i,
            "name": "".join(rng.choices("abcdefghij", k=rng.randint(3, 40))),
            "tags": [rng.choice(["red", "green", "blue"]) * rng.randint(1, 5) for _ in range(rng.randint(0, 12))],
            "nested": {str(k): rng.random() for k in range(rng.randint(0, 9))},
        }
        for i in range(count)
    ]


def digest(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def work(seed):
    docs = documents(seed, 1500)
    text = json.dumps(docs)
    assert json.loads(text) == docs
    words = collections.Counter(re.findall(r"\b[a-j]{4,12}(?=red|\b)", text))
    packed = zlib.compress(text.encode(), 6)
    assert zlib.decompress(packed) == text.encode()
    return seed, digest(docs), sum(words.values()), len(packed)


def threads():
    results = {}
    lock = threading.Lock()

    def body(n):
        result = [work(n * 10 + k) for k in range(2)]
        with lock:
            results[n] = result

    pool = [threading.Thread(target=body, args=(n,)) for n in range(8)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    return [results[n] for n in sorted(results)]


def forks_among_threads():
    """A fork while other threads allocate: the child must be able to go on."""
    # Since Python 3.12, such a fork warns, with the number of the process.
    warnings.simplefilter("ignore", DeprecationWarning)
    stop = threading.Event()

    def noise():
        while not stop.is_set():
            [bytearray(n * 37 % 5000) for n in range(200)]

    noisy = [threading.Thread(target=noise) for _ in range(3)]
    for thread in noisy:
        thread.start()
    codes = []
    for n in range(20):
        pid = os.fork()
        if pid == 0:
            ok = sum(len(str(k) * 3) for k in range(20000)) > 0
            os._exit(n if ok else 255)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    stop.set()
    for thread in noisy:
        thread.join()
    return codes


def native():
    """Memory of the C library handed over the language border."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = libc.realloc.restype = ctypes.c_void_p
    total = 0
    for n in range(1, 3000):
        p = libc.malloc(ctypes.c_size_t(n))
        p = libc.realloc(ctypes.c_void_p(p), ctypes.c_size_t(n * 3))
        ctypes.memset(p, n & 255, n * 3)
        total += ctypes.string_at(p, n * 3)[-1]
        libc.free(ctypes.c_void_p(p))
    return total


def main():
    print("threads", threads())
    print("forks", forks_among_threads())
    with multiprocessing.get_context("fork").Pool(4) as pool:
        print("pool", pool.map(work, range(100, 108)))
    with concurrent.futures.ThreadPoolExecutor(6) as executor:
        print("executor", list(executor.map(work, range(200, 206))))
    lines = subprocess.run(
        [sys.executable, "-c", "print(sum(len(str(n)) for n in range(100000)))"], capture_output=True, text=True, check=True
    ).stdout
    print("child", lines.strip())
    decimal.getcontext().prec = 2000
    print("decimal", hashlib.sha256(str(decimal.Decimal(2).sqrt()).encode()).hexdigest()[:16])
    print("big", big())
    print("native", native())
    cycles = []
    for n in range(20000):
        a, b = [], {}
        a.append(b)
        b["a"] = a
        cycles.append(a if n % 100 == 0 else None)
    del cycles
    print("collected", gc.collect() > 0)
    big_list = [None] * 3_000_000
    big_list.extend(range(1000))
    print("list", len(big_list), sum(big_list[-1000:]))


def big():
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    return hashlib.sha256(str(3**40000).encode()).hexdigest()[:16]


if __name__ == "__main__":
    main()
