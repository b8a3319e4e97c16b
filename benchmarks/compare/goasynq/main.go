// Command goasynq is the Go contender of the comparison: "produce" answers requests as produce.py does, "work" runs an
// asynq server whose handlers count tasks in the mapped file that meter.py describes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"

	"github.com/hibiken/asynq"
	"golang.org/x/sys/unix"
)

// concurrency is that of asynq's own example.
const concurrency = 10

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: goasynq produce|work"))
	}
	redis, err := asynq.ParseRedisURI(os.Getenv("COMPARE_REDIS_URL"))
	if err != nil {
		fail(err)
	}
	if os.Args[1] == "produce" {
		err = produce(asynq.NewClient(redis), os.Stdin, os.Stdout)
	} else {
		err = work(redis)
	}
	if err != nil {
		fail(err)
	}
}

func work(redis asynq.RedisConnOpt) error {
	meter, err := openMeter(os.Getenv("COMPARE_METER"))
	if err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("noop", func(context.Context, *asynq.Task) error {
		meter.add()
		return nil
	})
	mux.HandleFunc("when", func(context.Context, *asynq.Task) error {
		meter.stamp()
		return nil
	})
	mux.HandleFunc("ms", func(context.Context, *asynq.Task) error {
		spin()
		meter.add()
		return nil
	})
	server := asynq.NewServer(redis, asynq.Config{Concurrency: concurrency, LogLevel: asynq.WarnLevel})
	if err := server.Start(mux); err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, unix.SIGTERM)
	<-end
	server.Shutdown()
	return nil
}

// spin uses 1 ms of this thread's CPU time.
func spin() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	end := clock(unix.CLOCK_THREAD_CPUTIME_ID) + 1_000_000
	for clock(unix.CLOCK_THREAD_CPUTIME_ID) < end {
	}
}

func clock(id int32) int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(id, &now); err != nil {
		fail(err)
	}
	return now.Nano()
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "goasynq:", err)
	os.Exit(1)
}
