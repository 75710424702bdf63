//! What must hold for any bytes that are read as a profile. The fuzzer's target uses it as well.

use mallard_profile::model::Profile;
use mallard_profile::names::NamingOutcome;
use mallard_profile::process::core;
use mallard_profile::show::{Layout, Named, ProfilePage, html, json, table};
use mallard_profile::view::View;
use mallard_profile::view::rows::By;
use mallard_profile::view::trim::trimmed;
use mallard_profile::{read, write};

/// Reads the bytes. Whatever is accepted can be shown in every form, and written and read again as
/// the same profile.
#[allow(dead_code, reason = "not every test reads profiles")]
pub fn profile(bytes: &[u8]) {
    let profile = match read::profile(bytes) {
        Ok(profile) => profile,
        Err(error) => {
            let told = error.to_string();
            assert!(
                !told.is_empty() && !told.contains('\n'),
                "one line: {told:?}"
            );
            return;
        }
    };
    for sample in &profile.samples {
        assert_eq!(sample.values.len(), profile.types.len());
    }
    let again = read::profile(&write::pprof_plain(&profile)).expect("what was written is read");
    assert_eq!(without_default(again), without_default(profile.clone()));
    shown(&profile);
}

/// Reads the bytes as a core file. Whatever is accepted can be shown in every form.
#[allow(dead_code, reason = "not every test reads cores")]
pub fn core(bytes: &[u8]) {
    if let Err(error) = mallard_inspect::core_file::read(bytes, None) {
        assert!(!error.to_string().contains('\n'), "one line: {error}");
    }
    match core::read(bytes, None) {
        Ok(reading) => shown(&reading.profile),
        Err(error) => {
            let told = error.to_string();
            assert!(
                !told.is_empty() && !told.contains('\n'),
                "one line: {told:?}"
            );
        }
    }
}

/// Of two types with one name, a viewer takes the first.
fn without_default(profile: Profile) -> Profile {
    Profile {
        default_type: None,
        ..profile
    }
}

fn shown(profile: &Profile) {
    let names = NamingOutcome::default();
    let layout = Layout {
        width: Some(80),
        color: true,
        rows: Some(10),
    };
    for (view, figures) in View::of(profile) {
        write::collapsed(&trimmed(profile), figures.main);
        for (by, compared) in [
            (By::Function, true),
            (By::Line, false),
            (By::Module, false),
            (By::Size, false),
            (By::Thread, true),
        ] {
            let named = Named {
                name: "profile",
                profile,
            };
            let page = ProfilePage {
                subject: named,
                before: compared.then_some(named),
                view,
                by,
                names: &names,
                notes: &[],
                apart: None,
            };
            table(&page, layout).expect("the view has figures");
            json(&page).expect("the view has figures");
            html(&page);
        }
    }
}
