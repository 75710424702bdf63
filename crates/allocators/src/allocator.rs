//! An allocator that is ready to use, and the environment that runs a program on it.

use std::path::PathBuf;

/// An allocator that was found, built if necessary, and verified to serve `malloc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocator {
    /// The name used on the command line and in every table, such as `jemalloc`.
    pub name: String,
    pub kind: Kind,
    /// The version that the library reports, or else that of its package.
    pub version: String,
    /// The library to preload; none for glibc, which needs none.
    pub file: Option<PathBuf>,
    /// The variables that a measured process needs besides `LD_PRELOAD`.
    pub environment: Vec<(String, String)>,
    /// The variable from which it reads an option string, if any.
    pub conf_variable: Option<String>,
    /// The option string that makes it a variant; given before any other.
    pub options: Option<String>,
    /// The allocator of which it is a variant.
    pub base: Option<String>,
}

/// Where an allocator comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The C library's own.
    Glibc,
    /// Ours, embedded in the lab.
    Mallard,
    /// Built from `bench/peers`, or a system package.
    Peer,
    /// Named by the user as `NAME=/path/lib.so[;VARIABLE=VALUE]...`.
    Custom,
    /// Whatever the program has: nothing is preloaded, nothing is set.
    AsIs,
}

impl Allocator {
    /// The name in the catalog: of a variant, that of its allocator.
    pub fn catalog_name(&self) -> &str {
        self.base.as_deref().unwrap_or(&self.name)
    }

    /// The same allocator under another name, with an option string of its own. An empty string
    /// is its defaults.
    pub fn variant(&self, name: &str, options: &str) -> Allocator {
        Allocator {
            name: name.to_owned(),
            options: (!options.is_empty()).then(|| options.to_owned()),
            base: Some(self.catalog_name().to_owned()),
            ..self.clone()
        }
    }

    /// Whether it understands an option string such as `narenas:4`.
    pub fn reads_conf(&self) -> bool {
        self.conf_variable.is_some()
    }
}

/// The variables that run a process on `allocator`, with the option string `conf` if the allocator
/// reads one.
///
/// The library goes before the existing entries of `LD_PRELOAD`, because the loader takes `malloc`
/// from the first one that defines it.
pub fn environment(allocator: &Allocator, conf: Option<&str>) -> Vec<(String, String)> {
    let present = std::env::var("LD_PRELOAD").ok();
    let tunables = std::env::var("GLIBC_TUNABLES").ok();
    environment_over(allocator, conf, present.as_deref(), tunables.as_deref())
}

/// [`environment`], with the option string behind what the user's own variable says: of the same
/// option, that of the call wins.
pub fn environment_of_user(allocator: &Allocator, conf: Option<&str>) -> Vec<(String, String)> {
    let variables = environment(allocator, conf);
    match &allocator.conf_variable {
        Some(name) => behind(variables, name, std::env::var(name).ok().as_deref()),
        None => variables,
    }
}

/// The variables, with the present value of one of them in front of the one that they give it.
fn behind(
    mut variables: Vec<(String, String)>,
    name: &str,
    present: Option<&str>,
) -> Vec<(String, String)> {
    let own = variables.iter_mut().find(|(known, _)| known == name);
    if let (Some((_, value)), Some(present)) = (own, present.filter(|it| !it.is_empty())) {
        *value = format!("{present},{value}");
    }
    variables
}

