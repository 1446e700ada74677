package lift

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/schema/mlxgraph"
)

// TestIfResults: the results of an If are the slots that an arm writes and that something reads afterwards;
// an arm that does not write one yields what was there, or undef where nothing was.
func TestIfResults(t *testing.T) {
	// 0: input, 1 and 2: outputs, 3: a temporary from before, 4: one of the then arm alone, 5: one that nothing reads
	requireLifts(t, graph{inputs: 1, outputs: 2, intInputs: 1, chains: [][]any{{
		exp(3, 0),
		branch(reg(0), 1, 2),
		branch(reg(0), 3, 4),
		neg(1, 3),
	}, {
		neg(3, 0), neg(4, 3), neg(5, 4), addInt(1, reg(0), lit(1)),
	}, {
		exp(5, 0), addInt(1, reg(0), lit(2)), addInt(2, lit(1), lit(1)),
	}, {
		neg(2, 4),
	}, {
		full(2, 0, reg(1)), full(2, 0, lit(2)),
	}}},
		`module {
  symbol s0 [-2147483648, 2147483647]
  symbol s1 [-2147483647, 2147483649]
  entry forward(%input0: f32[2], %int0: int(s0)) {
    %0 = exp(x=%input0) : f32[2]
    %1, %2, %3 = if(cond=%int0) : f32[2], f32[2], int(s1) {
      %4 = neg(x=%input0) : f32[2]
      %5 = neg(x=%4) : f32[2]
      %6 = neg(x=%5) : f32[2]
      %7 = add_int(a=%int0, b=1) : int(s0+1)
      yield %4, %5, %7
    } else {
      %8 = exp(x=%input0) : f32[2]
      %9 = add_int(a=%int0, b=2) : int(s0+2)
      %10 = add_int(a=1, b=1) : int(2)
      %11 = undef() : f32[2]
      yield %0, %11, %9
    }
    %12 = if(cond=%int0) : f32[2] {
      %13 = neg(x=%2) : f32[2]
      yield %13
    } else {
      %14 = full(shape=[%3], v=0.0) {scalar_type=f32} : f32[s1]
      %15 = full(shape=[2], v=0.0) {scalar_type=f32} : f32[2]
      yield %15
    }
    %16 = neg(x=%1) : f32[2]
    return %16: f32[2], %12: f32[2]
  }
}
`)
}

// TestIfOverUsedSlots: what a slot held before it was used again is no value of the arm that does not
// write it, if it has another type: nothing that runs that arm can read it.
func TestIfOverUsedSlots(t *testing.T) {
	// 0: input, 1: output, 2: a temporary, first of three elements
	requireLifts(t, graph{inputs: 1, outputs: 1, intInputs: 1, chains: [][]any{{
		full(2, 1, lit(3), lit(1)),
		branch(reg(0), 1, 2),
		branch(reg(0), 3, 4),
	}, {neg(2, 0)}, {}, {neg(1, 2)}, {exp(1, 0)}}},
		`module {
  symbol s0 [-2147483648, 2147483647]
  entry forward(%input0: f32[2], %int0: int(s0)) {
    %0 = full(shape=[3, 1], v=1.0) {scalar_type=f32} : f32[3,1]
    %1 = if(cond=%int0) : f32[2] {
      %2 = neg(x=%input0) : f32[2]
      yield %2
    } else {
      %3 = undef() : f32[2]
      yield %3
    }
    %4 = if(cond=%int0) : f32[2] {
      %5 = neg(x=%1) : f32[2]
      yield %5
    } else {
      %6 = exp(x=%input0) : f32[2]
      yield %6
    }
    return %4: f32[2]
  }
}
`)
}

// TestIfBuffers: a load from before an If is used in its arms until they write the buffer, and after it
// only if neither does.
func TestIfBuffers(t *testing.T) {
	// 0: input, 1: output, 2, 3: buffers, 4: temporary
	requireLifts(t, graph{inputs: 1, outputs: 1, buffers: 2, intInputs: 1, chains: [][]any{{
		add(4, 2, 3),
		branch(reg(0), 1, 2),
		add(4, 4, 2),
		add(1, 4, 3),
	}, {
		add(4, 4, 2), idCopy(2, 0), add(4, 4, 2), add(4, 4, 3),
	}, {
		add(4, 4, 2),
	}}},
		`module {
  symbol s0 [-2147483648, 2147483647]
  buffer @buffer2 : f32[2]
  buffer @buffer3 : f32[2]
  entry forward(%input0: f32[2], %int0: int(s0)) {
    %0 = load @buffer2() : f32[2]
    %1 = load @buffer3() : f32[2]
    %2 = add(a=%0, b=%1) : f32[2]
    %3 = if(cond=%int0) : f32[2] {
      %4 = add(a=%2, b=%0) : f32[2]
      store @buffer2(x=%input0)
      %5 = load @buffer2() : f32[2]
      %6 = add(a=%4, b=%5) : f32[2]
      %7 = add(a=%6, b=%1) : f32[2]
      yield %7
    } else {
      %8 = add(a=%2, b=%0) : f32[2]
      yield %8
    }
    %9 = load @buffer2() : f32[2]
    %10 = add(a=%3, b=%9) : f32[2]
    %11 = add(a=%10, b=%1) : f32[2]
    return %11: f32[2]
  }
}
`)
}

