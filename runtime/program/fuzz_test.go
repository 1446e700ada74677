package program

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/schema/mlxgraph"
)

// knobs collects the numbers, flags and pointers of a graph that a mutation may set.
func knobs(v reflect.Value, out *[]reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			knobs(v.Elem(), out)
		}
	case reflect.Interface:
		if !v.IsNil() {
			knobs(v.Elem(), out)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			// The kind of a node goes with its value; any order of dims but one is refused.
			if f, name := v.Field(i), v.Type().Field(i).Name; name != "Type" && name != "DimOrder" {
				knobs(f, out)
				if f.Kind() == reflect.Pointer && f.CanSet() {
					*out = append(*out, f)
				}
			}
		}
	case reflect.Slice:
		if v.CanSet() && v.Type().Elem().Kind() == reflect.Pointer {
			*out = append(*out, v)
		}
		for i := range v.Len() {
			knobs(v.Index(i), out)
		}
	case reflect.String:
	default:
		if v.CanSet() {
			*out = append(*out, v)
		}
	}
}

// turn sets a knob.
func turn(r *rand.Rand, v reflect.Value) {
	number := []int64{0, 1, -1, 2, 3, int64(r.IntN(40)), math.MaxInt32, math.MinInt32, math.MaxInt64,
		int64(r.Uint64())}[r.IntN(10)]
	switch {
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.CanInt():
		if r.IntN(3) == 0 {
			number = v.Int() + int64(r.IntN(5)) - 2
		}
		v.SetInt(number)
	case v.CanUint():
		if r.IntN(2) == 0 {
			number = int64(v.Uint()) + int64(r.IntN(5)) - 2
		}
		v.SetUint(uint64(number))
	case v.CanFloat():
		v.SetFloat([]float64{0, 1, math.Inf(1), math.NaN(), -1e30}[r.IntN(5)])
	case v.Kind() == reflect.Pointer:
		v.SetZero()
	case v.Kind() == reflect.Slice && v.Len() > 0:
		i := r.IntN(v.Len())
		switch r.IntN(4) {
		case 0:
			v.Set(reflect.AppendSlice(v.Slice(0, i), v.Slice(i+1, v.Len())))
		case 1:
			v.Set(reflect.Append(v, v.Index(i)))
		case 2:
			j := r.IntN(v.Len())
			a, b := v.Index(i).Interface(), v.Index(j).Interface()
			v.Index(i).Set(reflect.ValueOf(b))
			v.Index(j).Set(reflect.ValueOf(a))
		default:
			v.SetLen(i)
		}
	}
}

// mutate changes a graph in some places, and may move instructions between its chains.
func mutate(g *mlxgraph.MLXGraphT, r *rand.Rand) {
	for range 1 + r.IntN(4) {
		if chains := g.InstructionChains; r.IntN(4) == 0 && len(chains) > 0 {
			from, to := chains[r.IntN(len(chains))], chains[r.IntN(len(chains))]
			if len(from.Instructions) > 0 {
				in := from.Instructions[r.IntN(len(from.Instructions))]
				to.Instructions = slices.Insert(to.Instructions, r.IntN(len(to.Instructions)+1), in)
			}
			continue
		}
		var all []reflect.Value
		if r.IntN(4) == 0 {
			knobs(reflect.ValueOf(g), &all)
		} else {
			knobs(reflect.ValueOf(&g.InstructionChains), &all)
		}
		turn(r, all[r.IntN(len(all))])
	}
}

// requireModule reads a method of a file whose graph has been mutated. Errors are fine, and what is accepted
// verifies, prints and reads back. It tells how far the file came.
func requireModule(t *testing.T, data []byte) (opened, lifted bool) {
	t.Helper()
	f, err := container.OpenBytes("test.pte", data)
	if err != nil {
		require.ErrorIs(t, err, container.ErrInvalid)
		return false, false
	}
	p, err := New(f)
	if err != nil {
		require.ErrorIs(t, err, container.ErrInvalid)
		return false, false
	}
	m, err := p.Module("forward")
	if err != nil {
		require.ErrorIs(t, err, container.ErrInvalid)
		require.False(t, strings.Contains(err.Error(), "runtime error"), err)
		return true, false
	}
	require.NoError(t, ir.Verify(m))
	text := m.String()
	again, err := ir.Parse(text)
	require.NoError(t, err, text)
	require.Equal(t, text, again.String())
	return true, true
}

// TestMutants mutates the graphs of the files of others.
func TestMutants(t *testing.T) {
	opened, lifted, n := 0, 0, 0
	all := files(t)
	names := []string{}
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		rounds := 200
		if len(all[name]) > 64<<10 {
			rounds = 15
		}
		for round := range rounds {
			file := takeApart(t, all[name])
			mutate(file.Graph, rand.New(rand.NewPCG(uint64(i), uint64(round))))
			data, err := file.Bytes(alignment)
			if err != nil {
				continue // the wire cannot hold it
			}
			n++
			o, l := requireModule(t, data)
			if o {
				opened++
			}
			if l {
				lifted++
			}
		}
	}
	require.Greater(t, opened, n/4, "too few mutants are opened")
	require.Greater(t, lifted, n/10, "too few mutants are lifted")
	require.Less(t, lifted, opened, "some must be refused")
}

// FuzzModule mutates the graph of one of the files as a seed says.
func FuzzModule(f *testing.F) {
	all := files(f)
	var names []string
	for name, data := range all {
		if len(data) < 16<<10 { // the fuzzer is slow on large files
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i := range names {
		f.Add(uint8(i), uint64(i), uint64(1))
	}
	f.Fuzz(func(t *testing.T, file uint8, seed1, seed2 uint64) {
		taken := takeApart(t, all[names[int(file)%len(names)]])
		r := rand.New(rand.NewPCG(seed1, seed2))
		for range 1 + r.IntN(3) {
			mutate(taken.Graph, r)
		}
		data, err := taken.Bytes(alignment)
		if err != nil {
			return
		}
		requireModule(t, data)
	})
}
