package weights

import (
	"cmp"

	"github.com/etc-ml/etc/internal/calibration"
	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/record"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/passes/quantize"
)

// Recipes that have names.
const (
	Default    = "default"
	ExecuTorch = "executorch" // that of ExecuTorch's exporter
)

// Names are the names of options in errors, as --qlinear.
type Names struct {
	Linear, Embedding, Method, Recipe, TargetBits, Calibrate string
}

// Choice says what is asked for. The zero value leaves the weights as they are.
type Choice struct {
	// Linear is the form of linear weights, "none" (or ""), "4w", "8w", "mxfp4", "mxfp8" or "nvfp4", and Embedding that
	// of the embedding, of which there is no "nvfp4".
	Linear, Embedding string
	// Group and EmbeddingGroup are how many weights of a row share a scale; 0 leaves it open.
	Group, EmbeddingGroup int
	// Method is how codes and scales are chosen; "" leaves it open.
	Method string
	// Text says that there is a text, by which some methods choose codes and scales.
	Text bool
	// Recipe is [Default] (as "") or [ExecuTorch].
	Recipe string
	// Names are the names of all that in errors.
	Names Names
}

// defaultGroup is the group size where nothing says another.
const defaultGroup = 64

// wholeRow is the group size of one group a row.
const wholeRow = 0

// Options returns what the build record says of the choice: the form and the groups of each kind of weight, and the
// method.
func (w Choice) Options() record.Options {
	linear, _ := passes.ParseWeights(w.form(w.Linear))
	embedding, _ := passes.ParseWeights(w.form(w.Embedding))
	o := record.Options{Linear: w.form(w.Linear), Embedding: w.form(w.Embedding), Method: w.method(),
		GroupSize: groupOf(linear, w.Group), EmbeddingGroupSize: groupOf(embedding, w.EmbeddingGroup)}
	// In modes without biases all follows from the mode.
	if blockFloat(linear) && (embedding == nil || blockFloat(embedding)) && w.Method == "" && !w.Text {
		o.Method = linear.Method.String()
	}
	if w.Recipe == ExecuTorch && w.EmbeddingGroup == 0 {
		o.EmbeddingGroupSize = wholeRow // the exporter's default
	}
	return o
}

// form returns the name of a form of weights, which is none for "".
func (w Choice) form(value string) string { return cmp.Or(value, "none") }

// method returns the name of the method. Without one, it is auto if there is a text, else best.
func (w Choice) method() string {
	switch {
	case w.Method != "":
		return w.Method
	case w.Text:
		return "auto"
	}
	return quantize.Best.String()
}

// blockFloat reports whether a scheme, nil for none, has codes that are small floats, in groups of a size of their own.
func blockFloat(s *quantize.Scheme) bool { return s != nil && s.Mode != ir.Affine }

// groupOf returns the group size of a scheme, nil for none, where a size, or 0, is asked for.
func groupOf(s *quantize.Scheme, asked int) int {
	switch {
	case asked != 0:
		return asked
	case blockFloat(s):
		return s.GroupSize
	}
	return defaultGroup
}

// MakeRecipe returns the recipe for a checkpoint.
func (w Choice) MakeRecipe(c *loaders.Checkpoint) (none passes.Recipe, err error) {
	method, err := w.parseMethod()
	if err != nil {
		return none, err
	}
	linear, err := w.scheme(w.Names.Linear, w.Linear, w.Group, method)
	if err != nil {
		return none, err
	}
	embedding, err := w.embedding(method)
	if err != nil {
		return none, err
	}
	if w.Recipe != ExecuTorch {
		return passes.DefaultRecipe(linear, embedding, c.Sensitive()...), nil
	}
	if w.Method != "" {
		return none, kind.Usagef("%s %s with %s executorch, which has methods of its own", w.Names.Method, w.Method,
			w.Names.Recipe)
	}
	for _, s := range []*quantize.Scheme{linear, embedding} {
		if blockFloat(s) {
			return none, kind.Usagef("%s with %s executorch: ExecuTorch's exporter has 4w and 8w", s.Mode, w.Names.Recipe)
		}
	}
	if embedding != nil && w.EmbeddingGroup == 0 {
		embedding.GroupSize = wholeRow
	}
	style := passes.ScaleOnly
	if c.ExporterUsesMinMax() {
		style = passes.MinMax
	}
	r, err := passes.ExecuTorchRecipe(style, linear, embedding)
	return r, kind.Of(kind.ErrUsage, err)
}

