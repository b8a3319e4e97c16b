package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// execution is one run of a handler; End is zero while it runs. Outcome is "ok", or the error's text, or "panic: "
// and what was thrown.
type execution struct {
	Server   string
	ID       string
	Type     string
	Payload  []byte
	Headers  map[string]string
	Queue    string
	Retried  int
	MaxRetry int
	Deadline time.Time
	Start    time.Time
	End      time.Time
	Outcome  string
}

// aggregation is one call of the group aggregator.
type aggregation struct {
	Group string
	Tasks []*asynq.Task
}

// journal holds every execution and aggregation in the order of their start, and wakes those who wait for more.
type journal struct {
	mu           sync.Mutex
	changed      chan struct{}
	executions   []*execution
	finished     int
	aggregations []aggregation
}

func newJournal() *journal {
	return &journal{changed: make(chan struct{})}
}

func (j *journal) start(server string, ctx context.Context, task *asynq.Task) *execution {
	run := &execution{Server: server, Type: task.Type(), Payload: task.Payload(), Headers: task.Headers()}
	run.ID, _ = asynq.GetTaskID(ctx)
	run.Queue, _ = asynq.GetQueueName(ctx)
	run.Retried, _ = asynq.GetRetryCount(ctx)
	run.MaxRetry, _ = asynq.GetMaxRetry(ctx)
	run.Deadline, _ = ctx.Deadline()
	run.Start = time.Now()
	j.change(func() { j.executions = append(j.executions, run) })
	return run
}

func (j *journal) end(run *execution, err error, thrown any) {
	j.change(func() {
		run.End = time.Now()
		run.Outcome = "ok"
		if thrown != nil {
			run.Outcome = fmt.Sprint("panic: ", thrown)
		} else if err != nil {
			run.Outcome = err.Error()
		}
		j.finished++
	})
}

func (j *journal) change(apply func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	apply()
	close(j.changed)
	j.changed = make(chan struct{})
}

// await returns when the condition, asked under the lock, holds, or fails at the timeout.
func (j *journal) await(timeout time.Duration, holds func() bool) error {
	expired := time.After(timeout)
	for {
		j.mu.Lock()
		done, changed := holds(), j.changed
		j.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-expired:
			return fmt.Errorf("not after %v", timeout)
		}
	}
}
