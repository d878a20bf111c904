// A worker in Go, with the standard library alone: claims jobs of the queue "images" over HTTP and runs several at
// a time.
//
//	windlass serve tasks:app                               # somewhere
//	WINDLASS_API=http://127.0.0.1:8700 go run worker.go    # here, with WINDLASS_KEY, or the server's WINDLASS_TOKEN
//
// It has a session, which it keeps alive by beating: its leases have no deadline, however long a job takes. Should
// it die, its jobs go to others when it has been silent for the session's TTL. SIGTERM lets running jobs end for
// GRACE seconds; a second one ends it at once.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// --- the work itself ----------------------------------------------------------------------------------------------

// A Task runs one job. It ends early when the context is done: the job was cancelled, others have it, or the
// grace is over.
type Task func(ctx context.Context, job *Job) (any, error)

var tasks = map[string]Task{
	"resize": func(ctx context.Context, job *Job) (any, error) {
		var wanted struct {
			Path  string  `json:"path"`
			Sleep float64 `json:"sleep"`
		}
		if err := json.Unmarshal(job.Payload.Kwargs, &wanted); err != nil {
			return nil, err
		}
		job.Progress(0.5, "half of "+wanted.Path)
		if !pause(ctx, seconds(wanted.Sleep)) {
			return nil, ctx.Err()
		}
		return map[string]any{"resized": wanted.Path, "by": "go"}, nil
	},
	"explode": func(context.Context, *Job) (any, error) { return nil, errors.New("no such thing") },
}

// --- asking the server --------------------------------------------------------------------------------------------

var (
	api    = setting("WINDLASS_API", "http://127.0.0.1:8700")
	key    = setting("WINDLASS_KEY", os.Getenv("WINDLASS_TOKEN"))
	queues = strings.Split(setting("QUEUE", "images"), ",")
	slots  = number("SLOTS", 4)
	grace  = time.Duration(number("GRACE", 30)) * time.Second
	client = &http.Client{Timeout: 90 * time.Second}
)

// A Refusal is an answer that will not change when it is asked for again.
type Refusal struct {
	Status int
	Detail string `json:"detail"`
}

func (r *Refusal) Error() string { return fmt.Sprintf("%d: %s", r.Status, r.Detail) }

func ask(ctx context.Context, method, path string, body, answer any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, api+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 400 {
		refused := &Refusal{Status: response.StatusCode}
		_ = json.Unmarshal(got, refused) // a proxy in between may answer in HTML
		return refused
	}
	if answer == nil || len(got) == 0 {
		return nil
	}
	return json.Unmarshal(got, answer)
}

// insist asks until it is answered: while the server is away nothing is lost, and a word said twice counts once.
func insist(ctx context.Context, path string, body, answer any) error {
	for {
		err := ask(ctx, http.MethodPost, path, body, answer)
		var refused *Refusal
		if err == nil || ctx.Err() != nil || errors.As(err, &refused) && refused.Status < 500 && refused.Status != 429 {
			return err
		}
		pause(ctx, 500*time.Millisecond)
	}
}

// --- the worker ---------------------------------------------------------------------------------------------------

// A Lease is one delivery of a job.
type Lease struct {
	Token   string `json:"lease"`
	ID      string `json:"job"`
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Payload struct {
		Args   json.RawMessage `json:"args"`
		Kwargs json.RawMessage `json:"kwargs"`
	} `json:"payload"`
}

// A Job is a lease while it runs.
type Job struct {
	Lease
	cancel context.CancelFunc
}

// Progress tells how far it is. A word that is lost is no harm.
func (j *Job) Progress(fraction float64, message string) {
	body := map[string]any{"fraction": fraction, "message": message}
	_ = ask(context.Background(), http.MethodPost, "/v1/leases/"+j.Token+"/progress", body, nil)
}

// A Worker has a session and the jobs that run in it.
type Worker struct {
	mutex   sync.Mutex
	session string
	beat    time.Duration
	seq     int
	running map[string]*Job
	ended   sync.WaitGroup
	stopped bool // its grace is over: what ends now goes back
}

