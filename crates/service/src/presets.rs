//! Descriptions of common servers, to use as they are or as a start for one's own.

use crate::file::Service;

/// A name and the text of the file.
pub type Preset = (&'static str, &'static str);

macro_rules! presets {
    ($($name:literal),*) => {
        /// All presets.
        pub const ALL: &[Preset] = &[$(($name, include_str!(concat!("../presets/", $name, ".toml")))),*];
    };
}

presets!(
    "redis",
    "nginx",
    "postgres",
    "memcached",
    "java",
    "node",
    "python"
);

/// The text of a preset.
pub fn text(name: &str) -> Option<&'static str> {
    ALL.iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
}

/// A preset as a service.
pub fn service(name: &str) -> Option<Service> {
    let service = Service::parse(name, text(name)?);
    Some(service.expect("the presets are read by a test"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Loop;

    #[test]
    fn every_preset_is_read_and_says_what_it_is_and_needs() {
        for (name, text) in ALL {
            let service = Service::parse(name, text).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(
                !service.about.is_empty() && !service.needs.is_empty(),
                "{name}"
            );
            assert_eq!(service.closed, Loop::Closed, "{name}");
            let names: Vec<&str> = service.metrics.iter().map(|m| m.name.as_str()).collect();
            assert_eq!(names[0], "qps", "{name}");
            assert!(names.contains(&"p99"), "{name}");
        }
    }
}
