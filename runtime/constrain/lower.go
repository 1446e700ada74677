package constrain

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// ruleFor returns the rule of the values that all schemas of a set take. One set has one rule, so recursion ends.
func (c *schemaCompiler) ruleFor(set []element) (*expr, error) {
	schemas, never, err := c.expand(set)
	if err != nil {
		return nil, err
	}
	if never {
		return none, nil
	}
	if len(schemas) == 0 {
		return c.anyValue(), nil
	}
	slices.SortFunc(schemas, func(a, b flat) int { return strings.Compare(a.pointer, b.pointer) })
	var key strings.Builder
	for _, f := range schemas {
		fmt.Fprintf(&key, "%s %d\n", f.pointer, f.done)
	}
	if id, ok := c.rules[key.String()]; ok {
		return ref(id), nil
	}
	if len(c.rules) >= maxSchemaRules {
		return nil, fault(schemas[0].pointer, "",
			"the combinations of anyOf, oneOf and allOf are more than %d", maxSchemaRules)
	}
	id := c.add("#" + schemas[0].pointer)
	c.rules[key.String()] = id
	body, err := c.body(schemas)
	if err != nil {
		return nil, err
	}
	c.bodies[id] = body
	return ref(id), nil
}

// disjunction finds a schema with alternatives that have not been chosen from.
func disjunction(schemas []flat) (at int, keyword string, done uint8) {
	for i, f := range schemas {
		if f.has("anyOf") && f.done&doneAnyOf == 0 {
			return i, "anyOf", doneAnyOf
		}
		if f.has("oneOf") && f.done&doneOneOf == 0 {
			return i, "oneOf", doneOneOf
		}
	}
	return -1, "", 0
}

// branches returns the sets of schemas of choosing each alternative of the first disjunction; nil if there is none.
func branches(schemas []flat) (sets [][]element, at int, keyword string) {
	at, keyword, done := disjunction(schemas)
	if at < 0 {
		return nil, -1, ""
	}
	f := schemas[at]
	members, _ := f.values[keyword].([]any)
	for i := range members {
		var set []element
		for j, g := range schemas {
			e := g.element
			if j == at {
				e.done |= done
			}
			set = append(set, e)
		}
		sets = append(sets, append(set, element{pointer: fmt.Sprintf("%s/%s/%d", f.pointer, keyword, i)}))
	}
	return sets, at, keyword
}

// body makes the expression of the values that all schemas take.
func (c *schemaCompiler) body(schemas []flat) (*expr, error) {
	if e, ok, err := c.listed(schemas); ok || err != nil {
		return e, err
	}
	sets, at, keyword := branches(schemas)
	if at >= 0 {
		if keyword == "oneOf" {
			if err := c.exclusive(schemas[at].pointer, sets); err != nil {
				return nil, err
			}
		}
		var alts []*expr
		for _, set := range sets {
			e, err := c.ruleFor(set)
			if err != nil {
				return nil, err
			}
			alts = append(alts, e)
		}
		return alt(alts...), nil
	}
	if refuseAll(schemas) {
		return none, nil
	}
	all := kindsOf(schemas)
	var alts []*expr
	makers := []struct {
		kinds kinds
		make  func([]flat) (*expr, error)
	}{
		{kindObject, c.objectOf}, {kindArray, c.arrayOf}, {kindString, c.stringOf},
		{kindInteger | kindFraction, c.numberOf},
	}
	for _, m := range makers {
		if all&m.kinds == 0 {
			continue
		}
		e, err := m.make(schemas)
		if err != nil {
			return nil, err
		}
		alts = append(alts, e)
	}
	if all&kindBoolean != 0 {
		alts = append(alts, c.boolean())
	}
	if all&kindNull != 0 {
		alts = append(alts, lit("null"))
	}
	return alt(alts...), nil
}

// refuseAll reports whether one of the schemas takes nothing, by a not that takes everything.
func refuseAll(schemas []flat) bool {
	return slices.ContainsFunc(schemas, func(f flat) bool { return isTrue(f.values["not"]) })
}

// listed makes the expression for schemas of which at least one lists its values: of those values, the ones that the
// library finds valid for all schemas. It returns false where none lists values.
func (c *schemaCompiler) listed(schemas []flat) (*expr, bool, error) {
	values, ok, err := c.values(schemas)
	if !ok || err != nil {
		return nil, ok, err
	}
	var alts []*expr
	var texts []string
	for _, v := range values {
		e, err := c.value(v)
		if err != nil {
			return nil, true, err
		}
		if e.op == opBytes {
			texts = append(texts, e.lit)
		} else {
			alts = append(alts, e)
		}
	}
	return alt(append(alts, oneOfTexts(texts))...), true, nil
}

