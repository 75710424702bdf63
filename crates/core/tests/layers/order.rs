//! The order: of the layers, and of the files and folders inside folders.

/// The layers, from the bottom up; those in one row do not use each other.
pub const LAYERS: &[&[&str]] = &[
    &["sys"],
    &["class"],
    &["hardened"],
    &["space"],
    &["heap"],
    &["arena"],
    &["upkeep"],
    &["cache"],
    &["prof"],
    &["report"],
    &["guard"],
    &["stats"],
    &["background"],
    &["fork"],
    &["api"],
    &["ctl"],
    &["stats_print"],
];
/// Uses no layer, so that it can run before any is ready. Only the start uses it, and the files
/// that report options or use their words.
pub const APART: &str = "conf";
/// The only file that uses `conf` and `fork`.
pub const START: &str = "api/start/mod.rs";
/// The files that report options, or use their words.
pub const OPTION_USERS: &[&str] = &[
    "ctl/branches/arena.rs",
    "ctl/branches/config.rs",
    "ctl/opt.rs",
    "ctl/tests/options.rs",
];
/// The order of the files and folders inside folders, from the bottom up. A folder's `mod.rs` has
/// no place in it: it is the folder's face (see the test's head).
pub const FOLDERS: &[(&str, &[&[&str]])] = &[
    (
        "sys",
        &[
            &["arch"],
            &["steps"],
            &[
                "model", "page", "atomic", "bits", "hint", "poison", "label", "spread",
            ],
            &["os"],
            &["faults", "message"],
            &["fault"],
            &["sync"],
        ],
    ),
    (
        "sys/arch",
        &[&["convention"], &["aarch64"], &["x86_64"], &["capture"]],
    ),
    ("sys/arch/aarch64", &[&["frames"], &["capture"]]),
    ("sys/arch/x86_64", &[&["capture", "frames"]]),
    (
        "sys/os",
        &[
            &["errno", "tls", "mappings"],
            &[
                "proc",
                "mem",
                "futex",
                "probe",
                "descriptor",
                "signals",
                "vdso",
            ],
            &["time", "cpu", "memfd", "sockets", "moves"],
            &["numa", "pin", "thp", "random"],
        ],
    ),
    (
        "sys/sync",
        &[
            &[
                "gate",
                "helper",
                "published",
                "meter",
                "rank",
                "bell",
                "pending",
                "seqlock",
            ],
            &["flag"],
            &["lock"],
        ],
    ),
    (
        "class",
        &[&["late_values"], &["shape", "hidden"], &["tailored"]],
    ),
    ("hardened", &[&["ring", "word"], &["run"]]),
    (
        "space",
        &[&["meta", "zero_size"], &["fallback"], &["segment"]],
    ),
    (
        "space/segment",
        &[
            &["chunk", "fast", "lock", "words", "record", "slices"],
            &["layout"],
            &["place", "kept"],
            &["hooked"],
            &["growth", "outline", "standalone"],
        ],
    ),
    (
        "heap",
        &[
            &["huge"],
            &["purge", "closing"],
            &["fence"],
            &["standalone"],
            &["hooked"],
            &["runs"],
            &["set"],
        ],
    ),
    (
        "heap/huge",
        &[&["borders", "pace"], &["huge_pages"], &["touch"]],
    ),
    ("heap/standalone", &[&["kept"]]),
    ("heap/hooked", &[&["hooks"], &["memory"]]),
    ("heap/set", &[&["heaps"], &["nodes", "manual"]]),
    (
        "heap/purge",
        &[
            &["hold", "advice", "decay"],
            &["watch", "meter"],
            &["victims"],
            &["surplus"],
            &["rounds"],
            &["used_pages"],
        ],
    ),
    (
        "heap/runs",
        &[
            &["filler", "begun"],
            &["pool"],
            &["crossing"],
            &["allocation"],
            &["rejoin", "in_place"],
            &["moves"],
        ],
    ),
    (
        "arena",
        &[
            &["making", "misuse", "count", "life"],
            &["pages"],
            &["table"],
            &["large"],
            &["small"],
            &["choice"],
            &["figures", "inspect"],
        ],
    ),
    (
        "arena/small",
        &[
            &["sparse", "traffic", "transfer_cache"],
            &["slab"],
            &["poison"],
            &["bin"],
            &["bins"],
            &["returns", "subrelease"],
        ],
    ),
    (
        "arena/choice",
        &[
            &["interval"],
            &["settings", "percpu"],
            &["manual"],
            &["oversize", "join", "destination"],
        ],
    ),
    (
        "upkeep",
        &[
            &["probes", "threads"],
            &["background_state"],
            &["export"],
            &["tick"],
        ],
    ),
    ("upkeep/export", &[&["page"]]),
    (
        "cache",
        &[
            &["stack", "countdown", "room"],
            &["current"],
            &["length", "zeros"],
            &["inside", "counted", "crowd", "manual"],
            &["delay"],
            &["life", "limits"],
            &["gc", "forks"],
        ],
    ),
    ("cache/counted", &[&["events"]]),
    ("cache/inside", &[&["company"]]),
    ("cache/stack", &[&["models"]]),
    ("cache/life", &[&["registry"], &["deferred"]]),
    (
        "prof",
        &[
            &["gap", "root", "sort", "unwind"],
            &["hooks"],
            &["capture", "sites"],
            &["samples"],
            &["by_class", "history"],
            &["dump"],
            &["callers"],
            &["sampler"],
        ],
    ),
    ("prof/callers", &[&["table"], &["known"], &["chosen"]]),
    (
        "prof/sampler",
        &[
            &["pace", "guards"],
            &["threads"],
            &["files"],
            &["sample"],
            &["countdown"],
            &["end"],
        ],
    ),
    (
        "report",
        &[&["finding", "text"], &["json"], &["print"], &["ends"]],
    ),
    (
        "guard",
        &[
            &["slots"],
            &["pool"],
            &["finding"],
            &["report"],
            &["rate"],
            &["blocks"],
            &["handler"],
            &["switch"],
        ],
    ),
    (
        "prof/unwind",
        &[
            &["cache", "frames", "memory"],
            &["bytes", "registers"],
            &["table"],
            &["modules"],
            &["tag"],
            &["step"],
            &["walk"],
        ],
    ),
    ("prof/unwind/modules", &[&["elf"], &["list"], &["find"]]),
    (
        "prof/unwind/table",
        &[&["expression"], &["program"], &["packed"]],
    ),
    (
        "prof/dump",
        &[
            &["file", "maps", "snapshot", "strings", "text"],
            &["gzip"],
            &["heap_v2", "json", "pprof"],
        ],
    ),
    (
        "stats",
        &[
            &["figures"],
            &["snapshot"],
            &["gather"],
            &["process"],
            &["sums"],
            &["page"],
        ],
    ),
    ("stats/page", &[&["gather"], &["own"]]),
    (
        "api",
        &[
            &["extras"],
            &["start"],
            &["pending"],
            &["blocks"],
            &["controls", "guards", "inspect", "global", "metrics"],
            &["arenas"],
            &["extended", "profile", "threads"],
        ],
    ),
    (
        "api/blocks",
        &[
            &["hardened"],
            &["free"],
            &["alloc"],
            &["resize"],
            &["object"],
        ],
    ),
    (
        "api/blocks/hardened",
        &[&["report"], &["places"], &["free"]],
    ),
    ("api/blocks/alloc", &[&["supply"], &["hardened"]]),
    (
        "ctl",
        &[
            &["access"],
            &["request", "index"],
            &["node"],
            &["opt"],
            &["branches"],
            &["lookup"],
            &["values"],
        ],
    ),
    (
        "ctl/branches",
        &[
            &[
                "arena",
                "arenas",
                "config",
                "experimental",
                "prof",
                "tcache",
                "thread",
            ],
            &["stats"],
        ],
    ),
    ("ctl/branches/stats", &[&["locks", "rows"]]),
    (
        "stats_print",
        &[
            &["write"],
            &["metrics", "tables"],
            &["totals", "settings"],
            &["arenas"],
        ],
    ),
    (
        "conf",
        &[
            &["line", "plain"],
            &["value"],
            &["text"],
            &["options"],
            &["nearest"],
            &["reader"],
            &["system"],
        ],
    ),
];
/// Layers that do not use a lower one, though the order allows it.
pub const APART_FROM: &[(&str, &str)] = &[("heap", "class")];
/// Names at the crate's root that stand for an item in a layer.
pub const ALIASES: &[(&str, &str)] = &[
    ("die", "sys"),
    ("c_symbol", "sys"),
    ("symbol_address", "sys"),
    ("read_symbol_address", "sys"),
    ("Mallard", "api"),
    ("metrics", "api"),
    ("Metrics", "api"),
];
/// The root module for unit tests, which all of them may use.
pub const TESTING: &str = "testing";
