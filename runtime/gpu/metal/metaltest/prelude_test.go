package metaltest

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
)

// TestPrelude: kernels pass their self-tests with the prelude for Metal, whose tiles and simdgroup functions are made
// of Metal's.
func TestPrelude(t *testing.T) {
	d, err := StandIn(t)()
	require.NoError(t, err)
	affine, eight := kernels.Format{Bits: 4, Group: 64}, kernels.Format{Bits: 8, Group: 32, Symmetric: true, F32: true}
	attention := kernels.Attention{D: 64, Heads: 4, KVHeads: 2, Slots: 300, Scale: 0.125, Cache: kernels.BF16}
	experts := kernels.Experts{Format: affine, Count: 64, Top: 4, Hidden: 128, Inner: 64, Activation: kernels.SiLU,
		Residual: true, Shared: true,
		Router: kernels.Router{Experts: 64, Top: 4, Normalize: true, Scale: 1}}
	tiles := func(f kernels.Format, exact bool) (kernels.Launch, error) {
		m := kernels.MatMul{Matrices: kernels.Matrices{Format: f, K: 128, Exact: exact}, N: 100,
			Epilogue: kernels.AddMatrix}
		return m.Launch(m.Tiles(kernels.Machine{Target: kernels.Metal}, 64)[0], 64)
	}
	vectors := func(f kernels.Format, variant kernels.Tuning) (kernels.Launch, error) {
		return kernels.MatVec{Vectors: kernels.Vectors{Format: f, K: 256, M: 3}, N: 300}.Launch(variant)
	}
	launches := map[string]kernels.Launch{}
	add := func(name string, l kernels.Launch, err error) {
		require.NoError(t, err, name)
		launches[name] = l
	}
	l, err := tiles(affine, false)
	add("product by tiles", l, err)
	l, err = tiles(affine, true)
	add("exact product by tiles", l, err)
	l, err = tiles(eight, false)
	add("product by tiles, of bytes", l, err)
	l, err = attention.ChunkLaunch(60, attention.ChunkTunings(kernels.Machine{Target: kernels.Metal})[0])
	add("attention by tiles", l, err)
	l, err = experts.LaunchUp(kernels.Tuning{}, 3)
	add("experts that ballots choose", l, err)
	l, err = vectors(eight, kernels.Tuning{})
	add("product of vectors, by sums", l, err)
	l, err = vectors(affine, kernels.Tuning{Permute: true})
	add("product of vectors with parts of bytes", l, err)
	for name, l := range launches {
		t.Run(name, func(t *testing.T) {
			var made []interface{ Close() error }
			r, err := selftest.Run(d, l.Case(kernels.Sizes{}), func(l kernels.Launch) (device.Kernel, error) {
				text, err := l.Source(kernels.Metal)
				require.NoError(t, err)
				library, err := d.Compile(device.Source{Name: l.File, Text: text})
				require.NoError(t, err)
				k, err := library.Kernel(l.Kernel)
				require.NoError(t, err)
				made = append(made, k, library)
				return k, nil
			})
			require.NoError(t, err)
			require.LessOrEqual(t, r.Difference, r.Bound)
			for _, m := range made {
				require.NoError(t, m.Close())
			}
		})
	}
	require.NoError(t, d.Close())
}

// digits is a kernel of one simdgroup: what port_mma_u8s8 adds to c of operands as they lie in lanes, one of which a
// transfer brings.
const digits = `
[[max_total_threads_per_threadgroup(32)]]
kernel void digits(device const uint4* a [[buffer(0)]], device const uint2* b [[buffer(1)]], device int* c [[buffer(2)]],
                   uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(uint4, held, 32);
  TG_ARRAY(port_transfer, came, 1);
  if (lane == 0) {
    port_transfer_init(came, 1);
    port_transfer_expect(came, 512);
    port_transfer_copy(held, a, 512, came);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  port_transfer_wait(came, 0);
  const uint4 own = held[lane];
  int sums[4];
  for (int i = 0; i < 4; i++) sums[i] = c[lane * 4 + i];
  port_mma_u8s8(sums, own.x, own.y, own.z, own.w, b[lane].x, b[lane].y);
  for (int i = 0; i < 4; i++) c[lane * 4 + i] = sums[i];
}
extern "C" void digits_entry(void* const* a) { digits((const uint4*)a[0], (const uint2*)a[1], (int*)a[2], PORT_thread_index_in_simdgroup()); }
PORT_ENTRY(digits, 32, 3)
`

// TestDigits: transfers and port_mma_u8s8, which are in no kernel that Metal is given, do what common.h says.
func TestDigits(t *testing.T) {
	d, err := StandIn(t)()
	require.NoError(t, err)
	library, err := d.Compile(device.Source{Name: "digits", Text: kernels.Prelude(kernels.Metal) + digits})
	require.NoError(t, err)
	k, err := library.Kernel("digits")
	require.NoError(t, err)
	var a [16][32]uint8
	var b [32][8]int8
	for i := range 512 {
		a[i/32][i%32], b[i/8%32][i%8] = uint8(i*37+i/32*11), int8(i*29+i/8*5)
	}
	var raw [3][]byte
	var want []byte
	for lane := range 32 {
		g, j := lane/4, lane%4
		for part := range 4 { // rows g and g + 8 of the left half, then of the right
			raw[0] = append(raw[0], a[g+part%2*8][part/2*16+4*j:][:4]...)
		}
		for part := range 2 {
			for i := range 4 {
				raw[1] = append(raw[1], byte(b[part*16+4*j+i][g]))
			}
		}
		for i := range 4 {
			sum := int32(1000*lane + i)
			raw[2] = binary.NativeEndian.AppendUint32(raw[2], uint32(sum))
			for n := range 32 {
				sum += int32(a[g+i/2*8][n]) * int32(b[n][2*j+i%2])
			}
			want = binary.NativeEndian.AppendUint32(want, uint32(sum))
		}
	}
	x := device.Dispatch{Label: "digits", Kernel: k, Groups: [3]int{1, 1, 1}, Threads: [3]int{32, 1, 1}}
	for _, content := range raw {
		m, err := d.NewBuffer(len(content))
		require.NoError(t, err)
		require.NoError(t, m.Write(0, content))
		x.Arguments = append(x.Arguments, device.Argument{Binding: device.Binding{Buffer: m}})
	}
	s, err := d.Record([]device.Dispatch{x})
	require.NoError(t, err)
	require.NoError(t, s.Submit())
	got := make([]byte, len(want))
	require.NoError(t, x.Arguments[2].Buffer.Read(0, got))
	require.Equal(t, want, got)
	require.NoError(t, s.Close())
	for _, a := range x.Arguments {
		require.NoError(t, a.Buffer.Close())
	}
	require.NoError(t, k.Close())
	require.NoError(t, library.Close())
	require.NoError(t, d.Close())
}
