package statefile

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/devices"
	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/internal/record"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
)

// exported writes the program of a trained checkpoint as etc export --sample --qlinear 4w does.
func exported(t *testing.T, name string, context int) string {
	t.Helper()
	c, err := loaders.Open(filepath.Join("..", "..", "testdata", "checkpoints", name))
	require.NoError(t, err)
	defer c.Close()
	m, err := c.Build(loaders.Options{MaxSeqLen: context})
	require.NoError(t, err)
	require.NoError(t, prompt.SetStopTokens(func(string) {}, c, m))
	o := &passes.Options{Sample: true, Recipe: passes.DefaultRecipe(&quantize.Scheme{Bits: 4, GroupSize: 64}, nil)}
	require.NoError(t, passes.Run(m, o))
	file, err := record.NewFile(c, m, o, record.Options{}, nil)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), name+".pte")
	require.NoError(t, codegen.Write(t.Context(), path, file))
	return path
}

// conversation is a chat with a program as etc run has it.
type conversation struct {
	*chat.Conversation
	text    *prompt.Text
	owner   Owner
	session *session.Session
	request session.Request
}

// startChat opens a program anew and starts a chat.
func startChat(t *testing.T, path string, e engine.Engine, precision string, p session.Sampling) *conversation {
	t.Helper()
	file, err := program.Open(path)
	require.NoError(t, err)
	c := &conversation{request: session.Request{Sampling: p, MaxNewTokens: 6}}
	c.text, err = prompt.Open(file, "", false)
	require.NoError(t, err)
	c.text.Template, err = prompt.OpenTemplate(file.File)
	require.NoError(t, err)
	c.owner = Owner{File: path, Program: Identify(file), Precision: precision}
	c.request.Stop = c.text.Stop
	m, err := file.Module("forward")
	require.NoError(t, err)
	o, err := eval.ParsePrecision(precision)
	require.NoError(t, err)
	model, err := session.Load(m, e, engine.Options{Precision: o})
	require.NoError(t, err)
	c.session, err = model.NewSession()
	require.NoError(t, err)
	c.Conversation = chat.New(c.session, "")
	c.Render, c.Text = c.text.Render, c.text.Decode
	t.Cleanup(func() {
		require.NoError(t, c.session.Close())
		require.NoError(t, model.Close())
		require.NoError(t, file.Close())
	})
	return c
}

func (c *conversation) ask(t *testing.T, question string) session.Answer {
	t.Helper()
	a, err := c.Ask(t.Context(), question, c.request)
	require.NoError(t, err)
	return a
}

// save writes the conversation to a file.
func (c *conversation) save(path string) error {
	saved, err := c.Save()
	if err != nil {
		return err
	}
	return WriteSession(path, c.owner, saved)
}

// load goes on with the conversation of a file.
func (c *conversation) load(path string) error {
	saved, err := ReadSession(path, c.owner, c.session.Model())
	if err != nil {
		return err
	}
	return c.Load(saved)
}

// states are the bits of all buffers.
func (c *conversation) states(t *testing.T) map[string]string {
	t.Helper()
	s, err := c.session.Snapshot()
	require.NoError(t, err)
	out := map[string]string{}
	for _, x := range s.States {
		out[x.Buffer] = string(stateEntry("", x).DType) + fmt.Sprint(x.Tensor.F, x.Tensor.I)
	}
	return out
}

