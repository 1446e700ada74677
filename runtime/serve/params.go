package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

// status says what becomes of a parameter.
type status string

const (
	done     status = "done"     // it does what it says
	accepted status = "accepted" // it changes nothing here
	neutral  status = "neutral"  // taken with the values that change nothing, else refused
	refused  status = "refused"  // not supported
)

// param is a row of an endpoint's table.
type param struct {
	name   string
	status status
	values []string // of neutral: JSON
	note   string   // for docs/serving.md
}

// object is a request's body: its members that are in the endpoint's table and not null.
type object struct {
	fields map[string]json.RawMessage
	err    *apiError // the first one
}

// maxDepth bounds the nesting of a body.
const maxDepth = 200

// readObject reads a body by a table.
func readObject(body []byte, table []param) (*object, error) {
	fields, order, err := members(body)
	if err != nil {
		return nil, err
	}
	for _, name := range order {
		raw := fields[name]
		if string(raw) == "null" {
			delete(fields, name)
			continue
		}
		i := slices.IndexFunc(table, func(p param) bool { return p.name == name })
		if i < 0 {
			e := invalid(name, "the parameter %q is not known; docs/serving.md lists those that are", name)
			e.code = "unknown_parameter"
			return nil, e
		}
		switch p := table[i]; p.status {
		case refused:
			return nil, unsupported(name, "the parameter %q is not supported", name)
		case neutral:
			var short bytes.Buffer
			if json.Compact(&short, raw) != nil || !slices.Contains(p.values, short.String()) {
				return nil, unsupported(name, "the parameter %q is only taken with the value %s", name,
					strings.Join(p.values, " or "))
			}
		}
	}
	return &object{fields: fields}, nil
}

func unsupported(name, format string, args ...any) *apiError {
	e := invalid(name, format, args...)
	e.code = "unsupported_parameter"
	return e
}

// members reads the members of a JSON object. The same name twice is an error: parsers differ in what it means.
func members(body []byte) (fields map[string]json.RawMessage, order []string, err error) {
	if e := checkJSON(body); e != nil {
		return nil, nil, e
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, invalid("", "the body is not a JSON object")
	}
	fields = map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		var raw json.RawMessage
		if err != nil || !ok || d.Decode(&raw) != nil {
			return nil, nil, invalid("", "the body is not a JSON object")
		}
		if _, twice := fields[name]; twice {
			return nil, nil, invalid(name, "the parameter %q comes twice", name)
		}
		fields[name], order = raw, append(order, name)
	}
	return fields, order, nil
}

// checkJSON refuses what is no JSON text, or one that is nested too deep.
func checkJSON(body []byte) *apiError {
	d := json.NewDecoder(bytes.NewReader(body))
	depth := 0
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return invalid("", "the body is not JSON: %v", err)
		}
		if c, ok := t.(json.Delim); ok {
			if depth += 1; c == '}' || c == ']' {
				depth -= 2
			}
			if depth > maxDepth {
				return invalid("", "the body is nested more than %d deep", maxDepth)
			}
		}
	}
	if !json.Valid(body) {
		return invalid("", "the body is not one JSON value")
	}
	return nil
}

// has reports whether a parameter was given.
func (o *object) has(name string) bool { return o.fields[name] != nil }

// get reads a parameter, if it was given, and notes what is wrong.
func (o *object) get(name string, into any) {
	raw := o.fields[name]
	if raw == nil || o.err != nil {
		return
	}
	if err := decode(raw, into); err != nil {
		o.err = invalid(name, "%s: %v", name, err)
	}
}

// fail records an error of a parameter.
func (o *object) fail(name, format string, args ...any) {
	if o.err == nil {
		o.err = invalid(name, format, args...)
	}
}

// problem returns the first error, as an error.
func (o *object) problem() error {
	if o.err == nil {
		return nil
	}
	return o.err
}

// decode reads JSON; members that the type lacks are errors.
func decode(raw json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		field := ""
		if kind.Field != "" {
			field = kind.Field + " is "
		}
		return errors.New(field + "a JSON " + kind.Value + ", want " + jsonName(kind.Type.Kind().String()))
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// jsonName says what JSON has for a kind of Go's types.
func jsonName(kind string) string {
	switch {
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "an integer"
	case strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "bool":
		return "true or false"
	case kind == "slice":
		return "an array"
	case kind == "struct", kind == "map":
		return "an object"
	}
	return "a " + kind
}
