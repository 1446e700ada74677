package kernels_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// streaming adds up four blocks of a threadgroup's words, which come in two turns of two transfers.
const streaming = `
#define BLOCK 1024
inline void start(threadgroup uchar* ring, threadgroup port_transfer* full, device const uchar* w, uint block, uint t) {
  threadgroup port_transfer* f = full + block % 2;
  if (t == 0) port_transfer_expect(f, BLOCK);
  if (t < 32) simdgroup_barrier(mem_flags::mem_threadgroup);
  if (t < 4) port_transfer_copy(ring + block % 2 * BLOCK + t * (BLOCK / 4), w + block * BLOCK + t * (BLOCK / 4), BLOCK / 4, f);
}
[[max_total_threads_per_threadgroup(64)]]
kernel void stream(device const uchar* w [[buffer(0)]], device uint* y [[buffer(1)]], uint t [[thread_index_in_threadgroup]],
                   uint group [[threadgroup_position_in_grid]]) {
  TG_MEMORY(ring, 2 * BLOCK);
  TG_ARRAY(port_transfer, full, 2);
  device const uchar* mine = w + group * (4 * BLOCK);
  if (t == 0) {
    port_transfer_init(full, 2);
  }
  for (uint block = 0; block < 2; block++) start(ring, full, mine, block, t);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint sum = 0;
  for (uint block = 0; block < 4; block++) {
    port_transfer_wait(full + block % 2, block / 2);
    threadgroup const uint* words = (threadgroup const uint*)(ring + block % 2 * BLOCK);
    for (uint i = 0; i < BLOCK / 256; i++) sum = sum * 3 + words[i * 64 + 63 - t];
    threadgroup_barrier(mem_flags::mem_threadgroup);  // has been read
    if (block < 2) start(ring, full, mine, block + 2, t);
  }
  y[group * 64 + t] = sum;
}
`

const (
	streamingCPU = "\nextern \"C\" __attribute__((visibility(\"default\"))) void stream_entry(void* const* a) { stream((uchar*)a[0], (uint*)a[1], PORT_thread_index_in_threadgroup(), PORT_threadgroup_position_in_grid().x); }\nPORT_ENTRY(stream, 64, 2)\n"
	streamingGPU = "\nextern \"C\" __global__ void __launch_bounds__(64) stream_entry(device const uchar* w, device uint* y) { stream(w, y, PORT_thread_index_in_threadgroup(), PORT_threadgroup_position_in_grid().x); }\n"
)

// streamed gives the launch of streaming, its input and what it computes.
func streamed() (l kernels.Launch, w, want []uint32) {
	const groups, words = 3, 256
	r := rand.New(rand.NewPCG(1, 2))
	w, want = make([]uint32, groups*4*words), make([]uint32, groups*64)
	for i := range w {
		w[i] = r.Uint32()
	}
	for i := range want {
		for j := range 4 * words / 64 {
			want[i] = want[i]*3 + w[i/64*4*words+j*64+63-i%64]
		}
	}
	return kernels.Launch{Kernel: "stream", Groups: [3]int{groups, 1, 1}, Threads: [3]int{64, 1, 1}, Memory: 2048}, w,
		want
}

func TestTransfers(t *testing.T) {
	t.Parallel()
	l, w, want := streamed()
	require.NoError(t, kerneltest.Lint(swap(t, kernels.Metal, streaming, "")))
	require.NoError(t, kerneltest.CompileCUDA(swap(t, kernels.CUDA, streaming, streamingGPU)))
	for schedule, o := range kerneltest.Schedules(t, swap(t, kernels.CPU, streaming, streamingCPU), l, w,
		make([]uint32, len(want))) {
		require.NoError(t, o.Err, schedule)
		require.Equal(t, want, words(o.Buffers[1]), schedule)
	}
}

