//! The commands to try next.

use mallard_formats::variables::MALLARD_CONF;
use mallard_report::diagnosis::{Answer, Next, Trouble, TroubleKey};
use mallard_watch::family::{Family, Pool};

use crate::options::command_line;

/// What is known of a program besides figures.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    pub family: Family,
    pub pool: Option<Pool>,
    /// CPUs that the program may use.
    pub cpus: usize,
    /// The program as the user typed it, or the command that starts the service.
    pub typed: &'a str,
    /// What `mallard compare` takes for it.
    pub subject: &'a str,
    /// Whether it ends by itself, or with its load.
    pub ends: bool,
    /// Whether another allocator can be loaded into it.
    pub is_replaceable: bool,
}

/// The commands, the likeliest first. `alone` says that the program has one thread.
pub fn next(troubles: &[Trouble], answer: Answer, alone: bool, about: About) -> Vec<Next> {
    let mut next = Vec::new();
    let mut add = |command: String, what: &str| {
        next.push(Next {
            command,
            what: what.to_owned(),
        });
    };
    let compares = answer == Answer::Yes && about.is_replaceable;
    if compares && about.ends {
        add(
            format!("mallard compare {}", about.subject),
            "all allocators side by side",
        );
        add(
            format!("mallard tune {}", about.subject),
            "the options of Mallard that suit it best",
        );
    } else if compares {
        let start = command_line::typed(&[about.typed]);
        add(
            format!("mallard compare --start {start} --ready tcp:ADDRESS --load COMMAND"),
            "all allocators side by side, each under a load that ends",
        );
    }
    for trouble in troubles {
        if let Some((settings, what)) = settings(&trouble.key, alone, about.family) {
            add(format!("{settings} {}", about.typed), what);
        }
    }
    if troubles
        .iter()
        .any(|trouble| trouble.key == TroubleKey::Leak)
    {
        add(
            format!(
                "{MALLARD_CONF}=prof:true,prof_final:true mallard run -- {}",
                about.typed
            ),
            "a heap profile: which code keeps the blocks",
        );
    }
    next
}

/// The setting that an allocator has against a trouble, as a variable of the environment, and what
/// it does.
fn settings(trouble: &TroubleKey, alone: bool, family: Family) -> Option<(String, &'static str)> {
    let name = match family {
        Family::Mallard => MALLARD_CONF,
        Family::Jemalloc => "MALLOC_CONF",
        Family::Glibc => return tunables(trouble),
        _ => return None,
    };
    let (option, what) = match trouble {
        TroubleKey::Locks => ("percpu_arena:percpu", "an arena for each CPU"),
        TroubleKey::Decay | TroubleKey::Trim | TroubleKey::Mmap | TroubleKey::ToAndFro => {
            ("dirty_decay_ms:30000", "keep free pages for half a minute")
        }
        TroubleKey::Growth => ("thp:always", "huge pages"),
        TroubleKey::SlowPurge => ("background_thread:true", "return memory in another thread"),
        TroubleKey::Caches => ("tcache_max:256k", "larger thread caches"),
        // Decay alone returns nothing while the only thread sleeps.
        TroubleKey::HeldBack if alone => (
            "background_thread:true,dirty_decay_ms:1000",
            "return free pages after a second, also while the program sleeps",
        ),
        TroubleKey::HeldBack => ("dirty_decay_ms:1000", "return free pages after a second"),
        TroubleKey::Pinned => ("narenas:2", "fewer arenas"),
        _ => return None,
    };
    Some((format!("{name}={option}"), what))
}

/// The same for glibc.
fn tunables(trouble: &TroubleKey) -> Option<(String, &'static str)> {
    let (tunable, what) = match trouble {
        TroubleKey::Locks => ("glibc.malloc.arena_max=64", "more arenas"),
        TroubleKey::Decay | TroubleKey::Trim | TroubleKey::Mmap | TroubleKey::ToAndFro => (
            "glibc.malloc.trim_threshold=1073741824:glibc.malloc.mmap_threshold=1073741824",
            "keep free memory",
        ),
        TroubleKey::Growth => ("glibc.malloc.hugetlb=1", "huge pages"),
        TroubleKey::HeldBack | TroubleKey::Pinned => {
            ("glibc.malloc.arena_max=2", "fewer arenas, which keep less")
        }
        _ => return None,
    };
    Some((format!("GLIBC_TUNABLES={tunable}"), what))
}
