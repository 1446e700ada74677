package container

import (
	"fmt"
	"reflect"

	"github.com/etc-ml/etc/schema/mlxgraph"
)

// Bounds of a chain with the chains that it runs substituted for their calls, which is the size that lifting handles.
// ExecuTorch allows a million instructions in one chain, and chains that run themselves until the stack overflows.
const (
	maxUnfolded = 1_000_000
	maxNesting  = 256
)

// chains checks the instructions of every chain, and how chains run one another.
func (c *mlxCheck) chains() error {
	g := c.graph
	n := len(g.InstructionChains)
	if int64(g.MainChainIdx) >= int64(n) {
		return c.wrong("main_chain_idx", "chain %d, the graph has %d", g.MainChainIdx, n)
	}
	if int64(g.InitChainIdx) >= int64(n) {
		return c.wrong("init_chain_idx", "chain %d, the graph has %d", g.InitChainIdx, n)
	}
	runs := make([][]int, n) // chains that each chain runs
	for i, chain := range g.InstructionChains {
		for j, in := range chain.Instructions {
			next, err := c.instruction(in.Op, i, j)
			if err != nil {
				return err
			}
			runs[i] = append(runs[i], next...)
		}
	}
	known := make([]unfolding, n)
	for i := range known {
		if err := c.unfold(known, runs, i, 1); err != nil {
			return err
		}
	}
	return nil
}

// instruction checks the operands of a node and returns the chains that it runs.
func (c *mlxCheck) instruction(op *mlxgraph.OpNodeT, chain, index int) ([]int, error) {
	node := reflect.ValueOf(op.Value).Elem()
	for i := range node.NumField() {
		problem := c.operand(node.Field(i).Interface())
		if problem == "" {
			continue
		}
		return nil, c.wrongNode(op, node.Type().Field(i).Tag.Get("json"), chain, index, problem)
	}
	var runs []int
	run := func(field string, to int64) error {
		if to < 0 || to >= int64(len(c.graph.InstructionChains)) {
			return c.wrongNode(op, field, chain, index,
				fmt.Sprintf("chain %d, the graph has %d", to, len(c.graph.InstructionChains)))
		}
		runs = append(runs, int(to))
		return nil
	}
	switch node := op.Value.(type) {
	case *mlxgraph.IfNodeT:
		if err := run("then_chain_idx", int64(node.ThenChainIdx)); err != nil {
			return nil, err
		}
		return runs, run("else_chain_idx", int64(node.ElseChainIdx))
	case *mlxgraph.ScanNodeT:
		return runs, run("body_chain_idx", int64(node.BodyChainIdx))
	}
	return nil, nil
}

// wrongNode returns an error of a field of a node.
func (c *mlxCheck) wrongNode(op *mlxgraph.OpNodeT, field string, chain, index int, problem string) error {
	var in mlxgraph.Instruction
	var ch mlxgraph.InstructionChain
	c.root.InstructionChains(&ch, chain)
	ch.Instructions(&in, index)
	place := fmt.Sprintf("graph.instruction_chains[%d].instructions[%d].op (%v.%s)", chain, index, op.Type, field)
	return c.file.wrong(c.base+int64(in.Table().Pos), place, "%s", problem)
}

// operand checks one field of a node: the slots that it names exist. Absent fields are fine here, since
// schema.Verify knows which are required. It returns what is wrong, or "".
func (c *mlxCheck) operand(field any) string {
	switch x := field.(type) {
	case *mlxgraph.TidT:
		return c.tid(x)
	case *mlxgraph.VidT:
		return c.vid(x)
	case []*mlxgraph.TidT:
		return first(x, c.tid)
	case *mlxgraph.IntOrVidT:
		return c.intOrVid(x)
	case []*mlxgraph.IntOrVidT:
		return first(x, c.intOrVid)
	case *mlxgraph.FloatOrVidT:
		if x != nil && x.IsVid {
			return c.present(x.Vid)
		}
	case *mlxgraph.VidOrTidT:
		switch {
		case x == nil:
		case x.IsVid:
			return c.present(x.Vid)
		case x.Tid == nil:
			return "is_vid is false but there is no tid"
		default:
			return c.tid(x.Tid)
		}
	case *mlxgraph.IntOrVidOrTidT:
		switch {
		case x == nil || x.Kind == 0:
		case x.Kind == 1:
			return c.present(x.Vid)
		case x.Kind > 2:
			return fmt.Sprintf("kind %d, expected 0 (literal), 1 (vid) or 2 (tid)", x.Kind)
		case x.Tid == nil:
			return "kind is 2 (tid) but there is no tid"
		default:
			return c.tid(x.Tid)
		}
	}
	return ""
}

// first returns the first problem of the elements of a vector.
func first[T any](elements []T, check func(T) string) string {
	for i, e := range elements {
		if problem := check(e); problem != "" {
			return fmt.Sprintf("element %d: %s", i, problem)
		}
	}
	return ""
}

func (c *mlxCheck) tid(t *mlxgraph.TidT) string {
	if t != nil && t.Idx >= c.tensors {
		return fmt.Sprintf("tensor %d, the graph has %d", t.Idx, c.tensors)
	}
	return ""
}

func (c *mlxCheck) vid(v *mlxgraph.VidT) string {
	if v != nil && v.Idx >= c.graph.NumValues {
		return fmt.Sprintf("register %d, the graph has %d", v.Idx, c.graph.NumValues)
	}
	return ""
}

// present checks a register that must be there.
func (c *mlxCheck) present(v *mlxgraph.VidT) string {
	if v == nil {
		return "a register is named but there is no vid"
	}
	return c.vid(v)
}

func (c *mlxCheck) intOrVid(x *mlxgraph.IntOrVidT) string {
	if x == nil || !x.IsVid {
		return ""
	}
	return c.present(x.Vid)
}

// unfolding has the sizes of a chain with the chains that it runs substituted for their calls.
type unfolding struct {
	size   int // instructions, at least 1; 0: not yet known
	height int // chains within chains, itself included
	open   bool
}

// unfold checks that the chain can be unfolded, and remembers it. runs has the chains that each chain runs.
func (c *mlxCheck) unfold(known []unfolding, runs [][]int, chain, depth int) error {
	wrong := func(format string, args ...any) error {
		return c.wrong(fmt.Sprintf("instruction_chains[%d]", chain), format, args...)
	}
	u := &known[chain]
	switch {
	case u.open:
		return wrong("it runs itself, directly or through other chains")
	case u.size > 0:
		return nil
	case depth > maxNesting:
		return wrong("chains run one another more than %d deep", maxNesting)
	}
	u.open = true
	size, height := 1+len(c.graph.InstructionChains[chain].Instructions), 1
	for _, to := range runs[chain] {
		if err := c.unfold(known, runs, to, depth+1); err != nil {
			return err
		}
		size += known[to].size // the sum is checked before it can get far
		height = max(height, 1+known[to].height)
		if size > maxUnfolded {
			return wrong("more than %d instructions with those of the chains that it runs", maxUnfolded)
		}
	}
	if height > maxNesting {
		return wrong("chains run one another more than %d deep", maxNesting)
	}
	*u = unfolding{size: size, height: height}
	return nil
}