// A session that is kept in a file and opened by another process goes on token for token, and bit for bit, as one
// that never stopped: with attention and with recurrent layers, greedy and sampled, at every precision, on every
// engine.
func TestSessionGoesOn(t *testing.T) {
	for _, name := range []string{"qwen35moe-chat", "gemma4-chat"} {
		path := exported(t, name, 160)
		for _, precision := range []string{"fp32", "mixed", "strict"} {
			for _, p := range []session.Sampling{session.Greedy, {Temperature: 1.5, TopK: 50, TopP: 0.95, Seed: 11}} {
				for _, e := range devices.Engines {
					t.Run(fmt.Sprintf("%s/%s/temperature %g/%s", name, precision, p.Temperature, e.Name()),
						func(t *testing.T) {
							t.Parallel()
							file := filepath.Join(t.TempDir(), "chat")
							c := startChat(t, path, e, precision, p)
							c.ask(t, "What is the capital of France?")
							c.ask(t, "What is 5 plus 3?")
							require.NoError(t, c.save(file))
							want := c.ask(t, "Hello")

							d := startChat(t, path, e, precision, p)
							d.ask(t, "Is there something before?")
							require.NoError(t, d.load(file))
							got := d.ask(t, "Hello")
							require.Equal(t, want.Tokens, got.Tokens)
							require.Equal(t, want.Prompt, got.Prompt, "no more is fed")
							require.Equal(t, c.Messages(), d.Messages())
							require.Equal(t, c.states(t), d.states(t))
						})
				}
			}
		}
	}
}

// Chats of one program that take turns, and are kept in files in between, answer as if each were alone.
func TestSessionsTakeTurns(t *testing.T) {
	path := exported(t, "qwen35moe-chat", 160)
	questions := map[string][]string{"a": {"What is the capital of France?", "Hello"},
		"b": {"What is 5 plus 3?", "Kyiv is the capital of which country?"}}
	dir := t.TempDir()
	alone := map[string][]chat.Message{}
	for name, list := range questions {
		c := startChat(t, path, reference.Engine{}, "mixed", session.Greedy)
		for _, q := range list {
			c.ask(t, q)
		}
		alone[name] = c.Messages()
	}
	c := startChat(t, path, reference.Engine{}, "mixed", session.Greedy)
	for turn := range 2 {
		for _, name := range []string{"a", "b"} {
			file := filepath.Join(dir, name)
			if turn == 0 {
				require.NoError(t, c.Reset(""))
			} else {
				require.NoError(t, c.load(file))
			}
			c.ask(t, questions[name][turn])
			require.NoError(t, c.save(file))
			if turn == 1 {
				require.Equal(t, alone[name], c.Messages())
			}
		}
	}
}

