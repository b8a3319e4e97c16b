// Command goasynq is the Go contender of the comparison: "produce" answers requests as produce.py does, "work" runs an
// asynq server whose handlers count tasks in the mapped file that meter.py describes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sys/unix"
)

// tracked is how long a task takes whose runs are written down one by one.
const tracked = 200 * time.Millisecond

func main() {
	if len(os.Args) < 2 || os.Args[1] != "produce" && len(os.Args) < 3 {
		fail(fmt.Errorf("usage: goasynq produce|work CONCURRENCY"))
	}
	redis, err := asynq.ParseRedisURI(os.Getenv("COMPARE_REDIS_URL"))
	if err != nil {
		fail(err)
	}
	if os.Args[1] == "produce" {
		err = produce(asynq.NewClient(redis), os.Stdin, os.Stdout)
	} else {
		err = work(redis, os.Args[2])
	}
	if err != nil {
		fail(err)
	}
}

func work(redis asynq.RedisConnOpt, told string) error {
	concurrency, err := strconv.Atoi(told)
	if err != nil {
		return err
	}
	meter, err := openMeter(os.Getenv("COMPARE_METER"))
	if err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	handle := func(kind string, do func(task *asynq.Task) error) {
		mux.HandleFunc(kind, func(_ context.Context, task *asynq.Task) error {
			err := do(task)
			meter.add()
			return err
		})
	}
	handle("noop", func(*asynq.Task) error { return nil })
	handle("when", func(*asynq.Task) error { meter.stamp(); return nil })
	handle("short", func(*asynq.Task) error { spin(200_000); return nil })
	handle("ms", func(*asynq.Task) error { spin(1_000_000); return nil })
	handle("wait", func(*asynq.Task) error { time.Sleep(10 * time.Millisecond); return nil })
	handle("fail", func(*asynq.Task) error { return errors.New("as asked for") })
	handle("keep", func(task *asynq.Task) error {
		_, err := task.ResultWriter().Write(task.Payload())
		return err
	})
	handle("track", func(task *asynq.Task) error {
		meter.write("began", string(task.Payload()))
		time.Sleep(tracked)
		meter.write("ended", string(task.Payload()))
		return nil
	})
	handle("at", func(task *asynq.Task) error {
		due, err := strconv.ParseInt(string(task.Payload()), 10, 64)
		if err != nil {
			return err
		}
		meter.late(clock(unix.CLOCK_MONOTONIC) - due)
		spin(1_000_000)
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

// spin uses some nanoseconds of this thread's CPU time.
func spin(ns int64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	end := clock(unix.CLOCK_THREAD_CPUTIME_ID) + ns
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
