package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// TestMain makes the test binary serve as etc too, so that scripts run the command line as users do.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"etc": func() {
		setHooks()
		os.Exit(Main(os.Args[1:]))
	}})
}

// TestScripts runs testdata/script. $DATA is the testdata folder, $CHECKPOINTS the folder of small models.
func TestScripts(t *testing.T) {
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	answers, err := filepath.Abs(filepath.Join("..", "..", "..", "testdata", "answers"))
	if err != nil {
		t.Fatal(err)
	}
	checkpoints, err := filepath.Abs(filepath.Join("..", "..", "..", "testdata", "checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			e.Setenv("DATA", data)
			e.Setenv("CHECKPOINTS", checkpoints)
			e.Setenv("ANSWERS", answers)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":     exits,
			"model":     model,
			"irmodel":   irModel,
			"cut":       cut,
			"poke":      poke,
			"tensors":   tensors,
			"field":     field,
			"sametext":  sameTexts,
			"sameasrun": sameAsRun,
			"private":   private,
			"files":     countFiles,
			"sizes":     sizes,
			"swap":      swap,
			"damage":    damage,
			"input":     writeInput,
			"hub":       serveHub,
			"copy":      copyFolder,
			"names":     listNames,
			"flip":      flip,
			"hostile":   hostile,
			"fifo":      makeFIFO,
			"widen":     widen,

			"port":      freeAddress,
			"ready":     awaitServer,
			"post":      post,
			"questions": askAll,
			"shared":    askShared,
			"same":      sameText,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// usage stops a script whose command is called wrong.
func usage(ts *testscript.TestScript, neg, ok bool, text string) {
	if neg || !ok {
		ts.Fatalf("usage: %s", text)
	}
}

// exits runs a command that must end with an exit code: exits 2 etc run. A panic is never right.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 2, "exits CODE COMMAND [ARGUMENT...]")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit := (*exec.ExitError)(nil)
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if stderr := ts.ReadFile("stderr"); strings.Contains(stderr, "goroutine ") {
		ts.Fatalf("it panicked")
	} else if want != 0 && !strings.HasPrefix(stderr, "etc: ") && !strings.Contains(stderr, "\netc: ") {
		ts.Fatalf("exit code %d without an error on standard error", got)
	}
}

// irModel writes a program of the IR in a file, its constants filled with a pattern: irmodel FILE IR.
func irModel(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "irmodel FILE IR")
	m, err := ir.Parse(ts.ReadFile(args[1]))
	ts.Check(err)
	for i, c := range m.Constants {
		dims, _ := c.Value.Type.Static()
		values := make([]float32, ir.Elements(dims))
		for j := range values {
			values[j] = float32((i+3*j)%7) / 4
		}
		c.Data = ir.Float32s(dims, values...)
	}
	ts.Check(codegen.Write(context.Background(), ts.MkAbs(args[0]), codegen.File{Module: m, Jobs: 1}))
}

// cut copies the first bytes of a file: cut FROM TO SIZE; a negative size leaves that many bytes out.
func cut(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 3, "cut FROM TO SIZE")
	size, err := strconv.Atoi(args[2])
	ts.Check(err)
	b := []byte(ts.ReadFile(args[0]))
	if size < 0 {
		size += len(b)
	}
	if size < 0 || size > len(b) {
		ts.Fatalf("%s has %d bytes", args[0], len(b))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b[:size], 0o644))
}

// poke changes one byte of a copy of a file: poke FROM TO OFFSET VALUE.
func poke(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 4, "poke FROM TO OFFSET VALUE")
	offset, err := strconv.Atoi(args[2])
	ts.Check(err)
	value, err := strconv.ParseUint(args[3], 0, 8)
	ts.Check(err)
	b := []byte(ts.ReadFile(args[0]))
	if offset < 0 || offset >= len(b) {
		ts.Fatalf("%s has %d bytes", args[0], len(b))
	}
	b[offset] = byte(value)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o644))
}

