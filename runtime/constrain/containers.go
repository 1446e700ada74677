package constrain

import (
	"fmt"
	"slices"
)

// child names a schema inside of another.
func child(f flat, keys ...string) element {
	p := f.pointer
	for _, key := range keys {
		p += "/" + escapePointer(key)
	}
	return element{pointer: p}
}

// itemsAt returns the schemas of element i of an array.
func itemsAt(schemas []flat, i int) []element {
	var set []element
	for _, f := range schemas {
		prefix, _ := f.values["prefixItems"].([]any)
		switch {
		case i < len(prefix):
			set = append(set, child(f, "prefixItems", fmt.Sprint(i)))
		case f.has("items"):
			set = append(set, child(f, "items"))
		case f.has("unevaluatedItems"):
			set = append(set, child(f, "unevaluatedItems"))
		}
	}
	return set
}

// prefixOf returns the length of the longest prefixItems.
func prefixOf(schemas []flat) int {
	n := 0
	for _, f := range schemas {
		prefix, _ := f.values["prefixItems"].([]any)
		n = max(n, len(prefix))
	}
	return n
}

// arrayOf makes the expression of arrays.
func (c *schemaCompiler) arrayOf(schemas []flat) (*expr, error) {
	low, high := bounds(schemas, "minItems", "maxItems")
	if low > high {
		return none, nil
	}
	for _, f := range schemas {
		if f.values["uniqueItems"] == true && high > 1 {
			return nil, fault(f.pointer, "uniqueItems", "it is not supported, but with a maxItems of 1; leave it out")
		}
	}
	prefix := int32(min(prefixOf(schemas), int(high)))
	tail := empty
	if high > prefix {
		item, err := c.ruleFor(itemsAt(schemas, int(prefix)))
		if err != nil {
			return nil, err
		}
		most := high
		if most != unbounded {
			most -= prefix
		}
		least := max(low-prefix, 0)
		tail = repeat(cat(c.comma(), item), least, most)
		if prefix == 0 {
			// The first has no comma in front.
			if most != unbounded {
				most--
			}
			tail = cat(item, repeat(cat(c.comma(), item), max(least-1, 0), most))
			if low == 0 {
				tail = opt(tail)
			}
		}
	}
	for i := prefix - 1; i >= 0; i-- {
		item, err := c.ruleFor(itemsAt(schemas, int(i)))
		if err != nil {
			return nil, err
		}
		if i > 0 {
			item = cat(c.comma(), item)
		}
		tail = cat(item, tail)
		if i >= low {
			tail = opt(tail)
		}
	}
	return cat(lit("["), c.ws(), tail, c.ws(), lit("]")), nil
}

// property is a name that an object can have, in the order of the schema.
type property struct {
	name     string
	required bool
	value    *expr // what is after the name
}

// objectOf makes the expression of objects: the properties in the order of the schema, then any others.
func (c *schemaCompiler) objectOf(schemas []flat) (*expr, error) {
	properties, err := c.properties(schemas)
	if err != nil {
		return nil, err
	}
	others, err := c.others(schemas, properties)
	if err != nil {
		return nil, err
	}
	least, most, err := objectBounds(schemas, properties, others)
	if err != nil || least > most {
		return none, err
	}
	// more[i] is the rest of the object after some member is written; first is the rest before any is.
	end := cat(c.ws(), lit("}"))
	required := int32(0)
	for _, p := range properties {
		if p.required {
			required++
		}
	}
	more, first := end, lit("}")
	if least > required {
		first = none // then least is 1, and one member has to be there
	}
	if others.op != opNone {
		high := int32(unbounded)
		if most != unbounded {
			high = most - required // objectBounds made sure that no property is optional
		}
		more = cat(repeat(cat(c.comma(), others), 0, high), end)
		if high != unbounded {
			high--
		}
		first = alt(first, cat(others, repeat(cat(c.comma(), others), 0, high), end))
		if most == required {
			more, first = end, lit("}")
		}
	}
	for _, p := range slices.Backward(properties) {
		member := cat(quoted(lit(plainString(p.name))), c.colon(), p.value)
		id := c.add("behind " + p.name)
		c.bodies[id] = more
		rest := ref(id)
		if p.required {
			first, more = cat(member, rest), cat(c.comma(), member, rest)
		} else {
			first, more = alt(cat(member, rest), first), alt(cat(c.comma(), member, rest), rest)
		}
	}
	return cat(lit("{"), c.ws(), first), nil
}

