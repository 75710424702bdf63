# CPython's regrtest with Debian's interpreter. PYTHONMALLOC=malloc gives every request to malloc.
part="containers, strings, I/O, threads, processes"
quick="test_array test_bigaddrspace test_bytes test_capi test_copy test_ctypes test_dict
  test_exceptions test_faulthandler test_fork1 test_gc test_generators test_io test_json test_list
  test_marshal test_memoryio test_memoryview test_mmap test_multiprocessing_forkserver test_pickle
  test_posix test_re test_resource test_set test_signal test_sqlite3 test_struct test_subprocess
  test_thread test_threading test_threading_local test_tracemalloc test_unicode test_weakref
  test_xml_etree_c test_zlib"
[ -z "$whole" ] || part= quick=

build() {
  debian_files python3.11 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib \
    libpython3.11-testsuite
  basename libpython3.11-testsuite_*.deb | cut -d_ -f2 >version
}

run() {
  on env PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1 files/usr/bin/python3.11 -m test -j2 \
    --timeout 600 --junit-xml "$PWD/results.xml" $quick >&2 || true
  cat results.xml
}

verdicts() {
  python3 -c '
import sys, xml.etree.ElementTree as tree
for case in tree.parse(sys.stdin).iter("testcase"):
    kinds = {child.tag for child in case}
    bad = kinds & {"failure", "error"} or case.get("status") not in (None, "run")
    print("fail" if bad else "skip" if "skipped" in kinds else "pass", case.get("name"))'
}
