package main

import (
	"encoding/json"
	"reflect"

	"github.com/hibiken/asynq"
)

type inspectParams struct {
	Method string            `json:"method"`
	Args   []json.RawMessage `json:"args"`
}

// inspect calls a method of asynq.Inspector by its Go name. Reflection reaches all of them, and new ones, without
// a line for each.
func inspect(p *peer, params inspectParams) (any, error) {
	conn, err := p.connected()
	if err != nil {
		return nil, err
	}
	method := reflect.ValueOf(conn.inspector).MethodByName(params.Method)
	if !method.IsValid() || params.Method == "Close" {
		return nil, badRequest("asynq.Inspector has no method %q to call", params.Method)
	}
	args, err := arguments(method.Type(), params.Args)
	if err != nil {
		return nil, badRequest("%s: %v", params.Method, err)
	}
	returned := method.Call(args)
	last := len(returned) - 1
	if err, failed := returned[last].Interface().(error); failed {
		return nil, err
	}
	if last == 0 {
		return nil, nil
	}
	return returned[0].Interface(), nil
}

// arguments decodes each JSON value into the type of its parameter; a variadic one takes {"page": n, "size": n}.
func arguments(method reflect.Type, values []json.RawMessage) ([]reflect.Value, error) {
	fixed := method.NumIn()
	if method.IsVariadic() {
		fixed--
	}
	if len(values) < fixed || len(values) > method.NumIn() {
		return nil, badRequest("%d arguments given, %d taken", len(values), method.NumIn())
	}
	var args []reflect.Value
	for i, value := range values[:fixed] {
		arg := reflect.New(method.In(i))
		if err := json.Unmarshal(value, arg.Interface()); err != nil {
			return nil, err
		}
		args = append(args, arg.Elem())
	}
	for _, value := range values[fixed:] {
		page, err := listOptions(value)
		if err != nil {
			return nil, err
		}
		args = append(args, page...)
	}
	return args, nil
}

func listOptions(value json.RawMessage) ([]reflect.Value, error) {
	var page struct{ Page, Size *int }
	if err := json.Unmarshal(value, &page); err != nil {
		return nil, err
	}
	var list []reflect.Value
	if page.Page != nil {
		list = append(list, reflect.ValueOf(asynq.Page(*page.Page)))
	}
	if page.Size != nil {
		list = append(list, reflect.ValueOf(asynq.PageSize(*page.Size)))
	}
	return list, nil
}
