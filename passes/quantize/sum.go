package quantize

import "math/bits"

// The order in which torch's CPU kernel adds a contiguous row of float32
// (aten/src/ATen/native/cpu/SumKernel.cpp, cascade_sum, on a machine with vectors of 8 lanes):
// blocks of 32 values go to 32 running sums; from 16 blocks on, the sums of so many blocks are
// carried to a second level of sums, from there to a third and a fourth. The levels are added up,
// then the four vectors of 8 lanes, then the 8 lanes from left to right.
const (
	sumLanes  = 32
	sumLevels = 4
	vectorLen = 8
)

// foldLanes adds the running sums of one level.
func foldLanes(lanes *[sumLanes]float32) float32 {
	v := foldVectors(lanes)
	return addLanes(&v)
}

// foldVectors adds the four vectors of running sums.
func foldVectors(lanes *[sumLanes]float32) (v [vectorLen]float32) {
	for i := range v {
		v[i] = lanes[i] + lanes[vectorLen+i] + lanes[2*vectorLen+i] + lanes[3*vectorLen+i]
	}
	return v
}

// addLanes adds the lanes of a vector.
func addLanes(v *[vectorLen]float32) (sum float32) {
	for _, x := range v {
		sum += x
	}
	return sum
}

// cascade adds the blocks of one row. The caller adds a block to level[0] and then calls advance.
type cascade struct {
	level  [sumLevels][sumLanes]float32
	blocks int
	power  int // 2^power blocks or sums of one level make one sum of the next
}

// newCascade returns the cascade for a row of n values, a multiple of 32.
func newCascade(n int) *cascade {
	return &cascade{power: max(4, bits.Len(uint(n/sumLanes-1))/sumLevels)}
}

// advance counts one block and carries full sums upwards.
func (c *cascade) advance() {
	c.blocks++
	for j := 1; j < sumLevels && c.blocks&(1<<(j*c.power)-1) == 0; j++ {
		for i := range sumLanes {
			c.level[j][i] += c.level[j-1][i]
			c.level[j-1][i] = 0
		}
	}
}

// sum returns the sum of the row.
func (c *cascade) sum() float32 {
	for j := 1; j < sumLevels; j++ {
		for i := range sumLanes {
			c.level[0][i] += c.level[j][i]
		}
	}
	return foldLanes(&c.level[0])
}
