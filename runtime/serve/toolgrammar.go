package serve

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/etc-ml/etc/runtime/constrain"
	"github.com/etc-ml/etc/runtime/format"
)

// mustCall compiles what a call is held to: of the named tool, or of any where name is "".
func (l *Loaded) mustCall(tools *toolSet, name string) (*constrain.Grammar, error) {
	var chosen []format.Tool
	for _, t := range tools.tools {
		if name == "" || t.Name == name {
			chosen = append(chosen, t)
		}
	}
	source, err := callSource(l.Text.format, chosen, tools.params)
	if err != nil {
		return nil, invalid("tools", "tools: %v", err)
	}
	g, err := l.guides.Compile(source)
	if err != nil {
		return nil, invalid("tools", "tools: calls cannot be held to the parameters' schema: %v", err)
	}
	return g, nil
}

// callSource describes the body of a call.
func callSource(f *format.Format, tools []format.Tool, params map[string]json.RawMessage) (constrain.Source, error) {
	var signatures []format.Signature
	var schemas []any
	for i, t := range tools {
		p, err := parametersOf(params[t.Name])
		if err != nil {
			return constrain.Source{}, fmt.Errorf("the parameters of %q: %w", t.Name, err)
		}
		signatures = append(signatures, format.Signature{Name: t.Name, Parameters: p})
		var schema any
		if err := json.Unmarshal(params[t.Name], &schema); err != nil {
			return constrain.Source{}, err
		}
		moveRefs(schema, fmt.Sprintf("#/anyOf/%d/properties/arguments", i))
		schemas = append(schemas, json.RawMessage(fmt.Sprintf(`{"type": "object", "properties": {"name": {"const": %s},
			"arguments": %s}, "required": ["name", "arguments"], "additionalProperties": false}`,
			rawText(t.Name), marshal(schema))))
	}
	if grammar, ok := f.Grammar(signatures); ok {
		return constrain.Source{Kind: constrain.GBNF, Text: grammar}, nil
	}
	return constrain.Source{Kind: constrain.JSONSchema, Text: string(marshal(map[string]any{"anyOf": schemas}))}, nil
}

// moveRefs adjusts the references in a schema that becomes a part of a larger one, at the place to.
func moveRefs(v any, to string) {
	switch v := v.(type) {
	case map[string]any:
		for key, x := range v {
			if s, ok := x.(string); ok && key == "$ref" && strings.HasPrefix(s, "#") {
				v[key] = to + strings.TrimPrefix(s, "#")
				continue
			}
			moveRefs(x, to)
		}
	case []any:
		for _, x := range v {
			moveRefs(x, to)
		}
	}
}

// parametersOf reads the parameters of a tool's schema, in its order.
func parametersOf(schema json.RawMessage) ([]format.Parameter, error) {
	var s struct {
		Properties json.RawMessage `json:"properties"`
		Required   []string        `json:"required"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, err
	}
	if null(s.Properties) {
		return nil, nil
	}
	fields, order, err := members(s.Properties)
	if err != nil {
		return nil, err
	}
	var out []format.Parameter
	for _, name := range order {
		var p struct {
			Type any               `json:"type"`
			Enum []json.RawMessage `json:"enum"`
		}
		if err := json.Unmarshal(fields[name], &p); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		kind, _ := p.Type.(string)
		out = append(out, format.Parameter{Name: name, Required: slices.Contains(s.Required, name),
			Type: kind, Enum: p.Enum})
	}
	return out, nil
}
