package main

import (
	"fmt"
	"go/format"
	"slices"
	"strings"
)

// signature is what the host gives to a kernel, or to several that take the same.
type signature struct {
	kernels []string
	fields  []field
	buffers []buffer
}

// field is a field of the struct of arguments: a buffer, or the three of a weight.
type field struct {
	name   string
	first  int // of the buffers
	weight bool
}

// signatures sorts kernels into those that have arguments of their own and those that have another's, which must agree.
func signatures(kernels []declared) ([]*signature, error) {
	var out []*signature
	byName := map[string]*signature{}
	for _, d := range kernels {
		if d.like != "" {
			continue
		}
		s := &signature{kernels: []string{d.name}, buffers: d.buffers}
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", d.name, err)
		}
		s.divide()
		byName[d.name] = s
		out = append(out, s)
	}
	for _, d := range kernels {
		if d.like == "" {
			continue
		}
		s := byName[d.like]
		if s == nil {
			return nil, fmt.Errorf("kernel %s: its arguments are those of %s, which has none of its own", d.name, d.like)
		}
		if err := s.agree(d); err != nil {
			return nil, fmt.Errorf("kernel %s: its arguments are those of %s: %w", d.name, d.like, err)
		}
		s.kernels = append(s.kernels, d.name)
	}
	slices.SortFunc(out, func(a, b *signature) int { return strings.Compare(a.kernels[0], b.kernels[0]) })
	return out, nil
}

// index is the place of a buffer, -1 for none.
func (s *signature) index(id string) int {
	return slices.IndexFunc(s.buffers, func(b buffer) bool { return b.id == id })
}

// check requires that what stands in the place of an absent buffer is there in the end.
func (s *signature) check() error {
	for _, b := range s.buffers {
		seen := 0
		for at := b; at.absent != ""; seen++ {
			i := s.index(at.absent)
			if i < 0 {
				return fmt.Errorf("parameter %s: absent: %s, which is no buffer of it", at.id, at.absent)
			}
			if seen == len(s.buffers) {
				return fmt.Errorf("parameter %s: absent: %s, which leads back to it", b.id, b.absent)
			}
			at = s.buffers[i]
		}
	}
	return nil
}

// agree requires that another kernel declares the same buffers: names, order, and which are written. Types may differ
// where a definition stands for one of several.
func (s *signature) agree(d declared) error {
	if len(d.buffers) != len(s.buffers) {
		return fmt.Errorf("it has %d buffers, want %d", len(d.buffers), len(s.buffers))
	}
	for i, b := range d.buffers {
		want := s.buffers[i]
		switch {
		case b.id != want.id:
			return fmt.Errorf("buffer %d is %s, want %s", i, b.id, want.id)
		case b.written() != want.written():
			return fmt.Errorf("parameter %s is const in one of them", b.id)
		case b.absent != "":
			return fmt.Errorf("parameter %s: what stands for it is said once, of %s", b.id, s.kernels[0])
		case plain(b.element()) && plain(want.element()) && b.element() != want.element():
			return fmt.Errorf("parameter %s has elements %s, want %s", b.id, b.element(), want.element())
		}
	}
	return nil
}

// plain reports whether a type is one of the language, not a definition.
func plain(element string) bool { return element == strings.ToLower(element) }

// divide makes fields of the buffers: a weight's three are one. An absent weight's are those of another weight.
func (s *signature) divide() {
	for i := 0; i < len(s.buffers); i++ {
		f := field{name: goName(s.buffers[i].id), first: i}
		if f.weight = s.isWeight(i); f.weight {
			if from := s.index(s.buffers[i].absent); from >= 0 {
				s.buffers[i+1].absent, s.buffers[i+2].absent = s.buffers[from+1].id, s.buffers[from+2].id
			}
			i += 2
		}
		s.fields = append(s.fields, f)
	}
}

