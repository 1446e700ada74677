package gpu_test

import (
	"encoding/binary"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/metal/metaltest"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/gpu/tune"
	"github.com/etc-ml/etc/runtime/reference"
)

// attendMany is attention of T tokens over caches of S slots; RESULTS are returned.
const attendMany = `module {
  symbol p [-2147483648, 2147483647]
  constant @table : f32[40,32]
  constant @qkv : bf16[512,32]
  buffer @k : bf16[1,2,S,64]
  buffer @v : bf16[1,2,S,64]
  entry forward(%ids: i64[1,T], %at: i64[T]) {
    %x = embedding(indices=%ids, weight=@table) : f32[1,T,32]
    %first = slice(x=%at, axis=0, start=0, stop=1) : i64[1]
    %0 = item_int(x=%first) : int(p)
    %1 = add_int(a=%0, b=T) : int(T+p)
    %qkv = linear(x=%x, weight=@qkv) : f32[1,T,512]
    %heads = reshape(x=%qkv, shape=[1, T, 8, 64]) : f32[1,T,8,64]
    %all = transpose(x=%heads) {perm=[0, 2, 1, 3]} : f32[1,8,T,64]
    %q = slice(x=%all, axis=1, start=0, stop=4) : f32[1,4,T,64]
    %k = slice(x=%all, axis=1, start=4, stop=6) : f32[1,2,T,64]
    %v = slice(x=%all, axis=1, start=6, stop=8) : f32[1,2,T,64]
    %2 = rope(x=%q, offset=%0) {dims=64, base=10000.0} : f32[1,4,T,64]
    %3 = rope(x=%k, offset=%0) {dims=64, base=10000.0} : f32[1,2,T,64]
    buffer_slice_update @k(update=%3, axis=2, start=%0, stop=%1)
    buffer_slice_update @v(update=%v, axis=2, start=%0, stop=%1)
    %4 = load @k() : bf16[1,2,S,64]
    %5 = load @v() : bf16[1,2,S,64]
    %6 = cached_attention(q=%2, k=%4, v=%5, position=%0) {scale=0.125} : f32[1,4,T,64]
    return RESULTS
  }
}
`

// clocked is a device on which what is measured takes the time that cost says, of the dispatches and what they find in
// the last operand. Of many only the first few run.
type clocked struct {
	device.Device
	clock *stopwatch
	cost  func(x device.Dispatch, words []int32) time.Duration
	lists [][]device.Dispatch // that were recorded
	found [][]int32           // of each list the second word that each measured dispatch finds
}

func (d *clocked) Record(list []device.Dispatch) (device.Sequence, error) {
	d.lists = append(d.lists, slices.Clone(list))
	var cost time.Duration
	d.found = append(d.found, nil)
	end := len(list)
	for i, x := range list {
		if !measured(x) {
			continue
		}
		a := x.Arguments[len(x.Arguments)-1]
		raw := make([]byte, 8)
		if err := a.Buffer.Read(a.Offset, raw); err != nil {
			return nil, err
		}
		words := []int32{int32(binary.LittleEndian.Uint32(raw)), int32(binary.LittleEndian.Uint32(raw[4:]))}
		d.found[len(d.lists)-1] = append(d.found[len(d.lists)-1], words[1])
		if cost += d.cost(x, words); len(d.found[len(d.lists)-1]) == 3 {
			end = i + 1
		}
	}
	s, err := d.Device.Record(list[:end])
	if cost == 0 {
		return s, err
	}
	return &timedSequence{s, d.clock, cost, false}, err
}

// requireMeasured requires that attention was measured, each time at all positions, and gives the numbers of threads of
// its variants and how many these are.
func requireMeasured(t *testing.T, d *clocked, positions []int32, inPlace bool) (least, most, variants int) {
	t.Helper()
	seen := map[device.Kernel]bool{}
	least = 1 << 20
	for i, list := range d.lists {
		if !slices.ContainsFunc(list, measured) {
			continue
		}
		require.Equal(t, positions, d.found[i])
		require.Equal(t, inPlace, slices.ContainsFunc(list, func(x device.Dispatch) bool { return !measured(x) }),
			"others stand around it")
		for _, x := range list {
			if measured(x) {
				seen[x.Kernel] = true
				least, most = min(least, x.Threads[0]), max(most, x.Threads[0])
			}
		}
	}
	return least, most, len(seen)
}

// threadsOf are those of a threadgroup of attention in the program that was recorded last.
func threadsOf(t *testing.T, d *clocked) int {
	program := d.lists[len(d.lists)-1]
	at := slices.IndexFunc(program, func(x device.Dispatch) bool { return x.Label == "attention" })
	require.GreaterOrEqual(t, at, 0)
	return program[at].Threads[0]
}

