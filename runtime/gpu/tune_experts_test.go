package gpu_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/gpu/tune"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestTuneManyExperts: both products of the experts of many tokens are measured in tiles of as many rows as they are
// sorted for, on an order and tiles that are as sorting leaves them; what is chosen is kept, and what gives wrong
// numbers is passed over.
func TestTuneManyExperts(t *testing.T) {
	emulated(t)
	const tokens, top, experts, rows = 40, 3, 12, 32
	m, err := ir.Parse(strings.NewReplacer("ROUTE", route, "REST", `return %4: f32[1,s0,64]`).Replace(mixture))
	require.NoError(t, err)
	random := normals(8)
	random.fill(t, m, 1.0/8)
	in := []eval.Value{{Tensor: random.tensor(t, 1, tokens, 32)}}
	want, err := compile(t, reference.Engine{}, m, engine.Options{Precision: eval.Mixed, Threads: 1}).Run(t.Context(),
		in)
	require.NoError(t, err)
	for _, c := range []struct {
		name, wrong string
		changed     int // products
	}{
		{"sound", "", 2},
		{"all but the default are wrong", "#define MATMUL_BN 128\n", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			run := func() (d *clocked, f *faulty, notes []string) {
				f = &faulty{compiled: map[string]int{}, changed: map[string]int{},
					fault: func(file, text string) (string, error) {
						if c.wrong != "" && file == "experts_matmul" && strings.Contains(text, c.wrong) {
							return strings.ReplaceAll(text, "matmul_get(sums", "2.0f * matmul_get(sums"), nil
						}
						return text, nil
					}}
				first := map[string]device.Kernel{}
				d = &clocked{clock: &stopwatch{}, cost: func(x device.Dispatch, _ []int32) time.Duration {
					at := 6
					if x.Kernel.Name() == "experts_matmul_down" {
						at = 3
					}
					requireSorted(t, words(t, x.Arguments[at], tokens*top),
						words(t, x.Arguments[at+1], 4*(experts+tokens*top/rows)), experts, rows)
					if name := x.Kernel.Name(); first[name] == nil || first[name] == x.Kernel {
						first[name] = x.Kernel
						return 2 * time.Millisecond // the default
					}
					return time.Millisecond
				}}
				x, err := gpu.Engine{Device: "emulator", SelfTest: &selftest.Options{Dir: dir},
					Tune: &tune.Options{Dir: dir, Clock: d.clock.time, Budget: time.Hour,
						Least: 50 << 10}, Open: func() (device.Device, error) {
						var err error
						f.Device, err = emulated(t).(gpu.Engine).Open()
						d.Device = f
						return d, err
					}}.Compile(m, engine.Options{Precision: eval.Mixed,
					Warn: func(text string) { notes = append(notes, text) }})
				require.NoError(t, err)
				i, err := x.NewInstance()
				require.NoError(t, err)
				got, err := i.Run(t.Context(), in)
				require.NoError(t, err)
				requireClose(t, []*eval.Tensor{want[0].Tensor}, []*eval.Tensor{got[0].Tensor}, 2e-2)
				require.NoError(t, i.Close())
				require.NoError(t, x.Close())
				return d, f, notes
			}
			d, f, notes := run()
			variants := map[string]map[device.Kernel]bool{}
			for _, list := range d.lists {
				for _, x := range list {
					if measured(x) {
						if variants[x.Kernel.Name()] == nil {
							variants[x.Kernel.Name()] = map[device.Kernel]bool{}
						}
						variants[x.Kernel.Name()][x.Kernel] = true
					}
				}
			}
			require.Len(t, variants, 2)
			for name, kernels := range variants {
				require.Greater(t, len(kernels), 1, name)
			}
			require.Equal(t, c.wrong != "", f.changed["experts_matmul"] > 0)
			require.Len(t, notes, 1)
			require.Regexp(t, `^tuned 2 products for .*: `+string(rune('0'+c.changed))+
				` differ from the default; kept in `, notes[0])
			program := d.lists[len(d.lists)-1]
			d, _, notes = run()
			require.False(t, slices.ContainsFunc(d.lists,
				func(list []device.Dispatch) bool { return slices.ContainsFunc(list, measured) }), "it is kept")
			require.Equal(t, shape(program), shape(d.lists[len(d.lists)-1]))
			require.Empty(t, notes)
		})
	}
}

// words are n numbers of 32 bits that a kernel reads.
func words(t *testing.T, a device.Argument, n int) (out []int32) {
	raw := make([]byte, 4*n)
	require.NoError(t, a.Buffer.Read(a.Offset, raw))
	for ; len(raw) > 0; raw = raw[4:] {
		out = append(out, int32(binary.LittleEndian.Uint32(raw)))
	}
	return out
}

// requireSorted requires that an order has all pairs, and that tiles are all of them, of up to so many rows of one
// expert: not of all experts as many.
func requireSorted(t *testing.T, order, tiles []int32, experts, rows int) {
	for i, at := range slices.Sorted(slices.Values(order)) {
		require.EqualValues(t, i, at)
	}
	next, last := int32(0), int32(-1)
	sizes, seen := map[int32]bool{}, map[int32]bool{}
	for i := 0; i < len(tiles) && tiles[i] >= 0; i += 4 {
		require.GreaterOrEqual(t, tiles[i], last)
		require.Less(t, tiles[i], int32(experts))
		require.Equal(t, next, tiles[i+1])
		require.Greater(t, tiles[i+2], tiles[i+1])
		require.LessOrEqual(t, tiles[i+2], tiles[i+1]+int32(rows))
		next, last = tiles[i+2], tiles[i]
		sizes[tiles[i+2]-tiles[i+1]], seen[tiles[i]] = true, true
	}
	require.EqualValues(t, len(order), next)
	require.Greater(t, len(sizes), 1)
	require.Greater(t, len(seen), experts/2)
}
