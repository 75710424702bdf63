/* Counts words of a made-up text, again and again: a program without a bug, for the cost of a
 * search. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096 };

struct word {
    struct word *next;
    unsigned count;
    char text[];
};

static unsigned state = 1;

static unsigned draw(unsigned below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

static char *line_of_words(size_t *length) {
    size_t room = 64, used = 0;
    char *line = malloc(room);
    for (unsigned word = 0; word < 40; word++) {
        unsigned letters = 2 + draw(7);
        if (used + letters + 2 > room)
            line = realloc(line, room *= 2);
        for (unsigned i = 0; i < letters; i++)
            line[used++] = (char)('a' + draw(i < 2 ? 12 : 3));
        line[used++] = ' ';
    }
    line[used] = 0;
    *length = used;
    return line;
}

static void count(struct word **table, const char *text, size_t length) {
    unsigned hash = 5381;
    for (size_t i = 0; i < length; i++)
        hash = hash * 33 + (unsigned char)text[i];
    struct word **at = &table[hash % BUCKETS];
    for (struct word *word = *at; word; word = word->next)
        if (!strncmp(word->text, text, length) && !word->text[length]) {
            word->count++;
            return;
        }
    struct word *word = malloc(sizeof *word + length + 1);
    memcpy(word->text, text, length);
    word->text[length] = 0;
    word->count = 1;
    word->next = *at;
    *at = word;
}

static unsigned long round_of_text(unsigned lines) {
    struct word **table = calloc(BUCKETS, sizeof *table);
    unsigned long sum = 0;
    for (unsigned i = 0; i < lines; i++) {
        size_t length;
        char *line = line_of_words(&length);
        for (char *word = line, *end; (end = strchr(word, ' ')); word = end + 1)
            count(table, word, (size_t)(end - word));
        free(line);
    }
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct word *word = table[i], *next; word; word = next) {
            next = word->next;
            sum += word->count;
            free(word);
        }
    free(table);
    return sum;
}

int main(int count_of_words, char **words) {
    unsigned rounds = count_of_words > 1 ? (unsigned)atoi(words[1]) : 40;
    unsigned long sum = 0;
    for (unsigned i = 0; i < rounds; i++)
        sum += round_of_text(2000);
    printf("%lu\n", sum);
    return 0;
}
