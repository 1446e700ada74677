package fault_test

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/fault"
)

func guarded(f func()) (err error) {
	defer fault.Recover("testing", &err)
	f()
	return nil
}

func TestRecover(t *testing.T) {
	require.NoError(t, guarded(func() {}))
	err := guarded(func() { panic("two\nlines") })
	require.EqualError(t, err, "testing: two lines")
	var f *fault.Error
	require.ErrorAs(t, err, &f)
	require.Contains(t, string(f.Stack), "TestRecover")
	require.False(t, f.Unreadable())
	require.ErrorIs(t, guarded(func() { panic(io.EOF) }), io.EOF)

	absent := map[string]map[string]int{}
	err = guarded(func() { absent["none"]["a"] = 1 })
	require.EqualError(t, err, "testing: assignment to entry in nil map")
	var p *int
	err = guarded(func() { *p = 1 })
	require.ErrorContains(t, err, "nil pointer")

	// A fault that passes through two functions stays the first.
	again := guarded(func() { panic(fault.Of("inside", "x")) })
	require.EqualError(t, again, "inside: x")
	require.False(t, errors.Is(again, io.EOF))
}

// A panic of a goroutine is one of who waits for it; the others end as they do.
func TestGroup(t *testing.T) {
	var g fault.Group
	var ran [8]bool
	for i := range ran {
		g.Go(func() {
			ran[i] = true
			if i == 3 {
				panic("three")
			}
		})
	}
	err := guarded(g.Wait)
	require.EqualError(t, err, "three")
	var f *fault.Error
	require.ErrorAs(t, err, &f)
	require.Contains(t, string(f.Stack), "TestGroup", "the stack is that of the panic")
	require.NotContains(t, ran, false)

	var calm fault.Group
	calm.Go(func() {})
	require.NoError(t, guarded(calm.Wait))
	require.EqualError(t, fault.Run("a task", func() error { panic("x") }), "a task: x")
	require.ErrorIs(t, fault.Run("a task", func() error { return io.EOF }), io.EOF)
}
