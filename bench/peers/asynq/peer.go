// Asynq over Redis: two processes. It has no call for many tasks, and it polls an empty queue.

package main

import (
	"context"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
)

type asynqPeer struct{ client *asynq.Client }

func redis() asynq.RedisConnOpt {
	options, failed := asynq.ParseRedisURI(storeURL)
	must(failed)
	return options
}

func (peer *asynqPeer) Prepare() error { return nil }

func (peer *asynqPeer) Open() error {
	peer.client = asynq.NewClient(redis())
	return peer.client.Ping()
}

func (peer *asynqPeer) Close() error { return peer.client.Close() }

func (peer *asynqPeer) Enqueue(text string) error {
	_, failed := peer.client.Enqueue(asynq.NewTask("noop", []byte(text)))
	return failed
}

func (peer *asynqPeer) Bulk([]string) error { return errAbsent }

// Its priorities are of queues.
func (peer *asynqPeer) Ping(sent float64, _ int) error {
	payload := strconv.AppendFloat(nil, sent, 'g', -1, 64)
	_, failed := peer.client.Enqueue(asynq.NewTask("ping", payload))
	return failed
}

func (peer *asynqPeer) Serve() error {
	tasks := asynq.NewServeMux()
	tasks.HandleFunc("noop", func(context.Context, *asynq.Task) error {
		mark()
		return nil
	})
	tasks.HandleFunc("ping", func(_ context.Context, task *asynq.Task) error {
		sent, failed := strconv.ParseFloat(string(task.Payload()), 64)
		ping(sent)
		return failed
	})
	server := asynq.NewServer(redis(), asynq.Config{
		Concurrency:       concurrency,
		TaskCheckInterval: checkInterval,
		LogLevel:          asynq.WarnLevel,
	})
	return server.Run(tasks)
}

const (
	concurrency   = 50
	checkInterval = 2 * time.Millisecond
)

func main() { run(&asynqPeer{}) }
