// What the documentation calls a server: ./server, your-program, ./app, ./test.
//
// It allocates in two threads until SERVER_SECONDS (0.1) have passed or a signal ends it, and holds
// 12 MiB meanwhile. --self-test is a fixed amount of work. `locks` makes eight threads free and
// allocate together. --port N answers HTTP until a signal ends it. As `test` it leaks.
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t is_over;
static int is_busy;
static double limit = 0.1;

static void end(int number) { (void)number, is_over = 1; }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *__attribute__((noinline)) grow(size_t size) { return calloc(1, size); }

static void *work(void *unused) {
    (void)unused;
    void *held[64] = {0};
    double begun = now();
    for (unsigned i = 0; !is_over && now() - begun < limit; i++) {
        for (int j = 0; j < 200; j++, i++) {
            free(held[i % 64]);
            held[i % 64] = malloc(16 + i * 31 % 3000);
        }
        if (!is_busy && limit > 10) {
            // No cache holds a block of this size, so the process looks for requests.
            free(malloc(400 << 10));
            usleep(2000);
        }
    }
    for (int j = 0; j < 64; j++)
        free(held[j]);
    return 0;
}

static void *answer(void *socket) {
    int connection = (int)(long)socket;
    char text[4096];
    while (read(connection, text, sizeof text) > 0) {
        char *body = (char *)malloc(512);
        snprintf(body, 512, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        ssize_t written = write(connection, body, strlen(body));
        free(body);
        if (written <= 0)
            break;
    }
    close(connection);
    return 0;
}

static int serve(int port) {
    struct sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons((unsigned short)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64))
        return 1;
    signal(SIGTERM, SIG_DFL);
    for (;;) {
        pthread_t thread;
        int connection = accept(listener, 0, 0);
        if (connection >= 0 && pthread_create(&thread, 0, answer, (void *)(long)connection) == 0)
            pthread_detach(thread);
    }
}

int main(int count, char **words) {
    const char *seconds = getenv("SERVER_SECONDS");
    if (seconds)
        limit = atof(seconds);
    struct sigaction action = {};
    action.sa_handler = end;
    sigaction(SIGTERM, &action, 0);
    sigaction(SIGINT, &action, 0);
    signal(SIGPIPE, SIG_IGN);
    if (count > 2 && strcmp(words[1], "--port") == 0)
        return serve(atoi(words[2]));
    if (count > 1 && strcmp(words[1], "--self-test") == 0)
        limit = 0.05;
    is_busy = count > 1 && strcmp(words[1], "locks") == 0;
    void *held[96];
    for (int i = 0; i < 96; i++)
        held[i] = grow(128 << 10);
    pthread_t threads[8];
    int all = is_busy ? 8 : 2;
    for (int i = 0; i < all; i++)
        pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < all; i++)
        pthread_join(threads[i], 0);
    const char *name = strrchr(words[0], '/');
    if (strcmp(name ? name + 1 : words[0], "test") == 0)
        return 0;
    for (int i = 0; i < 96; i++)
        free(held[i]);
    return 0;
}
