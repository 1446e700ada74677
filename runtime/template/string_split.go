package template

import (
	"strings"
	"unicode/utf8"
)

// textArg returns an argument that must be a string; fallback replaces one that is absent or None.
func (in *interp) textArg(what string, v Value, fallback string) string {
	switch v.(type) {
	case nil, None:
		return fallback
	}
	return in.mustText(what, v)
}

// mustText returns the text of a value that must be a string.
func (in *interp) mustText(what string, v Value) string {
	s, ok := asString(v)
	if !ok {
		in.fail(TypeError, "%s must be str, not %s", what, v.TypeName())
	}
	return s
}

// intArg returns an argument that must be an integer; fallback replaces one that is absent.
func (in *interp) intArg(v Value, fallback int) int {
	if v == nil {
		return fallback
	}
	return in.argInt(v)
}

// boolArg returns the truth of an argument, false if it is absent.
func boolArg(v Value) bool { return v != nil && truth(v) }

// flagArg returns an argument that Python wants as an integer and takes for a truth value, false if it is absent.
func (in *interp) flagArg(v Value) bool { return in.intArg(v, 0) != 0 }

// strings makes a list of strings that have the type of self.
func (in *interp) strings(self Value, parts []string) Value {
	in.allocValues(len(parts))
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = like(self, p)
	}
	return NewList(items...)
}

// split is str.split and, from the right, str.rsplit.
func split(right bool) func(in *interp, self Value, a []Value) Value {
	return func(in *interp, self Value, a []Value) Value {
		s, _ := asString(self)
		in.look(4 * len(s))
		limit := in.intArg(a[1], -1)
		if limit < 0 {
			limit = len(s) + 1
		}
		var parts []string
		if absent(a[0]) {
			parts = splitBlanks(s, limit, right)
		} else {
			separator := in.mustText("the separator", a[0])
			if separator == "" {
				in.fail(ValueError, "empty separator")
			}
			in.alloc(16 * (strings.Count(s, separator) + 1))
			if right {
				parts = splitRight(s, separator, limit)
			} else {
				parts = strings.SplitN(s, separator, limit+1)
			}
		}
		return in.strings(self, parts)
	}
}

func splitRight(s, separator string, limit int) []string {
	var parts []string
	for ; limit > 0; limit-- {
		i := strings.LastIndex(s, separator)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(separator):])
		s = s[:i]
	}
	return reverse(append(parts, s))
}

func reverse(parts []string) []string {
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return parts
}

// splitBlanks splits at runs of white space. What is left after limit splits keeps its blanks at the far end.
func splitBlanks(s string, limit int, right bool) []string {
	isBlack := func(c rune) bool { return !isSpace(c) }
	var parts []string
	if right {
		for s = strings.TrimRightFunc(s, isSpace); s != ""; s = strings.TrimRightFunc(s, isSpace) {
			if len(parts) == limit {
				return reverse(append(parts, s))
			}
			word := strings.TrimRightFunc(s, isBlack)
			parts = append(parts, s[len(word):])
			s = word
		}
		return reverse(parts)
	}
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; s = strings.TrimLeftFunc(s, isSpace) {
		if len(parts) == limit {
			return append(parts, s)
		}
		rest := strings.TrimLeftFunc(s, isBlack)
		parts = append(parts, s[:len(s)-len(rest)])
		s = rest
	}
	return parts
}

