// Package common is what both Go servers do in the same way.
package common

import (
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"
)

// Hello is what every server answers to GET /plaintext.
const Hello = "Hello, World!"

// Workers is how many threads run Go code at once.
const Workers = 2

// Message is what every server answers to GET /json, serialized for each request.
type Message struct {
	Message string `json:"message"`
}

// Address returns where to listen, and bounds the threads.
func Address() string {
	if len(os.Args) < 2 {
		os.Stderr.WriteString("the first argument is the address to listen on\n")
		os.Exit(2)
	}
	runtime.GOMAXPROCS(Workers)
	return os.Args[1]
}

// Length returns so many microseconds or milliseconds, whichever was asked for, or 10 ms.
func Length(us, ms string) time.Duration {
	if number, err := strconv.Atoi(us); err == nil {
		return time.Duration(number) * time.Microsecond
	}
	number, err := strconv.Atoi(ms)
	if err != nil {
		number = 10
	}
	return time.Duration(number) * time.Millisecond
}

var calls atomic.Uint64

// Miss waits if this call of /miss is one of those that do, and returns what it answers. Every
// call whose number is a multiple of oneIn misses. When oneIn is 0 none does, and none is counted.
func Miss(oneIn, us string) string {
	number, err := strconv.ParseUint(oneIn, 10, 64)
	if err != nil || number == 0 || calls.Add(1)%number != 0 {
		return "hit"
	}
	time.Sleep(Length(us, ""))
	return "miss"
}

// Spin keeps a core busy until this much time has passed.
func Spin(length time.Duration) uint64 {
	end := time.Now().Add(length)
	hash := uint64(0xcbf29ce484222325)
	for time.Now().Before(end) {
		for round := uint64(0); round < 1000; round++ {
			hash = (hash ^ round) * 0x100000001b3
		}
	}
	return hash
}
