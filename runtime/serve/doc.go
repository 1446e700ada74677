// Package serve answers HTTP requests with language models: the APIs of OpenAI (chat completions, completions,
// responses) and Anthropic (messages), a page for people, and what operators need (health, readiness, metrics).
// docs/serving.md is its manual; a test holds the tables of parameters there to those here.
//
// # How a request is answered
//
// An endpoint reads its body by a table of parameters (params.go), makes tokens of its messages (text.go) and a job
// (job.go) of one or more choices. Each choice is a stream of the model's batch.Runner; its tokens become pieces of
// text, thoughts, and calls of tools (answer.go), which the endpoint writes whole or as server-sent events.
//
// # Invariants
//
//   - No parameter is ignored: what is not in a table, or not supported with its value, is an error that names it.
//   - A request never holds what another one waits for: tokens wait in memory for a slow reader, writes have deadlines,
//     bodies, headers and times are bounded.
//   - What a request gives depends on its body and the model only. Nothing of it is kept but what the prefix cache has.
//   - A request whose client is gone ends within one call of the program.
//
// Spans of OpenTelemetry go to the provider that Options names (spans.go); the package knows its interface only.
//
// The package imports runtime/batch, runtime/format, runtime/guide, runtime/session, runtime/template,
// runtime/tokenizer and runtime/constrain; it must never import an engine, a loader or the command line.
package serve
