package constrain

import "fmt"

// stringOf makes the expression of strings.
func (c *schemaCompiler) stringOf(schemas []flat) (*expr, error) {
	low, high := bounds(schemas, "minLength", "maxLength")
	if low > high {
		return none, nil
	}
	parts, err := stringParts(schemas, narrow)
	switch {
	case err != nil:
		return nil, err
	case len(parts) == 0:
		return c.freeString(low, high), nil
	case len(parts) == 1 && low == 0 && high == unbounded:
		return quoted(parts[0].expr), nil
	}
	d, err := c.stringDFA(schemas, narrow)
	if err != nil {
		return nil, err
	}
	return quoted(d.expr()), nil
}

// stringPart is the requirement of one keyword on the content of a string.
type stringPart struct {
	pointer, keyword string
	expr             *expr
}

// stringParts returns an expression for each pattern and each format of the schemas. Their strings are spelled in one
// way: see plainChar.
func stringParts(schemas []flat, how reading) ([]stringPart, error) {
	var parts []stringPart
	seen := map[string]bool{}
	for _, f := range schemas {
		if pattern, ok := f.values["pattern"].(string); ok && !seen["pattern "+pattern] {
			e, err := parsePattern(pattern, how, plainChar)
			if err != nil {
				return nil, fault(f.pointer, "pattern", "%q: %v", pattern, err)
			}
			seen["pattern "+pattern] = true
			parts = append(parts, stringPart{f.pointer, "pattern", e})
		}
		if format, ok := f.values["format"].(string); ok && !seen["format "+format] {
			e, err := formatExpr(format)
			if err != nil {
				return nil, fault(f.pointer, "format", "%v", err)
			}
			seen["format "+format] = true
			parts = append(parts, stringPart{f.pointer, "format", e})
		}
	}
	return parts, nil
}

// stringDFA makes the automaton of what is in the strings, in the one spelling of plainChar.
func (c *schemaCompiler) stringDFA(schemas []flat, how reading) (*dfa, error) {
	parts, err := stringParts(schemas, how)
	if err != nil {
		return nil, err
	}
	low, high := bounds(schemas, "minLength", "maxLength")
	if low > 0 || high != unbounded || len(parts) == 0 {
		key := "minLength"
		if high != unbounded {
			key = "maxLength"
		}
		parts = append(parts, stringPart{first(schemas, key), key, repeat(plainChar(anyRune), low, high)})
	}
	var all *dfa
	for _, p := range parts {
		d, ok := determinize(p.expr)
		if ok && all != nil {
			d, ok = all.and(d)
		}
		if ok {
			c.states += len(d.accept)
		}
		if !ok || c.states > maxDFAStates {
			return nil, fault(p.pointer, p.keyword,
				"together with the other keywords for strings it takes too large an automaton; make them shorter")
		}
		all = d
	}
	return all, nil
}

// formats are the values of the keyword format that are supported, as patterns. Each accepts only what RFC 3339, 4122,
// 5321 and so on do; email and uri accept their common part.
var formats = map[string]string{
	"date":      dateFormat,
	"time":      timeFormat,
	"date-time": dateFormat + `[Tt]` + timeFormat,
	"duration":  `P(?:[0-9]{1,9}W|(?:` + durationDate + `)(?:T(?:` + durationTime + `))?|T(?:` + durationTime + `))`,
	"uuid":      `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`,
	"ipv4":      ipv4Format,
	"ipv6":      ipv6Format(),
	// At most 64 characters before the @; names of at most 4 labels, so that 253 characters are not exceeded.
	"email":                 atomFormat + `(?:\.` + atomFormat + `){0,2}@` + hostFormat,
	"hostname":              hostFormat,
	"uri":                   uriFormat,
	"json-pointer":          `(?:/(?:[^/~]|~[01])*)*`,
	"relative-json-pointer": `(?:0|[1-9][0-9]{0,8})(?:#|(?:/(?:[^/~]|~[01])*)*)`,
}

const (
	leapYear = `(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)`
	// The 29th of February is in leap years only.
	dateFormat = `(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)` +
		`|02-(?:0[1-9]|1[0-9]|2[0-8]))|` + leapYear + `-02-29)`
	// A time of RFC 3339. Leap seconds (second 60) are not accepted: which minutes have one depends on the offset.
	timeFormat = `(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,20})?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])`

	durationDay  = `[0-9]{1,9}D`
	durationDate = `[0-9]{1,9}Y(?:[0-9]{1,9}M(?:` + durationDay + `)?)?|[0-9]{1,9}M(?:` +
		durationDay + `)?|` + durationDay
	durationTime = `[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S`

	byteFormat = `(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	ipv4Format = byteFormat + `(?:\.` + byteFormat + `){3}`

	// No two hyphens in a row: labels of other scripts (xn--) have rules of their own.
	labelFormat = `[A-Za-z0-9](?:-?[A-Za-z0-9]){0,30}`
	hostFormat  = `[A-Za-z0-9](?:-?[A-Za-z0-9]){0,31}(?:\.` + labelFormat + `){0,3}`

	atomFormat = `[A-Za-z0-9!#$%&'*+/=?^_{|}~-]{1,20}`

	uriChar   = `(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})`
	uriFormat = `[A-Za-z][A-Za-z0-9+.-]*:(?://` + hostFormat + `(?::[1-9][0-9]{0,3})?|` + uriChar + `+)(?:/` + uriChar +
		`*)*(?:\?(?:` + uriChar + `|[/?])*)?(?:#(?:` + uriChar + `|[/?])*)?`
)

// ipv6Format lists the forms of RFC 4291.
func ipv6Format() string {
	const group = `[0-9a-fA-F]{1,4}`
	last := `(?:` + group + `:` + group + `|` + ipv4Format + `)`
	out := fmt.Sprintf(`(?:%s:){6}%s`, group, last)
	for before := range 8 { // groups before ::
		head := ""
		if before > 0 {
			head = fmt.Sprintf(`%s(?::%s){%d}`, group, group, before-1)
		}
		var tails []string
		for after := range 8 - before { // groups after ::
			switch {
			case after == 0:
				tails = append(tails, "")
			case after == 1:
				tails = append(tails, group)
			default:
				tails = append(tails, fmt.Sprintf(`(?:%s:){%d}%s`, group, after-2, last))
			}
		}
		for _, tail := range tails {
			out += "|" + head + "::" + tail
		}
	}
	return `(?:` + out + `)`
}

// formatExpr returns the expression of a value of the keyword format.
func formatExpr(name string) (*expr, error) {
	pattern, ok := formats[name]
	if !ok {
		return nil, fmt.Errorf("%q is not one of the formats that can be asked for; use a pattern, or leave it out",
			name)
	}
	e, err := parsePattern(`^(?:`+pattern+`)$`, narrow, plainChar)
	if err != nil {
		return nil, fmt.Errorf("the format %q: %w", name, err)
	}
	return e, nil
}
