package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/hibiken/asynq"
)

// answer is what comes back for one request: a result, or an error with its class.
type answer struct {
	ID     int64    `json:"id"`
	Result any      `json:"result"`
	Error  *failure `json:"error,omitempty"`
}

type failure struct {
	Class string `json:"class"`
	Text  string `json:"text"`
}

// requestError is a mistake in the request itself, found before asynq was asked.
type requestError struct{ text string }

func (e requestError) Error() string { return e.text }

func badRequest(format string, args ...any) error {
	return requestError{fmt.Sprintf(format, args...)}
}

func failureOf(err error) *failure {
	classes := []struct {
		sentinel error
		class    string
	}{
		{asynq.ErrDuplicateTask, "duplicate"},
		{asynq.ErrTaskIDConflict, "id_conflict"},
		{asynq.ErrQueueNotFound, "queue_not_found"},
		{asynq.ErrQueueNotEmpty, "queue_not_empty"},
		{asynq.ErrTaskNotFound, "task_not_found"},
	}
	for _, c := range classes {
		if errors.Is(err, c.sentinel) {
			return &failure{c.class, err.Error()}
		}
	}
	if mistake := (requestError{}); errors.As(err, &mistake) {
		return &failure{"bad_request", err.Error()}
	}
	return &failure{"other", err.Error()}
}

// operation runs one request; params holds the request without its id and op.
type operation func(p *peer, params []byte) (any, error)

// bind makes an operation of a function with typed parameters; an unknown parameter is an error, so that a
// misspelt one never passes for a default.
func bind[P any](run func(*peer, P) (any, error)) operation {
	return func(p *peer, params []byte) (any, error) {
		var typed P
		decoder := json.NewDecoder(bytes.NewReader(params))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&typed); err != nil {
			return nil, badRequest("%v", err)
		}
		return run(p, typed)
	}
}

func (p *peer) answer(line []byte) answer {
	var request map[string]json.RawMessage
	var reply answer
	var op string
	err := json.Unmarshal(line, &request)
	if err == nil {
		err = errors.Join(json.Unmarshal(request["id"], &reply.ID), json.Unmarshal(request["op"], &op))
	}
	if err != nil {
		reply.Error = failureOf(badRequest("a request is {id: number, op: string, ...}: %v", err))
		return reply
	}
	delete(request, "id")
	delete(request, "op")
	result, err := p.run(op, request)
	if err != nil {
		reply.Error = failureOf(err)
		return reply
	}
	reply.Result = encode(result)
	return reply
}

func (p *peer) run(op string, params map[string]json.RawMessage) (any, error) {
	operation, ok := operations()[op]
	if !ok {
		return nil, badRequest("unknown op %q", op)
	}
	rest, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	return operation(p, rest)
}

// answers writes one line at a time.
type answers struct {
	mu  sync.Mutex
	out *json.Encoder
}

func newAnswers(w io.Writer) *answers {
	return &answers{out: json.NewEncoder(w)}
}

func (a *answers) write(reply answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.out.Encode(reply); err != nil {
		fmt.Fprintln(os.Stderr, "peer: cannot answer:", err)
		os.Exit(1)
	}
}
