package requirements

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/program"
)

// forward gives the logits of the last token, (B, vocab) (A1), in the authors' dtype (E1), from (tokens, input_pos)
// and nothing else (E2); lm_head multiplies one row for a call of any number of tokens (A2, A3).
func TestForward(t *testing.T) {
	t.Parallel()
	for _, family := range families {
		for name, recipe := range map[string]passes.Recipe{"plain": {}, "4w": fourBits(32)} {
			t.Run(family.name+" "+name, func(t *testing.T) {
				m := compile(t, family.name, passes.Options{Recipe: recipe})
				f := m.Entry
				require.Len(t, f.Params, 2)
				require.Equal(t, "tokens", f.Params[0].Param)
				require.Equal(t, "input_pos", f.Params[1].Param)
				_, static := f.Params[0].Type.Shape[1].Const()
				require.False(t, static)
				require.Equal(t, []ir.Type{ir.StaticType(family.logits, 1, family.vocab)}, f.Outputs)

				// lm_head is the last product.
				var product *ir.Op
				f.Body.Walk(func(op *ir.Op) {
					if op.Def.Name == "addmm" || op.Def.Name == "quantized_matmul" {
						product = op
					}
				})
				dims, static := product.Result().Type.Static()
				require.True(t, static, "lm_head gives %s", product.Result().Type)
				require.Equal(t, family.vocab, dims[len(dims)-1])
				require.Equal(t, family.vocab, ir.Elements(dims), "lm_head gives %s", product.Result().Type)
			})
		}
	}
}

// Taking the last token before lm_head gives what taking it after lm_head gives (A4); the authors' forward gives the
// logits of all tokens (A13, A14).
func TestLastTokenBeforeTheHead(t *testing.T) {
	t.Parallel()
	for _, family := range families {
		t.Run(family.name, func(t *testing.T) {
			const tokens = 9
			all := authors(t, family.name, loaders.Options{NoSampler: true})
			require.Equal(t, 3, all.Entry.Outputs[0].Rank())
			every := call(t, machine(t, all, eval.FP32), text(tokens)...)
			require.Equal(t, []int{1, tokens, int(family.vocab)}, every.Shape)
			last := call(t, machine(t, compile(t, family.name, passes.Options{}), eval.FP32), text(tokens)...)
			require.Equal(t, []int{1, int(family.vocab)}, last.Shape)
			require.InDeltaSlice(t, every.F[(tokens-1)*int(family.vocab):], last.F, 1e-5)
		})
	}
}

// An export without --sample is, to the last operation and the last byte, that of a model that never had a sampler
// (B1, C1, E3).
func TestNoTraceOfTheSampler(t *testing.T) {
	t.Parallel()
	for _, family := range families {
		for name, recipe := range map[string]passes.Recipe{"plain": {}, "4w": fourBits(64)} {
			t.Run(family.name+" "+name, func(t *testing.T) {
				never := lower(t, authors(t, family.name, loaders.Options{NoSampler: true}),
					passes.Options{Recipe: recipe})
				stripped := compile(t, family.name, passes.Options{Recipe: recipe})
				require.Equal(t, never.String(), stripped.String())
				want, err := os.ReadFile(write(t, never))
				require.NoError(t, err)
				have, err := os.ReadFile(write(t, stripped))
				require.NoError(t, err)
				require.Equal(t, want, have)
			})
		}
	}
}

// For the CUDA backend forward stays the authors', sampler and all (A13, E4).
func TestAuthorsForward(t *testing.T) {
	t.Parallel()
	for _, family := range families {
		t.Run(family.name, func(t *testing.T) {
			m := compile(t, family.name, passes.Options{Backend: passes.CUDA})
			require.Len(t, m.Entry.Params, 3)
			require.Equal(t, ir.StaticType(ir.F32, 1), m.Entry.Params[2].Type)
			require.Equal(t, []ir.Type{ir.StaticType(ir.I64, 1)}, m.Entry.Outputs)
			require.Equal(t, 1, nodes(t, m)["RandomBitsNode"])
		})
	}
}

// A file holds one delegate, which does all of the work, sampler included (D21), and reading it gives the module that
// was written, whoever reads (A15).
func TestFileIsItsModule(t *testing.T) {
	t.Parallel()
	for _, family := range families {
		for name, o := range map[string]passes.Options{"logits": {}, "sample": {Sample: true, Recipe: fourBits(64)},
			"authors": {Backend: passes.CUDA, Portable: true}} {
			t.Run(family.name+" "+name, func(t *testing.T) {
				m := compile(t, family.name, o)
				p, err := program.Open(write(t, m))
				require.NoError(t, err)
				defer p.Close()
				method, ok := p.File.Method("forward")
				require.True(t, ok)
				require.Len(t, method.Delegates, 1)
				require.Len(t, method.Calls, 1)
				require.Empty(t, method.Others)
				lifted, err := p.Module("forward")
				require.NoError(t, err)
				require.Equal(t, m.String(), lifted.String())
			})
		}
	}
}

// The contract of the sampling head stands where it is made (A18).
func TestContractIsDocumented(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "passes", "sampler.go"),
		nil, parser.ParseComments)
	require.NoError(t, err)
	i := slices.IndexFunc(file.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		return ok && f.Name.Name == "samplingHead"
	})
	require.GreaterOrEqual(t, i, 0)
	require.Contains(t, file.Decls[i].(*ast.FuncDecl).Doc.Text(), "(B, vocab)")
}

// Export reads and writes in pieces, so that its memory does not depend on the checkpoint (E13): no read of a weight of
// 64 MiB asks for more than a few MiB, quantized or not.
func TestPieces(t *testing.T) {
	t.Parallel()
	const rows, cols, limit = 1 << 14, 1 << 11, 8 << 20
	for name, recipe := range map[string]passes.Recipe{"plain": {}, "4w": fourBits(64)} {
		t.Run(name, func(t *testing.T) {
			w := &zeros{shape: []int64{rows, cols}}
			m := &ir.Module{Entry: &ir.Func{Name: "forward", Body: &ir.Region{}}}
			require.NoError(t, ir.Build(func() {
				b := &ir.Builder{Module: m, Region: m.Entry.Body}
				x := m.Entry.NewParam("x", ir.StaticType(ir.BF16, 1, cols))
				y := b.Value("linear", nil, x, m.NewConstant("weight", ir.StaticType(ir.BF16, rows, cols), w))
				m.Entry.Body.Results, m.Entry.Outputs = []*ir.Value{y}, []ir.Type{y.Type}
			}))
			lower(t, m, passes.Options{Recipe: recipe})
			require.NoError(t, codegen.Write(t.Context(), t.TempDir()+"/model.pte", codegen.File{Module: m, Jobs: 2}))
			require.EqualValues(t, ir.DataSize(w), w.total)
			require.LessOrEqual(t, w.largest, limit)
		})
	}
}

// zeros is a weight of zeros that notes how it is read.
type zeros struct {
	shape   []int64
	mu      sync.Mutex
	total   int64
	largest int
}

func (z *zeros) DType() ir.DType    { return ir.BF16 }
func (z *zeros) Shape() []int64     { return z.shape }
func (z *zeros) Provenance() string { return "zeros" }
func (z *zeros) ReadAt(p []byte, off int64) (int, error) {
	n := min(int64(len(p)), ir.DataSize(z)-off)
	if n < 0 {
		return 0, io.EOF
	}
	clear(p[:n])
	z.mu.Lock()
	defer z.mu.Unlock()
	z.total += n
	z.largest = max(z.largest, len(p))
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}
