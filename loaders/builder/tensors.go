package builder

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
)

// Tensor is a tensor of a checkpoint.
type Tensor struct {
	Name  string // as the checkpoint has it
	DType string // as the checkpoint spells it, for messages
	Shape []int64
	Data  ir.Data // nil where the graph has no such dtype

	// Quantized is set if the checkpoint stores the matrix quantized. Shape is then the shape of the matrix, and Data
	// is nil.
	Quantized *Quantized
	// As is the name that transformers gives to the tensor, where the checkpoint's format has other names.
	As string
}

// Tensors gives a builder the tensors of a checkpoint by their names in the language model
// ("layers.0.input_layernorm.weight"), whatever prefix the checkpoint has. It collects what is missing or wrong, so
// that [Tensors.Err] can list everything.
type Tensors struct {
	// Activations is the dtype of activations and caches; the zero value is what the embedding's dtype
	// implies ([ActivationDType]).
	Activations ir.DType
	// Multipliers tells that weights of norms are stored as what the norms multiply by, though the model's
	// authors store the difference from one.
	Multipliers bool
	// Names is a prefix for the names of the weights, for a model other than the main one.
	Names string

	byName   map[string]*entry
	order    []*entry
	prefix   string // of the language model in this checkpoint
	skipped  map[string]int
	problems []Problem
}

type entry struct {
	Tensor
	inner   string
	used    bool
	skipped bool // by a builder: not to be read
}

// NewTensors indexes the tensors of a checkpoint, in the checkpoint's order.
func NewTensors(list []Tensor) *Tensors {
	return newTensors(list, func(t *Tensors, inner string) bool {
		kind, other := otherModule(inner)
		if other {
			t.skipped[kind]++
		}
		return !other
	})
}

// NewMultiTokenTensors indexes the tensors of multi-token prediction alone, by names that begin with "mtp.".
func NewMultiTokenTensors(list []Tensor) *Tensors {
	t := newTensors(list, func(_ *Tensors, inner string) bool {
		kind, _ := otherModule(inner)
		return kind == MultiToken
	})
	t.prefix = ""
	return t
}

// Len returns the number of tensors.
func (t *Tensors) Len() int { return len(t.order) }

// newTensors indexes the tensors that wanted takes.
func newTensors(list []Tensor, wanted func(t *Tensors, inner string) bool) *Tensors {
	t := &Tensors{byName: map[string]*entry{}, skipped: map[string]int{}, prefix: "model."}
	found := false
	for _, tensor := range list {
		prefix, inner := splitName(tensor.Name)
		if tensor.As != "" {
			_, inner = splitName(tensor.As)
		}
		if !wanted(t, inner) {
			continue
		}
		e := &entry{Tensor: tensor, inner: inner}
		t.order = append(t.order, e)
		if first := t.byName[inner]; first != nil {
			e.used = true // not an unknown tensor as well
			t.problem(tensor.Name, "one tensor of this name in the language model", "it beside "+first.Name)
			continue
		}
		t.byName[inner] = e
		if !found && strings.HasPrefix(inner, "layers.") {
			t.prefix, found = prefix, true
		}
	}
	return t
}

// Has reports whether the checkpoint has a tensor of that name in the language model.
func (t *Tensors) Has(name string) bool { return t.byName[name] != nil }

// Skip leaves tensors out that a checkpoint may have and the model does not use; they are counted under kind.
func (t *Tensors) Skip(kind string, names ...string) {
	for _, name := range names {
		if e := t.byName[name]; e != nil && !e.used {
			e.used, e.skipped = true, true
			t.skipped[kind]++
		}
	}
}

// HasUnder reports whether the checkpoint has a tensor whose name begins so.
func (t *Tensors) HasUnder(prefix string) bool {
	return slices.ContainsFunc(t.order, func(e *entry) bool { return strings.HasPrefix(e.inner, prefix) })
}

// Weight returns the tensor of that name, which must have that shape and a dtype of bf16, f16 or f32. Where
// it does not, the problem is noted and the result has the shape, but no bytes.
func (t *Tensors) Weight(name string, shape ...int) Weight {
	dims := int64s(shape)
	expected := "BF16, F16 or F32 " + formatDims(dims)
	e := t.byName[name]
	if e == nil {
		t.problem(t.fullName(name), expected, "none")
		return missing(t.Names+name, dims)
	}
	e.used = true
	if !supported(e.Data) || !slices.Equal(e.Shape, dims) {
		t.problem(e.Name, expected, e.DType+" "+formatDims(e.Shape))
		return missing(t.Names+name, dims)
	}
	return Weight{Name: t.Names + name, Data: e.Data}
}

