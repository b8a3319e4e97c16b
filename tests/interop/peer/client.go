package main

import "github.com/hibiken/asynq"

func enqueue(p *peer, params taskParams) (any, error) {
	conn, err := p.connected()
	if err != nil {
		return nil, err
	}
	return conn.client.Enqueue(params.task(), params.Options.list()...)
}

type enqueueManyParams struct {
	Tasks []taskParams `json:"tasks"`
}

// outcome is what one of many tasks came to.
type outcome struct {
	Task  *asynq.TaskInfo
	Error *failure
}

// enqueueMany calls Client.Enqueue for each task; it saves the tests round trips to this process, not to Redis.
func enqueueMany(p *peer, params enqueueManyParams) (any, error) {
	conn, err := p.connected()
	if err != nil {
		return nil, err
	}
	outcomes := make([]outcome, len(params.Tasks))
	for i, task := range params.Tasks {
		info, err := conn.client.Enqueue(task.task(), task.Options.list()...)
		outcomes[i].Task = info
		if err != nil {
			outcomes[i].Error = failureOf(err)
		}
	}
	return outcomes, nil
}
