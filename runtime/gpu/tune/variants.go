package tune

import (
	"math/bits"
	"slices"
	"strconv"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// Variants are launches that do the same with the same buffers.
type Variants struct {
	// Launches has the default first.
	Launches []kernels.Launch
	// Near reports whether launches i and j differ in one respect; nil where all of them are near each other. Launches
	// that no chain of near ones joins are of different kinds.
	Near func(i, j int) bool
	// InPlace says that they are measured in their place in a program, else in a chain of themselves.
	InPlace bool
	// Positions of a call are where they are measured, if their time depends on that, some of them several times: the
	// sum chooses.
	Positions []int
}

// Key tells products apart that are tuned each on its own: by the default launch, with its number of threadgroups up to
// the next power of two, since a launch of more tokens may want another variant, and by how they are measured, since
// what is best in a chain may not be in a program, nor what is best at some positions at others.
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

// Find is the number of the launch whose kernel is that of another.
func (w Variants) Find(other kernels.Launch) (int, bool) { return w.find(other.Key()) }

// find is the number of the launch of a key. There may be none: versions of etc differ in what they try.
func (w Variants) find(key string) (int, bool) {
	i := slices.IndexFunc(w.Launches, func(l kernels.Launch) bool { return l.Key() == key })
	return max(i, 0), i >= 0
}

func (w Variants) near(i, j int) bool { return w.Near == nil || w.Near(i, j) }

// Product is a kernel at a shape that is to be tuned.
type Product struct {
	Variants
	// Bytes are what a pass of the model reads of weights for it: where the time does not suffice for all products,
	// it goes to those that read most.
	Bytes int
	// Runs gives the dispatches that measure it, which read more weights than caches hold, if it reads weights; for
	// each of Positions as many. Those without a kernel are the product's: of them only Barrier and the buffers count,
	// in the order of the kernel's, and it may write what it writes there. In a chain all of them are. None at all
	// means that it cannot be measured. It is called if the choice was not made before.
	Runs func() []device.Dispatch
}
