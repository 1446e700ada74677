package passes

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes/quantize"
)

// The text form of a recipe has one rule a line, of fields between blanks; the first rule that matches a
// weight decides, and a weight that no rule matches stays as it is:
//
//	# kind     pattern              weights  options
//	linear     *.mlp.gate.weight    8w
//	linear     *.down_proj*         8w       group=32 layers=0-3,39
//	linear     *                    4w       group=64 method=best
//	embedding  *                    8w
//	constants  bf16
//
// kind is linear, embedding, or draft for linears that only a draft has. pattern is matched against the weight's whole
// name, as [Rule.Pattern] says. weights are none, 4w, 8w, mxfp4, mxfp8 or nvfp4. group is 32, 64 or 128, or row for one
// group a row (hqq only); 64 where it is not given. method is best, minmax or hqq, or weighted, gptq or learned, which
// need a text to calibrate with; best where it is not given. mxfp4 and mxfp8 have groups of 32, nvfp4 of 16 (no
// embedding has it), and the methods minmax, which is MLX's own and stands where none is given, and best. layers are
// numbers and ranges of layers. "constants bf16" rounds the constants that are no quantized weights. A
// # begins a comment.

// limits of a recipe's text.
const (
	maxRecipeBytes = 1 << 20
	maxRecipeLayer = 1 << 20
)

// ParseRecipe reads the text form of a recipe. Errors name the line.
func ParseRecipe(name, text string) (Recipe, error) {
	r := Recipe{Name: name}
	if len(text) > maxRecipeBytes {
		return r, fmt.Errorf("recipe %s: %d bytes, want at most %d", name, len(text), maxRecipeBytes)
	}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if err := r.parseLine(fields); err != nil {
			return r, fmt.Errorf("recipe %s, line %d: %w", name, i+1, err)
		}
	}
	if len(r.Rules) == 0 && !r.RoundConstants {
		return r, fmt.Errorf("recipe %s: no rules, want lines like \"linear * 4w group=64\"", name)
	}
	return r, nil
}

func (r *Recipe) parseLine(fields []string) error {
	if fields[0] == "constants" {
		if len(fields) != 2 || fields[1] != "bf16" {
			return fmt.Errorf("%q, want \"constants bf16\"", strings.Join(fields, " "))
		}
		r.RoundConstants = true
		return nil
	}
	var rule Rule
	switch fields[0] {
	case "linear":
		rule.Kind = LinearWeight
	case "embedding":
		rule.Kind = EmbeddingWeight
	case "draft":
		rule.Kind = DraftWeight
	default:
		return fmt.Errorf("a line begins with %q, want linear, embedding, draft or constants", fields[0])
	}
	if len(fields) < 3 {
		return fmt.Errorf("%d fields, want a kind, a pattern, and %s", len(fields), weightForms)
	}
	if rule.Pattern = fields[1]; rule.Pattern == "*" {
		rule.Pattern = ""
	} else if _, err := path.Match(rule.Pattern, ""); err != nil {
		return fmt.Errorf("pattern %q: %w", rule.Pattern, err)
	}
	var ok bool
	if rule.Scheme, ok = ParseWeights(fields[2]); !ok {
		return fmt.Errorf("weights %q, want %s", fields[2], weightForms)
	}
	seen := map[string]bool{}
	for _, field := range fields[3:] {
		key, value, ok := strings.Cut(field, "=")
		if !ok || seen[key] {
			return fmt.Errorf("option %q, want each of group=N, method=M and layers=L once at most", field)
		}
		seen[key] = true
		if err := rule.parseOption(key, value); err != nil {
			return err
		}
	}
	if err := rule.checkFloats(); err != nil {
		return err
	}
	if s := rule.Scheme; s != nil && s.GroupSize == 0 && s.Method != quantize.HQQ {
		return fmt.Errorf("group=row with method %s; only hqq has one group a row", s.Method)
	}
	r.Rules = append(r.Rules, rule)
	return nil
}

// checkFloats checks what codes that are small floats have.
func (rule *Rule) checkFloats() error {
	s := rule.Scheme
	if s == nil || s.Mode == ir.Affine {
		return nil
	}
	if plain, _ := ParseWeights(s.Mode.String()); s.GroupSize != plain.GroupSize || s.Method == quantize.HQQ {
		return fmt.Errorf("%s with group=%d method=%s, want groups of %d and minmax or best", s.Mode, s.GroupSize,
			s.Method, plain.GroupSize)
	}
	if s.Mode == ir.NVFP4 && rule.Kind == EmbeddingWeight {
		return fmt.Errorf("%s of an embedding, want none, 4w, 8w, mxfp4 or mxfp8", s.Mode)
	}
	return nil
}

// weightForms are the names that ParseWeights knows, for messages.
const weightForms = "none, 4w, 8w, mxfp4, mxfp8 or nvfp4"

