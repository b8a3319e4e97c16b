package main

import (
	"errors"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// connection is a client and an inspector on one Redis, and the bare Redis client under neither of them.
type connection struct {
	params    connectParams
	opt       asynq.RedisConnOpt
	client    *asynq.Client
	inspector *asynq.Inspector
	redis     redis.UniversalClient
}

type connectParams struct {
	Addr     string   `json:"addr"`
	Socket   string   `json:"socket"`
	URI      string   `json:"uri"`
	Cluster  []string `json:"cluster"`
	DB       int      `json:"db"`
	Username string   `json:"username"`
	Password string   `json:"password"`
}

// connect replaces the connection; servers and schedulers that run keep the one they were started on.
func connect(p *peer, params connectParams) (any, error) {
	opt, err := params.connOpt()
	if err != nil {
		return nil, err
	}
	bare, ok := opt.MakeRedisClient().(redis.UniversalClient)
	if !ok {
		return nil, badRequest("asynq made no Redis client of these parameters")
	}
	next := &connection{
		params: params, opt: opt, client: asynq.NewClient(opt), inspector: asynq.NewInspector(opt), redis: bare,
	}
	if err := next.client.Ping(); err != nil {
		return nil, errors.Join(err, next.close())
	}
	p.mu.Lock()
	last := p.conn
	p.conn = next
	p.mu.Unlock()
	return nil, last.close()
}

func (c connectParams) connOpt() (asynq.RedisConnOpt, error) {
	switch {
	case c.URI != "":
		return asynq.ParseRedisURI(c.URI)
	case len(c.Cluster) > 0:
		return asynq.RedisClusterClientOpt{Addrs: c.Cluster, Username: c.Username, Password: c.Password}, nil
	case c.Socket != "":
		return asynq.RedisClientOpt{
			Network: "unix", Addr: c.Socket, DB: c.DB, Username: c.Username, Password: c.Password,
		}, nil
	case c.Addr != "":
		return asynq.RedisClientOpt{Addr: c.Addr, DB: c.DB, Username: c.Username, Password: c.Password}, nil
	}
	return nil, badRequest("connect needs one of addr, socket, uri, cluster")
}

func (c *connection) close() error {
	if c == nil {
		return nil
	}
	return errors.Join(c.client.Close(), c.inspector.Close(), c.redis.Close())
}

func (p *peer) connected() (*connection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return nil, badRequest("connect first")
	}
	return p.conn, nil
}