// maxPermutation bounds the elements of a tensor that is read when a checkpoint is opened.
const maxPermutation = 1 << 24

// Permutation returns the tensor of that name, which must hold every integer from 0 to n-1 once, as i64 [n]. The
// error is one of reading it; what does not fit is noted.
func (t *Tensors) Permutation(name string, n int) (Weight, error) {
	expected := fmt.Sprintf("I64 or I32 [%d] with every integer below %d once", n, n)
	none := Weight{Name: t.Names + name, Data: absent{ir.I64, []int64{int64(n)}}}
	e := t.byName[name]
	if e == nil {
		t.problem(t.fullName(name), expected, "none")
		return none, nil
	}
	e.used = true
	isInts := e.Data != nil && (e.Data.DType() == ir.I64 || e.Data.DType() == ir.I32)
	if !isInts || !slices.Equal(e.Shape, []int64{int64(n)}) || n > maxPermutation {
		t.problem(e.Name, expected, e.DType+" "+formatDims(e.Shape))
		return none, nil
	}
	raw, err := ir.ReadData(e.Data)
	if err != nil {
		return none, fmt.Errorf("tensor %s: %w", e.Name, err)
	}
	size, seen := e.Data.DType().Size(), make([]bool, n)
	for i := range n {
		v := int64(int32(binary.LittleEndian.Uint32(raw[i*size:])))
		if size == 8 {
			v = int64(binary.LittleEndian.Uint64(raw[i*size:]))
		}
		if v < 0 || v >= int64(n) || seen[v] {
			t.problem(e.Name, expected, fmt.Sprintf("%d at index %d", v, i))
			return none, nil
		}
		seen[v] = true
	}
	d := e.Data
	if size == 4 {
		d = ir.Map(d, ir.I64, "i64", func(dst, src []byte) {
			clear(dst)
			for i := range len(src) / 4 {
				copy(dst[8*i:8*i+4], src[4*i:]) // no value is negative
			}
		})
	}
	return Weight{Name: t.Names + name, Data: d}, nil
}

func missing(name string, dims []int64) Weight {
	return Weight{Name: name, Data: absent{ir.BF16, dims}}
}

// Matrix is [Tensors.Weight] for the matrix of a linear, of an embedding or of experts, which the checkpoint
// may hold quantized.
func (t *Tensors) Matrix(name string, shape ...int) Weight {
	if e := t.byName[name]; e != nil && e.Quantized != nil && slices.Equal(e.Shape, int64s(shape)) {
		e.used = true
		return Weight{Name: t.Names + name, Quantized: e.Quantized}
	}
	return t.Weight(name, shape...)
}

// HasShape reports whether the checkpoint has a tensor of that name and shape.
func (t *Tensors) HasShape(name string, shape ...int) bool {
	e := t.byName[name]
	return e != nil && slices.Equal(e.Shape, int64s(shape))
}

// ActivationsFor returns the dtype of activations and caches of a model with that embedding.
func (t *Tensors) ActivationsFor(embedding Weight) ir.DType {
	if t.Activations.IsFloat() {
		return t.Activations
	}
	return ActivationDType(embedding.DType())
}

func supported(d ir.Data) bool {
	return d != nil && (d.DType() == ir.BF16 || d.DType() == ir.F16 || d.DType() == ir.F32)
}

