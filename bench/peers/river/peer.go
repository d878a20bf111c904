// River over PostgreSQL: two processes, which complete jobs in batches, as it does by default.

package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	slots = 1000
	// Its least: a worker fetches, and a producer announces new jobs, at most so often. With its default of
	// 100 ms in the producer, a job that follows another waits for the workers' next poll, up to a second.
	cooldown = time.Millisecond
)

var background = context.Background()

type noopArgs struct {
	Text string `json:"text"`
}

func (noopArgs) Kind() string { return "noop" }

type pingArgs struct {
	Sent float64 `json:"sent"`
}

func (pingArgs) Kind() string { return "ping" }

type riverPeer struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func (peer *riverPeer) connect(config *river.Config) error {
	pool, failed := pgxpool.New(background, storeURL)
	if failed != nil {
		return failed
	}
	peer.pool = pool
	peer.client, failed = river.NewClient(riverpgxv5.New(pool), config)
	return failed
}

func (peer *riverPeer) Prepare() error {
	must(peer.Open())
	defer peer.pool.Close()
	migrator, failed := rivermigrate.New(riverpgxv5.New(peer.pool), nil)
	must(failed)
	_, failed = migrator.Migrate(background, rivermigrate.DirectionUp, nil)
	return failed
}

func (peer *riverPeer) Open() error { return peer.connect(&river.Config{FetchCooldown: cooldown}) }

func (peer *riverPeer) Close() error {
	peer.pool.Close()
	return nil
}

func (peer *riverPeer) Enqueue(text string) error {
	_, failed := peer.client.Insert(background, noopArgs{Text: text}, nil)
	return failed
}

func (peer *riverPeer) Bulk(texts []string) error {
	many := make([]river.InsertManyParams, len(texts))
	for place, text := range texts {
		many[place] = river.InsertManyParams{Args: noopArgs{Text: text}}
	}
	_, failed := peer.client.InsertManyFast(background, many)
	return failed
}

// Its most urgent priority is 1, the default.
func (peer *riverPeer) Ping(sent float64, _ int) error {
	_, failed := peer.client.Insert(background, pingArgs{Sent: sent}, nil)
	return failed
}

func (peer *riverPeer) Serve() error {
	tasks := river.NewWorkers()
	river.AddWorker(tasks, river.WorkFunc(func(context.Context, *river.Job[noopArgs]) error {
		mark()
		return nil
	}))
	river.AddWorker(tasks, river.WorkFunc(func(_ context.Context, job *river.Job[pingArgs]) error {
		ping(job.Args.Sent)
		return nil
	}))
	must(peer.connect(&river.Config{
		FetchCooldown: cooldown,
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}},
		Workers:       tasks,
	}))
	must(peer.client.Start(background))
	<-peer.client.Stopped()
	return nil
}

func main() { run(&riverPeer{}) }
