package tune

import (
	"math/bits"
	"slices"
	"strconv"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// Variants are launches that compute the same result with the same buffers.
type Variants struct {
	// Launches are the variants, the default first.
	Launches []kernels.Launch
	// Near reports whether launches i and j differ in one respect. Nil: all are near each other. Launches that no chain
	// of near ones connects are of different kinds.
	Near func(i, j int) bool
	// InPlace says that they are measured among the kernels of a program, not in a chain of their own.
	InPlace bool
	// Positions are the positions of calls at which they are measured, if their time depends on it. A position may
	// occur several times; the sum of the times decides.
	Positions []int
}

// Key identifies products that get a choice of their own. It contains the default launch, with its number of
// threadgroups rounded up to a power of two, since a launch of more tokens may need another variant. And it contains
// how they are measured, since a chain and a program, or different positions, may favour different variants.
func Key(first kernels.Launch, inPlace bool, positions []int) string {
	groups := first.Groups[0] * first.Groups[1] * first.Groups[2]
	key := first.Key() + " groups<=" + strconv.Itoa(1<<bits.Len(uint(max(1, groups)-1)))
	if inPlace {
		key += " in place"
	}
	for i, at := range positions {
		if i == 0 {
			key += " at"
		}
		key += " " + strconv.Itoa(at)
	}
	return key
}

func (w Variants) key() string { return Key(w.Launches[0], w.InPlace, w.Positions) }

// Find returns the number of the launch that runs the same kernel as other.
func (w Variants) Find(other kernels.Launch) (int, bool) { return w.find(other.Key()) }

// find returns the number of the launch with a key. There may be none, because versions of etc differ in their
// variants.
func (w Variants) find(key string) (int, bool) {
	i := slices.IndexFunc(w.Launches, func(l kernels.Launch) bool { return l.Key() == key })
	return max(i, 0), i >= 0
}

func (w Variants) near(i, j int) bool { return w.Near == nil || w.Near(i, j) }

// Product is a kernel at a shape, to be tuned.
type Product struct {
	Variants
	// Bytes is the number of bytes of weights that a pass of the model reads for it. If the time does not suffice for
	// all products, those that read most come first.
	Bytes int
	// Runs returns the dispatches that measure the product; if it reads weights, they read more than caches hold. With
	// Positions there are equally many for each. Those without a kernel are the product's own: only their Barrier and
	// their buffers, in the order of the kernel's parameters, count, and their outputs may be overwritten. In a chain
	// all dispatches are of this kind. An empty list means that the product cannot be measured. Runs is called only if
	// there is no stored choice.
	Runs func() []device.Dispatch
}
