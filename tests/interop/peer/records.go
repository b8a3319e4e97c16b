package main

import (
	"fmt"
	"time"
)

type executionsParams struct {
	Started  int           `json:"started"`
	Finished int           `json:"finished"`
	Timeout  time.Duration `json:"timeout_ns"`
	Clear    bool          `json:"clear"`
	// Type limits what is returned to the tasks of one type.
	Type string `json:"type"`
}

// executions waits until so many have started and finished, then returns them; with clear it forgets all.
func executions(p *peer, params executionsParams) (any, error) {
	j := p.journal
	err := j.await(params.Timeout, func() bool {
		return len(j.executions) >= params.Started && j.finished >= params.Finished
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%d executions started, %d finished: %w", len(j.executions), j.finished, err)
	}
	copies := make([]execution, 0, len(j.executions))
	for _, run := range j.executions {
		if params.Type == "" || params.Type == run.Type {
			copies = append(copies, *run)
		}
	}
	if params.Clear {
		j.executions, j.finished = nil, 0
	}
	return copies, nil
}

type aggregationsParams struct {
	Count   int           `json:"count"`
	Timeout time.Duration `json:"timeout_ns"`
}

// aggregations waits for so many calls of the group aggregator, then returns all.
func aggregations(p *peer, params aggregationsParams) (any, error) {
	j := p.journal
	err := j.await(params.Timeout, func() bool { return len(j.aggregations) >= params.Count })
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%d aggregations: %w", len(j.aggregations), err)
	}
	return append([]aggregation{}, j.aggregations...), nil
}
