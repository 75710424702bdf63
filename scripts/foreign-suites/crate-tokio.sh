name=tokio
arguments="--features full,test-util"
part="runtimes, tasks, channels"
targets="--lib --test rt_common --test rt_threaded --test rt_basic --test task_join_set
  --test sync_mpsc --test sync_broadcast --test fs_file"
[ -z "$whole" ] || part= targets=
# Its own unit tests are linked with a helper that brings tokio, and so the allocator.
condition='#[cfg(not(test))]'
source "$root/scripts/foreign-suites/crate.inc"

# With its list of versions, tokio's helpers would use another copy of tokio.
prepare() {
  rm -f tokio/Cargo.lock
}
