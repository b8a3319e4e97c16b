package main

import (
	"runtime"
	"runtime/debug"
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
		"version":              bind(version),
		"connect":              bind(connect),
		"enqueue":              bind(enqueue),
		"enqueue_many":         bind(enqueueMany),
		"enqueue_order":        bind(enqueueOrder),
		"inspect":              bind(inspect),
		"inspect_methods":      bind(inspectMethods),
		"decode":               bind(decodeMessage),
		"server_start":         bind(serverStart),
		"server_stop":          bind(serverStop),
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

type nothing struct{}

// version tells what the binary was built with.
func version(*peer, nothing) (any, error) {
	found := map[string]string{"go": runtime.Version(), "asynq": "", "go_redis": ""}
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		switch dep.Path {
		case "github.com/hibiken/asynq":
			found["asynq"] = dep.Version
		case "github.com/redis/go-redis/v9":
			found["go_redis"] = dep.Version
		}
	}
	return found, nil
}
