package diff

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/inspect"
	"github.com/etc-ml/etc/runtime/program"
)

// Programs compares two open files.
func Programs(a, b *program.Program) (*Report, error) {
	ra, rb := inspect.Read(a), inspect.Read(b)
	r := &Report{A: summary(ra), B: summary(rb), Methods: []Method{}, ConstantMethods: []ConstantMethod{},
		Metadata: []Metadata{}, Weights: []Weight{}}
	weightsA, weightsB := newWeights(), newWeights()
	for _, name := range union(names(ra), names(rb)) {
		m, err := compareMethod(a, b, ra, rb, name, weightsA, weightsB)
		if err != nil {
			return nil, err
		}
		if m != nil {
			r.Methods = append(r.Methods, *m)
			r.Counts.LinesAdded += m.Added
			r.Counts.LinesRemoved += m.Removed
		}
	}
	r.ConstantMethods = append(r.ConstantMethods, compareConstantMethods(ra, rb)...)
	r.Metadata = append(r.Metadata, compareMetadata(a.File, b.File, ra, rb)...)
	if err := r.compareWeights(weightsA, weightsB); err != nil {
		return nil, err
	}
	r.Counts.Methods, r.Counts.ConstantMethods, r.Counts.Metadata = len(r.Methods),
		len(r.ConstantMethods), len(r.Metadata)
	r.Equal = len(r.Methods)+len(r.ConstantMethods)+len(r.Metadata)+len(r.Weights) == 0
	return r, nil
}

// summary takes from a report what a reader of the differences wants to know of the whole.
func summary(r *inspect.Report) FileSummary {
	s := FileSummary{File: r.File, Size: r.Size, Storage: []inspect.Storage{}}
	for _, m := range r.Methods {
		if m.Graph != nil && m.Graph.Constants > 0 {
			s.WeightSize, s.BitsPerWeight, s.Storage = m.Graph.WeightSize, m.Graph.BitsPerWeight, m.Graph.Storage
			break
		}
	}
	return s
}

func names(r *inspect.Report) []string {
	out := make([]string, len(r.Methods))
	for i, m := range r.Methods {
		out[i] = m.Name
	}
	return out
}

// union returns the elements of a in their order, then those that only b has.
func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(a, s) {
			out = append(out, s)
		}
	}
	return out
}

// compareMethod compares a method and notes its weights; nil where there is no difference.
func compareMethod(a, b *program.Program, ra, rb *inspect.Report, name string, weightsA,
	weightsB *weights) (*Method, error) {
	ma, inA := ra.Method(name)
	mb, inB := rb.Method(name)
	m := &Method{Name: name, Change: Changed}
	var graphA, graphB *ir.Module
	var err error
	if inA {
		m.InputsA, m.OutputsA = valuesText(ma.Inputs), valuesText(ma.Outputs)
		if graphA, err = module(a, ma, weightsA); err != nil {
			return nil, err
		}
	}
	if inB {
		m.InputsB, m.OutputsB = valuesText(mb.Inputs), valuesText(mb.Outputs)
		if graphB, err = module(b, mb, weightsB); err != nil {
			return nil, err
		}
	}
	switch {
	case !inA:
		m.Change = Added
		return m, nil
	case !inB:
		m.Change = Removed
		return m, nil
	}
	same := true
	if slices.Equal(m.InputsA, m.InputsB) {
		m.InputsA, m.InputsB = nil, nil
	} else {
		same = false
	}
	if slices.Equal(m.OutputsA, m.OutputsB) {
		m.OutputsA, m.OutputsB = nil, nil
	} else {
		same = false
	}
	if graphA == nil || graphB == nil {
		m.Problem = strings.TrimPrefix(ma.Problem, a.File.Name()+": ")
		if graphA != nil {
			m.Problem = strings.TrimPrefix(mb.Problem, b.File.Name()+": ")
		}
		fa, _ := a.File.Method(name)
		fb, _ := b.File.Method(name)
		if same && samePayloads(fa, fb) {
			return nil, nil
		}
		return m, nil
	}
	m.Diff, m.Added, m.Removed = diffGraphs(graphA, graphB)
	if same && len(m.Diff) == 0 {
		return nil, nil
	}
	return m, nil
}

// module lifts a method, names its constants, buffers and inputs without the delegate's prefix and notes its
// weights. It is nil where the method cannot be lifted.
func module(p *program.Program, m *inspect.Method, w *weights) (*ir.Module, error) {
	if m.Problem != "" {
		return nil, nil
	}
	out, err := p.Module(m.Name)
	if err != nil {
		return nil, err
	}
	dropPrefix(out)
	if err := w.add(out); err != nil {
		return nil, fmt.Errorf("%s: method %s: %w", p.File.Name(), m.Name, err)
	}
	return out, nil
}

