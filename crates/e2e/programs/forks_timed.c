/* Forks in the handler of a timer that interrupts calls of one kind, for some seconds and until
 * both forks and calls have got on: `forks_timed KIND SECONDS [LIBRARY]`. The timer follows what a
 * fork without any handlers costs here and now, so that only the allocator could keep the
 * interrupted call from its half of the time. An alarm ends a hang. */
#define _GNU_SOURCE
#include "malloc_more.h"
#include "measured.h"
#include "provided.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

/* There with the allocator under test, which the program is not linked to. */
#pragma weak mallctl
#pragma weak mallocx
#pragma weak dallocx
#pragma weak malloc_stats_print

enum {
    LIMIT_S = 240,
    CHILD_LIMIT_S = 60,
    LEAST = 20,
    /* Nanoseconds. */
    PERIOD = 200000,
    /* Every so many forks, the child goes on with the call that was interrupted. */
    LONGER = 8,
    CHILD_ROUNDS = 5,
};

/* Of all processes that the program makes on purpose. */
static struct { atomic_long forks, rounds, cost_ns; } * all;
static timer_t timer;
static const char *library;
static volatile bool in_child;
static int child_rounds;
static unsigned seed = 1;

static unsigned any(unsigned n) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}

/* Fires once. */
static void arm(long ns) {
    struct itimerspec at = {{0, 0}, {ns / 1000000000, ns % 1000000000}};
    CHECK(timer_settime(timer, 0, &at, 0) == 0);
}

static void expect_end(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        CHECK(errno == EINTR);
    if (status != 0)
        dprintf(STDERR_FILENO, "a child ended with status %#x\n", (unsigned)status);
    CHECK(status == 0);
}

static void handler(int signal) {
    (void)signal;
    if (in_child)
        return;
    int keep = errno;
    arm(4 * all->cost_ns > PERIOD ? 4 * all->cost_ns : PERIOD);
    long begun = now_ns();
    /* Not every architecture has SYS_fork. */
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    CHECK(pid >= 0);
    if (pid == 0)
        syscall(SYS_exit_group, 0);
    expect_end(pid);
    long cost = now_ns() - begun, most = all->cost_ns + all->cost_ns / 8 + 1000;
    all->cost_ns = cost < most ? cost : most;

    /* A child that went on in the loader would read files with its parent's descriptors. */
    bool is_longer = all->forks % LONGER == 0 && !library;
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (!is_longer)
            _exit(0);
        in_child = true;
        alarm(CHILD_LIMIT_S);
    } else {
        expect_end(pid);
        all->forks++;
    }
    errno = keep;
}

static void begin_timer(long first_ns) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, 0);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    arm(first_ns);
}

static void set_signal(int how) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(how, &set, 0);
}

enum { SLOTS = 4096 };
static unsigned char *slots[SLOTS];

static void put(unsigned k, size_t n) {
    unsigned char *p = malloc(n);
    CHECK(p);
    p[0] = p[n - 1] = (unsigned char)k;
    slots[k] = p;
}

static void drop(unsigned k) {
    if (slots[k])
        CHECK(slots[k][0] == (unsigned char)k);
    free(slots[k]);
    slots[k] = 0;
}

/* More than caches hold, so that they are filled and emptied. */
static void fill(void) {
    size_t n = 1 + any(3000);
    for (unsigned k = 0; k < SLOTS; k++)
        put(k, n);
    for (unsigned k = 0; k < SLOTS; k++)
        drop(k);
}

static void flush(void) {
    for (unsigned k = 0; k < 200; k++)
        put(k, 1 + any(20000));
    for (unsigned k = 0; k < 200; k++)
        drop(k);
    CHECK(mallctl("thread.tcache.flush", 0, 0, 0, 0) == 0);
}

static void large(void) {
    for (unsigned i = 0; i < 20; i++) {
        unsigned k = any(16);
        drop(k);
        put(k, 100000 + any(4 << 20));
        slots[k] = realloc(slots[k], 100000 + any(1 << 20));
        CHECK(slots[k] && slots[k][0] == k);
    }
}

static void purge(void) {
    for (unsigned k = 0; k < 40; k++)
        put(k, 1 + any(300000));
    for (unsigned k = 0; k < 40; k++)
        drop(k);
    malloc_trim(0);
}

static void ignore(void *unused, const char *text) { (void)unused, (void)text; }

/* The page is published early when the heap has doubled or halved. All of these look at all caches,
 * as a publication does. */
static void publish(void) {
    free(malloc(64 << 20));
    malloc_stats_print(ignore, 0, "P");
#ifdef __GLIBC__
    for (int i = 0; i < 100; i++)
        CHECK(mallinfo2().arena > 0);
#endif
}

/* With options that sample nearly every block. */
static void sample(void) {
    for (unsigned k = 0; k < 200; k++)
        put(k, 1 + any(2000));
    for (unsigned k = 0; k < 200; k++)
        drop(k);
    CHECK(mallctl("prof.reset", 0, 0, 0, 0) == 0);
}

