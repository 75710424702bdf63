/* served FOLDER: works, and asks for the metrics that the option `http:unix:FOLDER/%p` has served
 * meanwhile, whether or not there is an answer. Prints how many answers there were to standard
 * error, and the rest to standard output. Fails if memory was out. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "check.h"

enum { BLOCKS = 300, ROUNDS = 4, ANSWER_MS = 3000 };

/* Fills and checks blocks of many sizes; returns how many there were. */
static int work(void) {
    static char *blocks[BLOCKS];
    int count = 0;
    for (int i = 0; i < BLOCKS; i++) {
        const size_t size = (size_t)i * i * 5 + 1;
        blocks[i] = malloc(size);
        if (blocks[i] != NULL)
            memset(blocks[i], i, size);
    }
    for (int i = 0; i < BLOCKS; i++) {
        const size_t size = (size_t)i * i * 5 + 1;
        if (blocks[i] == NULL)
            continue;
        CHECK(blocks[i][0] == (char)i && blocks[i][size - 1] == (char)i);
        free(blocks[i]);
        count++;
    }
    return count;
}

/* Asks for the metrics; returns whether all of them came. */
static int ask(const char *folder) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CHECK(snprintf(address.sun_path, sizeof address.sun_path, "%s/%d", folder, (int)getpid()) <
          (int)sizeof address.sun_path);
    const int at = socket(AF_UNIX, SOCK_STREAM, 0);
    if (at < 0)
        return 0;
    static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
    static char answer[1 << 16];
    size_t length = 0;
    if (connect(at, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(at, request, sizeof request - 1, MSG_NOSIGNAL) == sizeof request - 1) {
        struct pollfd wait = {.fd = at, .events = POLLIN};
        while (length < sizeof answer && poll(&wait, 1, ANSWER_MS) == 1) {
            const ssize_t got = read(at, answer + length, sizeof answer - length);
            if (got <= 0)
                break;
            length += (size_t)got;
        }
    }
    close(at);
    return length > 0 && strstr(answer, "# TYPE mallard_") != NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    int answers = 0, blocks = 0;
    for (int round = 0; round < ROUNDS; round++) {
        blocks += work();
        answers += ask(arguments[1]);
        poll(NULL, 0, 20);
    }
    fprintf(stderr, "%d answers\n", answers);
    const int is_done = blocks == BLOCKS * ROUNDS;
    printf("%s\n", is_done ? "all blocks" : "fewer blocks");
    return !is_done;
}
