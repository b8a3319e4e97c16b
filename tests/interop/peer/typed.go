package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
)

// order is what a Go service has for the arguments of a typed task in Python.
type order struct {
	ID      int64             `json:"id"`
	Note    string            `json:"note"`
	Raw     []byte            `json:"raw"`
	Due     time.Time         `json:"due"`
	Rate    float64           `json:"rate"`
	Rush    bool              `json:"rush,omitempty"`
	Lines   []line            `json:"lines"`
	Labels  map[string]string `json:"labels"`
	Parent  *int64            `json:"parent"`
	Address *address          `json:"address,omitempty"`
}

type line struct {
	SKU   string `json:"sku"`
	Count uint32 `json:"count"`
}

type address struct {
	Street string `json:"street"`
	City   string `json:"city"`
}

type enqueueOrderParams struct {
	Type  string `json:"type"`
	Queue string `json:"queue"`
}

// enqueueOrder enqueues an order as a Go producer does, with all that Go's encoder treats in its own way.
func enqueueOrder(p *peer, params enqueueOrderParams) (any, error) {
	conn, err := p.connected()
	if err != nil {
		return nil, err
	}
	parent := int64(1)<<62 + 1
	payload, err := json.Marshal(order{
		ID:     7,
		Note:   "<a> & \u2028 \"é\" \U0001f600",
		Raw:    []byte{0, 255, '?', '>'},
		Due:    time.Date(2026, 11, 22, 12, 30, 0, 123456789, time.FixedZone("", 3600)),
		Rate:   1e21,
		Lines:  []line{{"a", 1}, {"b", 4294967295}},
		Labels: map[string]string{"z": "1", "a": "2"},
		Parent: &parent,
	})
	if err != nil {
		return nil, err
	}
	return conn.client.Enqueue(asynq.NewTask(params.Type, payload), asynq.Queue(params.Queue), asynq.Retention(time.Hour))
}

// takeOrder reads an order as a strict Go worker does, and writes it back as its result.
func takeOrder(task *asynq.Task) error {
	var taken order
	decoder := json.NewDecoder(bytes.NewReader(task.Payload()))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&taken); err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	result, err := json.Marshal(taken)
	if err != nil {
		return err
	}
	_, err = task.ResultWriter().Write(result)
	return err
}
