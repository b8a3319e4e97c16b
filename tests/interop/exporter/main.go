// Command exporter serves the metrics of asynq's own collector, x/metrics, on a free port, as its metrics_exporter does,
// for fastq's interop tests. It writes the address to stdout, and ends when stdin does.
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
	"github.com/hibiken/asynq/x/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func main() {
	socket := flag.String("socket", "", "the unix socket of Redis")
	flag.Parse()
	if err := serve(*socket); err != nil {
		fmt.Fprintln(os.Stderr, "exporter:", err)
		os.Exit(1)
	}
}

func serve(socket string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Network: "unix", Addr: socket})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.NewQueueMetricsCollector(inspector))
	server := &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return inspector.Close()
}