// isWeight reports whether codes, scales and biases stand from buffer i on.
func (s *signature) isWeight(i int) bool {
	if i+2 >= len(s.buffers) {
		return false
	}
	for j, want := range []string{"uint", "WEIGHT_SCALE", "WEIGHT_SCALE"} {
		if b := s.buffers[i+j]; b.written() || b.element() != want {
			return false
		}
	}
	return true
}

// words are parts of names that Go writes in another way.
var words = map[string]string{"glu": "GLU", "ml": "ML", "matvec": "MatVec", "matmul": "MatMul"}

// goName is a name of the text as an exported name in Go.
func goName(id string) string {
	var out strings.Builder
	for _, part := range strings.Split(id, "_") {
		if w, ok := words[part]; ok {
			out.WriteString(w)
		} else {
			out.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return out.String()
}

// about is what a field's comment says: the type of its elements, whether it is written, what stands for it.
func (s *signature) about(f field) string {
	b := s.buffers[f.first]
	var parts []string
	if !f.weight {
		parts = append(parts, b.element())
	}
	if b.written() {
		parts = append(parts, "written")
	}
	if b.absent != "" {
		parts = append(parts, "optional: "+goName(b.absent)+" stands for it")
	}
	if len(parts) == 0 {
		return ""
	}
	return " // " + strings.Join(parts, ", ")
}

// argumentsFile is the text of arguments_generated.go.
func argumentsFile(all []*signature) ([]byte, error) {
	var out strings.Builder
	out.WriteString("// Code generated by runtime/gpu/kernels/gen; DO NOT EDIT.\n\npackage kernels\n")
	for _, s := range all {
		s.write(&out)
	}
	out.WriteString("\n// signatures are those of all kernels, by the kernel's name.\nvar signatures = map[string]*Signature{\n")
	for _, s := range all {
		for _, k := range s.kernels {
			fmt.Fprintf(&out, "\t%q: &%s,\n", k, s.variable())
		}
	}
	out.WriteString("}\n")
	return format.Source([]byte(out.String()))
}

// variable is the name of the signature in Go.
func (s *signature) variable() string {
	name := goName(s.kernels[0])
	return strings.ToLower(name[:1]) + name[1:] + "Signature"
}

// write writes the struct of arguments with its methods, and the signature.
func (s *signature) write(out *strings.Builder) {
	name, buffers := goName(s.kernels[0])+"Arguments", "buffers"
	of := "kernel " + s.kernels[0]
	if len(s.kernels) > 1 {
		of = "kernels " + strings.Join(s.kernels, ", ")
	}
	fmt.Fprintf(out, "\n// %s are the %s of the %s, in order.\ntype %s[T comparable] struct {\n", name, buffers, of, name)
	var values []string
	for _, f := range s.fields {
		typ := "T"
		if f.weight {
			typ = "WeightArguments[T]"
			values = append(values, "a."+f.name+".Data", "a."+f.name+".Scales", "a."+f.name+".Biases")
		} else {
			values = append(values, "a."+f.name)
		}
		fmt.Fprintf(out, "\t%s %s%s\n", f.name, typ, s.about(f))
	}
	fmt.Fprintf(out, "}\n\n// Signature is what the text of the %s declares.\nfunc (%s[T]) Signature() *Signature { return &%s }\n\n", of, name, s.variable())
	fmt.Fprintf(out, "func (a %s[T]) values() []T {\n\treturn []T{%s}\n}\n\n", name, strings.Join(values, ", "))
	fmt.Fprintf(out, "var %s = Signature{Kernels: []string{%s}, Arguments: []Argument{\n", s.variable(), quoted(s.kernels))
	for _, b := range s.buffers {
		fmt.Fprintf(out, "\t{Name: %q, Type: %q", b.id, b.element())
		if b.written() {
			out.WriteString(", Written: true")
		}
		if b.absent != "" {
			fmt.Fprintf(out, ", Optional: true, Instead: %d", s.index(b.absent))
		}
		out.WriteString("},\n")
	}
	out.WriteString("}}\n")
}

func quoted(list []string) string {
	var out []string
	for _, s := range list {
		out = append(out, fmt.Sprintf("%q", s))
	}
	return strings.Join(out, ", ")
}
