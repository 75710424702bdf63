/* Shows a file of /proc/self (smaps_rollup, smaps) without allocating memory. */
#include <fcntl.h>
#include <unistd.h>

static char shown[8192];

static int show(const char *name) {
    if (chdir("/proc/self") != 0)
        return 1;
    int file = open(name, O_RDONLY);
    ssize_t length;
    while ((length = read(file, shown, sizeof shown)) > 0)
        if (write(STDOUT_FILENO, shown, (size_t)length) != length)
            return 1;
    return length < 0 || close(file) != 0;
}