// TestScanCarries: a carry is a slot that a step reads before it writes it, or writes and that lives on;
// what the wire lists as carry is not believed. Slots that a step only reads are no carries, nor are those
// that it writes for itself.
func TestScanCarries(t *testing.T) {
	for _, carry := range [][]*mlxgraph.TidT{nil, tids(3), tids(3, 2, 0, 7)} {
		// 0: [3,2] scanned, 1: [3,2] stacked output, 2: the last running sum, an output, 3: output, 4: slice,
		// 5: read only, 6: of a step alone, 7: a count that starts before and is not read afterwards
		requireLifts(t, graph{inputs: 1, outputs: 3, types: map[uint32]ir.Type{0: f32(3, 2), 1: f32(3, 2)},
			chains: [][]any{{
				full(2, 0, lit(2)),
				full(3, 1, lit(2)),
				exp(5, 2),
				full(7, 0, lit(2)),
				scan(1, tids(0), tids(4), tids(1), carry),
			}, {
				add(7, 7, 5),
				neg(6, 4),
				add(2, 2, 6),
				add(1, 2, 7),
				neg(3, 4),
			}}},
			fmt.Sprintf(`module {
  entry forward(%%input0: f32[3,2]) {
    %%0 = full(shape=[2], v=0.0) {scalar_type=f32} : f32[2]
    %%1 = full(shape=[2], v=1.0) {scalar_type=f32} : f32[2]
    %%2 = exp(x=%%0) : f32[2]
    %%3 = full(shape=[2], v=0.0) {scalar_type=f32} : f32[2]
    %[1]s
      %%12 = add(a=%%%[2]d, b=%%2) : f32[2]
      %%13 = neg(x=%%8) : f32[2]
      %%14 = add(a=%%%[3]d, b=%%13) : f32[2]
      %%15 = add(a=%%14, b=%%12) : f32[2]
      %%16 = neg(x=%%8) : f32[2]
      %[4]s
    }
    return %%4: f32[3,2], %%%[5]d: f32[2], %%%[6]d: f32[2]
  }
}
`, scanTexts[len(carry)]...))
	}
}

// scanTexts are the parts of the text above that the order of the carries decides.
var scanTexts = map[int][]any{
	0: {"%4, %5, %6, %7 = scan(originals=[%input0], carry=[%0, %1, %3]) {scan_axis=0} : f32[3,2], f32[2], f32[2], f32[2] {\n      args %8: f32[2], %9: f32[2], %10: f32[2], %11: f32[2]", 11, 9, "yield %15, %14, %16, %12", 5, 6},
	1: {"%4, %5, %6, %7 = scan(originals=[%input0], carry=[%1, %0, %3]) {scan_axis=0} : f32[3,2], f32[2], f32[2], f32[2] {\n      args %8: f32[2], %9: f32[2], %10: f32[2], %11: f32[2]", 11, 10, "yield %15, %16, %14, %12", 6, 5},
	4: {"%4, %5, %6, %7 = scan(originals=[%input0], carry=[%1, %0, %3]) {scan_axis=0} : f32[3,2], f32[2], f32[2], f32[2] {\n      args %8: f32[2], %9: f32[2], %10: f32[2], %11: f32[2]", 11, 10, "yield %15, %16, %14, %12", 6, 5},
}

// TestScanCarryOfAnIf: what an If in a body writes for the next step alone is a result of the If.
func TestScanCarryOfAnIf(t *testing.T) {
	// 0: [3,2], 1: output [3,2], 2: slice, 3: carry
	requireLifts(t, graph{inputs: 1, outputs: 1, intInputs: 1, types: map[uint32]ir.Type{0: f32(3, 2), 1: f32(3, 2)},
		chains: [][]any{{
			full(3, 0, lit(2)),
			scan(1, tids(0), tids(2), tids(1), nil),
		}, {
			add(1, 2, 3), branch(reg(0), 2, 3),
		}, {neg(3, 2)}, {}}},
		`module {
  symbol s0 [-2147483648, 2147483647]
  entry forward(%input0: f32[3,2], %int0: int(s0)) {
    %0 = full(shape=[2], v=0.0) {scalar_type=f32} : f32[2]
    %1, %2 = scan(originals=[%input0], carry=[%0]) {scan_axis=0} : f32[3,2], f32[2] {
      args %3: f32[2], %4: f32[2]
      %5 = add(a=%3, b=%4) : f32[2]
      %6 = if(cond=%int0) : f32[2] {
        %7 = neg(x=%3) : f32[2]
        yield %7
      } else {
        yield %4
      }
      yield %5, %6
    }
    return %1: f32[3,2]
  }
}
`)
}

