package main

import (
	"encoding/json"

	"github.com/hibiken/asynq"
)

// aggregator puts a group's tasks, in asynq's order, into the payload of one task.
type aggregator struct {
	taskType string
	journal  *journal
}

func (a aggregator) Aggregate(group string, tasks []*asynq.Task) *asynq.Task {
	a.journal.change(func() {
		a.journal.aggregations = append(a.journal.aggregations, aggregation{group, tasks})
	})
	payload, err := json.Marshal(map[string]any{"group": group, "tasks": encode(tasks)})
	if err != nil {
		return nil // asynq leaves the set alone then
	}
	return asynq.NewTask(a.taskType, payload)
}
