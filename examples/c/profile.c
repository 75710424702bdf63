/* Profiles a part of its run: which function holds the memory that the part leaves behind. Sampling
 * is off before and after, and costs nothing then.
 *
 *   cc -g profile.c $(pkg-config --cflags --libs mallard) -o profile
 *   ./profile session.heap && mallard profile session.heap */
#include <mallard.h>
#include <stdio.h>
#include <string.h>

enum { SESSIONS = 20000, REQUESTS = 200000 };

static char *sessions[SESSIONS];

/* These stay. */
__attribute__((noinline)) static void open_sessions(void) {
    for (int i = 0; i < SESSIONS; i++) {
        sessions[i] = malloc(1000);
        if (sessions[i] == NULL)
            exit(1);
        memset(sessions[i], 's', 1000);
    }
}

/* These are freed at once. */
__attribute__((noinline)) static void serve(void) {
    for (int i = 0; i < REQUESTS; i++) {
        char *answer = malloc(500);
        if (answer == NULL)
            exit(1);
        memset(answer, 'a', 500);
        free(answer);
    }
}

int main(int argc, char **argv) {
    const char *file = argc > 1 ? argv[1] : "session.heap";
    int error = mallard_profile_start();
    if (error != 0) {
        fprintf(stderr, "cannot start the profiler: %s\n", strerror(error));
        return 1;
    }
    open_sessions();
    serve();
    if (mallard_profile_dump(file) != 0)
        return 1; /* a line has said why */
    mallard_profile_stop();
    printf("wrote %s\n", file);
    return 0;
}
