package template

// Chat is a conversation to make a prompt of. Its Context has the variables that transformers gives to chat
// templates.
type Chat struct {
	// Messages are dicts with role and content, as NewMessage makes them, oldest first.
	Messages []Value
	// Tools are the functions that the model may call, as JSON schemas; without any the variable is None.
	Tools []Value
	// Documents are what the model may cite; without any the variable is None.
	Documents []Value
	// AddGenerationPrompt asks for the start of an answer at the end of the prompt.
	AddGenerationPrompt bool
	// EnableThinking says whether the model should think before it answers; nil leaves the variable undefined,
	// and the choice to the template.
	EnableThinking *bool
	// Tokens are special tokens by name, such as bos_token; see Config.
	Tokens *Dict
	// Arguments are further variables. They replace those above of the same name.
	Arguments *Dict
}

// NewMessage makes a message of a conversation.
func NewMessage(role, content string) *Dict {
	m := &Dict{}
	m.Set("role", Str(role))
	m.Set("content", Str(content))
	return m
}

// Context makes the context to render a chat template with.
func (c Chat) Context() *Dict {
	ctx := &Dict{}
	list := func(name string, items []Value) {
		if items == nil {
			ctx.Set(name, None{})
			return
		}
		ctx.Set(name, NewList(items...))
	}
	ctx.Set("messages", NewList(c.Messages...))
	list("tools", c.Tools)
	list("documents", c.Documents)
	ctx.Set("add_generation_prompt", Bool(c.AddGenerationPrompt))
	if c.EnableThinking != nil {
		ctx.Set("enable_thinking", Bool(*c.EnableThinking))
	}
	for _, more := range []*Dict{c.Tokens, c.Arguments} {
		if more == nil {
			continue
		}
		for _, name := range more.Keys() {
			v, _ := more.Get(name)
			ctx.Set(name, v)
		}
	}
	return ctx
}
