package serve

import (
	"encoding/json"
)

// toolChoice says which tools an answer may or must call.
type toolChoice struct {
	none, must bool
	name       string // the one that must be called
}

// toolChoice reads tool_choice.
func (o *object) toolChoice(tools *toolSet) toolChoice {
	raw := o.fields["tool_choice"]
	if raw == nil || o.err != nil {
		return toolChoice{}
	}
	var word string
	if json.Unmarshal(raw, &word) == nil {
		return o.choiceOf("tool_choice", word, "", tools)
	}
	var one struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	o.get("tool_choice", &one)
	if one.Type != "function" {
		o.fail("tool_choice", "tool_choice: the type %q is not supported, want function", one.Type)
	}
	if one.Function.Name == "" {
		one.Function.Name = one.Name
	}
	return o.choiceOf("tool_choice", "named", one.Function.Name, tools)
}

// choiceOf makes a choice of a word of OpenAI's API, or "named".
func (o *object) choiceOf(param, word, name string, tools *toolSet) toolChoice {
	switch word {
	case "auto":
		return toolChoice{}
	case "none":
		return toolChoice{none: true}
	case "required":
		if len(tools.tools) == 0 {
			o.fail(param, "%s: required, and there are no tools", param)
		}
		return toolChoice{must: true}
	case "named":
		if _, ok := tools.params[name]; !ok {
			o.fail(param, "%s: there is no tool %q", param, name)
		}
		return toolChoice{must: true, name: name}
	}
	o.fail(param, "%s: %q, want auto, none, required or a function", param, word)
	return toolChoice{}
}

// setTools gives the template and the parser the tools of a request.
func (j *job) setTools(c *conversation, tools *toolSet, choice toolChoice, parallel bool) error {
	t := j.loaded.Text
	if len(tools.tools) == 0 {
		return nil
	}
	if !t.reads("tools") {
		return invalid("tools", "tools: the model's chat template knows of none")
	}
	if !t.format.Calls() {
		return unsupported("tools", "tools: the format of the model's calls is not known")
	}
	if choice.none { // a model that does not know of them calls none
		return nil
	}
	c.tools = tools.values
	j.tools, j.oneCall = tools.tools, !parallel
	if !choice.must {
		return nil
	}
	var err error
	j.named = choice.name != ""
	j.must, err = j.loaded.mustCall(tools, choice.name)
	return err
}
