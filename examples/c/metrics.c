/* Serves the allocator's metrics to Prometheus through the program's own server: here one that
 * answers one client after the other.
 *
 *   cc metrics.c $(pkg-config --cflags --libs mallard) -o metrics
 *   ./metrics 9701 & curl http://127.0.0.1:9701/metrics */
#define _GNU_SOURCE /* memmem */
#include <arpa/inet.h>
#include <mallard.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What the allocator says goes straight to the client: nothing is kept, nothing is allocated. */
static void pass_on(void *client, const char *text) { dprintf(*(int *)client, "%s", text); }

static void answer(int client) {
    char request[4096];
    size_t length = 0;
    /* A request ends with an empty line. */
    while (length < sizeof request && memmem(request, length, "\r\n\r\n", 4) == NULL) {
        ssize_t more = read(client, request + length, sizeof request - length);
        if (more <= 0)
            return;
        length += (size_t)more;
    }
    if (length < 13 || memcmp(request, "GET /metrics ", 13) != 0) {
        dprintf(client, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        return;
    }
    /* Without a length, the text ends with the connection. */
    dprintf(client,
            "HTTP/1.1 200 OK\r\nConnection: close\r\n"
            "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\r\n");
    malloc_stats_print(pass_on, &client, "P");
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons(argc > 1 ? (uint16_t)atoi(argv[1]) : 0),
    };
    socklen_t length = sizeof address;
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(server, (struct sockaddr *)&address, length) != 0 || listen(server, 16) != 0 ||
        getsockname(server, (struct sockaddr *)&address, &length) != 0) {
        perror("127.0.0.1");
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);
    printf("http://127.0.0.1:%u/metrics\n", ntohs(address.sin_port));
    fflush(stdout);

    void *work = malloc(3 << 20); /* what the program is there for */
    memset(work, 1, 3 << 20);
    for (;;) {
        int client = accept4(server, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0)
            continue;
        /* A client that says nothing is not waited for. */
        setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 2},
                   sizeof(struct timeval));
        answer(client);
        close(client);
    }
}