// splitLines is str.splitlines.
func splitLines(s string, keepEnds bool) []string {
	var lines []string
	for s != "" {
		i := strings.IndexFunc(s, isLineBreak)
		if i < 0 {
			return append(lines, s)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		if keepEnds {
			lines = append(lines, s[:i+n])
		} else {
			lines = append(lines, s[:i])
		}
		s = s[i+n:]
	}
	return lines
}

// partition is str.partition and, from the right, str.rpartition.
func partition(right bool) func(in *interp, self Value, a []Value) Value {
	return func(in *interp, self Value, a []Value) Value {
		s, _ := asString(self)
		separator := in.mustText("the separator", a[0])
		if separator == "" {
			in.fail(ValueError, "empty separator")
		}
		in.look(len(s))
		i := strings.Index(s, separator)
		if right {
			i = strings.LastIndex(s, separator)
		}
		triple := func(x, y, z string) Value { return newTuple(like(self, x), like(self, y), like(self, z)) }
		switch {
		case i >= 0:
			return triple(s[:i], separator, s[i+len(separator):])
		case right:
			return triple("", "", s)
		}
		return triple(s, "", "")
	}
}

// strip is str.strip, lstrip and rstrip.
func strip(left, right bool) func(in *interp, self Value, a []Value) Value {
	return func(in *interp, self Value, a []Value) Value {
		s, _ := asString(self)
		in.look(len(s))
		drop := isSpace
		if !absent(a[0]) {
			chars := in.mustText("the characters to strip", a[0])
			in.look(len(s) * min(len(chars), 64))
			drop = func(c rune) bool { return strings.ContainsRune(chars, c) }
		}
		if left {
			s = strings.TrimLeftFunc(s, drop)
		}
		if right {
			s = strings.TrimRightFunc(s, drop)
		}
		return like(self, s)
	}
}

// affixes returns the strings that startswith and endswith look for: a string or a tuple of them.
func (in *interp) affixes(what string, v Value) []string {
	if t, ok := v.(*tuple); ok {
		var list []string
		for _, x := range t.items {
			s, ok := asString(x)
			if !ok {
				in.fail(TypeError, "tuple for %s must only contain str, not %s", what, x.TypeName())
			}
			list = append(list, s)
		}
		return list
	}
	s, ok := asString(v)
	if !ok {
		in.fail(TypeError, "%s first arg must be str or a tuple of str, not %s", what, v.TypeName())
	}
	return []string{s}
}

// affix is str.startswith and str.endswith.
func affix(what string, has func(s, affix string) bool) func(in *interp, self Value, a []Value) Value {
	return func(in *interp, self Value, a []Value) Value {
		s, _ := asString(self)
		list := in.affixes(what, a[0])
		part, _, ok := in.part(s, a[1], a[2])
		in.step(len(list))
		for _, x := range list {
			if ok && has(part, x) {
				return Bool(true)
			}
		}
		return Bool(false)
	}
}

// part returns the part of s between the indices start and end, which may be nil or None, with the index where it
// starts; ok is false if start is beyond the end.
func (in *interp) part(s string, start, end Value) (part string, from int, ok bool) {
	if start == nil && end == nil {
		return s, 0, true
	}
	n := in.runes(s)
	place := func(v Value, fallback int) int {
		switch v.(type) {
		case nil, None:
			return fallback
		}
		i, isIndex := in.clampedIndex(v)
		if !isIndex {
			in.fail(TypeError, "slice indices must be integers or None or have an __index__ method")
		}
		if i < 0 {
			return max(i+n, 0)
		}
		return i
	}
	from, to := place(start, 0), min(place(end, n), n)
	if from > to {
		return "", from, false
	}
	i := byteOffset(s, from)
	return s[i : i+byteOffset(s[i:], to-from)], from, true
}

// find is str.find, rfind, index and rindex.
func find(right, mustFind bool) func(in *interp, self Value, a []Value) Value {
	return func(in *interp, self Value, a []Value) Value {
		s, _ := asString(self)
		sub := in.mustText("the argument of find", a[0])
		part, from, ok := in.part(s, a[1], a[2])
		in.look(len(part))
		i := -1
		if ok && right {
			i = strings.LastIndex(part, sub)
		} else if ok {
			i = strings.Index(part, sub)
		}
		if i < 0 {
			if mustFind {
				in.fail(ValueError, "substring not found")
			}
			return Int(-1)
		}
		return Int(from + utf8.RuneCountInString(part[:i]))
	}
}

func stringCount(in *interp, self Value, a []Value) Value {
	s, _ := asString(self)
	sub := in.mustText("the argument of count", a[0])
	part, _, ok := in.part(s, a[1], a[2])
	if !ok {
		return Int(0)
	}
	in.look(len(part))
	return Int(strings.Count(part, sub))
}