// values returns the valid ones of the values that schemas list.
func (c *schemaCompiler) values(schemas []flat) ([]any, bool, error) {
	var list []any
	found := false
	for _, f := range schemas {
		if v, ok := f.values["const"]; ok {
			list, found = []any{v}, true
			break
		}
		if v, ok := f.values["enum"].([]any); ok && (!found || len(v) < len(list)) {
			list, found = v, true
		}
	}
	if !found {
		return nil, false, nil
	}
	var out []any
	for _, v := range list {
		ok, err := c.valid(schemas, v)
		if err != nil {
			return nil, true, err
		}
		if ok {
			out = append(out, v)
		}
	}
	return out, true, nil
}

// valid reports whether the library finds a value valid for all schemas.
func (c *schemaCompiler) valid(schemas []flat, v any) (bool, error) {
	for _, f := range schemas {
		s, err := c.checker(f.pointer)
		if err != nil {
			return false, err
		}
		if s.Validate(plain(v)) != nil {
			return false, nil
		}
	}
	return true, nil
}

// plain makes a value as encoding/json does.
func plain(v any) any {
	switch v := v.(type) {
	case *object:
		m := map[string]any{}
		for key, x := range v.values {
			m[key] = plain(x)
		}
		return m
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = plain(x)
		}
		return out
	}
	return v
}

// value returns the text of one value.
func (c *schemaCompiler) value(v any) (*expr, error) {
	switch v := v.(type) {
	case nil:
		return lit("null"), nil
	case bool:
		if v {
			return lit("true"), nil
		}
		return lit("false"), nil
	case json.Number:
		return lit(v.String()), nil
	case string:
		return lit(`"` + plainString(v) + `"`), nil
	case []any:
		parts := []*expr{lit("["), c.ws()}
		for i, x := range v {
			if i > 0 {
				parts = append(parts, c.comma())
			}
			e, err := c.value(x)
			if err != nil {
				return nil, err
			}
			parts = append(parts, e)
		}
		if len(v) > 0 {
			parts = append(parts, c.ws())
		}
		return cat(append(parts, lit("]"))...), nil
	case *object:
		parts := []*expr{lit("{"), c.ws()}
		for i, key := range v.keys {
			if i > 0 {
				parts = append(parts, c.comma())
			}
			e, err := c.value(v.values[key])
			if err != nil {
				return nil, err
			}
			parts = append(parts, quoted(lit(plainString(key))), c.colon(), e)
		}
		if len(v.keys) > 0 {
			parts = append(parts, c.ws())
		}
		return cat(append(parts, lit("}"))...), nil
	}
	return nil, fmt.Errorf("a value of type %T", v)
}

// numbersOf gathers what schemas ask of numbers.
func numbersOf(schemas []flat) (n *numberSpec, where map[string]string) {
	n = &numberSpec{integer: kindsOf(schemas)&kindFraction == 0}
	where = map[string]string{}
	for _, f := range schemas {
		for _, key := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"} {
			v, ok := f.values[key].(json.Number)
			if !ok {
				continue
			}
			r, _ := new(big.Rat).SetString(v.String())
			switch key {
			case "minimum", "exclusiveMinimum":
				n.above(r, key[0] == 'e')
				where["minimum"] = f.pointer
			case "maximum", "exclusiveMaximum":
				n.below(r, key[0] == 'e')
				where["maximum"] = f.pointer
			default:
				n.multiples = append(n.multiples, r)
				where[key] = f.pointer
			}
		}
	}
	return n, where
}

// numberOf makes the expression of numbers.
func (c *schemaCompiler) numberOf(schemas []flat) (*expr, error) {
	n, where := numbersOf(schemas)
	switch {
	case n.free() && n.integer:
		return c.integer(), nil
	case n.free():
		return c.number(), nil
	}
	e, keyword, err := n.expr()
	if err != nil {
		return nil, fault(where[keyword], keyword, "%v", err)
	}
	return e, nil
}

// count reads a keyword that is a number of things, or gives without.
func count(f flat, key string, without int32) int32 {
	v, ok := f.values[key].(json.Number)
	if !ok {
		return without
	}
	r, ok := new(big.Rat).SetString(v.String())
	if !ok || r.Cmp(big.NewRat(unbounded, 1)) >= 0 {
		return unbounded
	}
	return int32(r.Num().Int64())
}

// bounds returns the least and most that schemas ask of a number of things.
func bounds(schemas []flat, least, most string) (low, high int32) {
	high = unbounded
	for _, f := range schemas {
		low = max(low, count(f, least, 0))
		high = min(high, count(f, most, unbounded))
	}
	return low, high
}

// first returns the pointer of the first schema with a keyword.
func first(schemas []flat, key string) string {
	for _, f := range schemas {
		if f.has(key) {
			return f.pointer
		}
	}
	return ""
}
