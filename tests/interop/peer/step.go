package main

import (
	"context"
	"time"

	"github.com/hibiken/asynq"
)

// step is a server that takes exactly one task and holds it until it is told what becomes of it.
type step struct {
	server *asynq.Server
	taken  chan string
	script chan script
	ended  chan struct{}
}

func (s *step) ProcessTask(ctx context.Context, task *asynq.Task) error {
	defer close(s.ended)
	s.server.Stop() // while the only worker is busy, so that no second task is taken
	id, _ := asynq.GetTaskID(ctx)
	s.taken <- id
	select {
	case next := <-s.script:
		return scriptHandler{}.play(ctx, next, task)
	case <-ctx.Done():
		return ctx.Err()
	}
}

type stepBeginParams struct {
	Queue string        `json:"queue"`
	Wait  time.Duration `json:"wait_ns"`
}

// stepBegin takes the next task of a queue and returns its id, or null when there was none all the time.
func stepBegin(p *peer, params stepBeginParams) (any, error) {
	conn, err := p.connected()
	if err != nil {
		return nil, err
	}
	hour := time.Hour
	config, err := p.serverConfig(serverParams{
		Queues: map[string]int{params.Queue: 1}, Concurrency: 1, RetryDelay: &hour,
		TaskCheck: time.Millisecond, DelayedTaskCheck: hour, JanitorInterval: hour, LogLevel: "fatal",
	})
	if err != nil {
		return nil, err
	}
	s := &step{taken: make(chan string, 1), script: make(chan script), ended: make(chan struct{})}
	s.server = asynq.NewServer(conn.opt, config)
	if err := s.server.Start(s); err != nil {
		return nil, err
	}
	select {
	case id := <-s.taken:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.step = s
		return id, nil
	case <-time.After(params.Wait):
		s.server.Shutdown()
		return nil, nil
	}
}

type stepEndParams struct {
	Script script `json:"script"`
	// Cancel is the id of the task that is held, to end by asynq's CancelProcessing instead of by the script.
	Cancel string `json:"cancel"`
}

// stepEnd lets the task end and returns when all of it is written.
func stepEnd(p *peer, params stepEndParams) (any, error) {
	p.mu.Lock()
	s := p.step
	p.step = nil
	p.mu.Unlock()
	if s == nil {
		return nil, badRequest("no task is held")
	}
	if params.Cancel == "" {
		s.script <- params.Script
	} else if err := p.cancelStep(s, params.Cancel); err != nil {
		return nil, err
	}
	s.server.Shutdown()
	return nil, nil
}

// cancelStep says it again and again, as a server that has just begun may not be listening yet.
func (p *peer) cancelStep(s *step, id string) error {
	for {
		if err := p.conn.inspector.CancelProcessing(id); err != nil {
			return err
		}
		select {
		case <-s.ended:
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}
