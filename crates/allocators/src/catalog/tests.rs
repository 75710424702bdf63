use super::*;

fn catalog() -> Catalog {
    Catalog::new(Settings::default())
}

/// A library that always exists and serves `malloc`: the C library itself.
fn libc() -> PathBuf {
    let served = probe(&catalog().entries[0].allocator(None), None).unwrap();
    served.object
}

#[test]
fn glibc_and_mallard_come_first() {
    let names: Vec<_> = catalog().names().map(str::to_owned).collect();
    assert_eq!(names[..2], ["glibc", "mallard"]);
    for peer in ["jemalloc", "tcmalloc", "mimalloc", "snmalloc", "rpmalloc"] {
        assert!(names.iter().any(|name| name == peer), "{peer}");
    }
}

#[test]
fn a_selection_is_in_the_order_of_the_tables_and_without_repetition() {
    let chosen = catalog()
        .select(&["rpmalloc", "mallard", "glibc", "mallard"])
        .unwrap();
    assert_eq!(chosen, ["glibc", "mallard", "rpmalloc"]);
    let all = catalog().select(&["all"]).unwrap();
    assert_eq!(all, catalog().usual_names().collect::<Vec<_>>());
}

#[test]
fn hardened_builds_take_part_only_if_they_are_named() {
    let catalog = catalog();
    let all = catalog.select(&["all"]).unwrap();
    let hardened = [
        "hardened_malloc",
        "scudo",
        "snmalloc-checked",
        "mimalloc-secure",
    ];
    for name in hardened {
        assert!(catalog.is_optional(name), "{name}");
        assert!(!all.iter().any(|one| one == name), "{name}");
        assert_eq!(catalog.select(&[name]).unwrap(), [name]);
    }
    let both = catalog.select(&["all", "scudo"]).unwrap();
    assert_eq!(both.len(), all.len() + 1);
}

#[test]
fn mimalloc_can_be_requested_with_its_number() {
    assert_eq!(catalog().select(&["mimalloc3"]).unwrap(), ["mimalloc"]);
    assert_eq!(catalog().select(&["mimalloc2"]).unwrap(), ["mimalloc2"]);
}

#[test]
fn a_mistyped_name_is_answered_with_the_nearest() {
    let message = catalog().select(&["jemaloc"]).unwrap_err().to_string();
    assert!(message.contains("did you mean `jemalloc`?"), "{message}");
    let message = catalog().select(&["postgres"]).unwrap_err().to_string();
    assert!(!message.contains("did you mean"), "{message}");
    assert!(message.contains("glibc, mallard, jemalloc"), "{message}");
}

#[test]
fn a_library_of_the_user_is_added_after_the_others() {
    let mut catalog = catalog();
    let spec = format!("mine={}", libc().display());
    assert_eq!(catalog.add_custom(&spec).unwrap(), "mine");
    assert_eq!(catalog.names().last(), Some("mine"));
    let with = format!("with={};A=b=c;MALLOC_CONF=prof:true,x:1", libc().display());
    assert_eq!(catalog.add_custom(&with).unwrap(), "with");
    let allocator = catalog.entry("with").unwrap().allocator(None);
    let own = [("A", "b=c"), ("MALLOC_CONF", "prof:true,x:1")];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(allocator.environment, own);
    assert!(matches!(
        catalog.add_custom(&spec),
        Err(Error::NameTaken { .. })
    ));
}

#[test]
fn a_library_that_cannot_serve_is_rejected_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.so");
    std::fs::write(&text, "text").unwrap();
    let program = std::env::current_exe().unwrap();
    for (file, expected) in [
        (text.as_path(), "not an ELF file"),
        (Path::new("/nowhere/lib.so"), "cannot be read"),
        (program.as_path(), "is not a shared library"),
    ] {
        let error = catalog()
            .add_custom(&format!("mine={}", file.display()))
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(
            error.to_string().contains(&file.display().to_string()),
            "{error}"
        );
    }
}

#[test]
fn a_specification_without_a_name_or_a_path_is_rejected() {
    for spec in [
        "",
        "mine",
        "=/lib/a.so",
        "mine=",
        "my lib=/lib/a.so",
        "mine=/lib/a.so;",
        "mine=/lib/a.so;MALLOC_CONF",
        "mine=/lib/a.so;=prof:true",
    ] {
        let error = catalog().add_custom(spec).unwrap_err();
        assert!(
            matches!(error, Error::CustomSyntax { .. }),
            "{spec}: {error}"
        );
    }
    let error = catalog().add_custom("glibc=/lib/a.so").unwrap_err();
    assert!(matches!(error, Error::NameTaken { .. }), "{error}");
}

#[test]
fn glibc_is_always_ready() {
    let cache = tempfile::tempdir().unwrap();
    let settings = Settings {
        cache: Some(cache.path().to_owned()),
        ..Settings::default()
    };
    let mut states = Vec::new();
    let glibc = Catalog::new(settings)
        .prepare("glibc", &mut |progress| states.push(progress.state))
        .unwrap()
        .unwrap();
    assert_eq!((glibc.kind, glibc.file), (Kind::Glibc, None));
    assert!(glibc.version.starts_with("2."), "{}", glibc.version);
    assert_eq!(states, [State::Probing, State::Ready]);
}

#[test]
fn a_peer_without_sources_or_package_is_unavailable_with_advice() {
    let cache = tempfile::tempdir().unwrap();
    let settings = Settings {
        peers: Some(cache.path().join("nowhere")),
        cache: Some(cache.path().to_owned()),
    };
    // No distribution has a package of google/tcmalloc.
    let catalog = Catalog::new(settings);
    let unavailable = catalog
        .prepare("tcmalloc", &mut |_| {})
        .unwrap()
        .unwrap_err();
    assert!(unavailable.reason.contains("nowhere"), "{unavailable:?}");
    assert!(
        unavailable.advice.contains("MALLARD_PEERS"),
        "{unavailable:?}"
    );
    assert_eq!(
        catalog.look("tcmalloc").unwrap(),
        Standing::Unavailable(unavailable)
    );
}

#[test]
fn a_peer_whose_sources_are_here_names_them() {
    let cache = tempfile::tempdir().unwrap();
    let settings = Settings {
        cache: Some(cache.path().to_owned()),
        ..Settings::default()
    };
    let standing = Catalog::new(settings).look("jemalloc").unwrap();
    let Standing::Buildable(from) = standing else {
        panic!("{standing:?}")
    };
    assert!(
        from.starts_with("builds on first use from tikv-jemalloc-sys 0."),
        "{from}"
    );
}
