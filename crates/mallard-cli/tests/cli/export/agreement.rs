//! After the load: every client gets the same figures.

use mallard_testing::lacks;

use super::prometheus::Prometheus;
use super::*;

/// Allocates in threads that end, then rests, but for a large block now and then: a process
/// publishes its figures when it has got memory. For each byte of input it prints what it sees of
/// itself.
const PROGRAM: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <malloc.h>
    #include <poll.h>
    #include <pthread.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static void *work(void *seed) {
        static __thread void *slots[4096];
        uint64_t state = (uintptr_t)seed + 88172645463325252u;
        for (int i = 0; i < 400000; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            void **slot = &slots[state % 4096];
            free(*slot);
            size_t size = state % 97 ? state % 2000 + 1 : state % 100000;
            *slot = memset(malloc(size), 1, size);
        }
        for (int i = 0; i < 4096; i++) if (i % 3) free(slots[i]);
        return 0;
    }
    static int (*mallctl)(const char *, void *, size_t *, void *, size_t);
    static size_t figure(const char *name) {
        size_t value = 0, bytes = sizeof value;
        if (mallctl(name, &value, &bytes, 0, 0)) abort();
        return value;
    }
    /* A large block takes the place of another: the figures are as before, and are published. */
    static void rest(void) {
        static void *large;
        free(large);
        large = memset(malloc(20 << 20), 1, 20 << 20);
    }
    static void print(void) {
        uint64_t epoch = 1;
        if (mallctl("epoch", 0, 0, &epoch, sizeof epoch)) abort();
        struct mallinfo2 info = mallinfo2();
        printf("%zu %zu %zu %zu ", info.uordblks, info.fsmblks, info.keepcost, info.fordblks);
        printf("%zu %zu %zu %zu %zu\n", figure("stats.allocated"), figure("stats.active"),
               figure("stats.metadata"), figure("stats.resident"), figure("stats.retained"));
        fflush(stdout);
    }
    int main(void) {
        static char buffer[4096];
        setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
        mallctl = dlsym(RTLD_DEFAULT, "mallctl");
        pthread_t threads[4];
        for (uintptr_t i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *)i);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
        for (;;) {
            rest();
            struct pollfd in = {.fd = 0, .events = POLLIN};
            if (poll(&in, 1, 50) < 1) continue;
            char byte;
            if (read(0, &byte, 1) < 1) return 0;
            print();
        }
    }
"#;

/// What the program sees of itself.
struct Own {
    running: Running,
    output: BufReader<std::process::ChildStdout>,
}

impl Own {
    fn line(&mut self) -> String {
        self.running
            .input
            .as_mut()
            .unwrap()
            .write_all(b"?")
            .unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// Looks with `look` while the program's own figures stand still, and returns these as well.
    /// Caches return blocks for some seconds after the last thread has ended.
    fn at_rest<T>(&mut self, look: impl Fn() -> T) -> (Vec<f64>, T) {
        let begun = Instant::now();
        loop {
            let before = self.line();
            // Long enough for a publication and for two scrapes.
            std::thread::sleep(Duration::from_secs(2));
            let seen = look();
            if self.line() == before {
                let figures = before.split_whitespace().map(|n| n.parse().unwrap());
                return (figures.collect(), seen);
            }
            assert!(begun.elapsed() < TIMEOUT, "{before}");
        }
    }
}

/// Long, because the figures of Prometheus are those of its last scrape.
#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn after_the_load_mallinfo2_mallctl_the_page_proc_and_prometheus_agree() {
    let place = Place::new();
    let flags = ["-O1", "-g", "-pthread", "-fno-builtin"];
    let file = place.compile("loads", PROGRAM, &flags);
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("mallard"));
    // No page is returned meanwhile.
    let options = "export_stats:true,dirty_decay_ms:-1,muzzy_decay_ms:-1";
    command.args(["run", "--conf", options, "--"]).arg(file);
    let mut running = Running::start(command.stdout(Stdio::piped()));
    let output = BufReader::new(running.child.stdout.take().unwrap());
    let mut own = Own { running, output };
    let pid = own.running.pid();
    let server = Server::start(&["--pid", &pid]);
    let path = format!("/pid/{pid}/metrics");
    let prometheus =
        (!lacks(&["prometheus"])).then(|| Prometheus::start(&place, &server, "groups: []\n"));
    const SCRAPED: [&str; 3] = ["allocated_bytes", "active_bytes", "resident_bytes"];
    if let Some(prometheus) = &prometheus {
        for name in SCRAPED {
            prometheus.query_until(&format!("mallard_{name}"), |series| series.len() == 2);
        }
    }
    let (figures, (reply, scraped)) = own.at_rest(|| {
        let scraped = prometheus.iter().flat_map(|prometheus| {
            SCRAPED.map(|name| (name, prometheus.query(&format!("mallard_{name}"))))
        });
        (server.get(&path), scraped.collect::<Vec<_>>())
    });
    let [
        in_use,
        cached,
        kept,
        free,
        allocated,
        active,
        metadata,
        resident,
        retained,
    ] = figures[..]
    else {
        panic!("{figures:?}")
    };
    let value = |name: &str| reply.value(&format!("mallard_{name}"), " ").unwrap();
    let cached_of = |place: &str| {
        let label = format!("where=\"{place}\"");
        reply.value("mallard_cached_bytes", &label).unwrap()
    };
    // The page of the process, as it is served, and mallctl.
    for (name, own) in [
        ("allocated_bytes", allocated),
        ("active_bytes", active),
        ("metadata_bytes", metadata),
        ("resident_bytes", resident),
        ("retained_bytes", retained),
    ] {
        assert_eq!(value(name), own, "{name}");
    }
    // mallinfo2.
    assert_eq!(in_use, allocated);
    assert_eq!(cached, cached_of("thread") + cached_of("transfer"));
    assert_eq!(kept, value("dirty_bytes") + value("muzzy_bytes"));
    assert_eq!(free, active + kept - allocated);
    // The system: all that is resident is within the bound, but for code, stacks and other
    // mappings.
    let rss = value("process_resident_bytes");
    const OTHERS: f64 = 32e6;
    assert!(rss < resident + OTHERS, "RSS {rss}, bound {resident}");
    assert!(rss > allocated, "RSS {rss}, allocated {allocated}");
    for (name, series) in scraped {
        for series in series {
            assert_eq!(series["value"][1], value(name).to_string(), "{series}");
        }
    }
}
