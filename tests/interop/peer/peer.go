package main

import (
	"sync"

	"github.com/hibiken/asynq"
)

// peer holds what requests share: one connection, and the servers and schedulers started on it, by name.
type peer struct {
	mu         sync.Mutex
	conn       *connection
	servers    map[string]*asynq.Server
	schedulers map[string]*asynq.Scheduler
	journal    *journal
	gates      *gates
	step       *step
}

func newPeer() *peer {
	return &peer{
		servers:    map[string]*asynq.Server{},
		schedulers: map[string]*asynq.Scheduler{},
		journal:    newJournal(),
		gates:      &gates{open: map[string]chan struct{}{}},
	}
}

func operations() map[string]operation {
	return map[string]operation{
		"connect":              bind(connect),
		"enqueue":              bind(enqueue),
		"enqueue_many":         bind(enqueueMany),
		"enqueue_order":        bind(enqueueOrder),
		"inspect":              bind(inspect),
		"decode":               bind(decodeMessage),
		"server_start":         bind(serverStart),
		"server_shutdown":      bind(serverShutdown),
		"executions":           bind(executions),
		"aggregations":         bind(aggregations),
		"release":              bind(release),
		"scheduler_start":      bind(schedulerStart),
		"scheduler_register":   bind(schedulerRegister),
		"scheduler_unregister": bind(schedulerUnregister),
		"scheduler_shutdown":   bind(schedulerShutdown),
		"cron_next":            bind(cronNext),
		"step_begin":           bind(stepBegin),
		"step_end":             bind(stepEnd),
		"tend":                 bind(tend),
		"bench_enqueue":        bind(benchEnqueue),
		"bench_process":        bind(benchProcess),
	}
}
