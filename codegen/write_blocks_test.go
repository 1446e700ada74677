package codegen_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
)

// blocked gives 700 bytes of each of two outputs in 7 blocks. The first blocks do not end before all workers are
// at one.
type blocked struct {
	workers sync.WaitGroup
	runs    [7]atomic.Int64
	fail    int // block; 0: none
	short   int // block; 0: none
}

func (b *blocked) Provenance() string { return "blocked" }
func (b *blocked) Blocks() int        { return len(b.runs) }
func (b *blocked) Produce(func(int, int64, []byte) error) error {
	return errors.New("the writer takes blocks where there are some")
}

func (b *blocked) ProduceBlock(i int, emit func(output int, offset int64, p []byte) error) error {
	b.runs[i].Add(1)
	if i < 4 {
		b.workers.Done()
		b.workers.Wait()
	}
	if b.fail != 0 && i == b.fail {
		return errors.New("disk on fire")
	}
	for output := range 2 {
		p := make([]byte, 100)
		if b.short != 0 && i == b.short {
			p = p[1:]
		}
		for j := range p {
			p[j] = byte(50*output + i)
		}
		if err := emit(output, int64(100*i), p); err != nil {
			return err
		}
	}
	return nil
}

type blockedPart struct {
	*blocked
	output int
}

func (p blockedPart) DType() ir.DType              { return ir.U8 }
func (p blockedPart) Shape() []int64               { return []int64{700} }
func (p blockedPart) Provenance() string           { return fmt.Sprintf("blocked.%d", p.output) }
func (p blockedPart) Group() (ir.Computation, int) { return p.blocked, p.output }
func (p blockedPart) ReadAt([]byte, int64) (int, error) {
	return 0, errors.New("the writer reads parts one by one")
}

// TestBlocksAreShared: several workers produce one computation, each block once.
func TestBlocksAreShared(t *testing.T) {
	for _, outputs := range [][]int{{0, 1}, {1}} {
		b := &blocked{}
		b.workers.Add(4)
		var all []ir.Data
		for _, o := range outputs {
			all = append(all, blockedPart{b, o})
		}
		path, _ := write(t, codegen.File{Module: module(t, all...), Jobs: 4})
		for i := range b.runs {
			require.EqualValues(t, 1, b.runs[i].Load(), "block %d", i)
		}
		p := open(t, path)
		for i, o := range outputs {
			got, ok := p.File.Lookup(fmt.Sprintf("c%d", i))
			require.True(t, ok)
			require.Len(t, got, 700)
			for j, v := range got {
				require.Equal(t, byte(50*o+j/100), v)
			}
		}
	}
}

func TestBlockErrors(t *testing.T) {
	for _, test := range []struct {
		b    *blocked
		want string
	}{
		{&blocked{fail: 5}, "blocked: disk on fire"},
		{&blocked{short: 4}, "blocked: output 0 gave 699 of 700 bytes"},
		{&blocked{short: 6}, "blocked: output 0 gave 699 of 700 bytes"},
	} {
		test.b.workers.Add(4)
		dir := t.TempDir()
		err := codegen.Write(t.Context(), filepath.Join(dir, "model.pte"),
			codegen.File{Module: module(t, blockedPart{test.b, 0}), Jobs: 4})
		require.ErrorContains(t, err, test.want)
		requireOnly(t, dir)
	}
}
