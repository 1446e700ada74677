package template

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// small are limits that the templates below reach at once.
var small = Options{MaxSteps: 200_000, MaxMemory: 4 << 20, MaxOutput: 1 << 20}

func TestLimits(t *testing.T) {
	double := func(start, step string) string {
		return "{% set ns = namespace(x=" + start + ") %}{% for i in range(64) %}{% set ns.x = " +
			step + " %}{% endfor %}"
	}
	deep := "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}"
	wide := double("[1]", "[ns.x, ns.x]")
	for _, c := range []struct {
		source string
		kind   Kind
	}{
		{"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", LimitError},
		{"{% for i in range(1000) %}{{ 'a' * 10000 }}{% endfor %}", LimitError},
		{double("'aaaa'", "ns.x ~ ns.x"), LimitError},
		{double("[1]", "ns.x + ns.x"), LimitError},
		{double("2**32", "ns.x * ns.x"), LimitError},
		{wide + "{{ ns.x }}", LimitError},
		{wide + "{{ ns.x|tojson }}", LimitError},
		{wide + "{{ ns.x|string|length }}", LimitError},
		{double("(1,)", "(ns.x, ns.x)") + "{{ {ns.x: 1} }}", LimitError},
		{deep + "{{ ns.x }}", RecursionError},
		{deep + "{{ ns.x|tojson }}", RecursionError},
		{deep + "{{ ns.x == ns.y }}", RecursionError},
		{deep + "{{ ns.x < ns.y }}", RecursionError},
		{"{% set ns = namespace(x=(1,)) %}{% for i in range(1000) %}{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1} }}", RecursionError},
		{"{{ 'a' * 10**9 }}", LimitError},
		{"{{ 'a' * 10**30 }}", OverflowError},
		{"{{ [1] * 10**9 }}", LimitError},
		{"{{ (1, 2) * 10**9 }}", LimitError},
		{"{{ 'x'.center(10**9) }}", LimitError},
		{"{{ 'x'.ljust(10**15) }}", LimitError},
		{"{{ 'x'.zfill(10**9) }}", LimitError},
		{"{{ '\t'.expandtabs(10**9) }}", LimitError},
		{"{{ '%1000000000d' % 5 }}", LimitError},
		{"{{ '%.1000000000f' % 5 }}", LimitError},
		{"{{ '%*d' % (10**9, 5) }}", LimitError},
		{"{{ '{:1000000000}'.format(5) }}", LimitError},
		{"{{ '{:01000000000,}'.format(5) }}", LimitError},
		{"{{ '{:.1000000000f}'.format(5) }}", LimitError},
		{"{{ ('a' * 1000).replace('a', 'b' * 10000) }}", LimitError},
		{"{{ ('a' * 1000).replace('', 'b' * 10000) }}", LimitError},
		{"{{ ('a' * 1000).translate({97: 'b' * 10000}) }}", LimitError},
		{"{{ range(1000)|join('b' * 10000) }}", LimitError},
		{"{{ ('b' * 10000).join('a' * 1000) }}", LimitError},
		{"{{ ('a\n' * 1000)|indent(10000) }}", LimitError},
		{"{{ ('a' * 1000)|wordwrap(1, wrapstring='b' * 10000) }}", LimitError},
		{"{{ [1]|batch(10**9, 'x')|list }}", LimitError},
		{"{{ [1]|slice(10**9)|list }}", LimitError},
		{"{{ [[1]]|tojson(indent=10**9) }}", LimitError},
		{"{{ range(1000)|list|tojson(indent='b' * 10000) }}", LimitError},
		{"{{ range(1000)|list|tojson(separators=('b' * 10000, '')) }}", LimitError},
		{"{{ strftime_now('%999999999d') }}", LimitError},
		{"{{ 2 ** (10**6) }}", LimitError},
		{"{{ 2 ** (2 ** 40) }}", LimitError},
		{"{% for i in range(1000) %}{% set x = 3**40000 %}{% endfor %}", LimitError},
		{"{% set x = 'é' * 100000 %}{% for i in range(100000) %}{% set y = x[i] %}{% endfor %}", LimitError},
		{"{% set x = range(10000)|list %}{% for i in x %}{{ -1 in x }}{% endfor %}", LimitError},
		{"{% set x = 'Σ' * 100000 %}{{ x.lower() }}", LimitError},
		{"{{ 10 ** 5000 }}", ValueError},
		{"{{ range(100001) }}", OverflowError},
		{"{{ range(10**30) }}", OverflowError},
		{"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", RecursionError},
		{"{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% endmacro %}{{ g() }}", RecursionError},
		{"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", RecursionError},
		{"{% block b %}{{ self.b() }}{% endblock %}", RecursionError},
		{"{{ " + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000) + " }}", SyntaxError},
		{"{{ " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + " }}", SyntaxError},
		{"{{ " + strings.Repeat("-", 5000) + "1 }}", SyntaxError},
		{"{{ " + strings.Repeat("not ", 5000) + "1 }}", SyntaxError},
		{"{{ 1" + strings.Repeat(" + 1", 5000) + " }}", SyntaxError},
		{"{{ 1" + strings.Repeat(" and 1", 5000) + " }}", SyntaxError},
		{"{{ x" + strings.Repeat(".y", 5000) + " }}", SyntaxError},
		{"{{ x" + strings.Repeat("|upper", 5000) + " }}", SyntaxError},
		{"{{ x" + strings.Repeat(" if x", 5000) + " }}", SyntaxError},
		{"{{ x" + strings.Repeat(" if x else x", 5000) + " }}", SyntaxError},
		{strings.Repeat("{% if x %}", 5000) + strings.Repeat("{% endif %}", 5000), SyntaxError},
		{strings.Repeat("{% for x in y %}", 21) + strings.Repeat("{% endfor %}", 21), SyntaxError},
		{strings.Repeat("a", maxSource+1), SyntaxError},
		{"{{ f(" + strings.Repeat("1,", maxArguments+1) + ") }}", SyntaxError},
		{"{% macro m(" + parameters(maxArguments+1) + ") %}{% endmacro %}", SyntaxError},
	} {
		name := c.source[:min(len(c.source), 120)]
		tmpl, err := Parse("test", c.source)
		if err == nil {
			_, err = tmpl.Render(nil, small)
		}
		var e *Error
		require.ErrorAs(t, err, &e, name)
		require.Equal(t, c.kind, e.Kind, "%s\n%v", name, err)
	}
}

