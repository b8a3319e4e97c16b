// Command peer drives a real asynq for fastq's interop tests: one JSON request a line on stdin, one JSON answer a
// line on stdout, matched by id. Requests run concurrently. When stdin ends it answers what is still open and exits
// without any clean-up in Redis.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

func main() {
	if err := serve(os.Stdin, newAnswers(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out *answers) error {
	p := newPeer()
	var open sync.WaitGroup
	defer open.Wait()
	lines := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			open.Add(1)
			go func() {
				defer open.Done()
				out.write(p.answer(line))
			}()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
