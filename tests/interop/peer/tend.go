package main

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// round is one turn of one of a server's actors on one queue: forwarder, recoverer, janitor, aggregator.
type round struct {
	Actor  string       `json:"actor"`
	Queue  string       `json:"queue"`
	Groups *roundGroups `json:"groups"`
}

// roundGroups say when groups are due, and what the aggregator makes of one: a task with these options, or nil.
type roundGroups struct {
	MaxDelay time.Duration `json:"max_delay_ns"`
	MaxSize  int           `json:"max_size"`
	Nil      bool          `json:"nil"`
	Options  options       `json:"options"`
}

// tended is what came of a round: how many groups became tasks, and what was logged as an error.
type tended struct {
	Aggregated int
	Errors     []string
}

type tendParams struct {
	Rounds []round `json:"rounds"`
}

// tend makes rounds, each by a server of its own, all at the same time: an aggregator waits a second for its first.
func tend(p *peer, params tendParams) (any, error) {
	conn, err := p.connected()
	if err != nil {
		return nil, err
	}
	made := make([]tended, len(params.Rounds))
	failed := make([]error, len(params.Rounds))
	var open sync.WaitGroup
	for i, each := range params.Rounds {
		open.Add(1)
		go func() {
			defer open.Done()
			made[i], failed[i] = each.make(p, conn)
		}()
	}
	open.Wait()
	return made, errors.Join(failed...)
}

// make pauses the queue meanwhile, so that the server takes none of its tasks.
func (r round) make(p *peer, conn *connection) (tended, error) {
	if err := conn.inspector.PauseQueue(r.Queue); err == nil {
		defer conn.inspector.UnpauseQueue(r.Queue)
	} else if !strings.Contains(err.Error(), "already paused") {
		return tended{}, err
	}
	bare, ok := conn.opt.MakeRedisClient().(redis.UniversalClient)
	if !ok {
		return tended{}, badRequest("asynq made no Redis client of these parameters")
	}
	defer bare.Close()
	first, ok := map[string]*begin{
		"recoverer":  nil, // its first round is over before it can be told to stop
		"forwarder":  {command: "eval", key: "scheduled"},
		"janitor":    {command: "eval", key: "completed"},
		"aggregator": {command: "smembers", key: "groups", once: true},
	}[r.Actor]
	if !ok {
		return tended{}, badRequest("there is no actor %q", r.Actor)
	}
	if first != nil {
		first.key = "asynq:{" + r.Queue + "}:" + first.key
		first.seen = make(chan struct{})
		bare.AddHook(first)
	}
	return r.serve(p, bare, first)
}

// serve runs a server until the actor has begun; its shutdown waits for the end of what was begun.
func (r round) serve(p *peer, bare redis.UniversalClient, first *begin) (tended, error) {
	hour, soon, taskCheck := time.Hour, time.Millisecond, 2*time.Millisecond
	if r.Actor == "aggregator" {
		taskCheck = 100 * time.Millisecond // it has a second to wait
	}
	params := serverParams{
		Queues: map[string]int{r.Queue: 1}, Concurrency: 1, RetryDelay: &hour,
		TaskCheck: taskCheck, DelayedTaskCheck: hour, JanitorInterval: hour, LogLevel: "error",
	}
	switch r.Actor {
	case "forwarder":
		params.DelayedTaskCheck = soon
	case "janitor":
		params.JanitorInterval = soon
	}
	config, err := p.serverConfig(params)
	if err != nil {
		return tended{}, err
	}
	said, made := &errorLog{}, &bundler{}
	config.Logger = said
	if r.Actor == "aggregator" {
		made.groups = *r.Groups
		config.GroupAggregator = made
		config.GroupGracePeriod = time.Second // asynq takes no less
		config.GroupMaxDelay, config.GroupMaxSize = r.Groups.MaxDelay, r.Groups.MaxSize
	}
	server := asynq.NewServerFromRedisClient(bare, config)
	if err := server.Start(scriptHandler{"tend", p.journal, p.gates, connectParams{}}); err != nil {
		return tended{}, err
	}
	if first != nil {
		<-first.seen
	}
	server.Shutdown()
	return tended{made.made, said.lines}, nil
}

// begin is a hook in the server's Redis client that sees an actor's first command. With once it lets no second one
// through, so that there is one round however late the server is told to stop.
type begin struct {
	command, key string
	once         bool
	mu           sync.Mutex
	count        int
	seen         chan struct{}
}

func (b *begin) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (b *begin) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), b.command) || !slices.Contains(cmd.Args(), any(b.key)) {
			return next(ctx, cmd)
		}
		b.mu.Lock()
		b.count++
		first := b.count == 1
		b.mu.Unlock()
		if first {
			defer close(b.seen)
		} else if b.once {
			cmd.SetErr(errSecondRound)
			return errSecondRound
		}
		return next(ctx, cmd)
	}
}

func (b *begin) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

var errSecondRound = errors.New("tend: one round only")

// bundler puts the payloads of a group's tasks together. Its tasks' ids are made of what is in them, so that the other
// side can give the same.
type bundler struct {
	groups roundGroups
	made   int
}

func (b *bundler) Aggregate(group string, tasks []*asynq.Task) *asynq.Task {
	b.made++
	if b.groups.Nil {
		return nil
	}
	parts := make([]string, len(tasks))
	for i, task := range tasks {
		parts[i] = string(task.Payload())
	}
	payload := strings.Join(parts, "+")
	id := fmt.Sprintf("%s-%x", group, md5.Sum([]byte(payload)))
	list := append([]asynq.Option{asynq.TaskID(id)}, b.groups.Options.list()...)
	return asynq.NewTask("whole", []byte(payload), list...)
}

// errorLog keeps what is logged as an error.
type errorLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *errorLog) Debug(...any) {}
func (l *errorLog) Info(...any)  {}
func (l *errorLog) Warn(...any)  {}

func (l *errorLog) Error(args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text := fmt.Sprint(args...); !strings.Contains(text, "Failed to list groups") {
		l.lines = append(l.lines, text)
	}
}

func (l *errorLog) Fatal(args ...any) { l.Error(args...) }