// parameters writes n names.
func parameters(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = "p" + strconv.Itoa(i)
	}
	return strings.Join(names, ",")
}

// What stays within the limits must not be refused.
func TestWithinLimits(t *testing.T) {
	for source, want := range map[string]string{
		"{% set n = namespace(x=0) %}{% for i in range(100000) %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}": "4999950000",
		"{{ ('a' * 10**6)|length }}":                                                        "1000000",
		"{{ (10 ** 4299)|string|length }}":                                                  "4300",
		"{{ 2 ** 10**9 == (2 ** 10) ** 9 }}":                                                "True",
		strings.Repeat("{% if 1 %}", 98) + "x" + strings.Repeat("{% endif %}", 98):          "x",
		strings.Repeat("{% for i in [1] %}", 20) + "x" + strings.Repeat("{% endfor %}", 20): "x",
		"{{ " + strings.Repeat("(", 100) + "1" + strings.Repeat(")", 100) + " }}":           "1",
		"{{ 0" + strings.Repeat(" + 1", 200) + " }}":                                        "200",
		"{{ 'x'" + strings.Repeat(" ~ 'x'",
			5000) + " }}": strings.Repeat("x", 5001),
		"{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(150)|length }}":                                            "343",
		"{% set n = namespace(x=[]) %}{% for i in range(800) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x|string|length }} {{ n.x|tojson|length }}": "1602 1602",
	} {
		text, err := render(t, source, nil)
		require.NoError(t, err, source[:min(len(source), 120)])
		require.Equal(t, want, text)
	}
}

func TestOutputLimit(t *testing.T) {
	tmpl, err := Parse("test", "{% for i in range(n) %}0123456789{% endfor %}")
	require.NoError(t, err)
	ctx := &Dict{}
	ctx.Set("n", Int(10))
	text, err := tmpl.Render(ctx, Options{MaxOutput: 100})
	require.NoError(t, err)
	require.Len(t, text, 100)
	ctx.Set("n", Int(11))
	_, err = tmpl.Render(ctx, Options{MaxOutput: 100})
	var e *Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, LimitError, e.Kind)
}
