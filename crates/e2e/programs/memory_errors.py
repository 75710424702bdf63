# Requests that the system does not grant are exceptions, and the program goes on.
with open("/proc/self/oom_score_adj", "w") as file:
    # If memory runs out for good, the system ends this process and no other.
    file.write("1000")
with open("/proc/sys/vm/overcommit_memory") as file:
    grants_all = file.read().strip() == "1"
# Where the system grants everything, only what exceeds all addresses is refused.
size = 10**15 if grants_all else 10**12


class Shown:
    def __str__(self):
        return "a".ljust(size)


ways = {
    "ljust": lambda: "a".ljust(size),
    "wide ljust": lambda: "\N{SNOWMAN}".ljust(size // 4),
    "bytes": lambda: bytes(size),
    "bytearray": lambda: bytearray(size),
    "product": lambda: b"x" * size,
    "list": lambda: [0] * (size // 8),
    "longer list": lambda: list(range(1000)) * (size // 1000),
    "power": lambda: 1 << (8 * size),
    "format": lambda: f"{Shown()}",
}
for name, request in ways.items():
    for _ in range(2):
        try:
            request()
            print(name, "has memory")
        except (MemoryError, OverflowError) as error:
            print(name, type(error).__name__)
        # Small requests work, and so do longer ones.
        assert sum(map(len, [str(i) for i in range(10000)])) == 38890
        assert len(bytes(50_000_000)) == 50_000_000
