package compare

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
)

// Reader reads the weights of a program by the names that they have in the checkpoint's module. It is safe for
// concurrent use.
type Reader struct{ constants map[string]*ir.Constant }

// NewReader makes the reader of a module that a program was lifted to.
func NewReader(file *ir.Module) *Reader {
	r := &Reader{map[string]*ir.Constant{}}
	for _, c := range file.Constants {
		r.constants[c.Name] = c
	}
	return r
}

// Vector returns the program's data for a constant that is not quantized, nil where it has none of that name and
// shape in floating point.
func (r *Reader) Vector(c *ir.Constant) ir.Data {
	x := r.constants[c.Name]
	if x == nil || x.Data == nil || !x.Data.DType().IsFloat() || !slices.Equal(x.Data.Shape(), c.Data.Shape()) {
		return nil
	}
	return x.Data
}

// Matrix opens what the program has for a matrix of the checkpoint, or a stack of them: a function that gives rows
// [first, first+n), one below the other, in float32. A matrix that is a table of embeddings too may be stored once for
// each use; embedding says for which.
func (r *Reader) Matrix(c *ir.Constant, embedding bool) (func(first, n int) ([]float32, error), error) {
	shape := c.Data.Shape()
	cols := shape[len(shape)-1]
	dense := r.Vector(c)
	name := c.Name
	if again := name + ".2"; !embedding && r.constants[again+packedSuffix] != nil {
		name = again // the embedding comes first
	}
	packed, scales, biases := r.constants[name+packedSuffix], r.constants[name+scalesSuffix],
		r.constants[name+biasesSuffix]
	if packed == nil || scales == nil || embedding && dense != nil {
		if dense == nil {
			return nil, fmt.Errorf("the program has no weight %s of shape %v, neither as it is nor quantized", c.Name,
				shape)
		}
		return func(first, n int) ([]float32, error) {
			v, err := readFloats(dense, int64(first)*cols, int64(n)*cols)
			if err != nil {
				return nil, fmt.Errorf("constant %s: %w", c.Name, err)
			}
			return v, nil
		}, nil
	}
	q := &quantized{packed: packed.Data, scales: scales.Data}
	if biases != nil {
		q.biases = biases.Data
	} else if !q.withoutBiases(scales) {
		return nil, fmt.Errorf("constant %s has packed codes but no biases", name)
	}
	if err := q.open(name, shape); err != nil {
		return nil, err
	}
	return func(first, n int) ([]float32, error) { return q.read(name, int64(first), int64(n)) }, nil
}