// TestScanBuffers: a step that writes a buffer loads it itself, every time.
func TestScanBuffers(t *testing.T) {
	// 0: [3,2], 1: output [3,2], 2: output, 3: buffer, 4: slice, 5: temporary
	requireLifts(t, graph{inputs: 1, outputs: 2, buffers: 1, types: map[uint32]ir.Type{0: f32(3, 2), 1: f32(3, 2)},
		chains: [][]any{{
			exp(5, 3),
			scan(1, tids(0), tids(4), tids(1), nil),
			add(2, 5, 3),
		}, {
			add(1, 3, 4), idCopy(3, 1),
		}}},
		`module {
  buffer @buffer3 : f32[2]
  entry forward(%input0: f32[3,2]) {
    %0 = load @buffer3() : f32[2]
    %1 = exp(x=%0) : f32[2]
    %2 = scan(originals=[%input0]) {scan_axis=0} : f32[3,2] {
      args %3: f32[2]
      %4 = load @buffer3() : f32[2]
      %5 = add(a=%4, b=%3) : f32[2]
      store @buffer3(x=%5)
      yield %5
    }
    %6 = load @buffer3() : f32[2]
    %7 = add(a=%1, b=%6) : f32[2]
    return %2: f32[3,2], %7: f32[2]
  }
}
`)
}

func TestScanErrors(t *testing.T) {
	types := map[uint32]ir.Type{0: f32(3, 2), 1: f32(3, 2)}
	for _, test := range []struct {
		name   string
		chains [][]any
		want   string
	}{
		{"slices", [][]any{{scan(1, tids(0), nil, tids(1), nil)}, {}},
			"chain 0, instruction 0 (ScanNode): 0 sliced slots for 1 originals"},
		{"original", [][]any{{scan(1, tids(2), tids(3), nil, nil)}, {}},
			"originals: tensor slot 2 is read before it is written"},
		{"output", [][]any{{scan(1, tids(0), tids(3), tids(1), nil)}, {}}, "output slot 1 is not written by the body"},
		{"carry without a first value", [][]any{{scan(1, tids(0), tids(3), nil, nil)}, {add(4, 4, 3)}},
			"slot 4 is carried from step to step and holds no tensor before the first"},
		{"carried register", [][]any{{addInt(0, lit(1), lit(1)), scan(1, tids(0), tids(3), nil, nil)},
			{addInt(0, reg(0), lit(1))}}, "slot 0 is carried from step to step and holds no tensor before the first"},
		{"carry of another type", [][]any{{full(4, 0, lit(3)), scan(1, tids(0), tids(3), nil, nil)},
			{exp(5, 4), exp(4, 3)}}, "result 0 of the region must be f32[3], found f32[2]"},
		{"no originals", [][]any{{scan(1, nil, nil, nil, nil)}, {}}, "needs at least one original"},
		{"slices do not outlive the scan", [][]any{{scan(1, tids(0), tids(3), nil, nil), neg(1, 3)}, {}},
			"tensor slot 3 is read before it is written"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Lift(graph{inputs: 1, outputs: 1, types: types, chains: test.chains}.method())
			require.ErrorContains(t, err, test.want)
		})
	}
}

// TestBounds: chains that run themselves, nest deep, or unfold to more than can be lifted end as errors,
// after little work and in little memory.
func TestBounds(t *testing.T) {
	ladder := func(depth int) (chains [][]any) { // each chain runs the next twice
		for i := range depth {
			chains = append(chains, []any{branch(lit(1), uint32(i+1), uint32(i+1)),
				branch(lit(1), uint32(i+1), uint32(i+1))})
		}
		return append(chains, []any{})
	}
	line := func(depth int) (chains [][]any) {
		for i := range depth {
			chains = append(chains, []any{branch(lit(1), uint32(i+1), uint32(depth))})
		}
		return append(chains, []any{})
	}
	var wide []any // many slots that live through many Ifs
	const slots, ifs = 3000, 5000
	for i := range uint32(slots) {
		wide = append(wide, neg(1+i, 0))
	}
	for range ifs {
		wide = append(wide, branch(lit(1), 1, 1))
	}
	for i := range uint32(slots) {
		wide = append(wide, neg(1+i, 1+i))
	}
	for _, test := range []struct {
		name   string
		chains [][]any
		want   string
	}{
		{"a chain that runs itself", [][]any{{branch(lit(1), 0, 0)}}, "chains are nested more than 32 deep"},
		{"chains that run each other", [][]any{{branch(lit(1), 1, 2)}, {branch(lit(1), 2, 2)}, {branch(lit(1), 1, 1)}},
			"chains are nested more than 32 deep"},
		{"a scan that runs itself", [][]any{{neg(1, 0), scan(1, tids(0), tids(2), nil, nil)},
			{scan(1, tids(0), tids(2), nil, nil)}}, "chains are nested more than 32 deep"},
		{"deep", line(40), "chains are nested more than 32 deep"},
		{"not too deep", line(30), ""},
		{"unfolds", ladder(30), "the chains unfold to more than 1048576 instructions"},
		{"live slots of many Ifs", [][]any{wide, {}}, "slots live through its Ifs and Scans, counted for each"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := graph{inputs: 1, chains: test.chains, types: map[uint32]ir.Type{0: f32(2, 2)},
				outputMap: []*mlxgraph.SlotVariantT{}}.method()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Lift(m)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<30))
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}
