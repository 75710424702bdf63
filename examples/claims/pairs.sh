#!/bin/sh
# Pairs of malloc and free in 1 to 64 threads. Like the article's script, it writes result.csv with
# the columns threads,allocator,median_seconds, medians of five runs.
set -eu
mallard=${MALLARD:-mallard}
allocators=${ALLOCATORS:-glibc,mallard,jemalloc}
$mallard bench pairs --threads 1,4,16,32,64 --runs 5 -a "$allocators" --export-csv result.csv "$@"
