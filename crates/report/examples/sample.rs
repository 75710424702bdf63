#[path = "../tests/common/mod.rs"]
mod common;
fn main() {
    let mut a = std::env::args().skip(1);
    let w = a.next().unwrap().parse().unwrap();
    let o = mallard_report::TerminalOptions {
        width: w,
        color: a.next().is_some(),
    };
    print!(
        "{}\n=======\n{}",
        mallard_report::terminal(&common::bench(), o),
        mallard_report::terminal(&common::compare(), o)
    );
}