// TestTransferFaults plants faults into streaming: each is an error that names a thread and a line, or a wrong answer,
// under one schedule at least.
func TestTransferFaults(t *testing.T) {
	t.Parallel()
	l, w, want := streamed()
	const (
		barrier = "    threadgroup_barrier(mem_flags::mem_threadgroup);  // has been read\n"
		words   = "    threadgroup const uint* words = (threadgroup const uint*)(ring + block % 2 * BLOCK);\n"
		add     = "    for (uint i = 0; i < BLOCK / 256; i++) sum = sum * 3 + words[i * 64 + 63 - t];\n"
		next    = "    if (block < 2) start(ring, full, mine, block + 2, t);\n"
	)
	for name, c := range map[string]struct{ old, fault, err string }{
		"nobody waits": {"port_transfer_wait(full", "(void)(full",
			"thread 0 in port_transfer_expect at line 4: turn 0 is under way, nobody has waited for it"},
		"half wait":         {"    port_transfer_wait(full", "    if (t < 32) port_transfer_wait(full", ""},
		"waited too late":   {barrier + next, next + barrier, "for turn 0, 2 turns were expected and 1 are done"},
		"overwritten early": {words + add + barrier, words + barrier + add, ""},
		"waited early": {"  threadgroup_barrier(mem_flags::mem_threadgroup);\n  uint sum", "  uint sum",
			"in port_transfer_wait at line 20: no port_transfer_init was there before"},
		"divergent wait": {"    port_transfer_wait(full", "    if (t % 2 == 0) port_transfer_wait(full",
			"simd operation in divergent code"},
		"another turn": {"port_transfer_wait(full + block % 2, block / 2)",
			"port_transfer_wait(full + block % 2, block % 2)", "for turn 1, 1 turns were expected and 0 are done"},
		"a turn too late": {"block < 2) start(ring, full, mine, block + 2, t);",
			"block < 2) { start(ring, full, mine, block + 2, t); threadgroup_barrier(mem_flags::mem_threadgroup); port_transfer_wait(full + block % 2, 0); }", "for turn 0, 2 turns were expected and 1 are done"},
		"fewer bytes": {"BLOCK / 4, f);", "BLOCK / 8, f);",
			"in port_transfer_wait at line 21: 512 bytes are copied in turn 0, 1024 were expected"},
		"expected too late": {"  if (t < 32) simdgroup_barrier(mem_flags::mem_threadgroup);\n", "",
			"in port_transfer_copy at line 5: no port_transfer_"},
		"odd expectation": {"expect(f, BLOCK)", "expect(f, BLOCK + 8)",
			"thread 0 in port_transfer_expect at line 4: 1032 bytes, want a multiple of 16 below 2^20"},
		"odd size": {"BLOCK / 4, f);", "BLOCK / 4 - 4, f);",
			"in port_transfer_copy at line 6: 252 bytes from"},
		"odd source": {"w + block * BLOCK + t", "w + 4 + block * BLOCK + t", "want multiples of 16"},
		"odd place": {"(ring + block % 2 * BLOCK + t *", "(ring + 4 + block % 2 * BLOCK + t *",
			"want multiples of 16"},
		"past the end": {"(ring + block % 2 * BLOCK + t *", "(ring + 16 + block % 2 * BLOCK + t *",
			"256 bytes to what is not threadgroup memory"},
		"no beginning": {"port_transfer_init(full, 2)", "(void)0", "no port_transfer_init was there before"},
		"two beginnings": {"port_transfer_init(full, 2)",
			"port_transfer_init(full, 2), port_transfer_init(full, 1)", "it is the second for this port_transfer"},
		"left at the end": {"if (block < 2) start", "if (block < 3) start",
			"a threadgroup ends with copies under way: turn 2, by thread 0 in port_transfer_expect at line 4, was not waited for"},
		"more than is given": {"TG_MEMORY(ring, 2 * BLOCK)", "TG_MEMORY(ring, 3 * BLOCK)",
			"TG_MEMORY of 3072 bytes, the launch gives 2048"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, streaming, c.old)
			w := append(w, make([]uint32, 1024)...) // a block more, for the fault that reads it
			found := false
			for _, o := range kerneltest.Schedules(t,
				swap(t, kernels.CPU, "\n#line 1"+strings.Replace(streaming, c.old, c.fault, 1), streamingCPU), l, w,
				make([]uint32, len(want))) {
				if o.Err != nil {
					require.Contains(t, o.Err.Error(), c.err)
				}
				found = found || c.err != "" && o.Err != nil ||
					c.err == "" && string(o.Buffers[1]) != string(bytesOf(want))
			}
			require.True(t, found)
		})
	}
}

// mma is port_mma_u8s8 on a [16][32] u8, b transposed [8][32] s8 and c [16][8] i32, in words of four bytes; with NUMBER
// float and NAME bf16 it is port_mma_bf16 on a [16][16], b transposed [8][16] and c f32.
const mma = `
[[max_total_threads_per_threadgroup(32)]]
kernel void multiply(device const uint* a [[buffer(0)]], device const uint* b [[buffer(1)]], device NUMBER* c [[buffer(2)]],
                     uint lane [[thread_index_in_threadgroup]]) {
  const uint g = lane / 4;
  const uint j = lane % 4;
  NUMBER sum[4];
  for (uint i = 0; i < 4; i++) sum[i] = c[(g + i / 2 * 8) * 8 + 2 * j + i % 2];
  for (uint twice = 0; twice < 2; twice++) {
    port_mma_NAME(sum, a[g * 8 + j], a[(g + 8) * 8 + j], a[g * 8 + 4 + j], a[(g + 8) * 8 + 4 + j], b[g * 8 + j], b[g * 8 + 4 + j]);
  }
  for (uint i = 0; i < 4; i++) c[(g + i / 2 * 8) * 8 + 2 * j + i % 2] = sum[i];
}
`