// dropPrefix takes the part up to the first slash off the names of constants, buffers and inputs, where all of
// them have the same: ExecuTorch puts a hash of the delegate there.
func dropPrefix(m *ir.Module) {
	var all []*string
	for _, c := range m.Constants {
		all = append(all, &c.Name)
	}
	for _, b := range m.Buffers {
		all = append(all, &b.Name)
	}
	for _, v := range m.Entry.Params {
		all = append(all, &v.Param)
	}
	if len(all) == 0 {
		return
	}
	prefix, _, ok := strings.Cut(*all[0], "/")
	if !ok {
		return
	}
	prefix += "/"
	for _, name := range all {
		if !strings.HasPrefix(*name, prefix) {
			return
		}
	}
	for _, name := range all {
		*name = strings.TrimPrefix(*name, prefix)
	}
}

// samePayloads compares methods that cannot be lifted: what runs them, and what that is given.
func samePayloads(a, b *container.Method) bool {
	return slices.Equal(a.Others, b.Others) && reflect.DeepEqual(a.Calls, b.Calls) &&
		slices.EqualFunc(a.Delegates, b.Delegates, func(x, y container.Delegate) bool {
			return x.ID == y.ID && bytes.Equal(x.Payload, y.Payload)
		})
}

// valuesText writes inputs or outputs: "tokens i64[1,1..255]".
func valuesText(values []inspect.Value) []string {
	out := make([]string, len(values))
	for i, v := range values {
		name := v.Name[strings.LastIndexByte(v.Name, '/')+1:]
		out[i] = strings.TrimLeft(name+" "+v.DType, " ")
		if v.DType == "int" {
			continue
		}
		dims := make([]string, len(v.Shape))
		for j, n := range v.Shape {
			dims[j] = fmt.Sprint(n)
			if v.MinShape[j] != n {
				dims[j] = fmt.Sprintf("%d..%d", v.MinShape[j], n)
			}
		}
		out[i] += "[" + strings.Join(dims, ",") + "]"
	}
	return out
}

func compareConstantMethods(a, b *inspect.Report) []ConstantMethod {
	values := [2]map[string][]any{{}, {}}
	var order [2][]string
	for i, r := range []*inspect.Report{a, b} {
		for _, c := range r.Constants {
			if _, twice := values[i][c.Name]; !twice {
				values[i][c.Name] = c.Values
				order[i] = append(order[i], c.Name)
			}
		}
	}
	var out []ConstantMethod
	for _, name := range union(order[0], order[1]) {
		if va, vb := values[0][name], values[1][name]; !reflect.DeepEqual(va, vb) {
			out = append(out, ConstantMethod{name, va, vb})
		}
	}
	return out
}

func compareMetadata(a, b *container.File, ra, rb *inspect.Report) []Metadata {
	data := [2]map[string][]byte{{}, {}}
	var order [2][]string
	for i, r := range []*inspect.Report{ra, rb} {
		for _, n := range r.Metadata {
			if _, twice := data[i][n.Key]; !twice {
				data[i][n.Key], _ = []*container.File{a, b}[i].Lookup(n.Key)
				order[i] = append(order[i], n.Key)
			}
		}
	}
	var out []Metadata
	for _, key := range union(order[0], order[1]) {
		da, inA := data[0][key]
		db, inB := data[1][key]
		m := Metadata{Key: key, Change: Changed, SizeA: int64(len(da)), SizeB: int64(len(db))}
		switch {
		case !inA:
			m.Change = Added
		case !inB:
			m.Change = Removed
		case bytes.Equal(da, db):
			continue
		default:
			m.HashA, m.HashB, m.Keys = hash(da), hash(db), differingKeys(da, db)
		}
		out = append(out, m)
	}
	return out
}

// differingKeys names the members in which two JSON objects differ; nil where one is no object.
func differingKeys(a, b []byte) []string {
	var oa, ob map[string]json.RawMessage
	if json.Unmarshal(a, &oa) != nil || json.Unmarshal(b, &ob) != nil {
		return nil
	}
	var out []string
	for _, key := range union(slices.Sorted(maps.Keys(oa)), slices.Sorted(maps.Keys(ob))) {
		if !bytes.Equal(compact(oa[key]), compact(ob[key])) {
			out = append(out, key)
		}
	}
	return out
}

// compact drops the white space of JSON text.
func compact(p json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, p) != nil {
		return p
	}
	return b.Bytes()
}

// hash returns the SHA-256 of the parts one after the other, in hex.
func hash(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