// leastBits and mostBits bound the bits that [Choice.Allocate] takes: 4 bits with a scale and a bias for 128 weights,
// and 32 bits.
const leastBits, mostBits = 4.25, 32

// Allocate returns the recipe by which linear weights have so many bits on average, by measured error, in the place of
// [Choice.Linear]: the choices of each are 4 bits, 8 bits or the weight as it is, in groups of the size that is asked
// for, else of any size.
func (w Choice) Allocate(c *loaders.Checkpoint, bits float64) (none passes.Recipe, _ *passes.Allocation, err error) {
	if !(bits >= leastBits && bits <= mostBits) {
		return none, nil, kind.Usagef("%s %g, want %g to %g", w.Names.TargetBits, bits, leastBits, float64(mostBits))
	}
	method, err := w.parseMethod()
	if err != nil {
		return none, nil, err
	}
	if method == quantize.HQQ || method.Calibrated() && !w.Text {
		return none, nil, kind.Usagef("%s with %s %s, which looks at whole matrices; want best or minmax, or a text to "+
			"measure the damage to predictions by: %s default", w.Names.TargetBits, w.Names.Method, w.method(),
			w.Names.Calibrate)
	}
	embedding, err := w.embedding(method)
	if err != nil {
		return none, nil, err
	}
	groups := []int{32, 64, 128}
	if w.Group != 0 {
		groups = []int{w.Group}
	}
	a := &passes.Allocation{BitsPerWeight: bits}
	for _, codes := range []int{4, 8} {
		for _, group := range groups {
			a.Schemes = append(a.Schemes, quantize.Scheme{Method: method, Bits: codes, GroupSize: group})
		}
	}
	return passes.AllocationRecipe(&quantize.Scheme{Method: method, Bits: 8, GroupSize: groupOf(nil, w.Group)}, embedding,
		c.Sensitive()...), a, nil
}

// parseMethod finds the method.
func (w Choice) parseMethod() (quantize.Method, error) {
	name := w.method()
	for _, m := range []quantize.Method{quantize.Best, quantize.MinMax, quantize.HQQ} {
		if name == m.String() {
			return m, nil
		}
	}
	if m, ok := calibration.Methods[name]; ok {
		return m, nil
	}
	return 0, kind.Usagef("%s %q, want best, minmax, hqq, auto, learned, gptq or weighted", w.Names.Method, name)
}

// embedding returns the scheme of the embedding, nil for as it is. Its rows are taken, not multiplied: there is no
// input to fit it to.
func (w Choice) embedding(method quantize.Method) (*quantize.Scheme, error) {
	s, err := w.scheme(w.Names.Embedding, w.Embedding, w.EmbeddingGroup, method)
	if s != nil && method.Calibrated() {
		s.Method = quantize.Best
	}
	return s, err
}

// scheme returns the scheme of one kind of weights, nil for as they are. name is that of the option.
func (w Choice) scheme(name, value string, group int, method quantize.Method) (*quantize.Scheme, error) {
	s, ok := passes.ParseWeights(w.form(value))
	linear := name == w.Names.Linear
	switch {
	case linear && !ok:
		return nil, kind.Usagef("%s %q, want none, 4w, 8w, mxfp4, mxfp8 or nvfp4", name, value)
	case !ok || s != nil && s.Mode == ir.NVFP4 && !linear:
		return nil, kind.Usagef("%s %q, want none, 4w, 8w, mxfp4 or mxfp8", name, value)
	case s == nil:
		return nil, nil
	case s.Mode == ir.Affine:
		s.Method, s.GroupSize = method, groupOf(nil, group)
		return s, nil
	}
	if group != 0 && group != s.GroupSize {
		return nil, kind.Usagef("%s %s with groups of %d: its groups are of %d", name, value, group, s.GroupSize)
	}
	if w.Method != "" { // else as MLX chooses scales
		s.Method = method
	}
	if s.Method == quantize.HQQ {
		return nil, kind.Usagef("%s %s with %s hqq, which has scales and codes of mode affine; want minmax or best", name,
			value, w.Names.Method)
	}
	return s, nil
}
