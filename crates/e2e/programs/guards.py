# Misuses a guarded block below Python, as the argument says.
import ctypes
import sys

how = sys.argv[1]
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
c.malloc.argtypes = [ctypes.c_size_t]
c.free.argtypes = [ctypes.c_void_p]
c.malloc_usable_size.argtypes = [ctypes.c_void_p]
c.malloc_usable_size.restype = ctypes.c_size_t
on = ctypes.c_bool(True)
name = b"experimental.guard.active"
assert c.mallctl(name, None, None, ctypes.byref(on), ctypes.c_size_t(1)) == 0
for _ in range(1_000_000):
    p = c.malloc(40)
    if c.malloc_usable_size(p) == 40 and p % 4096 != 0:
        break
    c.free(p)
if how == "overflow":
    ctypes.memset(p + 48, 1, 1)
c.free(p)
if how == "write":
    ctypes.memset(p + 8, 1, 1)
if how == "read":
    ctypes.string_at(p + 8, 1)
c.free(p)
print("went on")
