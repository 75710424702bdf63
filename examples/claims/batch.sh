#!/bin/sh
# 500,000 small blocks of random size in each of 32 threads, then all freed.
set -eu
mallard=${MALLARD:-mallard}
allocators=${ALLOCATORS:-glibc,mallard,jemalloc}
$mallard bench batch --threads 32 --size 16-255 --runs 5 -a "$allocators" "$@"
