package main

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
)

type cronParams struct {
	Specs    []string `json:"specs"`
	Location string   `json:"location"`
	From     int64    `json:"from"`
	Count    int      `json:"count"`
}

type cronOutcome struct {
	Error string   `json:"error"`
	Next  []string `json:"next"`
}

// cronNext reads each spec as asynq's Scheduler does, and returns its next times after From (unix seconds) in the
// location; what has none ends with "never".
func cronNext(_ *peer, params cronParams) (any, error) {
	location, err := time.LoadLocation(params.Location)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	outcomes := make([]cronOutcome, len(params.Specs))
	for i, spec := range params.Specs {
		outcomes[i] = nextTimes(spec, time.Unix(params.From, 0).In(location), params.Count)
	}
	return outcomes, nil
}

func nextTimes(spec string, from time.Time, count int) (outcome cronOutcome) {
	defer func() {
		if reason := recover(); reason != nil {
			outcome = cronOutcome{Error: fmt.Sprintf("panic: %v", reason)}
		}
	}()
	schedule, err := cron.ParseStandard(spec)
	if err != nil {
		return cronOutcome{Error: err.Error()}
	}
	for range count {
		if from = schedule.Next(from); from.IsZero() {
			outcome.Next = append(outcome.Next, "never")
			break
		}
		outcome.Next = append(outcome.Next, from.Format(time.RFC3339))
	}
	return outcome
}
