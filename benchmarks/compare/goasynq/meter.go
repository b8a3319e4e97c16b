package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A slot is eight words; word 0 of the file is the number of slots that are taken. One slot is enough here, as adding is
// atomic.
const slotWords = 8

type meter struct {
	count, began *uint64
	delays       *os.File
	ledger       *os.File
}

func openMeter(path string) (*meter, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	data, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&data[0])), len(data)/8)
	words[0]++
	slot := words[words[0]*slotWords:]
	slot[2] = uint64(os.Getpid())
	delays, err := beside(path, ".late")
	if err != nil {
		return nil, err
	}
	ledger, err := beside(path, ".ledger")
	if err != nil {
		return nil, err
	}
	return &meter{count: &slot[0], began: &slot[1], delays: delays, ledger: ledger}, nil
}

func (m *meter) add() {
	atomic.AddUint64(m.count, 1)
}

func (m *meter) stamp() {
	atomic.StoreUint64(m.began, uint64(clock(unix.CLOCK_MONOTONIC)))
}

// late records how many nanoseconds after its due time a task began.
func (m *meter) late(ns int64) {
	if _, err := m.delays.Write(binary.LittleEndian.AppendUint64(nil, uint64(ns))); err != nil {
		fail(err)
	}
}

// write says that a tracked task began or ended.
func (m *meter) write(what, id string) {
	if _, err := fmt.Fprintf(m.ledger, "%s %s %d %d\n", what, id, os.Getpid(), clock(unix.CLOCK_MONOTONIC)); err != nil {
		fail(err)
	}
}

func beside(path, suffix string) (*os.File, error) {
	return os.OpenFile(strings.TrimSuffix(path, ".meter")+suffix, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
}