// TestTuneAttention: the ways to divide attention are measured at positions from near the start of the context to its
// middle, in place for a token, and the sum of the times chooses; that is kept. A way that gives wrong numbers is
// passed over.
func TestTuneAttention(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the tuner on the emulator")
	}
	emulated(t)
	const one, rotated = "%6: f32[1,4,1,64]", "%6: f32[1,4,1,64], %2: f32[1,4,1,64]"
	for _, c := range []struct {
		name          string
		tokens, slots int
		results       string
		precision     eval.Precision
		metal         bool
		kernel        string
		positions     []int32
		inPlace       bool
		wide          string // a definition of variants with more threads than the default
	}{
		{"a token", 1, 2048, one, eval.FP32, false, "attention_step", []int32{64, 64, 64, 64, 512, 512, 512, 512, 1024},
			true, "ATT_SIMDGROUPS 16"},
		{"a token on Metal", 1, 1024, one, eval.FP32, true, "attention_step", []int32{64, 64, 64, 64, 512},
			true, "ATT_SIMDGROUPS 16"},
		{"a token, rotated before", 1, 1024, rotated, eval.FP32, false, "attention_part", []int32{64, 64, 64, 64, 512},
			true, "ATT_SIMDGROUPS 8"},
		{"tokens", 24, 1024, "%6: f32[1,4,24,64]", eval.FP32, false, "attention_part", []int32{0, 512},
			false, "ATT_SIMDGROUPS 8"},
		{"tokens by tiles", 24, 512, "%6: f32[1,4,24,64]", eval.Mixed, false, "attention_chunk", []int32{0, 256},
			false, "CHUNK_ROWS 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(attendMany, "RESULTS", c.results, 1)
			for name, n := range map[string]int{"T": c.tokens, "S": c.slots} {
				text = regexp.MustCompile(`\b`+name+`\b`).ReplaceAllString(text, strconv.Itoa(n))
			}
			m, err := ir.Parse(text)
			require.NoError(t, err)
			normals(4).fill(t, m, 1.0/4)
			ids, err := eval.NewTensor(ir.I64, 1, c.tokens)
			require.NoError(t, err)
			at, err := eval.NewTensor(ir.I64, c.tokens)
			require.NoError(t, err)
			for i := range at.I {
				ids.I[i], at.I[i] = int64(i*7%40), int64(i)
			}
			in := []eval.Value{{Tensor: ids}, {Tensor: at}}
			o := engine.Options{Precision: c.precision, Threads: 1}
			open := emulated(t).(gpu.Engine).Open
			name, close := "emulator", 1e-5
			if c.metal {
				name, open = "metal", metaltest.StandIn(t)
			}
			if c.precision == eval.Mixed {
				close = 2e-2
			}
			want, err := compile(t, reference.Engine{}, m, o).Run(t.Context(), in)
			require.NoError(t, err)
			start := func(dir string, cost func(threads int, position int32) time.Duration,
				fault func(file, text string) (string, error)) (d *clocked, changed int, notes []string) {
				f := &faulty{fault: fault, compiled: map[string]int{}, changed: map[string]int{}}
				d = &clocked{clock: &stopwatch{}, cost: func(x device.Dispatch, step []int32) time.Duration {
					require.Equal(t, c.kernel, x.Kernel.Name())
					require.EqualValues(t, c.tokens, step[0])
					if c.kernel == "attention_step" {
						part, ml := x.Arguments[8], x.Arguments[9]
						require.LessOrEqual(t, part.Offset+4*4*64*x.Groups[1], ml.Offset,
							"there is memory for the blocks of 4 heads of 64")
					}
					return cost(x.Threads[0], step[1])
				}}
				x, err := gpu.Engine{Device: name, SelfTest: &selftest.Options{Dir: dir},
					Tune: &tune.Options{Dir: dir, Clock: d.clock.time, Budget: time.Hour,
						Least: 100 << 10}, Open: func() (device.Device, error) {
						var err error
						f.Device, err = open()
						d.Device = f
						return d, err
					}}.Compile(m, engine.Options{Precision: c.precision,
					Warn: func(text string) { notes = append(notes, text) }})
				require.NoError(t, err)
				i, err := x.NewInstance()
				require.NoError(t, err)
				got, err := i.Run(t.Context(), in)
				require.NoError(t, err)
				requireClose(t, []*eval.Tensor{want[0].Tensor}, []*eval.Tensor{got[0].Tensor}, close)
				require.NoError(t, i.Close())
				require.NoError(t, x.Close())
				return d, f.changed[strings.TrimSuffix(c.kernel, "_part")], notes
			}
			deepest := c.positions[len(c.positions)-1]
			wide := func(threads int, _ int32) time.Duration { return time.Second / time.Duration(threads) }
			narrow := func(threads int, position int32) time.Duration {
				if position < deepest {
					return wide(threads, position)
				}
				return 100 * time.Microsecond * time.Duration(threads) * time.Duration(threads)
			}
			dir := t.TempDir()
			d, _, notes := start(dir, wide, refuse())
			least, most, variants := requireMeasured(t, d, c.positions, c.inPlace)
			require.Greater(t, variants, 3)
			require.Less(t, least, most)
			require.Equal(t, most, threadsOf(t, d), "what is fastest")
			require.Len(t, notes, 1)
			require.Regexp(t, `^tuned 1 products for .*: 1 differ from the default; kept in `, notes[0])

			d, _, notes = start(dir, narrow, refuse())
			require.False(t, slices.ContainsFunc(d.lists,
				func(list []device.Dispatch) bool { return slices.ContainsFunc(list, measured) }), "it is kept")
			require.Equal(t, most, threadsOf(t, d))
			require.Empty(t, notes)

			d, _, _ = start(t.TempDir(), narrow, refuse())
			require.Equal(t, least, threadsOf(t, d), "what is fastest at the deepest position is, on the whole")

			scale, _, _ := strings.Cut(c.wide, "_")
			d, changed, notes := start(t.TempDir(), wide, func(file, text string) (string, error) {
				if strings.Contains(text, "#define "+c.wide+"\n") {
					text = strings.ReplaceAll(text, "#define "+scale+"_SCALE ", "#define "+scale+"_SCALE 3.0f * ")
				}
				return text, nil
			})
			require.NotZero(t, changed)
			requireMeasured(t, d, c.positions, c.inPlace)
			require.NotEqual(t, most, threadsOf(t, d), "what is fastest gives wrong numbers")
			require.Len(t, notes, 1)
		})
	}
}