// properties returns the names that schemas list, with what their values are held to. A name is left out where its
// value can be nothing, unless it is required.
func (c *schemaCompiler) properties(schemas []flat) ([]property, error) {
	var names []string
	required := map[string]bool{}
	known := map[string]bool{}
	note := func(name string) {
		if !known[name] {
			known[name] = true
			names = append(names, name)
		}
	}
	for _, f := range schemas {
		members, _ := f.values["properties"].(*object)
		for _, name := range members.names() {
			note(name)
		}
	}
	for _, f := range schemas {
		list, _ := f.values["required"].([]any)
		for _, v := range list {
			if name, ok := v.(string); ok {
				note(name)
				required[name] = true
			}
		}
	}
	var out []property
	for _, name := range names {
		allowed, err := c.nameAllowed(schemas, name)
		if err != nil {
			return nil, err
		}
		value := none
		if allowed {
			set, err := c.valueOf(schemas, name)
			if err != nil {
				return nil, err
			}
			if value, err = c.ruleFor(set); err != nil {
				return nil, err
			}
		}
		out = append(out, property{name, required[name], value})
	}
	return out, nil
}

// nameAllowed asks the library whether propertyNames takes a name.
func (c *schemaCompiler) nameAllowed(schemas []flat, name string) (bool, error) {
	for _, f := range schemas {
		if !f.has("propertyNames") {
			continue
		}
		s, err := c.checker(child(f, "propertyNames").pointer)
		if err != nil {
			return false, err
		}
		if s.Validate(name) != nil {
			return false, nil
		}
	}
	return true, nil
}

// valueOf returns the schemas that the value of a property is held to.
func (c *schemaCompiler) valueOf(schemas []flat, name string) ([]element, error) {
	var set []element
	for _, f := range schemas {
		found := false
		if members, _ := f.values["properties"].(*object); members != nil && members.has(name) {
			set = append(set, child(f, "properties", name))
			found = true
		}
		patterns, _ := f.values["patternProperties"].(*object)
		for _, pattern := range patterns.names() {
			both, either, err := c.namePattern(f, pattern)
			if err != nil {
				return nil, err
			}
			text := plainString(name)
			found = found || both.matches(text)
			if either.matches(text) {
				set = append(set, child(f, "patternProperties", pattern))
			}
		}
		if !found {
			set = append(set, rest(f)...)
		}
	}
	return set, nil
}

// rest returns the schema of the properties that are not listed.
func rest(f flat) []element {
	switch {
	case f.has("additionalProperties"):
		return []element{child(f, "additionalProperties")}
	case f.has("unevaluatedProperties"):
		return []element{child(f, "unevaluatedProperties")}
	}
	return nil
}

// namePattern makes the automata of the names that a pattern of patternProperties takes: read narrowly and widely.
// Names that only the latter takes are left to no case, because validators differ about them.
func (c *schemaCompiler) namePattern(f flat, pattern string) (both, either *dfa, err error) {
	automata := make([]*dfa, 2)
	for i, how := range []reading{narrow, wide} {
		e, err := parsePattern(pattern, how, plainChar)
		if err != nil {
			return nil, nil, fault(f.pointer, "patternProperties", "%q: %v", pattern, err)
		}
		d, ok := determinize(e)
		if ok {
			c.states += len(d.accept)
		}
		if !ok || c.states > maxDFAStates {
			return nil, nil, fault(f.pointer, "patternProperties", "%q takes too large an automaton", pattern)
		}
		automata[i] = d
	}
	return automata[0], automata[1], nil
}

// maxPatterns bounds the patterns of patternProperties: each subset of them is a case of its own.
const maxPatterns = 5

// namedBy is a pattern of patternProperties and its names, read narrowly and widely.
type namedBy struct {
	schema       flat
	text         string
	both, either *dfa
}

// patternsOf returns the patterns of all schemas.
func (c *schemaCompiler) patternsOf(schemas []flat) ([]namedBy, error) {
	var patterns []namedBy
	for _, f := range schemas {
		members, _ := f.values["patternProperties"].(*object)
		for _, text := range members.names() {
			both, either, err := c.namePattern(f, text)
			if err != nil {
				return nil, err
			}
			patterns = append(patterns, namedBy{f, text, both, either})
		}
	}
	if len(patterns) > maxPatterns {
		return nil, fault(first(schemas, "patternProperties"), "patternProperties",
			"there are %d patterns; at most %d are supported", len(patterns), maxPatterns)
	}
	return patterns, nil
}

// others makes the expression of a member whose name is not listed; none where no such member is allowed.
func (c *schemaCompiler) others(schemas []flat, properties []property) (*expr, error) {
	patterns, err := c.patternsOf(schemas)
	if err != nil {
		return nil, err
	}
	narrowed := slices.ContainsFunc(schemas, func(f flat) bool { return f.has("propertyNames") })
	if len(patterns) == 0 && len(properties) == 0 && !narrowed {
		var set []element
		for _, f := range schemas {
			set = append(set, rest(f)...)
		}
		value, err := c.ruleFor(set)
		if err != nil || value.op == opNone {
			return none, err
		}
		return cat(c.anyString(), c.colon(), value), nil
	}
	var alts []*expr
	for chosen := range 1 << len(patterns) {
		e, err := c.othersOf(schemas, properties, patterns, chosen)
		if err != nil {
			return nil, err
		}
		alts = append(alts, e)
	}
	return alt(alts...), nil
}

