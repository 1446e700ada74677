package numeric

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProductsAreRounded checks the rule of doc.go on the source itself: every
// floating-point product is the operand of a conversion, possibly through
// another product, so that no compiler may fuse it with a later addition.
// Products that the compiler evaluates are exempt.
func TestProductsAreRounded(t *testing.T) {
	fileSet := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(fileSet, name, nil, 0)
			require.NoError(t, err)
			files = append(files, file)
		}
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: importer.ForCompiler(fileSet, "source", nil)}
	_, err = config.Check("numeric", fileSet, files, info)
	require.NoError(t, err)

	isFloat := func(e ast.Expr) bool {
		basic, ok := info.Types[e].Type.Underlying().(*types.Basic)
		return ok && basic.Info()&types.IsFloat != 0
	}
	products := 0
	for _, file := range files {
		rounded := map[ast.Expr]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if info.Types[n.Fun].IsType() && isFloat(n) {
					rounded[ast.Unparen(n.Args[0])] = true
				}
			case *ast.BinaryExpr:
				if n.Op != token.MUL || !isFloat(n) || info.Types[n].Value != nil {
					break
				}
				products++
				if !rounded[n] {
					t.Errorf("%s: product is not rounded by a conversion", fileSet.Position(n.Pos()))
				}
				rounded[ast.Unparen(n.X)] = true // a product's factor cannot be fused
				rounded[ast.Unparen(n.Y)] = true
			case *ast.AssignStmt:
				if n.Tok == token.MUL_ASSIGN && isFloat(n.Lhs[0]) {
					t.Errorf("%s: *= cannot be rounded by a conversion", fileSet.Position(n.Pos()))
				}
			}
			return true
		})
	}
	require.Greater(t, products, 100, "the check looked at the wrong files")
}
