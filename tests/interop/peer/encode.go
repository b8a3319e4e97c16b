package main

import (
	"encoding/json"
	"math/big"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/hibiken/asynq"
)

// encode turns what asynq returns into JSON values. Every exported field of a struct appears under its name in
// snake case; times (unix) and durations are whole nanoseconds and their names end in _ns; a zero time is null.
func encode(value any) any {
	return encodeValue(reflect.ValueOf(value))
}

func encodeValue(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	switch known := v.Interface().(type) {
	case time.Time:
		return unixNano(known)
	case time.Duration:
		return int64(known)
	case []byte:
		return known
	case asynq.TaskState:
		return known.String()
	case *asynq.Task:
		return map[string]any{"type": known.Type(), "payload": known.Payload(), "headers": known.Headers()}
	case asynq.Option:
		return known.String()
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return encodeValue(v.Elem())
	case reflect.Slice:
		return encodeSlice(v)
	case reflect.Struct:
		return encodeStruct(v)
	}
	return v.Interface()
}

func encodeSlice(v reflect.Value) any {
	list := make([]any, v.Len())
	for i := range list {
		list[i] = encodeValue(v.Index(i))
	}
	return list
}

func encodeStruct(v reflect.Value) any {
	fields := map[string]any{}
	for _, field := range reflect.VisibleFields(v.Type()) {
		if field.IsExported() {
			fields[fieldName(field)] = encodeValue(v.FieldByIndex(field.Index))
		}
	}
	return fields
}

func fieldName(field reflect.StructField) string {
	name := snakeCase(field.Name)
	switch field.Type {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[time.Duration]():
		return name + "_ns"
	}
	return name
}

// snakeCase spells LastFailedAt last_failed_at, TaskID task_id and CPUSeconds cpu_seconds.
func snakeCase(name string) string {
	letters := []rune(name)
	var spelt strings.Builder
	for i, letter := range letters {
		if i > 0 && unicode.IsUpper(letter) {
			wordEnds := unicode.IsLower(letters[i-1])
			acronymEnds := i+1 < len(letters) && unicode.IsLower(letters[i+1])
			if wordEnds || acronymEnds {
				spelt.WriteByte('_')
			}
		}
		spelt.WriteRune(unicode.ToLower(letter))
	}
	return spelt.String()
}

// unixNano is exact beyond the year 2262, where time.Time.UnixNano overflows.
func unixNano(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	nanos := new(big.Int).Mul(big.NewInt(t.Unix()), big.NewInt(int64(time.Second)))
	nanos.Add(nanos, big.NewInt(int64(t.Nanosecond())))
	return json.Number(nanos.String())
}
