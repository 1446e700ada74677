package constrain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// oracle compiles a schema with the library, formats asserted.
func oracle(t require.TestingT, schema string) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(noLoader{})
	require.NoError(t, c.AddResource("test:///schema.json", doc))
	s, err := c.Compile("test:///schema.json")
	require.NoError(t, err, schema)
	return s
}

// checkText holds a text that ended by itself against the library and encoding/json.
func checkText(t require.TestingT, s *jsonschema.Schema, schema, text string) {
	var v any
	require.NoError(t, json.Unmarshal([]byte(text), &v), "%s", text)
	require.NoError(t, s.Validate(decode(t, text)), "%s is not valid for %s", text, schema)
}

// walk follows a text at random under the mask until it ends by itself; ok is false if it does not within so many
// tokens. pick chooses one of n.
func walk(t require.TestingT, m *Matcher, stop, steps int, pick func(n int) int) (string, bool) {
	v := m.k.v
	mask := make([]uint64, v.MaskWords())
	var text []byte
	for i := range steps {
		m.Mask(mask)
		var allowed []int
		for id := range v.Size() {
			if mask[id>>6]>>(id&63)&1 == 1 {
				allowed = append(allowed, id)
			}
		}
		require.NotEmpty(t, allowed, "nothing may follow %q", text)
		if m.CanEnd() && (i > steps/2 || pick(2) == 0) {
			require.NoError(t, m.Accept(stop))
			return string(text), true
		}
		id := allowed[pick(len(allowed))]
		if i > steps/3 { // hurry: what closes is among the bytes
			for _, b := range []byte("\"]}") {
				if mask[b>>6]>>(b&63)&1 == 1 {
					id = int(b)
				}
			}
		}
		if id == stop {
			require.True(t, m.CanEnd())
			return string(text), true
		}
		require.NoError(t, m.Accept(id))
		text = append(text, v.tokens[id]...)
	}
	return "", false
}

// random draws schemas. Names are few, so that merged schemas meet.
type random struct {
	*rapid.T
	defs int // definitions that may be referred to
}

func (r random) one(of ...string) string  { return rapid.SampledFrom(of).Draw(r.T, "one") }
func (r random) number(low, high int) int { return rapid.IntRange(low, high).Draw(r.T, "number") }
func (r random) maybe(s string) string {
	if r.number(0, 2) == 0 {
		return s
	}
	return ""
}