// othersOf makes the expression of a member that the chosen patterns take, a bit each, and no others.
func (c *schemaCompiler) othersOf(
	schemas []flat, properties []property, patterns []namedBy, chosen int,
) (*expr, error) {
	var set []element
	for _, f := range schemas {
		found := false
		for i, p := range patterns {
			if p.schema.pointer == f.pointer && chosen&(1<<i) != 0 {
				set = append(set, child(f, "patternProperties", p.text))
				found = true
			}
		}
		if !found {
			set = append(set, rest(f)...)
		}
	}
	value, err := c.ruleFor(set)
	if err != nil || value.op == opNone {
		return none, err
	}
	names, err := c.otherNames(schemas, properties)
	if err != nil {
		return nil, err
	}
	for i, p := range patterns {
		ok := true
		if chosen&(1<<i) != 0 {
			names, ok = names.and(p.both)
		} else {
			names, ok = names.minus(p.either)
		}
		if !ok {
			return nil, fault(p.schema.pointer, "patternProperties", "the patterns take too large an automaton")
		}
	}
	if names.empty() {
		return none, nil
	}
	return cat(quoted(names.expr()), c.colon(), value), nil
}

// otherNames makes the automaton of the names that are not listed and that propertyNames takes.
func (c *schemaCompiler) otherNames(schemas []flat, properties []property) (*dfa, error) {
	var set []element
	for _, f := range schemas {
		if f.has("propertyNames") {
			set = append(set, child(f, "propertyNames"))
		}
	}
	names, err := c.namesOf(set, 0)
	if err != nil || len(properties) == 0 {
		return names, err
	}
	var listed []string
	for _, p := range properties {
		listed = append(listed, plainString(p.name))
	}
	d, ok := determinize(oneOfTexts(listed))
	if ok {
		names, ok = names.minus(d)
	}
	if !ok {
		return nil, fault(schemas[0].pointer, "properties", "the names take too large an automaton")
	}
	c.states += len(names.accept)
	return names, nil
}

// namesOf makes the automaton of the strings that a set of schemas takes.
func (c *schemaCompiler) namesOf(set []element, depth int) (*dfa, error) {
	schemas, never, err := c.expand(set)
	if err != nil || never {
		return emptyDFA(), err
	}
	values, listed, err := c.values(schemas)
	if err != nil {
		return nil, err
	}
	var alts []*expr
	sets, at, keyword := branches(schemas)
	switch {
	case listed:
		for _, v := range values {
			if s, ok := v.(string); ok {
				alts = append(alts, lit(plainString(s)))
			}
		}
	case at >= 0 && (keyword == "oneOf" || depth > 8):
		return nil, fault(schemas[at].pointer, keyword, "it is not supported in propertyNames")
	case at >= 0:
		for _, set := range sets {
			d, err := c.namesOf(set, depth+1)
			if err != nil {
				return nil, err
			}
			alts = append(alts, d.expr())
		}
	case kindsOf(schemas)&kindString == 0 || refuseAll(schemas):
		return emptyDFA(), nil
	default:
		return c.stringDFA(schemas, narrow)
	}
	d, ok := determinize(alt(alts...))
	if !ok {
		return nil, fault(set[0].pointer, "", "the names take too large an automaton")
	}
	return d, nil
}

// objectBounds returns the least and most members. What a list of optional members in order cannot count is refused.
func objectBounds(schemas []flat, properties []property, others *expr) (least, most int32, err error) {
	least, most = bounds(schemas, "minProperties", "maxProperties")
	required, optional := int32(0), int32(0)
	for _, p := range properties {
		switch {
		case p.required:
			required++
		case p.value.op != opNone:
			optional++
		}
	}
	if least > max(required, 1) {
		return 0, 0, fault(first(schemas, "minProperties"), "minProperties",
			"it is supported up to the number of required properties, and 1; list the ones needed in required")
	}
	switch {
	case required > most:
		return 1, 0, nil
	case most == unbounded, others.op == opNone && most >= required+optional:
		return least, unbounded, nil
	case optional > 0 && most == required:
		return 0, 0, fault(first(schemas, "maxProperties"), "maxProperties",
			"it leaves no room for the optional properties; leave them out")
	case optional > 0:
		return 0, 0, fault(first(schemas, "maxProperties"), "maxProperties",
			"it is not supported beside optional properties that are more")
	}
	return least, most, nil
}
