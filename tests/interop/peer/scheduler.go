package main

import (
	"time"

	"github.com/hibiken/asynq"
)

type schedulerParams struct {
	Name      string        `json:"name"`
	Location  string        `json:"location"`
	Heartbeat time.Duration `json:"heartbeat_ns"`
	Entries   []entryParams `json:"entries"`
}

type entryParams struct {
	Spec string     `json:"spec"`
	Task taskParams `json:"task"`
}

// schedulerStart registers the entries, starts, and returns the entries' ids.
func schedulerStart(p *peer, params schedulerParams) (any, error) {
	conn, err := p.connected()
	if err != nil {
		return nil, err
	}
	location, err := time.LoadLocation(params.Location)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, running := p.schedulers[params.Name]; running {
		return nil, badRequest("scheduler %q runs already", params.Name)
	}
	opts := &asynq.SchedulerOpts{
		Location: location, HeartbeatInterval: params.Heartbeat, LogLevel: asynq.ErrorLevel,
	}
	s := asynq.NewScheduler(conn.opt, opts)
	ids := make([]string, len(params.Entries))
	for i, entry := range params.Entries {
		if ids[i], err = register(s, entry); err != nil {
			return nil, err
		}
	}
	if err := s.Start(); err != nil {
		return nil, err
	}
	p.schedulers[params.Name] = s
	return ids, nil
}

func register(s *asynq.Scheduler, entry entryParams) (string, error) {
	return s.Register(entry.Spec, entry.Task.task(), entry.Task.Options.list()...)
}

func (p *peer) scheduler(name string) (*asynq.Scheduler, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.schedulers[name]
	if !ok {
		return nil, badRequest("no scheduler %q", name)
	}
	return s, nil
}

type registerParams struct {
	Name  string      `json:"name"`
	Entry entryParams `json:"entry"`
}

func schedulerRegister(p *peer, params registerParams) (any, error) {
	s, err := p.scheduler(params.Name)
	if err != nil {
		return nil, err
	}
	return register(s, params.Entry)
}

type unregisterParams struct {
	Name    string `json:"name"`
	EntryID string `json:"entry_id"`
}

func schedulerUnregister(p *peer, params unregisterParams) (any, error) {
	s, err := p.scheduler(params.Name)
	if err != nil {
		return nil, err
	}
	return nil, s.Unregister(params.EntryID)
}

func schedulerShutdown(p *peer, params nameParams) (any, error) {
	s, err := p.scheduler(params.Name)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	delete(p.schedulers, params.Name)
	p.mu.Unlock()
	s.Shutdown()
	return nil, nil
}