// schema draws a schema of a depth.
func (r random) schema(depth int) string {
	kinds := []string{"string", "number", "integer", "enum", "const", "literal", "null"}
	if depth > 0 {
		kinds = append(kinds, "object", "object", "array", "array", "anyOf", "oneOf", "allOf", "types", "true")
		if r.defs > 0 {
			kinds = append(kinds, "ref")
		}
	}
	var parts []string
	add := func(format string, args ...any) {
		if s := fmt.Sprintf(format, args...); s != "" {
			parts = append(parts, s)
		}
	}
	list := func(n int) string {
		var out []string
		for range n {
			out = append(out, r.schema(depth-1))
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	switch kind := r.one(kinds...); kind {
	case "string":
		add(`"type":"string"`)
		r.stringKeywords(add)
	case "number", "integer":
		add(`"type":%q`, kind)
		r.numberKeywords(add)
	case "enum":
		add(`"enum":[%s,%s,%s]`, r.value(), r.value(), r.value())
		add("%s", r.maybe(`"type":["string","integer","object"]`))
	case "const":
		add(`"const":%s`, r.value())
	case "literal":
		return r.one("{}", "true", `{"type":"boolean"}`)
	case "null":
		add(`"type":"null"`)
	case "object":
		add(`"type":"object"`)
		r.objectKeywords(add, depth)
	case "array":
		add(`"type":"array"`)
		add("%s", r.maybe(fmt.Sprintf(`"minItems":%d`, r.number(0, 3))))
		add("%s", r.maybe(fmt.Sprintf(`"maxItems":%d`, r.number(0, 4))))
		add("%s", r.maybe(`"prefixItems":`+list(r.number(1, 3))))
		add("%s", r.maybe(`"items":`+r.one("false", r.schema(depth-1))))
	case "anyOf", "oneOf", "allOf":
		add(`%q:%s`, kind, list(r.number(1, 3)))
		add("%s", r.maybe(`"type":["object","string","integer"]`))
	case "types":
		add(`"type":["string","number","object","array"]`)
		r.stringKeywords(add)
		r.numberKeywords(add)
		r.objectKeywords(add, depth)
	case "ref":
		add(`"$ref":"#/$defs/d%d"`, r.number(0, r.defs-1))
	case "true":
		return "true"
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (r random) stringKeywords(add func(string, ...any)) {
	add("%s", r.maybe(fmt.Sprintf(`"minLength":%d`, r.number(0, 4))))
	add("%s", r.maybe(fmt.Sprintf(`"maxLength":%d`, r.number(2, 60))))
	add("%s", r.maybe(`"pattern":`+r.one(`"^[a-c]+$"`, `"b"`, `"^a|b$"`, `"\\d{2,3}"`, `"^\\S+$"`,
		`"^(?:é|\\n|\")*$"`, `"^[^\\s]{2}.?$"`)))
	if r.number(0, 4) == 0 {
		add(`"format":%q`, r.one("date", "time", "date-time", "duration", "uuid", "ipv4", "ipv6", "email",
			"hostname", "uri", "json-pointer",
			"relative-json-pointer"))
	}
}

func (r random) numberKeywords(add func(string, ...any)) {
	add("%s", r.maybe(`"minimum":`+r.one("-12.5", "0", "3", "9.75", "-1e2", "99")))
	add("%s", r.maybe(`"maximum":`+r.one("-0.5", "0", "12", "100.125", "1e3", "99")))
	add("%s", r.maybe(`"exclusiveMinimum":`+r.one("-12.5", "0", "3", "9.75")))
	add("%s", r.maybe(`"exclusiveMaximum":`+r.one("0", "100", "10.05")))
	add("%s", r.maybe(`"multipleOf":`+r.one("1", "3", "0.1", "0.01", "10")))
}

func (r random) objectKeywords(add func(string, ...any), depth int) {
	var members []string
	for _, name := range []string{"a", "b", "k\"", "ab"}[:r.number(0, 4)] {
		members = append(members, fmt.Sprintf(`%q:%s`, name, r.schema(depth-1)))
	}
	if len(members) > 0 {
		add(`"properties":{%s}`, strings.Join(members, ","))
	}
	add("%s", r.maybe(`"required":`+r.one(`["a"]`, `["b","a"]`, `["z"]`)))
	add("%s", r.maybe(`"additionalProperties":`+r.one("false", "true", r.schema(depth-1))))
	add("%s", r.maybe(fmt.Sprintf(`"patternProperties":{%q:%s}`, r.one("^a", "b$", "."), r.schema(depth-1))))
	add("%s", r.maybe(`"propertyNames":`+r.one(`{"maxLength":3}`, `{"pattern":"^[a-z\"]*$"}`,
		`{"enum":["a","b","c"]}`)))
	add("%s", r.maybe(`"minProperties":1`))
	add("%s", r.maybe(fmt.Sprintf(`"maxProperties":%d`, r.number(1, 4))))
}

// value draws an instance in one line, spelled as the automaton spells what it is asked to match.
func (r random) value() string { return r.nested(3) }

func (r random) nested(depth int) string {
	kinds := 11
	if depth == 0 {
		kinds = 6
	}
	switch r.number(0, kinds) {
	case 0:
		return r.one("true", "false", "null")
	case 1, 2:
		return r.one("0", "1", "3", "-7", "10", "99", "100", "30", "120")
	case 3:
		return r.one("0.5", "9.75", "-12.5", "12.25", "100.125", "3.1", "99.9")
	case 4, 5, 6:
		return r.one(`""`, `"a"`, `"b"`, `"abc"`, `"ab"`, `"12"`, `"é"`, `"\n"`, `"\""`, `"a b"`, `"2024-02-29"`,
			`"::1"`, `"1.2.3.4"`, `"x@y.z"`, `"xyz.b"`,
			`"a-b.c"`, `"http://x.y/z?q#f"`, `"12:30:00Z"`, `"2024-02-29T12:30:00+01:00"`, `"P1DT2H"`, `"/a/b"`, `"1#"`,
			`"123e4567-e89b-12d3-a456-426614174000"`)
	case 7, 8:
		var parts []string
		for range r.number(0, 3) {
			parts = append(parts, r.nested(depth-1))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	var parts []string
	for _, name := range []string{`"a"`, `"b"`, `"k\""`, `"ab"`, `"c"`, `"xb"`, `"z"`} {
		if r.number(0, 2) == 0 {
			parts = append(parts, name+":"+r.nested(depth-1))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// document draws a whole schema.
func document(t *rapid.T) string {
	r := random{t, rapid.IntRange(0, 2).Draw(t, "defs")}
	s := r.schema(3)
	if r.defs == 0 || !strings.HasSuffix(s, "}") {
		return s
	}
	var defs []string
	for i := range r.defs {
		defs = append(defs, fmt.Sprintf(`"d%d":%s`, i, r.schema(2)))
	}
	comma := ","
	if s == "{}" {
		comma = ""
	}
	return s[:len(s)-1] + comma + `"$defs":{` + strings.Join(defs, ",") + "}}"
}

// TestWhatEndsIsValid follows random schemas at random: what ends by itself is valid.
func TestWhatEndsIsValid(t *testing.T) {
	v, stop := byteVocab(t, jsonTokens...)
	compiled, ended := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		schema := document(t)
		s := oracle(t, schema)
		g, err := Compile(Source{JSONSchema, schema})
		if err != nil {
			return
		}
		compiled++
		text, ok := walk(t, NewMatcher(g, v), stop, 400,
			func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") })
		if ok {
			ended++
			checkText(t, s, schema, text)
		}
	})
	t.Logf("%d schemas were taken, %d texts ended", compiled, ended)
	require.Greater(t, ended, compiled/2)
	require.NotZero(t, ended)
}

// orders writes a value with the members of its objects in every order, up to a number of texts.
func orders(v any, limit int) []string {
	product := func(open, shut string, parts [][]string) []string {
		out := []string{open}
		for i, texts := range parts {
			var next []string
			for _, head := range out {
				for _, text := range texts {
					if i > 0 {
						text = "," + text
					}
					if len(next) <= limit {
						next = append(next, head+text)
					}
				}
			}
			out = next
		}
		for i := range out {
			out[i] += shut
		}
		return out
	}
	switch v := v.(type) {
	case []any:
		var parts [][]string
		for _, x := range v {
			parts = append(parts, orders(x, limit))
		}
		return product("[", "]", parts)
	case *object:
		var out []string
		var permute func(done [][]string, left []string)
		permute = func(done [][]string, left []string) {
			if len(out) > limit {
				return
			}
			if len(left) == 0 {
				out = append(out, product("{", "}", done)...)
			}
			for i, key := range left {
				var members []string
				for _, text := range orders(v.values[key], limit) {
					members = append(members, `"`+plainString(key)+`":`+text)
				}
				rest := append(append([]string{}, left[:i]...), left[i+1:]...)
				permute(append(done[:len(done):len(done)], members), rest)
			}
		}
		permute(nil, v.keys)
		return out
	case string:
		return []string{`"` + plainString(v) + `"`}
	}
	text, _ := json.Marshal(v)
	return []string{string(text)}
}

// decode reads a value as the library wants it.
func decode(t require.TestingT, text string) any {
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	require.NoError(t, err)
	return v
}

// TestWhatIsValidIsAccepted draws instances: the automaton takes those that the library finds valid, and no others.
func TestWhatIsValidIsAccepted(t *testing.T) {
	valid, refused, taken := 0, map[string]int{}, 0
	rapid.Check(t, func(t *rapid.T) {
		schema := document(t)
		s := oracle(t, schema)
		g, err := Compile(Source{JSONSchema, schema})
		impossible := err != nil && strings.Contains(err.Error(), "nothing satisfies it")
		if err != nil && !impossible {
			refused[err.(*Error).Keyword]++
			return
		}
		taken++
		r := random{t, 0}
		for range 30 {
			instance := r.value()
			want := s.Validate(decode(t, instance)) == nil
			if want {
				valid++
			}
			if impossible {
				require.False(t, want, "%s is valid for %s, which is said to be impossible", instance, schema)
				continue
			}
			if !want {
				require.False(t, accepts(g, instance), "%s is not valid for %s", instance, schema)
				continue
			}
			const limit = 300
			d := json.NewDecoder(strings.NewReader(instance))
			d.UseNumber()
			v, err := readJSON(d, 0)
			require.NoError(t, err)
			texts := orders(v, limit)
			if len(texts) <= limit {
				require.True(t, slices.ContainsFunc(texts, func(s string) bool { return accepts(g, s) }),
					"%s for %s", instance, schema)
			}
		}
	})
	t.Logf("%d schemas were taken, of %d instances valid; refused: %v", taken, valid, refused)
	require.NotZero(t, valid)
}