// swap replaces the first place of a text by another, filled up with spaces to its length, in a copy of a file: swap
// FROM TO OLD NEW.
func swap(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 4 && len(args[2]) >= len(args[3]), "swap FROM TO OLD NEW")
	b := ts.ReadFile(args[0])
	if !strings.Contains(b, args[2]) {
		ts.Fatalf("%s has no %s", args[0], args[2])
	}
	text := args[3] + strings.Repeat(" ", len(args[2])-len(args[3]))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(strings.Replace(b, args[2], text, 1)), 0o644))
}

// damage changes a byte in the middle of every file of a folder: damage DIR.
func damage(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "damage DIR")
	ts.Check(filepath.WalkDir(ts.MkAbs(args[0]), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil {
			b[len(b)/2] ^= 1
			err = os.WriteFile(path, b, 0o644)
		}
		return err
	}))
}

// tensors prints the tensors of a safetensors file, "logits F32 [3 32]" a line, for stdout to look at.
func tensors(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "tensors FILE")
	f, err := safetensors.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	defer f.Close()
	for _, t := range f.Tensors() {
		p := make([]byte, t.Size())
		_, err := t.ReadAt(p, 0)
		ts.Check(ignoreEOF(err))
		fmt.Fprintf(ts.Stdout(), "%s %s %v %x\n", t.Name, t.DType, t.Shape, p)
	}
}

// field checks a field of the JSON that the last command printed: field methods.0.name forward. A want that
// is no JSON is a string; ! turns the check round.
func field(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: field PATH WANT")
	}
	var v any
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout")), &v); err != nil {
		ts.Fatalf("standard output is not JSON: %v", err)
	}
	for _, key := range strings.Split(args[0], ".") {
		switch x := v.(type) {
		case map[string]any:
			inner, ok := x[key]
			if !ok {
				ts.Fatalf("%s: there is no %q", args[0], key)
			}
			v = inner
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(x) {
				ts.Fatalf("%s: %q is no index of an array of %d", args[0], key, len(x))
			}
			v = x[i]
		default:
			ts.Fatalf("%s: %q of %v", args[0], key, v)
		}
	}
	got, err := json.Marshal(v)
	ts.Check(err)
	want := args[1]
	if !json.Valid([]byte(want)) {
		want = strconv.Quote(want)
	}
	if (string(got) == want) == neg {
		ts.Fatalf("%s is %s, want %s%s", args[0], got, map[bool]string{true: "not "}[neg], want)
	}
}

// copyFolder copies the files of a folder, which may be read-only: copy FROM TO.
func copyFolder(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "copy FROM TO")
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(ts.MkAbs(args[0]), e.Name()))
		ts.Check(err)
		ts.Check(os.WriteFile(filepath.Join(ts.MkAbs(args[1]), e.Name()), b, 0o644))
	}
}

// listNames prints the names in a folder, hidden ones too, a line each: names DIR.
func listNames(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "names DIR")
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	for _, e := range entries {
		fmt.Fprintln(ts.Stdout(), e.Name())
	}
	if len(entries) == 0 {
		fmt.Fprintln(ts.Stdout(), "nothing")
	}
}

// flip changes a bit of one byte in a copy of a file: flip FROM TO OFFSET; a negative offset counts from the end.
func flip(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 3, "flip FROM TO OFFSET")
	at, err := strconv.Atoi(args[2])
	ts.Check(err)
	b := []byte(ts.ReadFile(args[0]))
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 1
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o644))
}

// hostile replaces a text in a copy of a file by another in which ESC is the character: hostile FROM TO OLD NEW. In
// programs the new text must be as long, and takes the first place: the others are in the build record, which is JSON.
func hostile(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 4, "hostile FROM TO OLD NEW")
	b := ts.ReadFile(args[0])
	text := strings.ReplaceAll(args[3], "ESC", "\x1b")
	if !strings.Contains(b, args[2]) || strings.HasSuffix(args[0], ".pte") && len(text) != len(args[2]) {
		ts.Fatalf("%s: %q cannot take the place of %q", args[0], text, args[2])
	}
	places := -1
	if strings.HasSuffix(args[0], ".pte") {
		places = 1
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(strings.Replace(b, args[2], text, places)), 0o644))
}
