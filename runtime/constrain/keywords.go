package constrain

import (
	"slices"
	"strings"
)

// annotations are the keywords that say nothing about which values are valid.
var annotations = []string{
	"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "title", "description", "default", "examples",
	"example", "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema",
	"$dynamicAnchor", "$vocabulary",
}

// refusedKeywords are keywords that are not supported, each with a text that says what to write instead.
var refusedKeywords = map[string]string{
	"$dynamicRef":       "dynamic references are not supported; use $ref",
	"$recursiveRef":     "recursive references are not supported; use $ref",
	"$recursiveAnchor":  "recursive references are not supported; use $ref",
	"then":              "conditions are not supported; list the cases in anyOf",
	"else":              "conditions are not supported; list the cases in anyOf",
	"dependentSchemas":  "dependencies are not supported; list the cases in anyOf",
	"dependentRequired": "dependencies are not supported; list the cases in anyOf",
	"dependencies":      "dependencies are not supported; list the cases in anyOf",
	"contains":          "it is not supported; use prefixItems or items",
	"additionalItems":   "it is of older drafts; use prefixItems and items",
}

// handledKeywords are the other keywords of JSON Schema: those that are supported, some with certain values only.
var handledKeywords = []string{
	"$ref", "allOf", "anyOf", "oneOf", "not", "if", "type", "enum", "const", "minLength",
	"maxLength", "pattern", "format",
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "items", "prefixItems", "minItems",
	"maxItems", "uniqueItems", "minContains", "maxContains", "unevaluatedItems", "properties", "patternProperties",
	"additionalProperties", "propertyNames", "required", "minProperties", "maxProperties", "unevaluatedProperties",
}

// inPlace are the keywords that apply other schemas to the same value. What those schemas evaluate counts for
// unevaluatedItems and unevaluatedProperties beside them.
var inPlace = []string{"$ref", "allOf", "anyOf", "oneOf", "if", "not"}

// keywords returns an error for a keyword of a schema that the automaton cannot express, or that does not exist. Beside
// enum or const most keywords are taken: a library for JSON Schema then tries the listed values, and the valid ones are
// the alternatives.
func (c *schemaCompiler) keywords(pointer string, o *object) error {
	if c.draft7 && o.values["$ref"] != nil {
		for _, key := range o.keys {
			if key != "$ref" && !slices.Contains(annotations, key) {
				return fault(pointer, key, "draft 7 ignores what is beside $ref; leave it out, or use draft 2020-12")
			}
		}
	}
	for _, key := range []string{"prefixItems", "unevaluatedItems", "unevaluatedProperties"} {
		if c.older && o.has(key) {
			return fault(pointer, key,
				"the draft that $schema names does not have it or means something else; use draft 2020-12")
		}
	}
	listed := o.values["enum"] != nil || o.has("const")
	if err := knownKeywords(pointer, o, listed); err != nil || listed {
		return err
	}
	return supportedKeywords(pointer, o)
}

// knownKeywords returns an error for a keyword that does not exist in JSON Schema, such as a misspelled one, and for
// one of refusedKeywords. With listed, for a schema with enum or const, only dynamic references are refused of those.
func knownKeywords(pointer string, o *object, listed bool) error {
	_, conditional := o.values["if"]
	for _, key := range o.keys {
		reason, refused := refusedKeywords[key]
		switch {
		case slices.Contains(annotations, key), strings.HasPrefix(key, "x-"):
		case (key == "then" || key == "else") && !conditional:
		case refused && !listed:
			return fault(pointer, key, "%s", reason)
		case key == "$dynamicRef" || key == "$recursiveRef":
			return fault(pointer, key, "%s", reason)
		case refused || slices.Contains(handledKeywords, key):
		default:
			return fault(pointer, key, "there is no such keyword in draft 2020-12; leave it out, or begin it with x-")
		}
	}
	return nil
}

// supportedKeywords returns an error for a keyword that is supported, but not with the value that it has here.
func supportedKeywords(pointer string, o *object) error {
	if not, ok := o.values["not"]; ok && !isFalse(not) && !isTrue(not) {
		return fault(pointer, "not", "it is not supported; say what is allowed")
	}
	for _, key := range []string{"unevaluatedProperties", "unevaluatedItems"} {
		v, ok := o.values[key]
		if !ok || isTrue(v) {
			continue
		}
		for _, other := range inPlace {
			if o.values[other] != nil {
				return fault(pointer, key, "beside %s it is not supported; list the members in one schema", other)
			}
		}
	}
	if _, ok := o.values["items"].([]any); ok {
		return fault(pointer, "items", "a list of schemas is of older drafts; use prefixItems")
	}
	return nil
}

func (o *object) has(key string) bool {
	_, ok := o.values[key]
	return ok
}

// isTrue reports whether a schema is true or {}: every value is valid.
func isTrue(v any) bool {
	o, ok := v.(*object)
	return v == true || ok && len(o.keys) == 0
}

// isFalse reports whether a schema is false: no value is valid.
func isFalse(v any) bool { return v == false }

// asserts reports whether a schema restricts values by more than $ref and allOf.
func (f flat) asserts() bool {
	for _, key := range f.keys {
		switch {
		case key == "$ref" || key == "allOf" || key == "if" || key == "then" || key == "else":
		case slices.Contains(annotations, key), strings.HasPrefix(key, "x-"):
		default:
			return true
		}
	}
	return f.has("if") && (f.has("then") || f.has("else"))
}

// kinds is a set of JSON's types. An integer is a number too.
type kinds uint8

const (
	kindNull kinds = 1 << iota
	kindBoolean
	kindInteger
	kindFraction // a number that is no integer
	kindString
	kindArray
	kindObject
	allKinds kinds = 1<<7 - 1
)

var kindNames = map[string]kinds{
	"null": kindNull, "boolean": kindBoolean, "integer": kindInteger, "number": kindInteger | kindFraction,
	"string": kindString, "array": kindArray, "object": kindObject,
}

// kindsOf returns the types that all of these schemas allow.
func kindsOf(schemas []flat) kinds {
	all := allKinds
	for _, f := range schemas {
		switch t := f.values["type"].(type) {
		case string:
			all &= kindNames[t]
		case []any:
			var some kinds
			for _, name := range t {
				name, _ := name.(string)
				some |= kindNames[name]
			}
			all &= some
		}
	}
	return all
}
