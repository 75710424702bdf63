//! Go's pprof as a client of the server.

use mallard_testing::lacks;

use crate::{Served, free_address};

#[test]
fn go_s_pprof_reads_the_process_from_a_first_try() {
    if lacks(&["go"]) {
        return;
    }
    let paths = [
        ("heap?gc=1", "inuse_space"),
        ("heap?debug=0", "inuse_space"),
        ("allocs?seconds=1", "alloc_space"),
        ("frag", "frag_space"),
    ];
    for (control, more) in [("false", &paths[..]), ("true", &[])] {
        let address = free_address();
        let options = format!(
            "http:{address},prof:true,lg_prof_sample:14,prof_final:false,http_control:{control}"
        );
        let (served, _) = Served::start("hold", &options);
        for (path, shown) in [&[("heap", "inuse_space")], more].concat() {
            let url = format!("http://{address}/debug/pprof/{path}");
            let text = pprof(&served, &url).unwrap_or_else(|said| panic!("{path}: {said}"));
            assert!(text.contains(&format!("Type: {shown}")), "{path}: {text}");
            // The program's own names come from its file.
            let is_of_now = path.starts_with("heap");
            assert!(!is_of_now || text.contains(" main"), "{path}: {text}");
        }
        served.end();
    }
}

#[test]
fn go_s_pprof_says_what_is_not_there() {
    if lacks(&["go"]) {
        return;
    }
    let address = free_address();
    let (served, _) = Served::start("hold", &format!("http:{address}"));
    // Where no path is named, it asks for a profile of the CPU.
    let said = pprof(&served, &format!("http://{address}")).expect_err("there is none");
    assert!(
        said.contains("404 Not Found: / lists what there is"),
        "{said}"
    );
    served.end();
}

/// What pprof prints of an address; its errors, if it does not end well.
fn pprof(served: &Served, url: &str) -> Result<String, String> {
    let mut command = std::process::Command::new("go");
    command
        .args(["tool", "pprof", "-top", url])
        .env("PPROF_TMPDIR", served.sandbox.path("pprof"));
    let output = command.output().expect("go starts");
    let said = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() {
        Ok(said(output.stdout))
    } else {
        Err(said(output.stderr))
    }
}
