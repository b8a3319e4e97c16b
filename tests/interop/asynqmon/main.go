// Command asynqmon serves the web monitor of asynq's authors, as published, on a free port, for fastq's interop tests.
// It writes the address to stdout, and ends when stdin does.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynqmon"
)

func main() {
	socket := flag.String("socket", "", "the unix socket of Redis")
	prometheus := flag.String("prometheus", "", "the URL of Prometheus")
	flag.Parse()
	if err := serve(*socket, *prometheus); err != nil {
		fmt.Fprintln(os.Stderr, "asynqmon:", err)
		os.Exit(1)
	}
}

func serve(socket, prometheus string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	monitor := asynqmon.New(asynqmon.Options{
		RedisConnOpt:      asynq.RedisClientOpt{Network: "unix", Addr: socket},
		PrometheusAddress: prometheus,
	})
	server := &http.Server{Handler: monitor}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return monitor.Close()
}
