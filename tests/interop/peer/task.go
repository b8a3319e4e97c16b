package main

import (
	"encoding/json"
	"math"
	"time"

	"github.com/hibiken/asynq"
)

// taskParams describes a task. A null payload is Go's nil, which asynq's unique keys tell from an empty one.
type taskParams struct {
	Type        string            `json:"type"`
	Payload     []byte            `json:"payload"`
	Headers     map[string]string `json:"headers"`
	TaskOptions options           `json:"task_options"`
	Options     options           `json:"options"`
}

// task makes the asynq.Task with its own options; Options are those of the call that takes it.
func (t taskParams) task() *asynq.Task {
	if t.Headers == nil {
		return asynq.NewTask(t.Type, t.Payload, t.TaskOptions.list()...)
	}
	return asynq.NewTaskWithHeaders(t.Type, t.Payload, t.Headers, t.TaskOptions.list()...)
}

// options are asynq's; what is absent is not given to asynq at all.
type options struct {
	Queue     *string        `json:"queue"`
	TaskID    *string        `json:"task_id"`
	MaxRetry  *int           `json:"max_retry"`
	Timeout   *time.Duration `json:"timeout_ns"`
	Deadline  *instant       `json:"deadline"`
	Unique    *time.Duration `json:"unique_ns"`
	ProcessAt *instant       `json:"process_at"`
	ProcessIn *time.Duration `json:"process_in_ns"`
	Retention *time.Duration `json:"retention_ns"`
	Group     *string        `json:"group"`
}

func (o options) list() []asynq.Option {
	var list []asynq.Option
	list = add(list, o.Queue, asynq.Queue)
	list = add(list, o.TaskID, asynq.TaskID)
	list = add(list, o.MaxRetry, asynq.MaxRetry)
	list = add(list, o.Timeout, asynq.Timeout)
	list = add(list, o.Deadline, func(t instant) asynq.Option { return asynq.Deadline(time.Time(t)) })
	list = add(list, o.Unique, asynq.Unique)
	list = add(list, o.ProcessAt, func(t instant) asynq.Option { return asynq.ProcessAt(time.Time(t)) })
	list = add(list, o.ProcessIn, asynq.ProcessIn)
	list = add(list, o.Retention, asynq.Retention)
	return add(list, o.Group, asynq.Group)
}

func add[T any](list []asynq.Option, value *T, option func(T) asynq.Option) []asynq.Option {
	if value == nil {
		return list
	}
	return append(list, option(*value))
}

// instant reads unix seconds, whole or with a fraction, or an RFC 3339 string.
type instant time.Time

func (t *instant) UnmarshalJSON(text []byte) error {
	var seconds float64
	if json.Unmarshal(text, &seconds) == nil {
		whole, fraction := math.Modf(seconds)
		*t = instant(time.Unix(int64(whole), int64(fraction*1e9)))
		return nil
	}
	return json.Unmarshal(text, (*time.Time)(t))
}
