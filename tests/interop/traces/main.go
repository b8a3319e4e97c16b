// Command traces is a Go service with OpenTelemetry, for fastq's interop tests: its server runs the tasks "hop" of queue
// "go", whose payload is how many more are to follow, and enqueues the next one in queue "py". Each line of stdin enqueues
// a first one, with the line as its payload. The spans go to stdout, a line of JSON each; it ends when stdin does.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func main() {
	socket := flag.String("socket", "", "the unix socket of Redis")
	flag.Parse()
	if err := serve(asynq.RedisClientOpt{Network: "unix", Addr: *socket}); err != nil {
		fmt.Fprintln(os.Stderr, "traces:", err)
		os.Exit(1)
	}
}

// service is what a Go user writes for traces over asynq, which has no tracing of its own.
type service struct {
	client     *asynq.Client
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
}

func serve(redis asynq.RedisConnOpt) error {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(lines{}))
	s := service{asynq.NewClient(redis), provider.Tracer("go"), propagation.TraceContext{}}
	defer s.client.Close()
	server := asynq.NewServer(redis, asynq.Config{
		Queues: map[string]int{"go": 1}, TaskCheckInterval: 50 * time.Millisecond, LogLevel: asynq.ErrorLevel,
	})
	mux := asynq.NewServeMux()
	mux.HandleFunc("hop", s.hop)
	if err := server.Start(mux); err != nil {
		return err
	}
	defer server.Shutdown()
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		if err := s.send(context.Background(), input.Text()); err != nil {
			return err
		}
	}
	return input.Err()
}

func (s service) hop(ctx context.Context, task *asynq.Task) error {
	ctx = s.propagator.Extract(ctx, propagation.MapCarrier(task.Headers()))
	ctx, span := s.tracer.Start(ctx, "go process", trace.WithSpanKind(trace.SpanKindConsumer))
	defer span.End()
	left, err := strconv.Atoi(string(task.Payload()))
	if err != nil || left == 0 {
		return err
	}
	return s.send(ctx, strconv.Itoa(left-1))
}

func (s service) send(ctx context.Context, payload string) error {
	ctx, span := s.tracer.Start(ctx, "go send", trace.WithSpanKind(trace.SpanKindProducer))
	defer span.End()
	headers := map[string]string{}
	s.propagator.Inject(ctx, propagation.MapCarrier(headers))
	_, err := s.client.EnqueueContext(ctx, asynq.NewTaskWithHeaders("hop", []byte(payload), headers), asynq.Queue("py"))
	return err
}

// lines is an exporter of spans to stdout.
type lines struct{}

func (lines) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, span := range spans {
		line, err := json.Marshal(map[string]string{
			"name":      span.Name(),
			"trace_id":  span.SpanContext().TraceID().String(),
			"span_id":   span.SpanContext().SpanID().String(),
			"parent_id": span.Parent().SpanID().String(),
		})
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	return nil
}

func (lines) Shutdown(context.Context) error { return nil }
