package template

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// recordedAt is the time at which the renders of testdata were recorded.
func recordedAt() time.Time { return time.Unix(1795165200, 0).UTC() }

func render(t testing.TB, source string, ctx *Dict) (string, error) {
	t.Helper()
	tmpl, err := Parse("test", source)
	if err != nil {
		return "", err
	}
	return tmpl.Render(ctx, Options{Now: recordedAt})
}

func parseContext(t testing.TB, data []byte) *Dict {
	t.Helper()
	v, err := ParseJSON(data)
	require.NoError(t, err)
	require.IsType(t, &Dict{}, v)
	return v.(*Dict)
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", path))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, v))
}

// recorded is what jinja2 gives: a text, or an error with its kind and perhaps its message.
type recorded struct {
	Template string
	Text     *string
	Error    Kind
	Message  string
}

func (r recorded) check(t *testing.T, text string, err error) {
	t.Helper()
	if r.Text != nil {
		require.NoError(t, err, r.Template)
		if diff := cmp.Diff(*r.Text, text); diff != "" {
			t.Errorf("%s\n(-jinja2 +got)\n%s", r.Template, diff)
		}
		return
	}
	var e *Error
	require.ErrorAs(t, err, &e, "%s\ngave %q, jinja2 gives an error", r.Template, text)
	if r.Error != "*" {
		require.Equal(t, r.Error, e.Kind, "%s\n%v", r.Template, err)
	}
	if r.Message != "" {
		require.Equal(t, r.Message, e.Message, r.Template)
	}
}

func TestRendersOfJinja2(t *testing.T) {
	var data struct {
		Context json.RawMessage
		Cases   []recorded
	}
	readJSON(t, "renders.json", &data)
	require.Greater(t, len(data.Cases), 800)
	ctx := parseContext(t, data.Context)
	for _, c := range data.Cases {
		text, err := render(t, c.Template, ctx)
		c.check(t, text, err)
	}
	require.True(t, cmp.Equal(dump(t, parseContext(t, data.Context)), dump(t, ctx)), "a render changed its context")
}

// dump writes a value as JSON.
func dump(t testing.TB, v Value) string {
	t.Helper()
	ctx := &Dict{}
	ctx.Set("v", v)
	text, err := render(t, "{{ v|tojson }}", ctx)
	require.NoError(t, err)
	return text
}

func TestChatTemplates(t *testing.T) {
	var contexts []json.RawMessage
	readJSON(t, "chat/contexts.json", &contexts)
	var renders map[string][]recorded
	readJSON(t, "chat/renders.json", &renders)
	require.Len(t, renders, 3)
	for name, list := range renders {
		t.Run(name, func(t *testing.T) {
			source, err := os.ReadFile(filepath.Join("testdata/chat", name))
			require.NoError(t, err)
			tmpl, err := Parse(name, string(source))
			require.NoError(t, err)
			require.Len(t, list, len(contexts))
			for i, want := range list {
				text, err := tmpl.Render(parseContext(t, contexts[i]), Options{Now: recordedAt})
				want.check(t, text, err)
			}
		})
	}
}

