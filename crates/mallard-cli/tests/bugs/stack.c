/* Frees what is sometimes a buffer on the stack. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print(const char *name, size_t size) {
    char small[64];
    char *volatile text = size <= sizeof small ? small : malloc(size);
    snprintf(text, size, "Hello, %s", name);
    puts(text);
    free(text); /* BUG */
}

int main(void) {
    print("a name that is long enough for a block of its own", 200);
    print("you", 32);
    return 0;
}
