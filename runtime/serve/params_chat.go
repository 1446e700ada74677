package serve

// samplingParams are the parameters of draws that all endpoints of OpenAI's shape take.
var samplingParams = []param{
	{name: "temperature", status: done, note: "at least 0; 0 chooses the most likely token; default: the file's"},
	{name: "top_p", status: done, note: "above 0, at most 1; default: the file's"},
	{name: "top_k", status: done, note: "0 or less keeps all; default: the file's"},
	{name: "min_p", status: done, note: "0 to 1; default: the file's"},
	{name: "repeat_penalty", status: done,
		note: "of the last `repeat_last_n` tokens of prompt and answer; default: the file's"},
	{name: "repeat_last_n", status: done,
		note: "how far penalties look back, −1: over everything; default: 64 for `repeat_penalty`, else everything"},
	{name: "presence_penalty", status: done, note: "of the tokens of the answer; default: the file's"},
	{name: "frequency_penalty", status: done, note: "of the tokens of the answer; default: the file's"},
	{name: "logit_bias", status: done, note: "token id → −100 to 100, added to the raw logits"},
	{name: "seed", status: done, note: "any 64-bit integer; the draws of `etc run --seed`; default: random"},
	{name: "ignore_eos", status: done, note: "go on after stop tokens"},
}

// acceptedParams change nothing here.
var acceptedParams = []param{
	{name: "user", status: accepted},
	{name: "metadata", status: accepted, note: "given back by /v1/responses"},
	{name: "store", status: accepted, note: "nothing is stored; the answer says `store: false`"},
	{name: "service_tier", status: accepted},
	{name: "prompt_cache_key", status: accepted},
	{name: "prompt_cache_retention", status: accepted},
	{name: "safety_identifier", status: accepted},
}

// chatParams is the table of /v1/chat/completions.
var chatParams = join([]param{
	{name: "model", status: done, note: "default: the first file"},
	{name: "messages", status: done, note: "text only; `developer` is `system`; `reasoning_content` of the " +
		"assistant's and `name` are given to the template, which may not read them"},
	{name: "stream", status: done},
	{name: "stream_options", status: done, note: "`include_usage`"},
	{name: "n", status: done, note: "1 to 64; choice j draws with a key split from (seed, j)"},
	{name: "stop", status: done, note: "a text or up to 16; looked for in the text, not in thoughts"},
	{name: "max_tokens", status: done, note: "default: until a stop token or a full context"},
	{name: "max_completion_tokens", status: done, note: "the same"},
	{name: "logprobs", status: done, note: "of raw logits"},
	{name: "top_logprobs", status: done, note: "0 to 20"},
	{name: "response_format", status: done,
		note: "text, json_object (with a `schema` or without), json_schema; docs/constraints.md says which schemas"},
	{name: "grammar", status: done, note: "GBNF"},
	{name: "regex", status: done, note: "RE2's syntax, of the whole text"},
	{name: "tools", status: done, note: "functions; only calls that `tool_choice` asks for are held to the " +
		"parameters, with `strict` and without"},
	{name: "tool_choice", status: done, note: "auto, none, required, or a function"},
	{name: "parallel_tool_calls", status: done, note: "false ends the answer after the first call"},
	{name: "reasoning_effort", status: done,
		note: "none: no thoughts; others: thoughts, where the template can choose"},
	{name: "chat_template_kwargs", status: done, note: "variables of the template; one that it never reads is refused"},
	{name: "modalities", status: neutral, values: []string{`["text"]`}},
	{name: "verbosity", status: neutral, values: []string{`"medium"`}},
	{name: "audio", status: refused},
	{name: "prediction", status: refused},
	{name: "web_search_options", status: refused},
	{name: "functions", status: refused, note: "use `tools`"},
	{name: "function_call", status: refused, note: "use `tool_choice`"},
}, samplingParams, acceptedParams)

// join concatenates tables.
func join(tables ...[]param) []param {
	var out []param
	for _, t := range tables {
		out = append(out, t...)
	}
	return out
}
