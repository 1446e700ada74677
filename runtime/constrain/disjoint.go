package constrain

import "slices"

// maxDisjointDepth bounds how deep schemas are looked into to tell them apart.
const maxDisjointDepth = 8

// exclusive makes sure that no value is in two of the sets that the alternatives of a oneOf give.
func (c *schemaCompiler) exclusive(pointer string, sets [][]element) error {
	if len(sets) > 200 {
		return fault(pointer, "oneOf", "it has %d alternatives; at most 200 are supported", len(sets))
	}
	for i, a := range sets {
		for j, b := range sets[:i] {
			apart, err := c.apart(a, b, 0)
			if err != nil {
				return err
			}
			if !apart {
				return fault(pointer, "oneOf",
					"alternatives %d and %d may take the same value; use anyOf, or give both "+
						"a required property with different constants", j, i)
			}
		}
	}
	return nil
}

// apart reports whether it is sure that no value is taken by both sets of schemas.
func (c *schemaCompiler) apart(a, b []element, depth int) (bool, error) {
	if depth > maxDisjointDepth {
		return false, nil
	}
	as, never, err := c.expand(a)
	if err != nil || never {
		return never, err
	}
	bs, never, err := c.expand(b)
	if err != nil || never {
		return never, err
	}
	for _, pair := range [][2][]flat{{open(as), open(bs)}, {open(bs), open(as)}} {
		values, listed, err := c.values(pair[0])
		if err != nil {
			return false, err
		}
		if !listed {
			continue
		}
		for _, v := range values {
			both, err := c.valid(pair[1], v)
			if err != nil || both {
				return false, err
			}
		}
		return true, nil
	}
	if kindsOf(as)&kindsOf(bs) == 0 {
		return true, nil
	}
	// A disjunction is apart where all of its alternatives are.
	if sets, _, _ := branches(as); sets != nil {
		return c.allApart(sets, b, depth+1)
	}
	if sets, _, _ := branches(bs); sets != nil {
		return c.allApart(sets, a, depth+1)
	}
	return c.kindsApart(as, bs, depth)
}

// open leaves out the schemas whose alternatives are being chosen from: the library would hold a value against all of
// them, while the question is whether two of them take it.
func open(schemas []flat) []flat {
	return slices.DeleteFunc(slices.Clone(schemas), func(f flat) bool { return f.done != 0 })
}

func (c *schemaCompiler) allApart(sets [][]element, other []element, depth int) (bool, error) {
	for _, set := range sets {
		if apart, err := c.apart(set, other, depth); err != nil || !apart {
			return false, err
		}
	}
	return true, nil
}

// kindsApart looks at each type that schemas of two sets have in common.
func (c *schemaCompiler) kindsApart(as, bs []flat, depth int) (bool, error) {
	both := kindsOf(as) & kindsOf(bs)
	if both&(kindNull|kindBoolean) != 0 {
		return false, nil
	}
	if both&(kindInteger|kindFraction) != 0 {
		a, _ := numbersOf(as)
		b, _ := numbersOf(bs)
		if !a.apart(b) {
			return false, nil
		}
	}
	if both&kindString != 0 {
		if apart, err := c.stringsApart(as, bs); err != nil || !apart {
			return false, err
		}
	}
	if both&kindArray != 0 {
		if apart, err := c.arraysApart(as, bs, depth); err != nil || !apart {
			return false, err
		}
	}
	if both&kindObject != 0 {
		return c.objectsApart(as, bs, depth)
	}
	return true, nil
}

func (c *schemaCompiler) stringsApart(as, bs []flat) (bool, error) {
	lowA, highA := bounds(as, "minLength", "maxLength")
	lowB, highB := bounds(bs, "minLength", "maxLength")
	if lowA > highB || lowB > highA {
		return true, nil
	}
	a, err := c.stringDFA(as, wide)
	if err != nil {
		return false, err
	}
	b, err := c.stringDFA(bs, wide)
	if err != nil {
		return false, err
	}
	d, ok := a.and(b)
	return ok && d.empty(), nil
}

func (c *schemaCompiler) arraysApart(as, bs []flat, depth int) (bool, error) {
	lowA, highA := bounds(as, "minItems", "maxItems")
	lowB, highB := bounds(bs, "minItems", "maxItems")
	if lowA > highB || lowB > highA {
		return true, nil
	}
	// An element that both have at one place has to be taken by both.
	for i := range min(max(lowA, lowB), int32(max(prefixOf(as), prefixOf(bs))+1)) {
		if apart, err := c.apart(itemsAt(as, int(i)), itemsAt(bs, int(i)), depth+1); err != nil || apart {
			return apart, err
		}
	}
	return false, nil
}

// objectsApart looks for a property that one of two sets requires and whose values they do not agree on.
func (c *schemaCompiler) objectsApart(as, bs []flat, depth int) (bool, error) {
	for _, side := range [][]flat{as, bs} {
		for _, f := range side {
			list, _ := f.values["required"].([]any)
			for _, v := range list {
				name, ok := v.(string)
				if !ok {
					continue
				}
				a, err := c.valueOf(as, name)
				if err != nil {
					return false, err
				}
				b, err := c.valueOf(bs, name)
				if err != nil {
					return false, err
				}
				if apart, err := c.apart(a, b, depth+1); err != nil || apart {
					return apart, err
				}
			}
		}
	}
	return false, nil
}
