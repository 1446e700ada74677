package statefile

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
)

// FuzzSession: a session file of any content, even one with a right checksum, is restored or refused.
func FuzzSession(f *testing.F) {
	path := filepath.Join("..", "..", "cmd", "etc", "command", "testdata", "exporter-sample.pte")
	p, err := program.Open(path)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, p.Close()) })
	m, err := p.Module("forward")
	require.NoError(f, err)
	owner := Owner{File: path, Program: Identify(p), Precision: "fp32"}
	model, err := session.Load(m, reference.Engine{}, engine.Options{})
	require.NoError(f, err)
	s, err := model.NewSession()
	require.NoError(f, err)
	state, err := s.Snapshot()
	require.NoError(f, err)
	messages := `[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`
	f.Add(messages, owner.Program, "fp32", "tokens", "I64", uint8(0), []byte{})
	for _, x := range state.States {
		f.Add(messages, owner.Program, "fp32", sessionBuffer+x.Buffer, string(stateEntry(sessionBuffer, x).DType),
			uint8(x.Tensor.Len()), x.Tensor.Encode())
	}
	f.Fuzz(func(t *testing.T, messages, id, precision, name, dtype string, size uint8, data []byte) {
		entries := []safetensors.Entry{tokensEntry(sessionTokens, []int{1, 2})}
		for _, x := range state.States {
			if e := stateEntry(sessionBuffer, x); e.Name != name {
				entries = append(entries, e)
			}
		}
		if name != sessionTokens {
			entries = append(entries, safetensors.Entry{Name: name, DType: safetensors.DType(dtype),
				Shape: []int{int(size)}, Data: safetensors.Bytes(data)})
		}
		metadata := map[string]string{sessionMessages: messages, sessionProgram: id, sessionPrecision: precision}
		var err error
		if metadata[sessionChecksum], err = checksum(entries, metadata); err != nil {
			return
		}
		file := filepath.Join(t.TempDir(), "session")
		w, err := os.Create(file)
		require.NoError(t, err)
		err = safetensors.Write(w, entries, metadata)
		require.NoError(t, w.Close())
		if err != nil {
			return // no such file can be made
		}
		saved, err := ReadSession(file, owner, model)
		if err != nil {
			return
		}
		require.NoError(t, s.Restore(saved.State))
	})
}

// FuzzSlot: a file of any content is a state that was saved, or an error.
func FuzzSlot(f *testing.F) {
	dir := f.TempDir()
	folder := &Slots{Dir: dir, Model: "m", Of: Owner{Program: "p", Precision: "fp32"}}
	type state struct {
		parts    []batch.Part
		contents [][]byte
	}
	saved := state{[]batch.Part{{Buffer: "k", DType: ir.BF16, Stored: ir.F32, Shape: []int{2}},
		{Buffer: "n", DType: ir.I64, Stored: ir.I64, Shape: []int{1}},
		{Buffer: "k", DType: ir.BF16, Stored: ir.F32, Shape: []int{1}}},
		[][]byte{eval.Floats(ir.F32, []int{2}, []float32{1, 2.001}).Encode(),
			eval.Ints(ir.I64, []int{1}, []int64{3}).Encode(), eval.Floats(ir.F32, []int{1}, []float32{4}).Encode()}}
	read := func(s *Slots, name string) (tokens []int32, got state, err error) {
		state, _, err := s.Load(name)
		if err != nil {
			return nil, got, err
		}
		defer state.Close()
		got.parts = state.Parts
		got.contents, err = state.Contents(context.Background())
		return state.Tokens, got, err
	}
	_, err := folder.Save(context.Background(), "good",
		batch.NewSaved([]int32{1, 2}, "a session", saved.parts, saved.contents))
	require.NoError(f, err)
	tokens, got, err := read(folder, "good")
	require.NoError(f, err)
	require.Equal(f, []int32{1, 2}, tokens)
	require.Equal(f, saved, got)
	good, err := os.ReadFile(folder.path("good"))
	require.NoError(f, err)
	f.Add(good, 0, byte(0))
	for i := 0; i < len(good); i += 7 {
		f.Add(good, i, byte(0x5a))
	}
	scalar := []byte(`"part.000002":{"dtype":"F32","shape":[`)
	at := bytes.Index(good, scalar)
	require.Positive(f, at)
	f.Add(good, at+len(scalar), byte('1'^' ')) // [1] becomes [ ], of as many elements
	f.Fuzz(func(t *testing.T, content []byte, at int, change byte) {
		content = slices.Clone(content)
		if at >= 0 && at < len(content) {
			content[at] ^= change
		}
		mine := &Slots{Dir: t.TempDir(), Model: "m", Of: Owner{Program: "p", Precision: "fp32"}}
		require.NoError(t, os.WriteFile(mine.path("x"), content, 0o600))
		tokens, got, err := read(mine, "x")
		if bytes.Equal(content, good) {
			require.NoError(t, err)
		}
		if err == nil && at >= 0 && at < len(good) && change != 0 && len(content) == len(good) {
			require.Equal(t, []int32{1, 2}, tokens, "a change that no checksum shows changes nothing")
			require.Equal(t, saved, got)
		}
	})
}
