//! The cases of the sweep: which sizes are requested in which ways, after what, where in a program,
//! and with which options.

/// The options of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub conf: &'static str,
    /// The automatic arena has extent hooks of the program's own.
    pub hooks: bool,
}

const fn conf(conf: &'static str) -> Options {
    Options { conf, hooks: false }
}

pub const OPTIONS: &[Options] = &[
    conf(""),
    conf("reserve:1G"),
    conf("thp:always"),
    conf("retain:false"),
    conf("narenas:1"),
    conf("dirty_decay_ms:0"),
    conf("zero:true"),
    conf("prof:true,lg_prof_sample:16"),
    Options {
        conf: "narenas:1",
        hooks: true,
    },
];

/// A way to request memory (`programs/requests.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    pub name: &'static str,
    /// 0 if the way has none.
    pub alignment: u64,
    /// The program is the one in C++.
    pub is_cpp: bool,
}

/// Ways whose code is another one's, but for a few lines: a third of the options is enough.
const SIMILAR: &[&str] = &[
    "calloc_many",
    "realloc_null",
    "reallocarray",
    "valloc",
    "pvalloc",
    "new_array",
];

const fn way(name: &'static str, alignment: u64) -> Way {
    Way {
        name,
        alignment,
        is_cpp: false,
    }
}

const fn cpp(name: &'static str, alignment: u64) -> Way {
    Way {
        name,
        alignment,
        is_cpp: true,
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const WAYS: &[Way] = &[
    way("malloc", 0),
    way("calloc", 0),
    way("calloc_many", 0),
    way("realloc_null", 0),
    way("realloc_small", 0),
    way("realloc_middle", 0),
    way("reallocarray", 0),
    way("aligned_alloc", 64),
    way("aligned_alloc", GIB),
    way("posix_memalign", 2 * MIB),
    way("posix_memalign", GIB),
    way("memalign", 64 * KIB),
    way("memalign", 128 * MIB),
    way("valloc", 0),
    way("pvalloc", 0),
    way("mallocx", 0),
    way("mallocx", 32 * MIB),
    way("mallocx_zero", 4 * KIB),
    way("rallocx", 0),
    way("xallocx", 0),
    way("arena", 0),
    way("hooked", 0),
    way("hooked", 4 * MIB),
    way("new_nothrow", 0),
    way("new_aligned_nothrow", MIB),
    cpp("new", 0),
    cpp("new_array", 0),
    cpp("new_aligned", 4 * KIB),
    cpp("new_aligned", GIB),
];

/// One way for each kind of request, for cases that are about something else.
const FEW_WAYS: &[Way] = &[
    way("malloc", 0),
    way("calloc", 0),
    way("realloc_small", 0),
    way("posix_memalign", 2 * MIB),
    way("mallocx", 0),
    cpp("new", 0),
];

/// The places in a program besides `main` (`programs/requests.c`).
const PLACES: &[&str] = &[
    "constructor",
    "thread",
    "child",
    "child_with_block",
    "jump",
    "limit_on_addresses",
    "limit_on_data",
    "late_limit",
];

/// Smaller powers are requested by one process for each way, one after the other (`all`).
const FIRST_POWER: u32 = 16;

/// Powers of two, a byte and a page around them, and the longest that there are.
fn every_size() -> Vec<u64> {
    let around = |power: u32| {
        let size = 1u64 << power;
        [size - 4096, size - 1, size, size + 1, size + 4096]
    };
    let mut sizes: Vec<u64> = (FIRST_POWER..64).flat_map(around).collect();
    sizes.extend([4096, 4095, 1, 0].map(|less| u64::MAX - less));
    // A little more than the reservation of an option, and what Python asks for in a known report.
    sizes.extend([5 << 28, 1_000_000_000_000]);
    sizes
}

/// Powers of two, `PTRDIFF_MAX` and `SIZE_MAX`.
fn few_sizes() -> Vec<u64> {
    let mut sizes: Vec<u64> = (FIRST_POWER..64).map(|power| 1 << power).collect();
    sizes.extend([(1 << 63) - 1, u64::MAX]);
    sizes
}

/// What one process requests. It is compared with glibc, whatever the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    pub place: &'static str,
    pub before: &'static str,
    pub way: Way,
    pub size: u64,
}

impl Case {
    pub fn arguments(&self) -> [String; 5] {
        [
            self.place.to_owned(),
            self.before.to_owned(),
            self.way.name.to_owned(),
            self.size.to_string(),
            self.way.alignment.to_string(),
        ]
    }

    /// Whether every verdict of this way is glibc's.
    pub fn is_comparable(&self) -> bool {
        // In place, a block grows if there happens to be room.
        self.before != "all" && self.way.name != "xallocx"
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let Case {
            place,
            before,
            way,
            size,
        } = self;
        write!(f, "{}", way.name)?;
        if way.alignment > 0 {
            write!(f, " aligned to {}", way.alignment)?;
        }
        match *before {
            "all" => write!(f, " of every size"),
            _ => write!(
                f,
                " of {size} ({size:#x}) bytes after {before} ({place} place)"
            ),
        }
    }
}

/// A part of the cases, and for each a part of the options: one of as many. No number of sizes,
/// ways or options is a multiple of the other numbers here, so a part has each with each.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub cases: usize,
    pub options: usize,
}

impl Part {
    pub const ALL: Part = Part {
        cases: 1,
        options: 1,
    };

    /// This part of the cases, each with its options.
    pub fn of(self, cases: &[Case]) -> Vec<(Case, Vec<Options>)> {
        let parts = cases.iter().step_by(self.cases).enumerate();
        let each = parts.map(|(number, &case)| {
            let is_similar = SIMILAR.contains(&case.way.name);
            let step = if is_similar { 3 } else { self.options };
            let options = OPTIONS.iter().skip(number % step).step_by(step);
            (case, options.copied().collect())
        });
        each.collect()
    }
}

pub fn every_case() -> Vec<Case> {
    let mut cases = cases_of("plain", "all", WAYS, &[1]);
    cases.extend(cases_of("plain", "nothing", WAYS, &every_size()));
    for before in ["small", "many"] {
        cases.extend(cases_of("plain", before, FEW_WAYS, &few_sizes()));
    }
    for place in PLACES {
        cases.extend(cases_of(place, "nothing", FEW_WAYS, &few_sizes()));
    }
    cases
}

/// Cases for a system that grants every request.
pub fn granted_cases() -> Vec<Case> {
    let mut cases = cases_of("plain", "all", FEW_WAYS, &[1]);
    let mut sizes = few_sizes();
    sizes.retain(|&size| size >= GIB);
    for place in ["plain", "thread", "child_with_block", "limit_on_data"] {
        cases.extend(cases_of(place, "nothing", FEW_WAYS, &sizes));
    }
    cases
}

fn cases_of(place: &'static str, before: &'static str, ways: &[Way], sizes: &[u64]) -> Vec<Case> {
    let each = |&way: &Way| {
        sizes.iter().map(move |&size| Case {
            place,
            before,
            way,
            size,
        })
    };
    ways.iter().flat_map(each).collect()
}
