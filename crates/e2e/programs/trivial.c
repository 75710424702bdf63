/* The smallest program that uses malloc. With an argument, shows a file of /proc/self at its
 * end. */
#include "show.h"
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments) {
    void *volatile block = malloc(100);
    memset(block, 1, 100);
    free(block);
    return count > 1 ? show(arguments[1]) : 0;
}
