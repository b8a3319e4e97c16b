package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sys/unix"
)

// goroutines enqueue side by side where tasks are asked for in bulk: this version of asynq has no call for that.
const goroutines = 50

type request struct {
	Op    string  `json:"op"`
	Kind  string  `json:"kind"`
	Count int64   `json:"count"`
	Rate  float64 `json:"rate"`
}

type answer struct {
	BeganNs int64 `json:"began_ns"`
	EndedNs int64 `json:"ended_ns"`
	CPUNs   int64 `json:"cpu_ns"`
}

func produce(client *asynq.Client, in io.Reader, out io.Writer) error {
	payload := []byte(strings.Repeat("0123456789", 10))
	say := json.NewEncoder(out)
	if err := say.Encode(map[string]bool{"ready": true}); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return err
		}
		began, cpu := clock(unix.CLOCK_MONOTONIC), clock(unix.CLOCK_PROCESS_CPUTIME_ID)
		if asked.Op == "paced" {
			err := pace(client, asked)
			if err != nil {
				return err
			}
		} else if err := send(client, asked, payload); err != nil {
			return err
		}
		ended := clock(unix.CLOCK_MONOTONIC)
		if err := say.Encode(answer{began, ended, clock(unix.CLOCK_PROCESS_CPUTIME_ID) - cpu}); err != nil {
			return err
		}
	}
	return lines.Err()
}

// pace enqueues tasks at random times, so many a second in the mean; each says when it was due.
func pace(client *asynq.Client, asked request) error {
	drawn := rand.New(rand.NewSource(7))
	due := clock(unix.CLOCK_MONOTONIC)
	for range asked.Count {
		due += int64(1e9 * drawn.ExpFloat64() / asked.Rate)
		time.Sleep(time.Duration(due - clock(unix.CLOCK_MONOTONIC)))
		if _, err := client.Enqueue(asynq.NewTask(asked.Kind, strconv.AppendInt(nil, due, 10))); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
	return nil
}

func send(client *asynq.Client, asked request, payload []byte) error {
	var left atomic.Int64
	left.Store(asked.Count)
	var options []asynq.Option
	switch asked.Kind {
	case "fail":
		options = append(options, asynq.MaxRetry(0))
	case "keep":
		options = append(options, asynq.Retention(time.Hour))
	}
	kind, id, isTracked := strings.Cut(asked.Kind, ":")
	if isTracked {
		payload = []byte(id)
	}
	one := func() error {
		for left.Add(-1) >= 0 {
			if _, err := client.Enqueue(asynq.NewTask(kind, payload), options...); err != nil {
				return err
			}
		}
		return nil
	}
	if asked.Op == "each" {
		return one()
	}
	failed := make(chan error, goroutines)
	var group sync.WaitGroup
	for range goroutines {
		group.Add(1)
		go func() {
			defer group.Done()
			if err := one(); err != nil {
				failed <- err
			}
		}()
	}
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
