package constrain

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// suiteVar names a checkout of github.com/json-schema-org/JSON-Schema-Test-Suite.
const suiteVar = "ETC_JSON_SCHEMA_SUITE"

// suiteGroup is a schema of the suite and its instances.
type suiteGroup struct {
	Description string
	Schema      json.RawMessage
	Tests       []struct {
		Description string
		Data        json.RawMessage
		Valid       bool
	}
}

// tally counts the schemas of the suite and the valid instances of those that are taken.
type tally struct {
	schemas, impossible, valid, missed int
	refused                            map[string]int
	missing                            []string
}

// TestSuite holds the automaton against the suite of the JSON Schema organization. Its schemas are taken or refused by
// keyword; no invalid instance is taken, and what random walks end with is valid.
func TestSuite(t *testing.T) {
	dir := os.Getenv(suiteVar)
	if dir == "" {
		t.Skipf("set %s to a checkout of github.com/json-schema-org/JSON-Schema-Test-Suite", suiteVar)
	}
	files, err := filepath.Glob(filepath.Join(dir, "tests/draft2020-12/*.json"))
	require.NoError(t, err)
	formats, err := filepath.Glob(filepath.Join(dir, "tests/draft2020-12/optional/format/*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	v, stop := byteVocab(t, jsonTokens...)
	all := &tally{refused: map[string]int{}}
	for _, file := range append(files, formats...) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var groups []suiteGroup
		require.NoError(t, json.Unmarshal(text, &groups))
		for _, g := range groups {
			all.group(t, filepath.Base(file), g, v, stop, slices.Contains(formats, file))
		}
	}
	refused := 0
	var lines []string
	for key, n := range all.refused {
		refused += n
		lines = append(lines, fmt.Sprintf("%5d  %s", n, key))
	}
	sort.Sort(sort.Reverse(sort.StringSlice(lines)))
	t.Logf("%d schemas: %d taken, %d that nothing satisfies, %d refused:\n%s", all.schemas,
		all.schemas-refused-all.impossible, all.impossible, refused, strings.Join(lines, "\n"))
	t.Logf("%d valid instances, %d not accepted:\n%s", all.valid, len(all.missing), strings.Join(all.missing, "\n"))
	require.Less(t, refused, all.schemas/2)
	// What is left is numbers in another spelling: 1.0 for 1.
	require.LessOrEqual(t, all.missed, 9)
}

// group tries one schema.
func (a *tally) group(t *testing.T, file string, g suiteGroup, v *Vocab, stop int, format bool) {
	a.schemas++
	grammar, err := Compile(Source{JSONSchema, string(g.Schema)})
	name := file + ": " + g.Description
	impossible := err != nil && strings.Contains(err.Error(), "nothing satisfies it")
	if err != nil && !impossible {
		e := err.(*Error)
		key := e.Keyword
		if key == "" {
			key, _, _ = strings.Cut(e.Reason, ":")
		}
		a.refused[key]++
		return
	}
	if impossible {
		a.impossible++
	}
	for _, test := range g.Tests {
		d := json.NewDecoder(strings.NewReader(string(test.Data)))
		d.UseNumber()
		value, err := readJSON(d, 0)
		require.NoError(t, err)
		texts := orders(value, 300)
		accepted := !impossible && slices.ContainsFunc(texts, func(s string) bool { return accepts(grammar, s) })
		if !test.Valid {
			assert.False(t, accepted, "%s: %s: %s", name, test.Description, test.Data)
			continue
		}
		a.valid++
		if !accepted {
			if !format && file != "format.json" { // formats accept the common part only
				a.missed++
			}
			a.missing = append(a.missing, fmt.Sprintf("%s: %s: %.60s", name, test.Description, test.Data))
		}
	}
	if impossible {
		return
	}
	s, err := jsonschemaOf(string(g.Schema))
	if err != nil {
		return
	}
	r := rand.New(rand.NewPCG(1, uint64(a.schemas)))
	for range 5 {
		if text, ok := walk(t, NewMatcher(grammar, v), stop, 200, r.IntN); ok {
			checkText(t, s, string(g.Schema), text)
		}
	}
}

// jsonschemaOf compiles a schema with the library.
func jsonschemaOf(schema string) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(noLoader{})
	if err := c.AddResource("test:///schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("test:///schema.json")
}
