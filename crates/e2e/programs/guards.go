// Misuses a guarded block below Go, as the argument says.
package main

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static char *make(void) { return malloc(40); }
__attribute__((noinline)) static void give(char *p) { free(p); }
__attribute__((noinline)) static void poke(volatile char *p, int at) { p[at] = 1; }
__attribute__((noinline)) static int peek(volatile char *p, int at) { return p[at]; }

static void misuse(const char *how) {
	int (*mallctl)(const char *, void *, size_t *, void *, size_t) = dlsym(RTLD_DEFAULT, "mallctl");
	bool on = true;
	// Unless they are on from the start, before Go's handlers.
	if (!getenv("FROM_START") && mallctl("experimental.guard.active", NULL, NULL, &on, 1) != 0) exit(4);
	char *p = make();
	for (int i = 0; malloc_usable_size(p) != 40 || (uintptr_t)p % 4096 == 0; i++) {
		give(p);
		if (i == 1000000) exit(3);
		p = make();
	}
	if (!strcmp(how, "overflow")) poke(p, 48);
	give(p);
	if (!strcmp(how, "write")) poke(p, 8);
	if (!strcmp(how, "read")) peek(p, 8);
	give(p);
}
*/
import "C"

import (
	"fmt"
	"os"
)

func main() {
	C.misuse(C.CString(os.Args[1]))
	fmt.Println("went on")
}