func TestRenderConcurrently(t *testing.T) {
	tmpl, err := Parse("test", `{% set ns = namespace(s='') %}{% for m in messages %}{% macro p(x) %}<{{ x }}>{% endmacro %}`+
		`{% set ns.s = ns.s ~ p(m.content) %}{% endfor %}{{ ns.s }}{{ messages|map(attribute='role')|join }}`)
	require.NoError(t, err)
	require.Equal(t, "test", tmpl.Name())
	ctx := Chat{Messages: []Value{NewMessage("a", "1"), NewMessage("b", "2")}}.Context()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				text, err := tmpl.Render(ctx, Options{})
				if err != nil || text != "<1><2>ab" {
					t.Errorf("%q, %v", text, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestErrorNamesThePlace(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"a\n{% if x %}", `test:2: TemplateSyntaxError: the template ends where one of the tags elif, else, endif is missing; the innermost open tag is if`},
		{"\n\n{{ 'a }}", `test:3: TemplateSyntaxError: the string that starts with ' does not end`},
		{"{{ a", `test:1: TemplateSyntaxError: expected "}}", found end of template`},
		{"{{ a b }}", `test:1: TemplateSyntaxError: expected "}}", found "b"`},
		{"{% fro x in y %}", `test:1: TemplateSyntaxError: unknown tag "fro"`},
		{"{% for x in y %}{% endif %}", `test:1: TemplateSyntaxError: unknown tag "endif"; the innermost open tag is for`},
		{"{% for x in y %}{% if x %}{% endfor %}",
			`test:1: TemplateSyntaxError: the tag "endfor" is not nested well: elif or else or endif comes first`},
		{"{{ x|Upper }}", `test:1: TemplateSyntaxError: there is no filter "Upper", but upper`},
		{"{% if x is nought %}{% endif %}{{ x is nought }}", `test:1: TemplateSyntaxError: there is no test "nought"`},
		{"{% set true = 1 %}", `test:1: TemplateSyntaxError: this cannot be assigned to`},
		{"{{ '\\ud83d' }}", `test:1: TemplateSyntaxError: the escape d83d in a string is no Unicode character`},
		{"a\n{{ missing.x }}", `test:2: UndefinedError: 'missing' is undefined`},
		{"{{ d.x.y }}", `test:1: UndefinedError: 'dict object' has no attribute 'x'`},
		{"{{ [1][5].y }}", `test:1: UndefinedError: list object has no element 5`},
		{"{{ s.foo() }}", `test:1: UndefinedError: 'str object' has no attribute 'foo'`},
		{"{{ none.foo() }}", `test:1: UndefinedError: 'None' has no attribute 'foo'`},
		{"{{ s.__class__.x }}", `test:1: SecurityError: access to attribute '__class__' of 'str' object is unsafe.`},
		{"{{ d.update({}) }}", `test:1: SecurityError: access to attribute 'update' of 'dict' object is unsafe.`},
		{"\n{{ 'a' +\n1 }}", `test:2: TypeError: can only concatenate str (not "int") to str`},
		{"{{ s < 1 }}", `test:1: TypeError: '<' not supported between instances of 'str' and 'int'`},
		{"{% macro m(a) %}\n{{ a.b }}{% endmacro %}\n{{ m() }}",
			`test:2: UndefinedError: parameter 'a' was not provided`},
		{"{% macro m(a) %}{% endmacro %}\n\n{{ m(b=1) }}",
			`test:3: TypeError: macro 'm' takes no keyword argument 'b'`},
		{"{% for a, b in [1] %}{% endfor %}", `test:1: TypeError: cannot unpack non-iterable int object`},
		{"\n{% for a in 5 %}{% endfor %}", `test:2: TypeError: 'int' object is not iterable`},
		{"{{ s|join(x=1) }}", `test:1: TypeError: join() got an unexpected keyword argument 'x'`},
		{"{{ s.replace('a') }}", `test:1: TypeError: replace() missing the required argument 'new'`},
		{"{{ [missing]|tojson }}", `test:1: TypeError: Object of type Undefined is not JSON serializable`},
		{"a\nb{{ raise_exception('no ' ~ s) }}", `test:2: TemplateError: no text`},
		{"{% include 'f' %}", `test:1: TemplateRuntimeError: include is refused: a template reads no other templates or files`},
		{"{% set s.x = 1 %}", `test:1: TemplateRuntimeError: cannot assign attribute on non-namespace object: .x of a value of type str`},
		{"{{ lipsum() }}", `test:1: NotSupported: lipsum is not supported: a prompt is not random`},
		{"{{ [1]|random }}", `test:1: NotSupported: the filter random is not supported: a prompt is not random`},
		{"{{ d|pprint }}", `test:1: NotSupported: the filter pprint is not supported; tojson(indent=…) prints values readably`},
		{"{{ s|urlize }}", `test:1: NotSupported: the filter urlize is not supported: a prompt is not HTML`},
		{"{% autoescape true %}{% endautoescape %}",
			`test:1: NotSupported: autoescape is not supported: a prompt is not HTML`},
		{"{{ s.encode() }}", `test:1: NotSupported: str.encode gives bytes, which are not supported`},
		{"{{ (-8) ** 0.5 }}", `test:1: NotSupported: a negative number to the power of a fraction is complex, which is not supported`},
		{"{{ d.keys() - ['a'] }}", `test:1: NotSupported: sets, which '-' makes of dict_keys, are not supported`},
		{"{{ '\\N{DASH}' }}", `test:1: TemplateSyntaxError: the escape \N{…} is not supported; write the character itself`},
		{"\xff", `test:1: TemplateSyntaxError: the template is not UTF-8`},
	} {
		ctx := &Dict{}
		ctx.Set("s", Str("text"))
		ctx.Set("d", &Dict{})
		_, err := render(t, c.source, ctx)
		require.EqualError(t, err, c.want, c.source)
	}
}

func TestRaisedMessage(t *testing.T) {
	_, err := render(t, "{{ raise_exception('Roles must alternate') }}", nil)
	var e *Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, Error{Template: "test", Line: 1, Kind: Raised, Message: "Roles must alternate"}, *e)
}

func TestStrftimeNow(t *testing.T) {
	tmpl, err := Parse("test", "{{ strftime_now('%Y-%m-%d %H:%M:%S.%f %a %-d|%z|%Z') }}")
	require.NoError(t, err)
	zone := time.FixedZone("X", 3600)
	at := time.Date(2024, 2, 29, 23, 5, 7, 123456789, zone)
	text, err := tmpl.Render(nil, Options{Now: func() time.Time { return at }})
	require.NoError(t, err)
	require.Equal(t, "2024-02-29 23:05:07.123456 Thu 29||", text)
	before := time.Now().Year()
	text, err = render(t, "{{ strftime_now('%Y') }}", nil)
	require.NoError(t, err)
	require.Equal(t, "2026", text)
	tmpl, err = Parse("test", "{{ strftime_now('%Y')|int }}")
	require.NoError(t, err)
	text, err = tmpl.Render(nil, Options{})
	require.NoError(t, err)
	require.Contains(t, []string{strconv.Itoa(before), strconv.Itoa(before + 1)}, text)
}