func (w *Worker) open(ctx context.Context) error {
	host, _ := os.Hostname()
	body := map[string]any{"queues": queues, "slots": slots, "host": host, "pid": os.Getpid(), "version": "go"}
	var opened struct {
		Session string  `json:"session"`
		Beat    float64 `json:"beat"`
	}
	if err := insist(ctx, "/v1/leases/sessions", body, &opened); err != nil {
		return err
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.session, w.beat, w.seq = opened.Session, seconds(opened.Beat), 0
	return nil
}

func (w *Worker) current() (string, time.Duration, int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.session, w.beat, w.seq
}

// keepAlive beats until the process ends: also while it stops, since jobs still run.
func (w *Worker) keepAlive(stopping context.Context) {
	for {
		session, every, _ := w.current()
		time.Sleep(every)
		var pulse struct {
			Alive  bool     `json:"alive"`
			Cancel []string `json:"cancel"`
		}
		err := insist(context.Background(), "/v1/leases/sessions/"+session+"/beat", map[string]any{}, &pulse)
		alive := err == nil && pulse.Alive
		w.mutex.Lock()
		if alive {
			for _, token := range pulse.Cancel {
				if job := w.running[token]; job != nil {
					job.cancel()
				}
			}
		} else { // others have our jobs: what we still say about them is refused
			for _, job := range w.running {
				job.cancel()
			}
		}
		w.mutex.Unlock()
		if !alive && stopping.Err() == nil {
			_ = w.open(stopping)
		}
	}
}

// work claims and starts jobs until it is told to stop.
func (w *Worker) work(stopping context.Context) {
	free := make(chan struct{}, slots) // one token for each slot that is taken
	for stopping.Err() == nil {
		select {
		case free <- struct{}{}:
			<-free
		case <-stopping.Done():
			return
		}
		session, _, seq := w.current()
		wait := 20
		if len(free) > 0 {
			wait = 1
		}
		body := map[string]any{"queues": queues, "limit": slots - len(free), "wait": wait, "session": session, "seq": seq + 1}
		var claimed struct {
			Session string  `json:"session"`
			Leases  []Lease `json:"leases"`
		}
		err := insist(stopping, "/v1/leases", body, &claimed)
		if stopping.Err() != nil {
			return // what the answer held goes back when the session ends
		}
		if err != nil || claimed.Session != "alive" {
			if err != nil {
				log.Printf("claiming: %v", err)
			}
			if now, _, _ := w.current(); now == session {
				_ = w.open(stopping)
			}
			continue
		}
		w.mutex.Lock()
		if w.session == session {
			w.seq = seq + 1 // only after an answer: the same number again gives what a lost answer held
		}
		w.mutex.Unlock()
		for _, lease := range claimed.Leases {
			free <- struct{}{}
			w.ended.Add(1)
			go func(lease Lease) {
				defer func() { <-free; w.ended.Done() }()
				w.run(lease)
			}(lease)
		}
	}
}

func (w *Worker) run(lease Lease) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	job := &Job{Lease: lease, cancel: cancel}
	w.mutex.Lock()
	w.running[lease.Token] = job
	w.mutex.Unlock()
	began := time.Now()
	settlement := w.outcome(ctx, job)
	settlement["runtime"] = time.Since(began).Seconds()
	// 409: the job was given to others meanwhile, and this run counts for nothing.
	_ = insist(context.Background(), "/v1/leases/"+lease.Token+"/settle", settlement, nil)
	w.mutex.Lock()
	delete(w.running, lease.Token)
	w.mutex.Unlock()
}

func (w *Worker) outcome(ctx context.Context, job *Job) (settlement map[string]any) {
	task := tasks[job.Task]
	if task == nil {
		return map[string]any{"outcome": "hold", "reason": "this worker has no task " + job.Task}
	}
	defer func() { // a panic of one job is a failure of that job
		if cause := recover(); cause != nil {
			settlement = failure("panic", fmt.Sprint(cause))
		}
	}()
	result, err := task(ctx, job)
	w.mutex.Lock()
	stopped := w.stopped
	w.mutex.Unlock()
	if err != nil && stopped {
		return map[string]any{"outcome": "release"} // it did not end within the grace
	}
	if err != nil {
		return failure(fmt.Sprintf("%T", err), err.Error())
	}
	return map[string]any{"outcome": "ack", "result": result}
}

func failure(kind, message string) map[string]any {
	return map[string]any{"outcome": "nack", "error": map[string]any{"type": kind, "message": message}}
}

// stop lets running jobs end within the grace, and gives back what is left.
func (w *Worker) stop() {
	ended := make(chan struct{})
	go func() { w.ended.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(grace):
		w.mutex.Lock()
		w.stopped = true
		for _, job := range w.running {
			job.cancel()
		}
		w.mutex.Unlock()
		select {
		case <-ended:
		case <-time.After(2 * time.Second): // jobs whose code did not heed the context go back with the session
		}
	}
	session, _, _ := w.current()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = ask(ctx, http.MethodDelete, "/v1/leases/sessions/"+session, nil, nil)
}

func main() {
	stopping, stop := context.WithCancel(context.Background())
	told := make(chan os.Signal, 2)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-told
		stop()
		<-told
		os.Exit(1)
	}()
	worker := &Worker{running: map[string]*Job{}}
	if err := worker.open(stopping); err != nil {
		if stopping.Err() != nil {
			return
		}
		log.Fatal(err)
	}
	session, _, _ := worker.current()
	log.Printf("working on %s in session %s", strings.Join(queues, ", "), session)
	go worker.keepAlive(stopping)
	worker.work(stopping)
	log.Printf("stopping, up to %s for running jobs", grace)
	worker.stop()
}

// --- small things -------------------------------------------------------------------------------------------------

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func number(name string, otherwise int) int {
	if value, err := strconv.Atoi(os.Getenv(name)); err == nil && value > 0 {
		return value
	}
	return otherwise
}

func seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }

// pause waits; false if the context was done before.
func pause(ctx context.Context, length time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(length):
		return true
	}
}