// Stack returns tensors of one shape and dtype as one with a new first axis: the matrices of all experts,
// which a checkpoint may hold one by one. name makes the name of number i.
func (t *Tensors) Stack(as string, count int, name func(i int) string, shape ...int) Weight {
	parts := make([]Weight, count)
	for i := range parts {
		parts[i] = t.Matrix(name(i), shape...)
		if _, missing := parts[i].Data.(absent); !missing && !sameForm(parts[i], parts[0]) {
			t.problem(t.byName[name(i)].Name, "the dtype of the first, "+form(parts[0]), form(parts[i]))
		}
		if !sameForm(parts[i], parts[0]) {
			parts[i] = parts[0] // for the shape only: there is a problem already
		}
	}
	stack := func(of func(Weight) ir.Data) ir.Data {
		list := make([]ir.Data, count)
		for i, p := range parts {
			list[i] = of(p)
		}
		return ir.Stack(list...)
	}
	q := parts[0].Quantized
	if q == nil {
		return Weight{Name: as, Data: stack(func(w Weight) ir.Data { return w.Data })}
	}
	out := &Quantized{WeightForm: q.WeightForm,
		Packed: stack(func(w Weight) ir.Data { return w.Quantized.Packed }),
		Scales: stack(func(w Weight) ir.Data { return w.Quantized.Scales })}
	if q.Biases != nil {
		out.Biases = stack(func(w Weight) ir.Data { return w.Quantized.Biases })
	}
	return Weight{Name: as, Quantized: out}
}

// form words what sameForm compares.
func form(w Weight) string {
	if q := w.Quantized; q != nil && q.Mode != ir.Affine {
		return q.String()
	}
	if q := w.Quantized; q != nil {
		return fmt.Sprintf("%d bits in groups of %d, scales in %s", q.Bits, q.Group, q.Scales.DType())
	}
	return w.Data.DType().String()
}

// fullName returns the name that this checkpoint would give to a tensor of the language model.
func (t *Tensors) fullName(name string) string {
	if name == Head {
		return name
	}
	return t.prefix + name
}

func (t *Tensors) problem(tensor, expected, found string) {
	t.problems = append(t.problems, Problem{tensor, expected, found})
}

// Skipped counts the tensors that are left out, by kind: [Vision], [Audio], [MultiToken], [SharedKV].
func (t *Tensors) Skipped() map[string]int { return t.skipped }

// Used lists the full names of the tensors that have been asked for, in the checkpoint's order.
func (t *Tensors) Used() []string {
	var names []string
	for _, e := range t.order {
		if e.used && !e.skipped {
			names = append(names, e.Name)
		}
	}
	return names
}

// Err returns a [*TensorError] with everything that does not fit, after a builder has asked for all its
// tensors; nil if all is well. source and architecture are for the message.
func (t *Tensors) Err(source, architecture string) error {
	problems := slices.Clone(t.problems)
	for _, e := range t.order {
		if !e.used {
			problems = append(problems, Problem{e.Name, "no such tensor", e.DType + " " + formatDims(e.Shape)})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &TensorError{source, architecture, problems}
}

// maxListed bounds the tensors that the text of an error lists; a file of another model has them by the thousand.
const maxListed = 100

// TensorError lists every tensor of a checkpoint that is missing, unknown or of a wrong shape or dtype.
type TensorError struct {
	Source       string // the checkpoint
	Architecture string
	Problems     []Problem
}

// Problem says what is wrong about one tensor.
type Problem struct{ Tensor, Expected, Found string }

func (e *TensorError) Error() string {
	var b strings.Builder
	noun := "tensors do"
	if len(e.Problems) == 1 {
		noun = "tensor does"
	}
	fmt.Fprintf(&b, "%s: %d %s not fit config.json, which describes a %s; use the config.json that belongs to the "+
		"weights, and complete files:", e.Source, len(e.Problems), noun, e.Architecture)
	for i, p := range e.Problems {
		if i == maxListed && len(e.Problems) > maxListed+1 {
			fmt.Fprintf(&b, "\n\tand %d more", len(e.Problems)-maxListed)
			break
		}
		fmt.Fprintf(&b, "\n\t%s: expected %s, found %s", p.Tensor, p.Expected, p.Found)
	}
	return b.String()
}

// absent stands for the bytes of a tensor that is not there or not as it must be.
type absent struct {
	dtype ir.DType
	shape []int64
}

func (a absent) DType() ir.DType    { return a.dtype }
func (a absent) Shape() []int64     { return a.shape }
func (a absent) Provenance() string { return "absent" }
func (a absent) ReadAt([]byte, int64) (int, error) {
	return 0, fmt.Errorf("a tensor that the checkpoint lacks has no bytes")
}

func int64s(dims []int) []int64 {
	out := make([]int64, len(dims))
	for i, d := range dims {
		out[i] = int64(d)
	}
	return out
}

// formatDims writes a shape as [2,3].
func formatDims(dims []int64) string { return strings.ReplaceAll(fmt.Sprint(dims), " ", ",") }
