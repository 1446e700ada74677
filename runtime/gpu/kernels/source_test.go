package kernels_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device/devicetest"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

func TestEntriesAreGenerated(t *testing.T) {
	folder := t.TempDir()
	sources, err := filepath.Glob("*.metal")
	require.NoError(t, err)
	for _, name := range sources {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), b, 0o600))
	}
	out, err := exec.Command("go", "run", "./gen", filepath.Join(folder, "*.metal")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range sources {
		name = strings.TrimSuffix(name, ".metal") + ".entry.h"
		want, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s: run go generate ./runtime/gpu/kernels", name)
	}
}

func TestSource(t *testing.T) {
	l, err := kernels.Embedding{Format: kernels.Format{Bits: 16}, N: 4, K: 64, Multiplier: 1}.Launch(1)
	require.NoError(t, err)
	for target, c := range map[kernels.Target]struct {
		entry    string
		has, not []string
	}{
		kernels.Metal: {"embedding", []string{"#include <metal_stdlib>", "#define EMBED_K 64\n",
			"#line 3 \"embedding.metal\"\n"}, []string{"embedding_entry", "#include \""}},
		kernels.CUDA: {"embedding_entry",
			[]string{"__shared__", "#define ENTRY_embedding\n",
				"__global__ void __launch_bounds__(EMBED_THREADS) embedding_entry("}, []string{"#include"}},
		kernels.CPU: {"embedding_entry",
			[]string{"#include \"emulator.h\"", "PORT_ENTRY(embedding, EMBED_THREADS, 6)"}, []string{"port.h\""}},
	} {
		text, err := l.Source(target)
		require.NoError(t, err)
		require.Equal(t, c.entry, l.EntryName(target))
		for _, s := range c.has {
			require.Contains(t, text, s)
		}
		for _, s := range c.not {
			require.NotContains(t, text, s)
		}
	}
	_, err = kernels.Launch{File: "none", Kernel: "none"}.Source(kernels.Metal)
	require.EqualError(t, err, `kernels: there is no source "none"`)
	_, err = kernels.Launch{File: "embedding", Kernel: "none"}.Source(kernels.Metal)
	require.EqualError(t, err, `kernels: embedding.metal has no kernel "none"`)
}

// swap gives a launch's text for a target with the kernel's own text replaced.
func swap(t *testing.T, target kernels.Target, text, entry string) string {
	t.Helper()
	l, err := kernels.Embedding{Format: kernels.Format{Bits: 16}, N: 4, K: 64, Multiplier: 1}.Launch(1)
	require.NoError(t, err)
	all, err := l.Source(target)
	require.NoError(t, err)
	prelude, _, _ := strings.Cut(all, "#line 3")
	return prelude + text + entry
}

// TestPlantedFaults shows that the emulator finds what it is there to find.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	const head = "[[max_total_threads_per_threadgroup(64)]]\nkernel void bad(device float* o [[buffer(0)]], uint t [[thread_index_in_threadgroup]]) {\n"
	const entry = "\nextern \"C\" __attribute__((visibility(\"default\"))) void bad_entry(void* const* a) { bad((float*)a[0], PORT_thread_index_in_threadgroup()); }\nPORT_ENTRY(bad, 64, 1)\n"
	for name, c := range map[string]struct {
		body    string
		threads int
		buffers int
		err     string // of every schedule; "" says that outputs differ
	}{
		"divergent simd operation": {"if (t < 40) o[t] = simd_sum(float(t));", 64, 1,
			"simd operation in divergent code"},
		"different operations": {"if (t % 2 == 0) { o[t] = simd_sum(1.0f); } else { o[t] = simd_max(1.0f); }", 64,
			1, "different simd operations meet"},
		"barrier not reached": {"if (t == 7) return;\nthreadgroup_barrier(mem_flags::mem_threadgroup);\no[t] = 1.0f;",
			64, 1, "barrier not reached by all"},
		"different barriers": {"if (t < 32) {\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n} else {\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n}\no[t] = 1.0f;", 64, 1, "different barriers meet"},
		"large threadgroup":  {"o[t % 64] = 1.0f;", 96, 1, "a threadgroup of 96 threads, the kernel allows 64"},
		"large memory": {"TG_ARRAY(float, s, 8193);\ns[t] = 1.0f;\no[t] = s[t];", 64, 1,
			"32772 bytes of threadgroup memory, the limit is 32768"},
		"arguments":       {"o[t] = 1.0f;", 64, 2, "2 arguments, the kernel has 1"},
		"missing barrier": {"TG_ARRAY(float, s, 64);\ns[t] = float(t);\no[t] = s[63 - t];", 64, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := kernels.Launch{Kernel: "bad", Groups: [3]int{1, 1, 1}, Threads: [3]int{c.threads, 1, 1}}
			out := kerneltest.Schedules(t, swap(t, kernels.CPU, head+c.body+"\n}", entry), l,
				[]any{blank(64), blank(64)}[:c.buffers]...)
			same := true
			for _, o := range out {
				if c.err != "" {
					require.ErrorContains(t, o.Err, c.err)
					continue
				}
				require.NoError(t, o.Err)
				same = same && string(o.Buffers[0]) == string(out[0].Buffers[0])
			}
			require.Equal(t, c.err != "", same)
		})
	}
	t.Run("memory that is not set", func(t *testing.T) {
		t.Parallel()
		const body = "TG_ARRAY(float, s, 64);\nif (t != 63) s[t] = 1.0f;\nthreadgroup_barrier(mem_flags::mem_threadgroup);\no[t] = s[t];\n}"
		l := kernels.Launch{Kernel: "bad", Groups: [3]int{1, 1, 1}, Threads: [3]int{64, 1, 1}}
		for _, o := range kerneltest.Schedules(t, swap(t, kernels.CPU, head+body, entry), l, make([]float32, 64)) {
			require.NoError(t, o.Err)
			require.Equal(t, "\xff\xff\xff\xff", string(o.Buffers[0][63*4:]), "NaN")
		}
	})
}

// TestLintOfDevices: the text of the devices' own test is good for Metal.
func TestLintOfDevices(t *testing.T) {
	if !kerneltest.HasLint() {
		t.Skip("there is no clang")
	}
	t.Parallel()
	require.NoError(t, kerneltest.Lint(devicetest.Source(kernels.Metal).Text))
}

// TestLint shows what the reading of Metal's text by clang finds.
func TestLint(t *testing.T) {
	if !kerneltest.HasLint() {
		t.Skip("there is no clang")
	}
	t.Parallel()
	const head = "kernel void k(device float* o [[buffer(0)]], constant int& n [[buffer(1)]], uint t [[thread_index_in_threadgroup]]) {\n"
	for name, c := range map[string]struct{ helper, body, err string }{
		"nothing": {"", "o[t] = float(n);", ""},
		"no address space": {"inline float f(float* p) { return p[0]; }\n", "o[t] = f(o);",
			"no matching function"},
		"another address space": {"inline float f(threadgroup float* p) { return p[0]; }\n", "o[t] = f(o);",
			"no matching function"},
		"array in a helper": {"inline float f(float x) { TG_ARRAY(float, s, 4); s[0] = x; return s[0]; }\n",
			"o[t] = f(1.0f);", "local"},
		"a constant is written":  {"", "n = 3;", "read-only"},
		"max of different types": {"", "o[t] = max(1.0f, 1);", "ambiguous"},
		"exceptions":             {"", "throw 1;", "exceptions"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := kerneltest.Lint(swap(t, kernels.Metal, c.helper+head+c.body+"\n}\n", ""))
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
		})
	}
}
