// Work for the end-to-end test: goroutines move between threads that Go made, and C memory taken on
// one is given back on another; C threads of their own allocate beside them.
package main

/*
#cgo LDFLAGS: -lpthread
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void *noise(void *argument) {
	uint32_t state = (uint32_t)(uintptr_t)argument;
	void *blocks[64] = {0};
	for (int i = 0; i < 50000; i++) {
		state = state * 1664525u + 1013904223u;
		int slot = (state >> 16) & 63;
		free(blocks[slot]);
		size_t size = (state >> 8) & 4095;
		blocks[slot] = malloc(size + 1);
		if (blocks[slot] == NULL) abort();
		memset(blocks[slot], 1, size + 1);
	}
	for (int i = 0; i < 64; i++) free(blocks[i]);
	return NULL;
}

static int start_noise(pthread_t *thread, int seed) { return pthread_create(thread, NULL, noise, (void *)(uintptr_t)seed); }

static unsigned char *filled(size_t size, unsigned char value) {
	unsigned char *block = malloc(size);
	if (block != NULL) memset(block, value, size);
	return block;
}

static int verify(const unsigned char *block, size_t size, unsigned char value) {
	for (size_t i = 0; i < size; i++) if (block[i] != value) return 0;
	return 1;
}
*/
import "C"

import (
	"fmt"
	"os"
	"sort"
	"sync"
	"unsafe"
)

type block struct {
	memory *C.uchar
	size   C.size_t
	value  C.uchar
}

func main() {
	var noise [4]C.pthread_t
	for i := range noise {
		if C.start_noise(&noise[i], C.int(i+1)) != 0 {
			fmt.Println("cannot start a C thread")
			os.Exit(1)
		}
	}
	blocks := make(chan block, 256)
	var producers, consumers sync.WaitGroup
	for p := 0; p < 8; p++ {
		producers.Add(1)
		go func(seed uint32) {
			defer producers.Done()
			for i := 0; i < 5000; i++ {
				seed = seed*1664525 + 1013904223
				size := C.size_t((seed>>12)%8192 + 1)
				value := C.uchar(seed >> 24)
				memory := C.filled(size, value)
				if memory == nil {
					panic("malloc gave nothing")
				}
				blocks <- block{memory, size, value}
			}
		}(uint32(p + 1))
	}
	sums := make([]uint64, 8)
	for c := range sums {
		consumers.Add(1)
		go func(c int) {
			defer consumers.Done()
			for b := range blocks {
				if C.verify(b.memory, b.size, b.value) == 0 {
					panic("a block lost its bytes on its way between threads")
				}
				sums[c] += uint64(b.size) * uint64(b.value)
				C.free(unsafe.Pointer(b.memory))
			}
		}(c)
	}
	producers.Wait()
	close(blocks)
	consumers.Wait()
	for _, thread := range noise {
		C.pthread_join(thread, nil)
	}
	var total uint64
	for _, sum := range sums {
		total += sum
	}
	words := make([]string, 0, 20000)
	for i := 0; i < 20000; i++ {
		text := C.CString(fmt.Sprintf("word-%d", i*7919%20011))
		words = append(words, C.GoString(text))
		C.free(unsafe.Pointer(text))
	}
	sort.Strings(words)
	fmt.Println(total, words[0], words[9999], words[19999])
}
