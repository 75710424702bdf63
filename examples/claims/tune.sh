#!/bin/sh
# The settings of a tuning guide: arenas with blocks of one size, then arenas, decay times, the
# background thread and the guide's scenarios with blocks of random sizes.
set -eu
mallard=${MALLARD:-mallard}
allocators=${ALLOCATORS:-glibc,mallard,jemalloc}
$mallard bench arenas tune --threads 16 --runs 5 -a "$allocators" "$@"
