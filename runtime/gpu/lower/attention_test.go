package lower_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
	"github.com/etc-ml/etc/runtime/plan"
)

// attend is attention over a linear cache of queries that are normalized and rotated, with keys and values that were
// written just before, times a gate. HEADS stands for what heads are made of.
const attend = `module {
  symbol T [1, 32]
  symbol p [-2147483648, 2147483647]
  constant @weight : f32[64]
  buffer @k : bf16[1,2,32,64]
  buffer @v : bf16[1,2,32,64]
  entry forward(%q: f32[1,T,4,64], %kx: f32[1,T,2,64], %vx: f32[1,T,2,64], %gate: f32[1,T,256], %at: i64[1]) {
    %0 = item_int(x=%at) : int(p)
    %1 = sym_size(a=%q) {dim=1} : int(T)
    %2 = add_int(a=%0, b=%1) : int(T+p)
    %3 = rms_norm(x=%q, weight=@weight) {eps=1e-06} : f32[1,T,4,64]
    %4 = transpose(x=%3) {perm=[0, 2, 1, 3]} : f32[1,4,T,64]
    %5 = transpose(x=%kx) {perm=[0, 2, 1, 3]} : f32[1,2,T,64]
    %6 = transpose(x=%vx) {perm=[0, 2, 1, 3]} : f32[1,2,T,64]
    %7 = rope(x=%4, offset=%0) {dims=64, base=10000.0} : f32[1,4,T,64]
    %8 = rope(x=%5, offset=%0) {dims=64, base=10000.0} : f32[1,2,T,64]
    buffer_slice_update @k(update=%8, axis=2, start=%0, stop=%2)
    buffer_slice_update @v(update=%6, axis=2, start=%0, stop=%2)
    %9 = load @k() : bf16[1,2,32,64]
    %10 = load @v() : bf16[1,2,32,64]
    %11 = cached_attention(q=%7, k=%9, v=%10, position=%0) {scale=0.125} : f32[1,4,T,64]
    %12 = transpose(x=%11) {perm=[0, 2, 1, 3]} : f32[1,T,4,64]
    %13 = reshape(x=%12, shape=[1, -1, 256]) : f32[1,T,256]
    %14 = glu(gate=%gate, x=%13) {activation="sigmoid"} : f32[1,T,256]
    return RESULTS
  }
}
`

// lowered gives the operations of a module on a device, each a line of the entry.
func lowered(t *testing.T, text string, tokens int, target *lower.Target) []string {
	t.Helper()
	m, err := ir.Parse(text)
	require.NoError(t, err)
	m, err = lower.Run(m, plan.Shapes(m, tokens), target, passes.Control{Verify: true})
	require.NoError(t, err)
	return opsOf(m)
}

func opsOf(m *ir.Module) (lines []string) {
	for _, op := range m.Entry.Body.Ops {
		lines = append(lines, ir.Describe(m, op))
	}
	return lines
}

// names are the operations that are neither views nor integers.
func names(lines []string) (out []string) {
	for _, line := range lines {
		if _, rest, ok := strings.Cut(line, " = "); ok {
			line = rest
		}
		name, _, _ := strings.Cut(line, "(")
		name, _, _ = strings.Cut(name, " ")
		if def := ir.LookupOp(name); def != nil && !def.IsView() && !strings.HasSuffix(name, "_int") &&
			name != "sym_size" {
			out = append(out, name)
		}
	}
	return out
}

func with(results string) string { return strings.Replace(attend, "RESULTS", results, 1) }

