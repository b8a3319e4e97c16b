package main

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
)

// figures are what a benchmark measured; CPU is this process' own, user and system.
type figures struct {
	N              int
	Seconds        float64
	TasksPerSecond float64
	CPUSeconds     float64
}

type stopwatch struct {
	start time.Time
	cpu   float64
}

func startWatch() stopwatch {
	return stopwatch{time.Now(), cpuSeconds()}
}

func (w stopwatch) figures(n int) figures {
	seconds := time.Since(w.start).Seconds()
	return figures{n, seconds, float64(n) / seconds, cpuSeconds() - w.cpu}
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

type benchEnqueueParams struct {
	N           int    `json:"n"`
	Goroutines  int    `json:"goroutines"`
	Queue       string `json:"queue"`
	PayloadSize int    `json:"payload_size"`
}

// benchEnqueue enqueues n tasks one by one from several goroutines that share the client.
func benchEnqueue(p *peer, params benchEnqueueParams) (any, error) {
	conn, err := p.connected()
	if err != nil {
		return nil, err
	}
	if params.N < 1 || params.Goroutines < 1 {
		return nil, badRequest("n and goroutines must be at least 1")
	}
	payload := make([]byte, params.PayloadSize)
	var left atomic.Int64
	left.Store(int64(params.N))
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	watch := startWatch()
	for range params.Goroutines {
		group.Add(1)
		go func() {
			defer group.Done()
			for left.Add(-1) >= 0 && failed.Load() == nil {
				if _, err := conn.client.Enqueue(asynq.NewTask("bench", payload), asynq.Queue(params.Queue)); err != nil {
					failed.Store(&err)
				}
			}
		}()
	}
	group.Wait()
	measured := watch.figures(params.N)
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return measured, nil
}

type benchProcessParams struct {
	N           int           `json:"n"`
	Concurrency int           `json:"concurrency"`
	Queue       string        `json:"queue"`
	Timeout     time.Duration `json:"timeout_ns"`
}

// benchProcess runs a server whose handler does nothing until n tasks of a filled queue are done. The clock runs
// from the server's start to the end of the n-th handler; the last acks are outside.
func benchProcess(p *peer, params benchProcessParams) (any, error) {
	conn, err := p.connected()
	if err != nil {
		return nil, err
	}
	var handled atomic.Int64
	done := make(chan struct{})
	count := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if handled.Add(1) == int64(params.N) {
			close(done)
		}
		return nil
	})
	server := asynq.NewServer(conn.opt, asynq.Config{
		Concurrency: params.Concurrency, Queues: map[string]int{params.Queue: 1}, LogLevel: asynq.ErrorLevel,
	})
	watch := startWatch()
	if err := server.Start(count); err != nil {
		return nil, err
	}
	defer server.Shutdown()
	select {
	case <-done:
		return watch.figures(params.N), nil
	case <-time.After(params.Timeout):
		return nil, badRequest("%d of %d tasks after %v", handled.Load(), params.N, params.Timeout)
	}
}