static void meanwhile(void) { free(malloc(100)); }

static void hook(void) {
    static unsigned arena;
    if (arena == 0)
        arena = provided_arena();
    void *held[4];
    for (unsigned i = 0; i < 4; i++)
        CHECK(held[i] = mallocx(3 << 20, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE));
    for (unsigned i = 0; i < 4; i++)
        dallocx(held[i], MALLOCX_TCACHE_NONE);
}

/* A thread's first and last calls, with the timer's signal. */
static void *is_short(void *unused) {
    set_signal(SIG_UNBLOCK);
    for (unsigned n = 1; n < 200000; n *= 3)
        free(malloc(n));
    return unused;
}

static void threads(void) {
    pthread_t made[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&made[i], 0, is_short, 0) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(made[i], 0) == 0);
}

/* The first calls of a library, in a process of their own. */
static void start(void) {
    long first_ns = 1 + any(PERIOD);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid > 0)
        return expect_end(pid);
    alarm(CHILD_LIMIT_S);
    begin_timer(first_ns);
    set_signal(SIG_UNBLOCK);
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CHECK(handle);
    void *(*get)(size_t, int) = (void *(*)(size_t, int))dlsym(handle, "mallocx");
    void (*give)(void *, int) = (void (*)(void *, int))dlsym(handle, "dallocx");
    CHECK(get && give);
    for (size_t n = 1; n < 100000; n *= 2) {
        void *p = get(n, 0);
        CHECK(p);
        give(p, 0);
    }
    _exit(0);
}

/* Threads that are inside much of the time, and that have no part in the signals. */
static void *works(void *number) {
    unsigned x = (unsigned)(size_t)number;
    enum { HELD = 64 };
    void *held[HELD] = {0};
    for (;;) {
        x = x * 1664525 + 1013904223;
        unsigned k = x >> 26;
        free(held[k]);
        held[k] = malloc(1 + (x >> 8) % ((x >> 4 & 7) ? 3000 : 200000));
        CHECK(held[k]);
    }
    return 0;
}

static void make_threads(void *(*run)(void *), int n) {
    pthread_t thread;
    for (int i = 0; i < n; i++)
        CHECK(pthread_create(&thread, 0, run, (void *)(size_t)(i + 1)) == 0);
}

/* A client of the server in the process, at the address of the option. */
static void *asks(void *unused) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int n = sprintf(to.sun_path + 1, "forks-timed-%d", getpid());
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
    char answer[4096];
    for (;;) {
        int at = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(at >= 0);
        if (connect(at, (struct sockaddr *)&to, len) == 0 &&
            send(at, request, sizeof request - 1, MSG_NOSIGNAL) > 0)
            while (read(at, answer, sizeof answer) > 0)
                ;
        close(at);
    }
    return unused;
}

/* Makes the background thread and ends it. */
static void background(void) {
    for (int i = 0; i < 2; i++) {
        bool on = i == 0;
        CHECK(mallctl("background_thread", 0, 0, &on, sizeof on) == 0);
    }
}

static void mixed(void) {
    fill();
    flush();
    large();
}

static const struct {
    const char *name;
    void (*round)(void);
    /* Threads beside the one that is interrupted. */
    void *(*beside)(void *);
} kinds[] = {
    {"fill", fill, 0},        {"flush", flush, 0},     {"large", large, 0},
    {"purge", purge, 0},      {"publish", publish, 0}, {"sample", sample, 0},
    {"hook", hook, 0},        {"threads", threads, 0}, {"start", start, 0},
    {"beside", mixed, works}, {"served", mixed, asks}, {"background", background, 0},
};

int main(int argc, char **argv) {
    CHECK(argc >= 3);
    const char *name = argv[1];
    long seconds = atol(argv[2]);
    library = argv[3];
    size_t kind = 0;
    while (strcmp(kinds[kind].name, name) != 0)
        CHECK(++kind < sizeof kinds / sizeof *kinds);
    alarm((unsigned)(LIMIT_S + seconds));
    all = mmap(0, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED);
    /* Each thread that is made takes no signals, unless it says so. */
    set_signal(SIG_BLOCK);
    if (kinds[kind].beside)
        make_threads(kinds[kind].beside, kinds[kind].beside == works ? 3 : 1);
    bool interrupts_main = kinds[kind].round != threads && kinds[kind].round != start;
    if (kinds[kind].round != start)
        begin_timer(PERIOD);
    if (interrupts_main)
        set_signal(SIG_UNBLOCK);
    long end = now_ns() + seconds * 1000000000;
    while (now_ns() < end || all->forks < LEAST || all->rounds < LEAST) {
        kinds[kind].round();
        if (in_child && ++child_rounds > CHILD_ROUNDS)
            _exit(0);
        all->rounds += !in_child;
    }
    if (in_child)
        _exit(0);
    set_signal(SIG_BLOCK);
    printf("%s: %ld forks, %ld rounds\n", name, (long)all->forks, (long)all->rounds);
    _exit(fflush(stdout));
}
