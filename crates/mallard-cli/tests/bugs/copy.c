/* Copies a string into a block that has no room for the zero at its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *copy(const char *text) {
    char *new = malloc(strlen(text));
    if (new)
        strcpy(new, text); /* BUG */
    return new;
}

int main(int count, char **words) {
    const char *names[] = {"Anas platyrhynchos", "Aythya", "Tadorna tadorna, the shelduck"};
    char *copies[3];
    for (int i = 0; i < 3; i++)
        copies[i] = copy(count > 1 ? words[1] : names[i]);
    for (int i = 0; i < 3; i++) {
        puts(copies[i]);
        free(copies[i]);
    }
    return 0;
}
