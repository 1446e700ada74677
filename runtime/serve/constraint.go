package serve

import (
	"encoding/json"
	"fmt"

	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/constrain"
	"github.com/etc-ml/etc/runtime/guide"
)

// form is a constraint as a request writes it.
type form struct {
	param  string
	source constrain.Source
}

// form reads the parameters that hold an answer to a form: at most one of them.
func (o *object) form() *form {
	var out *form
	add := func(param string, kind constrain.Kind, text string) {
		if out != nil {
			o.fail(param, "%s and %s: give one of them", out.param, param)
		}
		out = &form{param, constrain.Source{Kind: kind, Text: text}}
	}
	if o.has("response_format") {
		o.responseFormat("response_format", add)
	}
	for _, x := range []struct {
		param string
		kind  constrain.Kind
	}{{"grammar", constrain.GBNF}, {"regex", constrain.Regex}} {
		if o.has(x.param) {
			var text string
			o.get(x.param, &text)
			add(x.param, x.kind, text)
		}
	}
	return out
}

// responseFormat reads OpenAI's response_format. Like llama.cpp and others, it also accepts a json_object with a
// schema.
func (o *object) responseFormat(param string, add func(param string, kind constrain.Kind, text string)) {
	var f struct {
		Type   string `json:"type"`
		Schema *struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"schema"`
			Strict      *bool           `json:"strict"`
		} `json:"json_schema"`
		Beside json.RawMessage `json:"schema"`
	}
	o.get(param, &f)
	switch {
	case f.Beside != nil && f.Type != "json_object":
		o.fail(param, "%s: schema goes with the type json_object; json_schema has it inside", param)
	case f.Beside != nil:
		add(param, constrain.JSONSchema, string(f.Beside))
	case f.Type == "text":
	case f.Type == "json_object":
		add(param, constrain.JSONObject, "")
	case f.Type == "json_schema" && f.Schema != nil:
		schema := string(f.Schema.Schema)
		if schema == "" {
			schema = "{}"
		}
		add(param, constrain.JSONSchema, schema)
	case f.Type == "json_schema":
		o.fail(param, "%s: json_schema is missing", param)
	default:
		o.fail(param, "%s: the type is %q, want text, json_object or json_schema", param, f.Type)
	}
}

// compile compiles a form for a model; nil where there is none.
func (l *Loaded) compile(f *form) (*constrain.Grammar, error) {
	if f == nil {
		return nil, nil
	}
	g, err := l.guides.Compile(f.source)
	if err != nil {
		return nil, invalid(f.param, "%s: %v", f.param, err)
	}
	return g, nil
}

// guide makes the constraint of a choice; nil where there is none.
func (j *job) guide() (batch.Constraint, error) {
	if j.text == nil && j.must == nil && j.budget == 0 {
		return nil, nil
	}
	g, err := j.loaded.guides.New(guide.Options{Text: j.text, Call: j.must, Once: j.oneCall || j.named, Parse: j.parse,
		Prompt: j.prompt[j.history:], Thinks: j.mayThink, Calls: j.tools != nil, Budget: j.budget})
	if err != nil {
		return nil, fmt.Errorf("the model's vocabulary: %w", err)
	}
	return g, nil
}
