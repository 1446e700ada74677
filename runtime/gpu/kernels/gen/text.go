package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	comment = regexp.MustCompile(`//[^\n]*`)
	// note is a comment that says something of the buffer before it: what stands in its place.
	note = regexp.MustCompile(`(\[\[buffer\(\d+\)\]\])(,?)[ \t]*// absent: (\w+)[ \t]*\n`)
	// family is a comment before a kernel: it has the arguments of another one.
	family    = regexp.MustCompile(`// arguments: (\w+)\n`)
	kernel    = regexp.MustCompile(`(?s)(?:\[\[arguments\((\w+)\)\]\]\s*)?(\[\[max_total_threads_per_threadgroup\(([^\]]*)\)\]\]\s*)?\bkernel\s+void\s+(\w+)\s*\((.*?)\)\s*\{`)
	parameter = regexp.MustCompile(`(?s)^(.*?)\b(\w+)\s*\[\[(\w+)(?:\((\d+)\))?\]\](?:\s*\[\[absent\((\w+)\)\]\])?$`)
)

// banned are parts of the language that a target lacks, or that the lint does not see.
var banned = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`\bdouble\b`), "Metal has no double"},
	{regexp.MustCompile(`\[[&=]?\]\s*\(`), "Metal has no lambdas"},
	{regexp.MustCompile(`\bthreadgroup\s+\w+\s+\w+\s*\[`), "threadgroup arrays are declared by TG_ARRAY"},
}

// refuse says what of a source without comments is banned.
func refuse(source string) error {
	for _, b := range banned {
		if at := b.pattern.FindString(source); at != "" {
			return fmt.Errorf("%q: %s", at, b.why)
		}
	}
	return nil
}

// declared is a kernel as its text declares it.
type declared struct {
	name, threads string
	// like is the kernel whose arguments this one has; empty for its own.
	like string
	// buffers in order, which come before the constant struct; positions are the other parameters.
	buffers   []buffer
	constant  *formal
	positions []formal
}

// formal is a parameter: its type, name and attribute.
type formal struct{ typ, id, attribute string }

// buffer is a parameter that is a pointer.
type buffer struct {
	formal
	// absent is the buffer that stands in the place of this one where it is not given; empty where it must be.
	absent string
}

// written reports whether the kernel may write the buffer.
func (b buffer) written() bool { return !strings.Contains(" "+b.typ, " const ") }

// element is the type of the buffer's elements in the text.
func (b buffer) element() string {
	fields := strings.Fields(strings.TrimSuffix(b.typ, "*"))
	return fields[len(fields)-1]
}

// parse reads the kernels of a source.
func parse(source string) (out []declared, err error) {
	if !strings.HasPrefix(source, "#include \"port.h\"\n") {
		return nil, fmt.Errorf("the first line must be #include \"port.h\"")
	}
	source = note.ReplaceAllString(source, "$1 [[absent($3)]]$2\n")
	source = family.ReplaceAllString(source, "[[arguments($1)]]\n")
	source = comment.ReplaceAllString(source, "")
	if err := refuse(source); err != nil {
		return nil, err
	}
	kernels := kernel.FindAllStringSubmatch(source, -1)
	if want := strings.Count(source, "kernel void"); len(kernels) != want || want == 0 {
		return nil, fmt.Errorf("%d kernels found, \"kernel void\" stands there %d times", len(kernels), want)
	}
	for _, m := range kernels {
		if m[2] == "" {
			return nil, fmt.Errorf("kernel %s: needs [[max_total_threads_per_threadgroup(n)]]", m[4])
		}
		d := declared{name: m[4], threads: m[3], like: m[1]}
		if err := d.read(m[5]); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", d.name, err)
		}
		out = append(out, d)
	}
	return out, nil
}

// positions are the attributes of parameters that are no buffers, and whether their full form has three numbers.
var positions = map[string]bool{
	"threadgroup_position_in_grid": true, "thread_position_in_grid": true, "thread_position_in_threadgroup": true,
	"threads_per_threadgroup": true, "threadgroups_per_grid": true,
	"thread_index_in_threadgroup": false, "thread_index_in_simdgroup": false,
	"simdgroup_index_in_threadgroup": false, "simdgroups_per_threadgroup": false,
}

// read reads the parameters. Buffers come first and in order, a constant struct comes last: CUDA takes it by value.
func (d *declared) read(parameters string) error {
	for _, p := range strings.Split(parameters, ",") {
		m := parameter.FindStringSubmatch(strings.TrimSpace(p))
		if m == nil {
			return fmt.Errorf("parameter %q has no attribute", strings.TrimSpace(p))
		}
		f := formal{strings.TrimSpace(m[1]), m[2], m[3]}
		if f.attribute != "buffer" {
			if _, ok := positions[f.attribute]; !ok {
				return fmt.Errorf("parameter %s: attribute %s is not known", f.id, f.attribute)
			}
			d.positions = append(d.positions, f)
			continue
		}
		if d.constant != nil {
			return fmt.Errorf("parameter %s follows the constant struct, which must be the last buffer", f.id)
		}
		if m[4] != strconv.Itoa(len(d.buffers)) {
			return fmt.Errorf("parameter %s is buffer %s, want %d: they are numbered in order",
				f.id, m[4], len(d.buffers))
		}
		if t, ok := strings.CutSuffix(f.typ, "&"); ok {
			d.constant = &formal{t, f.id, f.attribute}
			continue
		}
		d.buffers = append(d.buffers, buffer{f, m[5]})
	}
	return nil
}
