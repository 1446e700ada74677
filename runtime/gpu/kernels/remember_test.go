package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRememberedWays: products that differ in anything that their variants depend on are not taken for each other, nor
// are experts.
func TestRememberedWays(t *testing.T) {
	hopper := Machine{Target: CUDA, Cores: 132, TransferMemory: 225 << 10, TransferLeast: 16 << 20}
	format := Format{Bits: 4, Group: 64}
	type product struct {
		of      Vectors
		machine Machine
		planes  int
		rows    []int
		direct  bool
	}
	large := product{Vectors{Format: format, K: 4096, M: 1, Norm: NormF32}, hopper, 1, []int{16384}, true}
	small := product{Vectors{Format: format, K: 2048, M: 1, Norm: NormF32}, hopper, 1, []int{512}, true}
	changed := func(p product, change func(*product)) product {
		change(&p)
		return p
	}
	products := map[string]product{
		"large": large, "small": small,
		"columns":      changed(large, func(p *product) { p.of.K = 8192 }),
		"vectors":      changed(large, func(p *product) { p.of.M = 4 }),
		"format":       changed(large, func(p *product) { p.of.Bits = 8 }),
		"a sum":        changed(large, func(p *product) { p.of.Sum = &VectorSum{} }),
		"machine":      changed(large, func(p *product) { p.machine.Target = Metal }),
		"cores":        changed(large, func(p *product) { p.machine.Cores = 64 }),
		"planes":       changed(large, func(p *product) { p.planes = 2 }),
		"rows":         changed(large, func(p *product) { p.rows = []int{8192} }),
		"more weights": changed(small, func(p *product) { p.rows = []int{512, 512} }),
		"others":       changed(small, func(p *product) { p.rows = []int{512, 1024} }),
		"not direct":   changed(small, func(p *product) { p.direct = false }),
	}
	experts := Experts{Format: format, Count: 256, Top: 8, Hidden: 2048, Inner: 512, Activation: SiLU,
		Router: Router{Experts: 256, Top: 8, Normalize: true, Scale: 1}}
	shared, shorter := experts, experts
	shared.Shared, shorter.Hidden = true, 1024
	for range 2 {
		for name, p := range products {
			require.Equal(t, p.of.makeVariants(p.machine, p.planes, p.rows, p.direct),
				p.of.variants(p.machine, p.planes, p.rows, p.direct), name)
		}
		for _, e := range []Experts{experts, shared, shorter} {
			for _, m := range []Machine{hopper, {Target: Metal}} {
				up, down := e.Tunings(m)
				wantUp, wantDown := e.makeVariants(m)
				require.Equal(t, wantUp, up)
				require.Equal(t, wantDown, down)
			}
		}
	}
	// Two structs that say the same are one product.
	again := Vectors{Format: format, K: 4096, M: 1, Sum: &VectorSum{Eps: 2}}
	first := again.variants(hopper, 1, []int{16384}, true)
	again.Sum = &VectorSum{Eps: 2}
	require.Same(t, &first[0], &again.variants(hopper, 1, []int{16384}, true)[0])
}
