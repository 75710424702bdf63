/* The smallest program that uses malloc; with an argument it shows a file of /proc/self at its end (smaps_rollup, smaps),
 * without using any memory of its own for that. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char text[8192];

int main(int count, char **arguments) {
    void *volatile block = malloc(100);
    memset(block, 1, 100);
    free(block);
    if (count > 1) {
        if (chdir("/proc/self") != 0) return 1;
        int file = open(arguments[1], O_RDONLY);
        ssize_t length;
        while ((length = read(file, text, sizeof text)) > 0)
            if (write(STDOUT_FILENO, text, (size_t)length) != length) return 1;
        if (length < 0) return 1;
        close(file);
    }
    return 0;
}
