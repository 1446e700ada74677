package codegen_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
)

// TestMemoryOfWorkers: what a limit allows fits it, and one worker more does not.
func TestMemoryOfWorkers(t *testing.T) {
	m := codegen.Memory{Fixed: 100, Worker: 30}
	for _, test := range []struct {
		limit      int64
		most, jobs int
	}{{1000, 4, 4}, {220, 4, 4}, {219, 4, 3}, {130, 4, 1}, {129, 4, 0}, {10, 4, 0}, {0, 4, 0}} {
		require.Equal(t, test.jobs, m.Jobs(test.limit, test.most))
		if test.jobs > 0 {
			require.LessOrEqual(t, m.For(test.jobs), test.limit)
		}
	}
}

// sized is a computation that knows the memory it needs.
type sized struct{ *computation }

func (sized) WorkerBytes() int64 { return 1 << 30 }
func (sized) SharedBytes() int64 { return 1 << 40 }

type sizedPart struct{ part }

func (p sizedPart) Group() (ir.Computation, int) { return sized{p.c}, p.output }

// TestMemoryOfLayouts: it grows with what a worker holds and not with the weights.
func TestMemoryOfLayouts(t *testing.T) {
	memory := func(f codegen.File) codegen.Memory {
		l, err := codegen.Plan(f)
		require.NoError(t, err)
		return l.Memory()
	}
	empty := memory(codegen.File{Module: module(t)})
	small := memory(codegen.File{Module: module(t, data{"a", []int64{100}, pattern})})
	large := memory(codegen.File{Module: module(t, data{"a", []int64{8 << 20}, pattern})})
	larger := memory(codegen.File{Module: module(t, data{"a", []int64{1 << 20, 8 << 20}, pattern})})
	require.Less(t, small.Worker, large.Worker)
	require.Equal(t, large.Worker, larger.Worker)
	require.InDelta(t, empty.Fixed, larger.Fixed, 4096)
	extra := memory(codegen.File{Module: module(t),
		Extra: []codegen.NamedBytes{{Key: "metadata.a", Bytes: make([]byte, 1<<20)}}})
	require.GreaterOrEqual(t, extra.Fixed, empty.Fixed+1<<20)
	joint := memory(codegen.File{Module: module(t, part{&computation{}, 0})})
	require.Greater(t, joint.Worker, small.Worker)
	known := memory(codegen.File{Module: module(t, sizedPart{part{&computation{}, 0}})})
	require.EqualValues(t, 1<<30, known.Worker)
	require.Equal(t, empty.Fixed+2<<40, known.Fixed-(joint.Fixed-empty.Fixed))
}

// TestEstimate: what is read counts once, and time is that of a sample, scaled up.
func TestEstimate(t *testing.T) {
	c := &computation{}
	made := 0
	r := record("??", codegen.Field{Size: 1, Work: 10,
		Make: func(context.Context) ([]byte, error) { made++; return []byte("a"), nil }},
		codegen.Field{Offset: 1, Size: 1, Work: 1 << 40,
			Make: func(context.Context) ([]byte, error) { panic("too much for a sample") }})
	f := codegen.File{Module: module(t, part{c, 0}, part{c, 1}, data{"a", []int64{100}, pattern}), Record: r,
		Inputs: []codegen.Input{{Provenance: "a", Size: 100}, {Provenance: "b", Size: 11}}}
	l, err := codegen.Plan(f)
	require.NoError(t, err)
	w, err := l.Estimate(t.Context(), f.Inputs)
	require.NoError(t, err)
	require.EqualValues(t, 111, w.Read)
	require.Equal(t, l.Size, w.Written)
	require.EqualValues(t, 2000, w.Sampled)
	require.EqualValues(t, 2, c.runs.Load(), "once to read it, once to time it")
	require.Equal(t, 2, made)
	require.Positive(t, w.Computing)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.Estimate(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
}
