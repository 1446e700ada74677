package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// JSON returns a root table in the form of flatc --json: fields in the schema's order under its names, those
// without a value left out, enums by name, a union as two fields, the tag under NAME_type. Numbers that JSON does
// not have are strings: "inf", "-inf" and "nan".
func JSON(root Packer) (json.RawMessage, error) {
	var b bytes.Buffer
	err := writeJSON(&b, reflect.ValueOf(root))
	return b.Bytes(), err
}

func writeJSON(b *bytes.Buffer, v reflect.Value) error {
	if s, ok := v.Interface().(fmt.Stringer); ok && v.Kind() != reflect.Pointer {
		return writeQuoted(b, s.String())
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return writeJSON(b, v.Elem())
	case reflect.Struct:
		return writeTable(b, v)
	case reflect.Slice:
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, v.Index(i)); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case reflect.String:
		return writeQuoted(b, v.String())
	case reflect.Float32, reflect.Float64:
		f := v.Float()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return writeQuoted(b, strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+")))
		}
		b.WriteString(strconv.FormatFloat(f, 'g', -1, v.Type().Bits()))
		return nil
	}
	fmt.Fprint(b, v.Interface()) // integers and booleans
	return nil
}

func writeQuoted(b *bytes.Buffer, s string) error {
	quoted, err := json.Marshal(s)
	b.Write(quoted)
	return err
}

// writeTable writes a table's fields that have a value.
func writeTable(b *bytes.Buffer, v reflect.Value) error {
	b.WriteByte('{')
	first := true
	field := func(name string, value reflect.Value) error {
		if !first {
			b.WriteByte(',')
		}
		first = false
		if err := writeQuoted(b, name); err != nil {
			return err
		}
		b.WriteByte(':')
		return writeJSON(b, value)
	}
	for i := range v.NumField() {
		value, name := v.Field(i), v.Type().Field(i).Tag.Get("json")
		if value.Kind() == reflect.Pointer && value.IsNil() || value.Kind() == reflect.Slice && value.IsNil() {
			continue
		}
		if u, ok := unionStruct(value); ok {
			if err := field(name+"_type", u.FieldByName("Type")); err != nil {
				return err
			}
			value = u.FieldByName("Value")
			if value.IsNil() {
				continue
			}
		}
		if err := field(name, value); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

// unionStruct returns the struct that stands for a union in the object API: a tag and a value of any type.
func unionStruct(v reflect.Value) (reflect.Value, bool) {
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return v, false
	}
	s := v.Elem()
	value := s.FieldByName("Value")
	return s, s.NumField() == 2 && value.IsValid() && value.Kind() == reflect.Interface
}