const (
	mmaCPU = "\nextern \"C\" __attribute__((visibility(\"default\"))) void multiply_entry(void* const* a) { multiply((uint*)a[0], (uint*)a[1], (NUMBER*)a[2], PORT_thread_index_in_threadgroup()); }\nPORT_ENTRY(multiply, 32, 3)\n"
	mmaGPU = "\nextern \"C\" __global__ void __launch_bounds__(32) multiply_entry(device const uint* a, device const uint* b, device NUMBER* c) { multiply(a, b, c, PORT_thread_index_in_threadgroup()); }\n"
)

// TestMMA runs the emulator's products of simdgroups and, on the emulator too, Metal's. Numbers in bf16 are such that
// sums are exact.
func TestMMA(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	a, b, c := make([]byte, 16*32), make([]byte, 8*32), make([]int32, 16*8)
	for _, x := range [][]byte{a, b} {
		for i := range x {
			x[i] = byte(r.Uint32())
		}
	}
	a[0], a[33], b[0], b[33] = 255, 255, 128, 128
	want := make([]int32, len(c))
	for i := range c {
		c[i] = int32(r.Uint32()) >> 8
		want[i] = c[i]
		for k := range 32 {
			want[i] += 2 * int32(a[i/8*32+k]) * int32(int8(b[i%8*32+k]))
		}
	}
	testMMA(t, "u8s8", "int", a, b, c, bytesOf(want))

	halves := func(n int) (numbers []float32, raw []byte) {
		for range n {
			numbers = append(numbers, float32(r.IntN(511)-255)/16)
			raw = binary.LittleEndian.AppendUint16(raw, uint16(math.Float32bits(numbers[len(numbers)-1])>>16))
		}
		return numbers, raw
	}
	x, a := halves(16 * 16)
	y, b := halves(8 * 16)
	sums, wanted := make([]float32, 16*8), make([]float32, 16*8)
	for i := range sums {
		sums[i] = float32(r.IntN(1000)) / 8
		wanted[i] = sums[i]
		for k := range 16 {
			wanted[i] += 2 * x[i/8*16+k] * y[i%8*16+k]
		}
	}
	testMMA(t, "bf16", "float", a, b, sums, bytesOf(wanted))
}

func testMMA(t *testing.T, name, number string, a, b []byte, c any, want []byte) {
	of := strings.NewReplacer("NAME", name, "NUMBER", number).Replace
	text := of(mma)
	require.NoError(t, kerneltest.Lint(swap(t, kernels.Metal, text, "")))
	require.NoError(t, kerneltest.CompileCUDA(swap(t, kernels.CUDA, text, of(mmaGPU))))

	_, metal, ok := strings.Cut(kernels.Prelude(kernels.Metal), "inline void port_mma_"+name+"(")
	require.True(t, ok)
	metal, _, ok = strings.Cut(metal, "\n}\n")
	require.True(t, ok)
	metal = "inline uint simd_prefix_exclusive_sum(uint) { return uint(PORT_LANE); }\ninline void metal_mma(" + metal +
		"\n}\n" +
		strings.Replace(text, "port_mma_"+name, "metal_mma", 1)
	l := kernels.Launch{Kernel: "multiply", Groups: [3]int{1, 1, 1}, Threads: [3]int{32, 1, 1}}
	for host, text := range map[string]string{"emulator": text, "metal": metal} {
		for schedule, o := range kerneltest.Schedules(t, swap(t, kernels.CPU, text, of(mmaCPU)), l, a, b, c) {
			require.NoError(t, o.Err, "%s %s %d", name, host, schedule)
			require.Equal(t, want, o.Buffers[2], "%s %s %d", name, host, schedule)
		}
	}
}

// words are the little-endian words of memory.
func words(memory []byte) []uint32 {
	out := make([]uint32, len(memory)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(memory[4*i:])
	}
	return out
}

// bytesOf is the memory of numbers of four bytes.
func bytesOf[T int32 | uint32 | float32](numbers []T) []byte {
	out, err := binary.Append(nil, binary.LittleEndian, numbers)
	if err != nil {
		panic(err)
	}
	return out
}