/// [`environment`], given the existing values of the two variables that it extends.
fn environment_over(
    allocator: &Allocator,
    conf: Option<&str>,
    present_preload: Option<&str>,
    present_tunables: Option<&str>,
) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    if let Some(file) = &allocator.file {
        let file = file.display();
        let preload = match present_preload.filter(|present| !present.is_empty()) {
            Some(present) => format!("{file}:{present}"),
            None => file.to_string(),
        };
        variables.push(("LD_PRELOAD".to_owned(), preload));
    }
    for (name, value) in &allocator.environment {
        let value = match present_tunables.filter(|present| !present.is_empty()) {
            // The last setting of a tunable wins, so ours goes last.
            Some(present) if name == "GLIBC_TUNABLES" => format!("{present}:{value}"),
            _ => value.clone(),
        };
        variables.push((name.clone(), value));
    }
    // The last setting of an option wins, so those of the call go behind the allocator's own.
    let parts = [allocator.options.as_deref(), conf];
    let parts: Vec<&str> = parts
        .into_iter()
        .flatten()
        .filter(|p| !p.is_empty())
        .collect();
    if let (Some(variable), false) = (&allocator.conf_variable, parts.is_empty()) {
        let conf = parts.join(",");
        let own = variables.iter_mut().find(|(name, _)| name == variable);
        match own {
            Some((_, value)) => *value = format!("{value},{conf}"),
            None => variables.push((variable.clone(), conf)),
        }
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(file: Option<&str>, environment: &[(&str, &str)], conf: Option<&str>) -> Allocator {
        Allocator {
            name: "peer".to_owned(),
            kind: Kind::Peer,
            version: "1".to_owned(),
            file: file.map(PathBuf::from),
            environment: environment
                .iter()
                .map(|(n, v)| (n.to_string(), v.to_string()))
                .collect(),
            conf_variable: conf.map(str::to_owned),
            options: None,
            base: None,
        }
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected
            .iter()
            .map(|(n, v)| (n.to_string(), v.to_string()))
            .collect()
    }

    #[test]
    fn the_library_goes_before_existing_preloads() {
        let peer = peer(Some("/lib/a.so"), &[], None);
        assert_eq!(
            environment_over(&peer, None, None, None),
            pairs(&[("LD_PRELOAD", "/lib/a.so")])
        );
        assert_eq!(
            environment_over(&peer, None, Some("/lib/b.so"), None),
            pairs(&[("LD_PRELOAD", "/lib/a.so:/lib/b.so")])
        );
    }

    #[test]
    fn an_empty_preload_adds_no_separator() {
        let peer = peer(Some("/lib/a.so"), &[], None);
        let variables = environment_over(&peer, None, Some(""), None);
        assert_eq!(variables, pairs(&[("LD_PRELOAD", "/lib/a.so")]));
    }

    #[test]
    fn glibc_needs_nothing_and_ignores_an_option_string() {
        let glibc = peer(None, &[], None);
        assert_eq!(
            environment_over(&glibc, Some("narenas:4"), Some("/x.so"), None),
            pairs(&[])
        );
    }

    #[test]
    fn an_option_string_goes_to_the_variable_that_the_allocator_reads() {
        let peer = peer(None, &[], Some("MALLOC_CONF"));
        let variables = environment_over(&peer, Some("narenas:4"), None, None);
        assert_eq!(variables, pairs(&[("MALLOC_CONF", "narenas:4")]));
        assert_eq!(environment_over(&peer, None, None, None), pairs(&[]));
    }

    #[test]
    fn an_option_string_goes_behind_the_one_that_the_allocator_has() {
        let peer = peer(None, &[("MALLOC_CONF", "prof:true")], Some("MALLOC_CONF"));
        let variables = environment_over(&peer, Some("narenas:4"), None, None);
        assert_eq!(variables, pairs(&[("MALLOC_CONF", "prof:true,narenas:4")]));
    }

    #[test]
    fn a_variant_has_its_own_options_before_those_of_a_row() {
        let peer = peer(Some("/l.so"), &[], Some("MALLOC_CONF")).variant("lean", "narenas:1");
        let conf = |conf| environment_over(&peer, conf, None, None).pop().unwrap().1;
        assert_eq!(conf(None), "narenas:1");
        assert_eq!(conf(Some("tcache:false")), "narenas:1,tcache:false");
        assert_eq!((peer.name.as_str(), peer.catalog_name()), ("lean", "peer"));
    }

    #[test]
    fn an_option_string_goes_behind_the_user_s_own() {
        let peer = peer(Some("/l.so"), &[], Some("MALLARD_CONF")).variant("lean", "narenas:1");
        let conf = |present| {
            let variables = environment_over(&peer, Some("tcache:false"), None, None);
            behind(variables, "MALLARD_CONF", present).pop().unwrap().1
        };
        assert_eq!(conf(Some("prof:true")), "prof:true,narenas:1,tcache:false");
        assert_eq!(conf(Some("")), "narenas:1,tcache:false");
        assert_eq!(conf(None), "narenas:1,tcache:false");
        // The user's variable stays as it is where there is nothing to say.
        assert_eq!(
            behind(Vec::new(), "MALLARD_CONF", Some("prof:true")),
            pairs(&[])
        );
    }

    #[test]
    fn tunables_already_set_are_kept_and_ours_come_last() {
        let ours = "glibc.pthread.rseq=0";
        let peer = peer(None, &[("GLIBC_TUNABLES", ours)], None);
        let theirs = "glibc.malloc.check=1";
        assert_eq!(
            environment_over(&peer, None, None, Some(theirs)),
            pairs(&[(
                "GLIBC_TUNABLES",
                "glibc.malloc.check=1:glibc.pthread.rseq=0"
            )])
        );
        assert_eq!(
            environment_over(&peer, None, None, None),
            pairs(&[("GLIBC_TUNABLES", ours)])
        );
    }
}
