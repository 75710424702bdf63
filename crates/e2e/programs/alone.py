"""A program whose threads have ended is alone: no thread is left of which os.fork would warn (from Python 3.12 on)."""
import os
import threading
import time
import warnings

warnings.simplefilter("error")
kept = bytearray(8 << 20)
def work():
    for _ in range(20):
        blocks = [bytes(1000 + i * 600) for i in range(300)]
for _ in range(20):
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    # Before 3.13, join does not wait for the end of the system's thread.
    limit = time.monotonic() + 120
    while len(os.listdir("/proc/self/task")) > 1:
        assert time.monotonic() < limit, "not alone"
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print("alone")
