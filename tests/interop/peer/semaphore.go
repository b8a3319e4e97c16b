package main

import (
	"context"
	"errors"

	redis8 "github.com/go-redis/redis/v8"
	"github.com/hibiken/asynq/x/rate"
)

// errFull is what a handler ends with that gets no token.
var errFull = errors.New("no token is free")

// oldRedis gives x/rate the Redis client that its last published version knows.
type oldRedis struct{ params connectParams }

func (o oldRedis) MakeRedisClient() any {
	network, addr := "tcp", o.params.Addr
	if o.params.Socket != "" {
		network, addr = "unix", o.params.Socket
	}
	return redis8.NewClient(&redis8.Options{
		Network: network, Addr: addr, DB: o.params.DB, Username: o.params.Username, Password: o.params.Password,
	})
}

// limited plays the rest of a script while it holds a token of x/rate.
func (h scriptHandler) limited(ctx context.Context, s script, play func() error) (err error) {
	semaphore := rate.NewSemaphore(oldRedis{h.redis}, s.Scope, s.Tokens)
	defer func() { err = errors.Join(err, semaphore.Close()) }()
	taken, err := semaphore.Acquire(ctx)
	if err != nil {
		return err
	}
	if !taken {
		return errFull
	}
	defer func() { err = errors.Join(err, semaphore.Release(ctx)) }()
	return play()
}
