//! How a setting is given to its allocator.

use mallard_allocators::{Allocator, Kind};
use mallard_judge::tune::space::Setting;

/// The variables of glibc that begin with this are set through GLIBC_TUNABLES.
const TUNABLE: &str = "glibc.malloc.";

/// The option string, or the variables, of a setting.
pub fn environment(
    setting: &Setting,
    allocator: &Allocator,
) -> (Option<String>, Vec<(String, String)>) {
    if setting.options.is_empty() {
        return (None, Vec::new());
    }
    if allocator.kind != Kind::Glibc {
        return (Some(setting.conf()), Vec::new());
    }
    let tunables = setting
        .options
        .iter()
        .map(|(key, value)| format!("{TUNABLE}{key}={value}"));
    let text = tunables.collect::<Vec<_>>().join(":");
    (None, vec![("GLIBC_TUNABLES".to_owned(), text)])
}

/// What a user types to have the setting.
pub fn typed(setting: &Setting, allocator: &Allocator) -> String {
    let (conf, variables) = environment(setting, allocator);
    let own = conf.map(|conf| {
        let name = allocator.conf_variable.as_deref().unwrap_or("MALLOC_CONF");
        format!("{name}={conf}")
    });
    let all = own.into_iter().chain(
        variables
            .into_iter()
            .map(|(name, value)| format!("{name}={value}")),
    );
    all.collect::<Vec<_>>().join(" ")
}
