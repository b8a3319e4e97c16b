package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

type decodeParams struct {
	Hex string `json:"hex"`
}

// decodeMessage shows a TaskMessage as asynq's own decoder reads it. The decoder is internal, so the bytes become
// the archived task of a queue made for it, which the inspector reads and which is gone afterwards. The one field
// that no public call shows is unique_key.
func decodeMessage(p *peer, params decodeParams) (info any, err error) {
	conn, err := p.connected()
	if err != nil {
		return nil, err
	}
	message, err := hex.DecodeString(params.Hex)
	if err != nil {
		return nil, badRequest("hex: %v", err)
	}
	ctx := context.Background()
	queue := fmt.Sprintf("peer-decode-%d-%d", os.Getpid(), time.Now().UnixNano())
	key := fmt.Sprintf("asynq:{%s}:t:decoded", queue)
	_, err = conn.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.SAdd(ctx, "asynq:queues", queue)
		pipe.HSet(ctx, key, "msg", message, "state", "archived")
		return nil
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, conn.redis.Del(ctx, key).Err(), conn.redis.SRem(ctx, "asynq:queues", queue).Err())
	}()
	return conn.inspector.GetTaskInfo(queue, "decoded")
}
