"""The memory allocator Mallard. `mallard-run PROGRAM` runs a program on it."""

import os

__all__ = ["library"]


def library():
    """The path of the shared library, for LD_PRELOAD."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "libmallard.so.0")
