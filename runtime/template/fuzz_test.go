package template

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

// seeds are templates of testdata to start fuzzing from.
func seeds(f *testing.F) (templates []string, ctx string) {
	var data struct {
		Context json.RawMessage
		Cases   []recorded
	}
	readJSON(f, "renders.json", &data)
	for i, c := range data.Cases {
		if i%3 == 0 {
			templates = append(templates, c.Template)
		}
	}
	files, err := filepath.Glob("testdata/chat/*.jinja")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		templates = append(templates, string(b))
	}
	return templates, string(data.Context)
}

// checkError fails unless an error is an *Error with a line and a message.
func checkError(t *testing.T, source string, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Line < 1 || e.Kind == "" || e.Template != "fuzz" {
		t.Fatalf("%q: %#v", source, err)
	}
}

func FuzzParse(f *testing.F) {
	templates, _ := seeds(f)
	for _, s := range templates {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		if _, err := Parse("fuzz", source); err != nil {
			checkError(t, source, err)
		}
	})
}

func FuzzRender(f *testing.F) {
	templates, ctx := seeds(f)
	for _, s := range templates {
		f.Add(s, ctx)
		f.Add(s, "{}")
	}
	opts := Options{Now: recordedAt, MaxSteps: 200_000, MaxMemory: 16 << 20, MaxOutput: 1 << 20}
	f.Fuzz(func(t *testing.T, source, contextJSON string) {
		tmpl, err := Parse("fuzz", source)
		if err != nil {
			return
		}
		v, err := ParseJSON([]byte(contextJSON))
		if err != nil {
			return
		}
		ctx, ok := v.(*Dict)
		if !ok {
			return
		}
		first, err := tmpl.Render(ctx, opts)
		if err != nil {
			checkError(t, source, err)
		}
		if !utf8.ValidString(first) || int64(len(first)) > opts.MaxOutput {
			t.Fatalf("%q gives %d bytes, or such that are not UTF-8", source, len(first))
		}
		if second, _ := tmpl.Render(ctx, opts); second != first {
			t.Fatalf("%q gives %q, and then %q", source, first, second)
		}
	})
}