// ParseWeights returns the scheme for a name in a recipe or a flag: none (nil), 4w, 8w, mxfp4, mxfp8 or nvfp4, with the
// default group size and method. It returns false for other names.
func ParseWeights(name string) (*quantize.Scheme, bool) {
	switch name {
	case "none":
		return nil, true
	case "4w", "8w":
		return &quantize.Scheme{Method: quantize.Best, Bits: int(name[0] - '0'), GroupSize: 64}, true
	case "mxfp4":
		return &quantize.Scheme{Method: quantize.MinMax, Mode: ir.MXFP4, Bits: 4, GroupSize: 32}, true
	case "mxfp8":
		return &quantize.Scheme{Method: quantize.MinMax, Mode: ir.MXFP8, Bits: 8, GroupSize: 32}, true
	case "nvfp4":
		return &quantize.Scheme{Method: quantize.MinMax, Mode: ir.NVFP4, Bits: 4, GroupSize: 16}, true
	}
	return nil, false
}

func (rule *Rule) parseOption(key, value string) (err error) {
	if key == "layers" {
		rule.Layers, err = parseLayers(value)
		return err
	}
	s := rule.Scheme
	if s == nil && (key == "group" || key == "method") {
		return fmt.Errorf("option %s=%s of weights that are not quantized", key, value)
	}
	switch key {
	case "group":
		switch value {
		case "32", "64", "128":
			s.GroupSize, _ = strconv.Atoi(value)
		case "16":
			if s.Mode != ir.NVFP4 {
				return fmt.Errorf("group=16 of %s, want 32, 64, 128 or row; nvfp4 has groups of 16", s.Mode)
			}
		case "row":
			s.GroupSize = 0
		default:
			return fmt.Errorf("group=%s, want 32, 64, 128 or row", value)
		}
	case "method":
		switch value {
		case "best":
			s.Method = quantize.Best
		case "minmax":
			s.Method = quantize.MinMax
		case "hqq":
			s.Method = quantize.HQQ
		case "weighted":
			s.Method = quantize.Weighted
		case "gptq":
			s.Method = quantize.GPTQ
		case "learned":
			s.Method = quantize.Learned
		default:
			return fmt.Errorf("method=%s, want best, minmax or hqq, or weighted, gptq or learned", value)
		}
	default:
		return fmt.Errorf("option %s=%s, want group, method or layers", key, value)
	}
	return nil
}

// LayerRange is the layers from First to Last, both included.
type LayerRange struct{ First, Last int }

// parseLayers reads numbers and ranges: 0-3,39.
func parseLayers(text string) ([]LayerRange, error) {
	var ranges []LayerRange
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || a < 0 || b < a || b > maxRecipeLayer {
			return nil, fmt.Errorf("layers=%s: %q, want numbers and ranges of layers, as 0-3,39", text, part)
		}
		ranges = append(ranges, LayerRange{a, b})
	}
	return ranges, nil
}

// String returns the recipe's text form, as [ParseRecipe] reads it. A recipe with a method that has no
// name there (torchao's, of recipe executorch) has a text that is only to look at.
func (r Recipe) String() string {
	lines := append([]string{"# recipe " + strings.Map(oneLine, r.Name)}, r.Lines()...)
	return strings.Join(lines, "\n") + "\n"
}

// Lines returns the lines of the text form.
func (r Recipe) Lines() []string {
	width := len("*")
	for _, rule := range r.Rules {
		width = max(width, len(rule.Pattern))
	}
	lines := []string{}
	for _, rule := range r.Rules {
		lines = append(lines, rule.text(width))
	}
	if r.RoundConstants {
		lines = append(lines, "constants bf16")
	}
	return lines
}

func oneLine(c rune) rune {
	if c < ' ' {
		return ' '
	}
	return c
}

func (rule Rule) text(width int) string {
	kind, pattern, weights := "linear", rule.Pattern, "none"
	switch rule.Kind {
	case EmbeddingWeight:
		kind = "embedding"
	case DraftWeight:
		kind = "draft"
	}
	if pattern == "" {
		pattern = "*"
	}
	if s := rule.Scheme; s != nil {
		group := "row"
		if s.GroupSize != 0 {
			group = strconv.Itoa(s.GroupSize)
		}
		weights = fmt.Sprintf("%dw group=%s method=%s", s.Bits, group, s.Method)
		if s.Mode != ir.Affine {
			weights = fmt.Sprintf("%s method=%s", s.Mode, s.Method)
		}
	}
	line := fmt.Sprintf("%-9s %-*s %s", kind, width, pattern, weights)
	for i, l := range rule.Layers {
		line += []string{" layers=", ","}[min(i, 1)] + strconv.Itoa(l.First)
		if l.Last != l.First {
			line += "-" + strconv.Itoa(l.Last)
		}
	}
	return line
}
