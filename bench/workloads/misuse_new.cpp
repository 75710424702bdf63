// misuse_new: the cases of `mallard bench misuse` that need C++. misuse.h has the protocol.
#include <new>
#include <string>

#include "misuse.h"

// clang declares it only with -fsized-deallocation.
void operator delete(void *, std::size_t) noexcept;

static void *(*volatile make)(size_t) = ::operator new;
static void (*volatile drop)(void *) = ::operator delete;
static void (*volatile drop_sized)(void *, size_t) = ::operator delete;

// Keeps an address and its origin from the compiler.
template <class T> static T *hidden(T *address) {
    T *volatile keep = address;
    return keep;
}

static void chars_delete(size_t size) { delete hidden(new char[size]); }

static void char_delete_array(size_t) { delete[] hidden(new char('c')); }

static void strings_delete(size_t size) {
    delete hidden(new std::string[size / sizeof(std::string) + 1]);
}

static void string_delete_array(size_t) { delete[] hidden(new std::string); }

static void sized_larger(size_t size) { drop_sized(make(size), 4 * size); }

static void sized_smaller(size_t size) { drop_sized(make(size), size / 4); }

static void malloc_delete(size_t size) { drop(take(size)); }

static void new_free(size_t size) { give(make(size)); }

static void delete_twice(size_t size) {
    void *p = make(size);
    drop(p);
    drop(p);
}

static void sized_twice(size_t size) {
    void *p = make(size);
    drop_sized(p, size);
    drop_sized(p, size);
}

static void sized_inside(size_t size) { drop_sized(static_cast<char *>(make(size)) + 1, size); }

static const Case cases[] = {
    {"counted", "wrong delete", "chars_delete", "4096", "new char[] and delete", chars_delete},
    {"counted", "wrong delete", "char_delete_array", "4096", "new char and delete[]",
     char_delete_array},
    {"counted", "wrong delete", "strings_delete", "4096", "new string[] and delete",
     strings_delete},
    {"counted", "wrong delete", "string_delete_array", "4096", "new string and delete[]",
     string_delete_array},
    {"counted", "wrong delete", "sized_larger", "4096", "sized delete with 4 times the size",
     sized_larger},
    {"further", "wrong delete", "sized_smaller", "4096", "sized delete with a quarter of the size",
     sized_smaller},
    {"further", "wrong delete", "malloc_delete", "8,4096,262144", "malloc and delete",
     malloc_delete},
    {"further", "wrong delete", "new_free", "8,4096,262144", "new and free", new_free},
    {"further", "double free", "delete_twice", "8,4096,262144", "delete twice at once",
     delete_twice},
    {"further", "double free", "sized_twice", "8,4096,262144", "sized delete twice at once",
     sized_twice},
    {"further", "free of no block", "sized_inside", "8,4096,262144",
     "sized delete of an address 1 byte into a block", sized_inside},
};

int main(int argc, char **argv) { return run(argc, argv, cases, sizeof cases / sizeof *cases); }