// A session file that is broken, or another program's, is an invalid file that is named; what was before goes on.
func TestSessionRefused(t *testing.T) {
	path := exported(t, "gemma4-chat", 64)
	file := filepath.Join(t.TempDir(), "chat")
	c := startChat(t, path, reference.Engine{}, "mixed", session.Greedy)
	c.request.MaxNewTokens = 2
	c.ask(t, "Hi")
	require.NoError(t, c.save(file))
	messages, states := c.Messages(), c.states(t)

	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	f, err := safetensors.Open(file)
	require.NoError(t, err)
	defer f.Close()
	var entries []safetensors.Entry
	for _, x := range f.Tensors() {
		b := make([]byte, x.Size())
		_, err := x.ReadAt(b, 0)
		if !errors.Is(err, io.EOF) {
			require.NoError(t, err)
		}
		entries = append(entries, safetensors.Entry{Name: x.Name, DType: x.DType, Shape: x.Shape,
			Data: safetensors.Bytes(b)})
	}
	const buffer = "buffer.layers.0.self_attn.k_cache"
	// changed writes the file with other tensors (nil drops one) and other metadata.
	changed := func(tensors map[string]*safetensors.Entry, metadata map[string]string) []byte {
		list := slices.Clone(entries)
		for name, x := range tensors {
			at := slices.IndexFunc(list, func(e safetensors.Entry) bool { return e.Name == name })
			require.GreaterOrEqual(t, at, 0, name)
			list = slices.Delete(list, at, at+1)
			if x != nil {
				list = append(list, *x)
			}
		}
		m := maps.Clone(f.Metadata())
		for k, v := range metadata {
			m[k] = v
		}
		other := filepath.Join(t.TempDir(), "other")
		require.NoError(t, safetensors.WriteFile(other, list, m))
		b, err := os.ReadFile(other)
		require.NoError(t, err)
		return b
	}
	ids := func(d safetensors.DType, shape []int, b ...byte) *safetensors.Entry {
		return &safetensors.Entry{DType: d, Shape: shape, Data: safetensors.Bytes(b)}
	}
	named := func(name string, e *safetensors.Entry) map[string]*safetensors.Entry {
		e.Name = name
		return map[string]*safetensors.Entry{name: e}
	}
	for _, test := range []struct {
		name string
		file []byte
		want string
		kind error
	}{
		{"cut", whole[:len(whole)-1], "chat", kind.ErrInvalid},
		{"empty", nil, "chat", kind.ErrInvalid},
		{"another program's", changed(nil, map[string]string{sessionProgram: "0"}), "is no session of the program",
			kind.ErrInvalid},
		{"another precision's", changed(nil, map[string]string{sessionPrecision: "fp32"}),
			"a run with Options.Precision fp32, which cannot go on with Options.Precision mixed", kind.ErrUsage},
		{"messages", changed(nil, map[string]string{sessionMessages: "[1]"}), "the messages in its metadata: ",
			kind.ErrInvalid},
		{"no buffer", changed(map[string]*safetensors.Entry{buffer: nil}, nil),
			`no tensor "` + buffer + `"`, kind.ErrInvalid},
		{"shape of a buffer", changed(named(buffer, ids(safetensors.F32, []int{2}, make([]byte, 8)...)), nil),
			`tensor "` + buffer + `" is F32[2], want f32[1 2 126 32]`, kind.ErrInvalid},
		{"dtype of a buffer", changed(named(buffer,
			ids(safetensors.I32, []int{1, 2, 126, 32}, make([]byte, 4*2*126*32)...)), nil),
			`tensor "` + buffer + `" is I32[1 2 126 32], want f32[1 2 126 32]`, kind.ErrInvalid},
		{"shape of a buffer before the answer", changed(named("base."+buffer, ids(safetensors.F32, []int{0})), nil),
			`tensor "base.` + buffer + `" is F32[0]`, kind.ErrInvalid},
		{"no tokens", changed(map[string]*safetensors.Entry{sessionTokens: nil}, nil),
			`no tensor "tokens"`, kind.ErrInvalid},
		{"dtype of the tokens", changed(named(sessionTokens, ids(safetensors.F32, []int{1}, 0, 0, 0, 0)), nil),
			`tensor "tokens" is F32[1], want I64 of one dim`, kind.ErrInvalid},
		{"shape of the tokens", changed(named(sessionTokens, ids(safetensors.I64, []int{1, 1}, make([]byte, 8)...)),
			nil), `tensor "tokens" is I64[1 1], want I64 of one dim`, kind.ErrInvalid},
		{"a negative token", changed(named(sessionTokens, ids(safetensors.I64, []int{1}, 255, 255, 255, 255, 255, 255,
			255, 255)), nil), "element 0 is -1, which is no token id", kind.ErrInvalid},
		{"a token beyond the vocabulary",
			changed(named(sessionTokens, ids(safetensors.I64, []int{1}, 0, 4, 0, 0, 0, 0, 0, 0)), nil),
			"token 0 of the snapshot is 1024, which is not in the vocabulary of 960", kind.ErrInvalid},
		{"more tokens than the context",
			changed(named(sessionTokens, ids(safetensors.I64, []int{65}, make([]byte, 65*8)...)), nil),
			"a snapshot of 65 tokens does not fit the context of 64", kind.ErrInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			other := filepath.Join(t.TempDir(), "chat")
			require.NoError(t, os.WriteFile(other, test.file, 0o644))
			err := c.load(other)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, other)
			require.ErrorIs(t, err, test.kind)
			require.Equal(t, messages, c.Messages())
			require.Equal(t, states, c.states(t))
		})
	}
	require.NoError(t, c.load(file))
	require.Error(t, c.save(filepath.Join(t.TempDir(), "missing", "chat")))
}
