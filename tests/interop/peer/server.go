package main

import (
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

type serverParams struct {
	Name             string         `json:"name"`
	Queues           map[string]int `json:"queues"`
	Concurrency      int            `json:"concurrency"`
	Strict           bool           `json:"strict"`
	RetryDelay       *time.Duration `json:"retry_delay_ns"`
	ShutdownTimeout  time.Duration  `json:"shutdown_timeout_ns"`
	TaskCheck        time.Duration  `json:"task_check_ns"`
	DelayedTaskCheck time.Duration  `json:"delayed_task_check_ns"`
	JanitorInterval  time.Duration  `json:"janitor_interval_ns"`
	LogLevel         string         `json:"log_level"`
	Groups           *groupParams   `json:"groups"`
}

// groupParams switch the aggregator on.
type groupParams struct {
	Grace    time.Duration `json:"grace_ns"`
	MaxDelay time.Duration `json:"max_delay_ns"`
	MaxSize  int           `json:"max_size"`
	// Type is that of the aggregated tasks; their payload is {group, tasks: [{type, payload, headers}]}.
	Type string `json:"type"`
}

func serverStart(p *peer, params serverParams) (any, error) {
	conn, err := p.connected()
	if err != nil {
		return nil, err
	}
	config, err := p.serverConfig(params)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, running := p.servers[params.Name]; running {
		return nil, badRequest("server %q runs already", params.Name)
	}
	server := asynq.NewServer(conn.opt, config)
	if err := server.Start(scriptHandler{params.Name, p.journal, p.gates, conn.params}); err != nil {
		return nil, err
	}
	p.servers[params.Name] = server
	return nil, nil
}

func (p *peer) serverConfig(params serverParams) (asynq.Config, error) {
	config := asynq.Config{
		Queues:                   params.Queues,
		Concurrency:              params.Concurrency,
		StrictPriority:           params.Strict,
		ShutdownTimeout:          params.ShutdownTimeout,
		TaskCheckInterval:        params.TaskCheck,
		DelayedTaskCheckInterval: params.DelayedTaskCheck,
		JanitorInterval:          params.JanitorInterval,
		LogLevel:                 asynq.ErrorLevel,
		IsFailure:                func(err error) bool { return !errors.As(err, &notFailure{}) },
	}
	if params.RetryDelay != nil {
		config.RetryDelayFunc = func(_ int, _ error, task *asynq.Task) time.Duration {
			if s, err := scriptOf(task); err == nil && s.RetryIn > 0 {
				return s.RetryIn
			}
			return *params.RetryDelay
		}
	}
	if params.Groups != nil {
		config.GroupGracePeriod = params.Groups.Grace
		config.GroupMaxDelay = params.Groups.MaxDelay
		config.GroupMaxSize = params.Groups.MaxSize
		config.GroupAggregator = aggregator{params.Groups.Type, p.journal}
	}
	if params.LogLevel == "" {
		return config, nil
	}
	if err := config.LogLevel.Set(params.LogLevel); err != nil {
		return config, badRequest("%v", err)
	}
	return config, nil
}

type nameParams struct {
	Name string `json:"name"`
}

// serverShutdown returns when all that was running has been written to Redis.
func serverShutdown(p *peer, params nameParams) (any, error) {
	p.mu.Lock()
	server, ok := p.servers[params.Name]
	delete(p.servers, params.Name)
	p.mu.Unlock()
	if !ok {
		return nil, badRequest("no server %q", params.Name)
	}
	server.Shutdown()
	return nil, nil
}