func TestAttentionRows(t *testing.T) {
	const all = "%14: f32[1,T,256]"
	for name, c := range map[string]struct {
		text   string
		tokens int
		target lower.Target
		want   []string
	}{
		"a token": {with(all), 1, lower.Target{}, []string{"rope_angles", "attention_step"}},
		"several tokens": {with(all), 3, lower.Target{},
			[]string{"rope_angles", "rope_write", "load", "load", "attention"}},
		"a result inside": {with(all + ", %13: f32[1,T,256]"), 1, lower.Target{},
			[]string{"rope_angles", "attention_step", "glu"}},
		"a gate by rows": {strings.NewReplacer("gate=%gate",
			"gate=%g").Replace(strings.Replace(with(all), "    %14",
			"    %g = slice(x=%gate, axis=2, start=0, stop=1) : f32[1,T,1]\n    %14", 1)),
			1, lower.Target{}, []string{"rope_angles", "attention_step", "glu"}},
		"rotated queries are a result": {with(all + ", %7: f32[1,4,T,64]"), 1, lower.Target{},
			[]string{"rope_angles", "rope_write", "load", "load", "attention"}},
		"rotated keys are a result": {with(all + ", %8: f32[1,2,T,64]"), 1, lower.Target{},
			[]string{"rope_angles", "rope_heads", "rope_heads", "buffer_slice_update", "buffer_slice_update",
				"load", "load", "attention"}},
		"normalized queries are a result": {with(all + ", %3: f32[1,T,4,64]"), 1, lower.Target{},
			[]string{"rms_norm", "rope_angles", "attention_step"}},
		"another position": {strings.Replace(with(all), "position=%0", "position=%2", 1), 1, lower.Target{},
			[]string{"rope_angles", "rope_write", "load", "load", "attention"}},
		"no kernel for a token": {with(all), 1, lower.Target{Refuses: refuses("attention_step")},
			[]string{"rope_angles", "rope_write", "load", "load", "attention"}},
		"no rotation": {with(all), 1, lower.Target{Refuses: refuses("rope", "attention_step")},
			[]string{"rms_norm", "rope", "rope", "buffer_slice_update", "buffer_slice_update",
				"load", "load", "attention"}},
		"no attention": {with(all), 1, lower.Target{Refuses: refuses("attention_part", "attention_step")},
			[]string{"rope_angles", "rope_write", "load", "load", "cached_attention", "glu"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.target.Machine = kernels.Machine{Target: kernels.CUDA}
			lines := lowered(t, c.text, c.tokens, &c.target)
			require.Equal(t, c.want, names(lines), strings.Join(lines, "\n"))
		})
	}
}

// refuses are the kernels of these names.
func refuses(names ...string) func(kernels.Launch) bool {
	return func(l kernels.Launch) bool {
		for _, name := range names {
			if l.Kernel == name {
				return true
			}
		}
		return false
	}
}

// TestAttentionByTiles: a chunk goes by tiles where products may be of bfloat16.
func TestAttentionByTiles(t *testing.T) {
	for name, c := range map[string]struct {
		tokens int
		target lower.Target
		want   bool
	}{
		"mixed":      {20, lower.Target{Precision: eval.Mixed}, true},
		"few tokens": {8, lower.Target{Precision: eval.Mixed}, false},
		"exact":      {20, lower.Target{Precision: eval.Mixed, Exact: true}, false},
		"fp32":       {20, lower.Target{Precision: eval.FP32}, false},
		"refused":    {20, lower.Target{Precision: eval.Mixed, Refuses: refuses("attention_chunk")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.target.Machine = kernels.Machine{Target: kernels.Metal}
			text := strings.Join(lowered(t, with("%14: f32[1,T,256]"), c.tokens, &c.target), "\n")
			require.Contains(t, text, "= attention(")
			require.Equal(t, c.want, strings.Contains(text, "tiles=true"), text)
		})
	}
}

// TestAttentionTogether: where four simdgroups multiply together, attention by tiles is theirs, unless that kernel may
// not be used.
func TestAttentionTogether(t *testing.T) {
	a := kernels.Attention{D: 64, Heads: 4, KVHeads: 2, Slots: 64, Scale: 1, Cache: kernels.BF16}
	launch := func(v kernels.ChunkTuning) (kernels.Launch, error) { return a.ChunkLaunch(20, v) }
	machine := kernels.Machine{Target: kernels.CUDA, Groups: true, TransferMemory: 225 << 10}
	for name, c := range map[string]struct {
		refuses []string
		want    string
	}{
		"allowed":       {nil, "attention_group"},
		"refused":       {[]string{"attention_group"}, "attention_chunk"},
		"both, refused": {[]string{"attention_group", "attention_chunk"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			target := lower.Target{Machine: machine, Refuses: refuses(c.refuses...)}
			kernel := ""
			if variants := target.ByTiles(a.ChunkTunings(machine), launch); len(variants) > 0 {
				l, err := launch(variants[0])
				require.NoError(t, err)
				kernel = l.Kernel
			}
			require.Equal(t, c.want, kernel)
		})
	}
}

// TestAttentionText: the operations of a token, as they are printed.
func TestAttentionText(t *testing.T) {
	lines := lowered(t, with("%14: f32[1,T,256]"), 1, &lower.Target{Machine: kernels.Machine{Target: kernels.CUDA}})
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		`rope_angles(position=%0) {tokens=1, dims=64, base=10000.0} : f32[1,32,2]`,
		`start=%0, position=%0, stop=%2, q_weight=@weight, gate=%gate) {q_norm=true, eps=1e-06, scale=0.125, early=true} : f32[1,1,256]`,
	} {
		require.Contains(t, text, want)
	}
}
