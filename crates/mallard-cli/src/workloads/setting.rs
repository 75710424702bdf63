//! The settings that a row gives to its allocators.

use mallard_allocators::{Allocator, Kind, environment};

/// Stands for the environment variable from which an allocator reads its option string.
pub const OPTION_STRING: &str = "MALLOC_CONF";

/// A setting that a row gives to its allocators.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Setting {
    Default,
    Narenas(u32),
    DirtyDecay(i64),
    BackgroundThread(bool),
    /// An option string, for the allocators that read one.
    Options(&'static str),
    /// The program is linked with the allocator instead of having it preloaded.
    Linked,
    /// Variables for some allocators. The others run with their defaults.
    Variables(&'static [Variable]),
}

/// A variable for one allocator.
#[derive(Debug, PartialEq)]
pub struct Variable {
    /// The allocator's name in the catalog, such as `mallard` or `jemalloc`.
    pub allocator: &'static str,
    /// [`OPTION_STRING`], or the name of an environment variable.
    pub variable: &'static str,
    pub value: &'static str,
}

impl Setting {
    /// The label of the row with this setting.
    pub fn label(self, axis: &str) -> String {
        match self {
            Setting::Default if axis == "loading" => "preloaded".to_owned(),
            Setting::Default => mallard_report::stats::DEFAULT_ROW.to_owned(),
            Setting::Linked => "linked".to_owned(),
            Setting::Narenas(n) if axis == "narenas" => n.to_string(),
            setting => setting.conf().unwrap_or_default(),
        }
    }

    /// This setting as an option string.
    fn conf(self) -> Option<String> {
        match self {
            Setting::Default | Setting::Linked | Setting::Variables(_) => None,
            Setting::Narenas(n) => Some(format!("narenas:{n}")),
            Setting::DirtyDecay(ms) => Some(format!("dirty_decay_ms:{ms}")),
            Setting::BackgroundThread(on) => Some(format!("background_thread:{on}")),
            Setting::Options(options) => Some(options.to_owned()),
        }
    }

    /// The variables that run a process on `allocator` with this setting; none if the allocator
    /// does not have the setting.
    pub fn environment(self, allocator: &Allocator) -> Option<Vec<(String, String)>> {
        match (self, self.conf()) {
            (Setting::Linked, _) => Some(allocator.environment.clone()),
            (Setting::Variables(all), _) => Some(with_own(all, allocator)),
            (_, None) => Some(environment(allocator, None)),
            (_, Some(conf)) if allocator.reads_conf() => Some(environment(allocator, Some(&conf))),
            // `MALLOC_ARENA_MAX` is glibc's name for it.
            (Setting::Narenas(n), _) if allocator.kind == Kind::Glibc => {
                Some(vec![("MALLOC_ARENA_MAX".to_owned(), n.to_string())])
            }
            _ => None,
        }
    }

    /// The variables that this setting gives to some allocators.
    pub fn variables(self) -> &'static [Variable] {
        match self {
            Setting::Variables(all) => all,
            _ => &[],
        }
    }
}

/// The variables that run a process on `allocator`, with those of `all` that are meant for it.
fn with_own(all: &[Variable], allocator: &Allocator) -> Vec<(String, String)> {
    let own = || {
        all.iter()
            .filter(|set| set.allocator == allocator.catalog_name())
    };
    let conf = own().find(|set| set.variable == OPTION_STRING);
    let mut variables = environment(allocator, conf.map(|set| set.value));
    let others = own().filter(|set| set.variable != OPTION_STRING);
    variables.extend(others.map(|set| (set.variable.to_owned(), set.value.to_owned())));
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocator(kind: Kind, conf_variable: Option<&str>) -> Allocator {
        Allocator {
            name: "a".to_owned(),
            kind,
            version: String::new(),
            file: None,
            environment: vec![("OWN".to_owned(), "1".to_owned())],
            conf_variable: conf_variable.map(str::to_owned),
            options: None,
            base: None,
        }
    }

    #[test]
    fn a_setting_reaches_only_allocators_that_support_it() {
        let reader = allocator(Kind::Peer, Some("MALLOC_CONF"));
        let other = allocator(Kind::Peer, None);
        let glibc = allocator(Kind::Glibc, None);
        let variable = |setting: Setting, allocator: &Allocator, name: &str| {
            let found = setting.environment(allocator)?;
            found
                .into_iter()
                .find_map(|(n, value)| (n == name).then_some(value))
        };
        let decay = Setting::DirtyDecay(-1);
        assert_eq!(
            variable(decay, &reader, "MALLOC_CONF").as_deref(),
            Some("dirty_decay_ms:-1")
        );
        assert_eq!(decay.environment(&other), None);
        assert_eq!(decay.environment(&glibc), None);
        let narenas = Setting::Narenas(8);
        assert_eq!(
            variable(narenas, &reader, "MALLOC_CONF").as_deref(),
            Some("narenas:8")
        );
        assert_eq!(
            variable(narenas, &glibc, "MALLOC_ARENA_MAX").as_deref(),
            Some("8")
        );
        assert_eq!(narenas.environment(&other), None);
        assert_eq!(
            variable(Setting::Default, &other, "OWN").as_deref(),
            Some("1")
        );
    }
}
