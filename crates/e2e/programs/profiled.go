// Writes a heap profile of its own, every block recorded, to the file named on the command line.
package main

import (
	"os"
	"runtime"
	"runtime/pprof"
)

var kept [][]byte

//go:noinline
func small(n int) {
	for i := 0; i < n; i++ {
		kept = append(kept, make([]byte, 80))
	}
}

//go:noinline
func large(n int) {
	for i := 0; i < n; i++ {
		kept = append(kept, make([]byte, 100000))
	}
}

func main() {
	runtime.MemProfileRate = 4096
	small(20000)
	large(50)
	runtime.GC()
	file, err := os.Create(os.Args[1])
	if err != nil {
		panic(err)
	}
	if err := pprof.Lookup("heap").WriteTo(file, 0); err != nil {
		panic(err)
	}
	file.Close()
	runtime.KeepAlive(kept)
}
