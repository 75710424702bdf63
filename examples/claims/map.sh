#!/bin/sh
# std::map<int,int> filled in order, preloaded and linked. The columns user_seconds and
# system_seconds of map.csv are those of `time`.
set -eu
mallard=${MALLARD:-mallard}
allocators=${ALLOCATORS:-glibc,mallard,jemalloc,tcmalloc}
$mallard bench map --runs 5 -a "$allocators" --export-csv map.csv "$@"
