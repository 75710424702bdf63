//! What the heap profiler's files and their reader have in common.

/// How the names of files end: in jemalloc's text, and in pprof's protocol buffer.
pub const TEXT_SUFFIX: &str = ".heap";
pub const PPROF_SUFFIX: &str = ".pb.gz";
/// How the name of the profile at the end of a process ends, in both forms.
pub const FINAL_TEXT_SUFFIX: &str = ".f.heap";
pub const FINAL_PPROF_SUFFIX: &str = ".f.pb.gz";

// The names of kinds of figures in pprof's format.
pub const ALLOC_OBJECTS: &str = "alloc_objects";
pub const ALLOC_SPACE: &str = "alloc_space";
pub const INUSE_OBJECTS: &str = "inuse_objects";
pub const INUSE_SPACE: &str = "inuse_space";
pub const PEAK_SPACE: &str = "peak_space";
pub const WASTE_SPACE: &str = "waste_space";
pub const FREED_OBJECTS: &str = "freed_objects";
pub const LIFETIME: &str = "lifetime";
pub const FRAG_SPACE: &str = "frag_space";

// Units.
pub const COUNT: &str = "count";
pub const BYTES: &str = "bytes";
pub const NANOSECONDS: &str = "nanoseconds";

/// The kinds of figures that a process on Mallard has, with their units. Those of jemalloc's format
/// come first.
pub const TYPES: [(&str, &str); 9] = [
    (ALLOC_OBJECTS, COUNT),
    (ALLOC_SPACE, BYTES),
    (INUSE_OBJECTS, COUNT),
    (INUSE_SPACE, BYTES),
    (PEAK_SPACE, BYTES),
    (WASTE_SPACE, BYTES),
    (FREED_OBJECTS, COUNT),
    (LIFETIME, NANOSECONDS),
    (FRAG_SPACE, BYTES),
];

/// What the distance between samples counts.
pub const SPACE: &str = "space";

// The labels of samples.
pub const THREAD: &str = "thread";
pub const ARENA: &str = "arena";
pub const THREAD_NAME: &str = "thread_name";

/// The comment in profiles without what is known by block.
pub const BY_STACK_ALONE: &str = "in use by call stack alone";
