// The protocol of a peer written in Go, as `bench_peer.py` has it for Python: `./peer VERB ...`.
// This file is copied beside the peer's own and built with it; a peer gives a Peer.

package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	callSize       = 1000
	workers        = 2
	markSize       = 24
	clockMonotonic = 1
)

var (
	storeURL  = os.Getenv("BENCH_URL")
	errAbsent = errors.New("the peer has no such call")
)

// Peer is what a peer says about itself.
type Peer interface {
	Prepare() error                        // make what the store needs
	Open() error                           // connect a producer
	Close() error                          // close it
	Enqueue(text string) error             // enqueue one job
	Bulk(texts []string) error             // enqueue many jobs in one call, or errAbsent
	Ping(sent float64, priority int) error // enqueue a job that calls ping(sent)
	Serve() error                          // run one worker process
}

// Python reads the same clock by time.monotonic(). Go's own readings of it are only good for differences.
var clockStart, clockOffset = startClock()

func startClock() (time.Time, float64) {
	var read syscall.Timespec
	_, _, failed := syscall.Syscall(
		syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&read)), 0,
	)
	if failed != 0 {
		panic(failed)
	}
	return time.Now(), float64(read.Nano()) / 1e9
}

func now() float64 { return clockOffset + time.Since(clockStart).Seconds() }

func cpu() float64 {
	var used syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func must(failed error) {
	if failed != nil {
		panic(failed)
	}
}

var (
	notes     sync.Mutex
	starts    []byte
	count     uint64
	latencies *os.File
)

// mark notes a start, in memory that the bench reads from outside.
func mark() {
	notes.Lock()
	defer notes.Unlock()
	at := math.Float64bits(now())
	if starts == nil {
		starts = shared(noteOf("starts"))
		binary.LittleEndian.PutUint64(starts[8:], at)
	}
	count++
	binary.LittleEndian.PutUint64(starts[16:], at)
	binary.LittleEndian.PutUint64(starts, count)
}

// ping notes how long ago a job was sent.
func ping(sent float64) {
	late := now() - sent
	notes.Lock()
	defer notes.Unlock()
	if latencies == nil {
		file, failed := os.OpenFile(noteOf("latencies"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		must(failed)
		latencies = file
	}
	must(binary.Write(latencies, binary.LittleEndian, late))
}

func noteOf(kind string) string {
	return filepath.Join(os.Getenv("BENCH_MARKS"), fmt.Sprintf("%d.%s", os.Getpid(), kind))
}

func shared(path string) []byte {
	file, failed := os.Create(path)
	must(failed)
	defer file.Close()
	must(file.Truncate(markSize))
	memory, failed := syscall.Mmap(int(file.Fd()), 0, markSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(failed)
	return memory
}

// run does what the command line asks for.
func run(peer Peer) {
	verb, rest := os.Args[1], os.Args[2:]
	if verb == "work" {
		work(peer)
		return
	}
	numbers := make([]float64, len(rest))
	for place, word := range rest {
		number, failed := strconv.ParseFloat(word, 64)
		must(failed)
		numbers[place] = number
	}
	must(json.NewEncoder(os.Stdout).Encode(drive(peer, verb, numbers)))
}

func work(peer Peer) {
	if os.Getenv("BENCH_CHILD") != "" {
		must(peer.Serve())
		return
	}
	var running sync.WaitGroup
	for range workers {
		child := exec.Command("/proc/self/exe", os.Args[1:]...)
		child.Env = append(os.Environ(), "BENCH_CHILD=1")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		must(child.Start())
		running.Add(1)
		go func() {
			defer running.Done()
			_ = child.Wait()
		}()
	}
	running.Wait()
}

func drive(peer Peer, verb string, numbers []float64) map[string]any {
	if verb == "prepare" {
		must(peer.Prepare())
		return map[string]any{}
	}
	must(peer.Open())
	defer func() { must(peer.Close()) }()
	jobs := int(numbers[0])
	if verb == "ping" {
		for range jobs {
			must(peer.Ping(now(), int(numbers[2])))
			time.Sleep(time.Duration(numbers[1] * float64(time.Second)))
		}
		return map[string]any{"jobs": jobs}
	}
	text := strings.Repeat("x", int(numbers[1]))
	one := func() error { return peer.Enqueue(text) }
	switch verb {
	case "single":
		return timed(one, 1, jobs-1, 1)
	case "concurrent":
		callers := int(numbers[2])
		return timed(one, callers, jobs/callers, 1)
	case "bulk":
		texts := make([]string, callSize)
		for place := range texts {
			texts[place] = text
		}
		return timed(func() error { return peer.Bulk(texts) }, 1, jobs/callSize-1, callSize)
	}
	return map[string]any{"absent": verb}
}

// timed gives the rate of loops of calls, and how long a call took. The first call, which connects, is apart.
func timed(call func() error, callers, calls, each int) map[string]any {
	if failed := call(); errors.Is(failed, errAbsent) {
		return map[string]any{"absent": true}
	} else {
		must(failed)
	}
	waits := make([]float64, callers*calls)
	began, spent := now(), cpu()
	var running sync.WaitGroup
	for caller := range callers {
		running.Add(1)
		go func() {
			defer running.Done()
			for place := caller * calls; place < (caller+1)*calls; place++ {
				before := now()
				must(call())
				waits[place] = now() - before
			}
		}()
	}
	running.Wait()
	seconds, used, jobs := now()-began, cpu()-spent, float64(callers*calls*each)
	sort.Float64s(waits)
	return map[string]any{
		"jobs":      jobs,
		"began":     began,
		"rate":      jobs / seconds,
		"client_us": used / jobs * 1e6,
		"p50_ms":    waits[len(waits)/2] * 1e3,
		"p99_ms":    waits[int(float64(len(waits))*0.99)] * 1e3,
	}
}
