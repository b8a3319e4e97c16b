package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// script says what the handler does with a task. It is the header "script", else the payload when that is a JSON
// object with "do"; a task without one succeeds.
type script struct {
	Do     string        `json:"do"`
	Text   string        `json:"text"`
	Result []byte        `json:"result"`
	For    time.Duration `json:"for_ns"`
	Gate   string        `json:"gate"`
	// Scope is that of a semaphore of which the handler holds one of Tokens while it does the rest.
	Scope  string `json:"scope"`
	Tokens int    `json:"tokens"`
	// Times limits the script to the first attempts; later ones succeed. 0 means every attempt.
	Times int `json:"times"`
	// RetryIn is the delay before the next attempt, instead of the server's own.
	RetryIn time.Duration `json:"retry_in_ns"`
	// Deaf handlers do not look at their context while they sleep or wait.
	Deaf bool `json:"deaf"`
}

// notFailure is an error of which the servers' IsFailure says false.
type notFailure struct{ text string }

func (e notFailure) Error() string { return e.text }

// scriptHandler does what tasks tell it to and records each execution.
type scriptHandler struct {
	server  string
	journal *journal
	gates   *gates
	redis   connectParams
}

func (h scriptHandler) ProcessTask(ctx context.Context, task *asynq.Task) (err error) {
	run := h.journal.start(h.server, ctx, task)
	defer func() {
		thrown := recover()
		h.journal.end(run, err, thrown)
		if thrown != nil {
			panic(thrown)
		}
	}()
	s, err := scriptOf(task)
	if err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	if retried, _ := asynq.GetRetryCount(ctx); s.Times > 0 && retried >= s.Times {
		return nil
	}
	if s.Scope != "" {
		return h.limited(ctx, s, func() error { return h.play(ctx, s, task) })
	}
	return h.play(ctx, s, task)
}

func scriptOf(task *asynq.Task) (script, error) {
	var s script
	if text, ok := task.Headers()["script"]; ok {
		return s, json.Unmarshal([]byte(text), &s)
	}
	if json.Unmarshal(task.Payload(), &s) != nil {
		return script{}, nil // a payload that is not for us
	}
	return s, nil
}

func (h scriptHandler) play(ctx context.Context, s script, task *asynq.Task) error {
	switch s.Do {
	case "", "ok":
		return nil
	case "result":
		_, err := task.ResultWriter().Write(s.Result)
		return err
	case "take_order":
		return takeOrder(task)
	case "error":
		return fmt.Errorf("%s", s.Text)
	case "not_failure":
		return notFailure{s.Text}
	case "skip":
		return fmt.Errorf("%s: %w", s.Text, asynq.SkipRetry)
	case "revoke":
		return fmt.Errorf("%s: %w", s.Text, asynq.RevokeTask)
	case "panic":
		panic(s.Text)
	case "sleep":
		return wait(ctx, time.After(s.For), s.Deaf)
	case "wait":
		return wait(ctx, h.gates.gate(s.Gate), s.Deaf)
	}
	return fmt.Errorf("script: unknown do %q: %w", s.Do, asynq.SkipRetry)
}

func wait[T any](ctx context.Context, until <-chan T, deaf bool) error {
	if deaf {
		ctx = context.Background()
	}
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// gates are named events that handlers wait for.
type gates struct {
	mu   sync.Mutex
	open map[string]chan struct{}
}

func (g *gates) gate(name string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[name] == nil {
		g.open[name] = make(chan struct{})
	}
	return g.open[name]
}

type releaseParams struct {
	Gate string `json:"gate"`
}

// release lets everything through a gate, now and later.
func release(p *peer, params releaseParams) (any, error) {
	gate := p.gates.gate(params.Gate)
	p.gates.mu.Lock()
	defer p.gates.mu.Unlock()
	select {
	case <-gate:
		return nil, badRequest("gate %q is open already", params.Gate)
	default:
		close(gate)
		return nil, nil
	}
}
