//! Every name that users of jemalloc may rely on is in the tables, with its type and access.
//!
//! The list is taken from jemalloc's manual: `{a,b}` means either, `<i>` a number. Options have
//! their own test (`options`).

extern crate std;

use super::{Row, rows};
use crate::ctl::Mode;
use std::format;
use std::string::String;
use std::vec::Vec;

/// The figures of each lock.
const LOCK: &str =
    "{num_ops,num_wait,num_spin_acq,num_owner_switch,total_wait_time,max_wait_time} uint64_t r-";
/// The row of a figure with fewer bits.
const THREADS: &str = "max_num_thds uint32_t r-";

const NAMES: &str = "
version const char * r-
epoch uint64_t rw
background_thread bool rw
max_background_threads size_t rw

config.{cache_oblivious,debug,fill,lazy_lock,opt_safety_checks,prof,prof_libgcc,prof_libunwind,stats,utrace,xmalloc} bool r-
config.malloc_conf const char * r-

thread.arena unsigned rw
thread.{allocated,deallocated} uint64_t r-
thread.{allocatedp,deallocatedp} uint64_t * r-
thread.peak.read uint64_t r-
thread.peak.reset  --
thread.tcache.enabled bool rw
thread.tcache.flush  --
thread.tcache.max size_t rw
thread.tcache.ncached_max.read_sizeclass size_t rw
thread.tcache.ncached_max.write char * -w
opt.malloc_conf.{symlink,env_var,global_var,global_var_2_conf_harder} const char * r-
thread.prof.name const char * rw
thread.prof.active bool rw
thread.idle  --

tcache.create unsigned r-
tcache.{flush,destroy} unsigned -w

arena.<i>.initialized bool r-
arena.<i>.{decay,purge,reset,destroy}  --
arena.<i>.name char * rw
arena.<i>.dss const char * rw
arena.<i>.{dirty,muzzy}_decay_ms ssize_t rw
arena.<i>.{retain_grow_limit,oversize_threshold} size_t rw
arena.<i>.extent_hooks extent_hooks_t * rw

arenas.{narenas,nbins,nhbins,nlextents} unsigned r-
arenas.{dirty,muzzy}_decay_ms ssize_t rw
arenas.{quantum,page,hugepage,tcache_max} size_t r-
arenas.bin.<i>.{size,slab_size} size_t r-
arenas.bin.<i>.{nregs,nshards} uint32_t r-
arenas.lextent.<i>.size size_t r-
arenas.create unsigned, extent_hooks_t * rw
arenas.lookup unsigned, void * rw

prof.{thread_active_init,active,gdump} bool rw
prof.{dump,prefix} const char * -w
prof.reset size_t -w
prof.lg_sample size_t r-
prof.interval uint64_t r-

stats.{allocated,active,metadata,metadata_edata,metadata_rtree,metadata_thp,resident,mapped,retained,zero_reallocs} size_t r-
approximate_stats.active size_t r-
stats.background_thread.num_threads size_t r-
stats.background_thread.{num_runs,run_interval} uint64_t r-
experimental.arenas.<i>.pactivep size_t * r-

stats.mutexes.{background_thread,max_per_bg_thd,ctl,prof,prof_thds_data,prof_dump,prof_recent_alloc,prof_recent_dump,prof_stats}.LOCK
stats.mutexes.reset  --

stats.arenas.<i>.dss const char * r-
stats.arenas.<i>.{dirty,muzzy}_decay_ms ssize_t r-
stats.arenas.<i>.nthreads unsigned r-
stats.arenas.<i>.uptime uint64_t r-
stats.arenas.<i>.{pactive,pdirty,pmuzzy,mapped,retained,extent_avail,base,internal,metadata_edata,metadata_rtree,metadata_thp,resident} size_t r-
stats.arenas.<i>.{dirty,muzzy}_{npurge,nmadvise,purged} uint64_t r-
stats.arenas.<i>.{small,large}.allocated size_t r-
stats.arenas.<i>.{small,large}.{nmalloc,ndalloc,nrequests,nfills,nflushes} uint64_t r-
stats.arenas.<i>.bins.<j>.{nmalloc,ndalloc,nrequests,nfills,nflushes,nslabs,nreslabs} uint64_t r-
stats.arenas.<i>.bins.<j>.{curregs,curslabs,nonfull_slabs} size_t r-
stats.arenas.<i>.bins.<j>.mutex.LOCK
stats.arenas.<i>.lextents.<j>.{nmalloc,ndalloc,nrequests} uint64_t r-
stats.arenas.<i>.lextents.<j>.curlextents size_t r-
stats.arenas.<i>.extents.<j>.{n,}{dirty,muzzy,retained}{,_bytes} size_t r-
stats.arenas.<i>.mutexes.{large,extent_avail,extents_dirty,extents_muzzy,extents_retained,decay_dirty,decay_muzzy,base,tcache_list}.LOCK
";

/// The list with its braces expanded.
fn expanded() -> Vec<String> {
    // Extents have numbers and bytes.
    let list = NAMES.replace(
        "{n,}{dirty,muzzy,retained}{,_bytes}",
        "{ndirty,nmuzzy,nretained,dirty_bytes,muzzy_bytes,retained_bytes}",
    );
    let mut done = Vec::new();
    let mut open: Vec<String> = list
        .lines()
        .filter(|line| !line.is_empty())
        .flat_map(|line| match line.strip_suffix("LOCK") {
            Some(lock) => std::vec![format!("{lock}{LOCK}"), format!("{lock}{THREADS}")],
            None => std::vec![String::from(line)],
        })
        .collect();
    while let Some(line) = open.pop() {
        let Some((before, rest)) = line.split_once('{') else {
            done.push(line);
            continue;
        };
        let (choices, after) = rest.split_once('}').expect("braces close");
        let written = choices
            .split(',')
            .map(|choice| format!("{before}{choice}{after}"));
        open.extend(written);
    }
    done
}

/// The row in the list's notation.
fn written(row: &Row) -> String {
    let mode = match row.leaf.mode() {
        Mode::ReadOnly => "r-",
        Mode::WriteOnly => "-w",
        Mode::ReadWrite => "rw",
        Mode::Neither => "--",
    };
    format!("{} {} {mode}", row.path, row.leaf.c_type())
}

#[test]
fn every_name_of_jemallocs_manual_is_there() {
    let rows: Vec<String> = rows().iter().map(written).collect();
    let expected = expanded();
    assert!(expected.len() > 250, "{}", expected.len());
    let missing: Vec<&String> = expected
        .iter()
        .filter(|name| !rows.contains(name))
        .collect();
    let instead = |name: &str| {
        let path = name.split(' ').next();
        rows.iter().find(|row| row.split(' ').next() == path)
    };
    let report: Vec<String> = missing
        .iter()
        .map(|name| format!("{name} (there: {:?})", instead(name)))
        .collect();
    assert!(missing.is_empty(), "{}", report.join("\n"));
}
