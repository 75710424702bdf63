/* A plug-in with a private allocator is closed while threads that used it keep running.
 *
 *   closed PLUGIN            threads use it and end after it is closed, and the process forks
 *   closed PLUGIN load       threads repeatedly load, use and close it, and end */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *plugin;
static pthread_barrier_t used, closed;

static void *load(void) {
    void *handle = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return handle;
}

static void work(void *handle) { ((void (*)(void))dlsym(handle, "work"))(); }

static void *use(void *handle) {
    work(handle);
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&closed);
    return NULL;
}

static void *load_and_use(void *nothing) {
    (void)nothing;
    for (int i = 0; i < 20; i++) {
        void *handle = load();
        work(handle);
        dlclose(handle);
    }
    return NULL;
}

static void check_fork(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    int status;
    if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7)
        exit(1);
}

int main(int argc, char **argv) {
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    plugin = argv[1];
    for (int round = 0; round < 10; round++) {
        if (argc > 2) {
            for (int i = 0; i < THREADS; i++)
                pthread_create(&threads[i], NULL, load_and_use, NULL);
        } else {
            pthread_barrier_init(&used, NULL, THREADS + 1);
            pthread_barrier_init(&closed, NULL, THREADS + 1);
            void *handle = load();
            for (int i = 0; i < THREADS; i++)
                pthread_create(&threads[i], NULL, use, handle);
            pthread_barrier_wait(&used);
            if (dlclose(handle) != 0)
                exit(1);
            check_fork();
            pthread_barrier_wait(&closed);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        check_fork();
    }
    /* Longer than the plug-in's background thread sleeps. */
    usleep(300000);
    puts("survived");
    return 0;
}
