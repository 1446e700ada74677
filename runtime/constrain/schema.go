package constrain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Limits of a schema.
const (
	maxSchemaRules = 20000 // combinations of schemas that one place can be held to
	maxDFAStates   = 1 << 17
)

// object is a JSON object in the order of its members.
type object struct {
	keys   []string
	values map[string]any
}

// readJSON reads one JSON value: nil, bool, string, json.Number, []any or *object.
func readJSON(d *json.Decoder, depth int) (any, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("values are nested more than %d deep", maxNesting)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := readJSON(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		o := &object{values: map[string]any{}}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			name := key.(string)
			if _, twice := o.values[name]; twice {
				return nil, fmt.Errorf("the member %q is there twice", name)
			}
			if o.values[name], err = readJSON(d, depth+1); err != nil {
				return nil, err
			}
			o.keys = append(o.keys, name)
		}
		_, err = d.Token()
		return o, err
	}
	return token, nil
}

// schemaURL is what the schema is called for the library that checks it.
const schemaURL = "schema:///root.json"

// schemaCompiler makes rules of a JSON schema.
type schemaCompiler struct {
	jsonRules
	root     any
	older    bool // a draft before 2020-12
	draft7   bool // $ref hides what is beside it
	id       string
	anchors  map[string]string // $anchor to pointer
	library  *jsonschema.Compiler
	checkers map[string]*jsonschema.Schema
	rules    map[string]int32 // by the set of schemas
	places   []string         // the pointers of all schemas
	states   int              // of deterministic automata so far
}

// fault makes an error about a keyword of the schema at a pointer.
func fault(pointer, keyword, format string, args ...any) error {
	return &Error{Kind: JSONSchema, Path: pointer, Keyword: keyword, Reason: fmt.Sprintf(format, args...)}
}

// noLoader refuses schemas outside of the one given.
type noLoader struct{}

func (noLoader) Load(u string) (any, error) {
	return nil, fmt.Errorf("%s is another document; everything has to be in the one schema", u)
}

// parseSchema compiles a JSON schema.
func parseSchema(text string) (*source, error) {
	if !utf8.ValidString(text) {
		return nil, fault("", "", "it is not UTF-8")
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	root, err := readJSON(d, 0)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the schema")
		}
	}
	if err != nil {
		return nil, fault("", "", "it is no JSON: %v", err)
	}
	c := &schemaCompiler{root: root, anchors: map[string]string{}, checkers: map[string]*jsonschema.Schema{},
		rules: map[string]int32{}}
	if err := c.index("", root); err != nil {
		return nil, err
	}
	if err := c.check(text); err != nil {
		return nil, err
	}
	circles := map[string]uint8{}
	for _, pointer := range c.places {
		if err := c.acyclic(pointer, circles); err != nil {
			return nil, err
		}
	}
	c.add("the schema")
	body, err := c.ruleFor([]element{{pointer: ""}})
	if err != nil {
		return nil, err
	}
	c.bodies[0] = body
	return &c.source, nil
}

// check has the library compile the schema, which holds it against its meta-schema.
func (c *schemaCompiler) check(text string) error {
	if err := boundedNumbers(c.root, ""); err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return fault("", "", "it is no JSON: %v", err)
	}
	c.library = jsonschema.NewCompiler()
	c.library.AssertFormat()
	c.library.UseLoader(noLoader{})
	c.library.UseRegexpEngine(func(pattern string) (jsonschema.Regexp, error) {
		text, err := ecmaToRE2(pattern, narrow)
		if err != nil {
			return nil, err
		}
		return regexp.Compile(text)
	})
	if err := c.library.AddResource(schemaURL, doc); err != nil {
		return fault("", "", "%v", err)
	}
	_, err = c.library.Compile(schemaURL)
	var invalid *jsonschema.SchemaValidationError
	var details *jsonschema.ValidationError
	switch {
	case errors.As(err, &invalid) && errors.As(invalid.Err, &details):
		for len(details.Causes) > 0 {
			details = details.Causes[0]
		}
		at, keyword := "", ""
		for i, key := range details.InstanceLocation {
			if i == len(details.InstanceLocation)-1 && slices.Contains(handledKeywords, key) {
				keyword = key
				break
			}
			at += "/" + escapePointer(key)
		}
		return fault(at, keyword, "it is no valid schema: %s", details.Error())
	case err != nil:
		return fault("", "", "it is no valid schema: %v", err)
	}
	return nil
}

// boundedNumbers refuses numbers whose exact value takes a lot of memory, as 1e999999999 does.
func boundedNumbers(v any, pointer string) error {
	switch v := v.(type) {
	case json.Number:
		if _, err := strconv.ParseFloat(v.String(), 64); err != nil || len(v) > 1000 {
			return fault(pointer, "", "the number %.40s is out of range", v)
		}
		if _, exp, ok := strings.Cut(strings.ToLower(v.String()), "e"); ok {
			if n, err := strconv.Atoi(exp); err != nil || n < -400 || n > 400 {
				return fault(pointer, "", "the number %.40s is out of range", v)
			}
		}
	case []any:
		for i, x := range v {
			if err := boundedNumbers(x, fmt.Sprintf("%s/%d", pointer, i)); err != nil {
				return err
			}
		}
	case *object:
		for _, key := range v.keys {
			if err := boundedNumbers(v.values[key], pointer+"/"+escapePointer(key)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checker returns the library's judge of the schema at a pointer.
func (c *schemaCompiler) checker(pointer string) (*jsonschema.Schema, error) {
	if s := c.checkers[pointer]; s != nil {
		return s, nil
	}
	u := schemaURL
	if pointer != "" {
		u += "#" + (&url.URL{Fragment: pointer}).EscapedFragment()
	}
	s, err := c.library.Compile(u)
	if err != nil {
		return nil, fault(pointer, "", "it is no valid schema: %v", err)
	}
	c.checkers[pointer] = s
	return s, nil
}

// Where schemas are in schemas.
var (
	oneSchema = []string{"items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else",
		"unevaluatedItems", "unevaluatedProperties", "additionalItems", "contentSchema"}
	schemaLists = []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"}
	schemaMaps  = []string{"$defs", "definitions", "properties", "patternProperties", "dependentSchemas"}
)

// index notes the names that schemas give themselves.
func (c *schemaCompiler) index(pointer string, schema any) error {
	o, ok := schema.(*object)
	if !ok {
		return nil
	}
	c.places = append(c.places, pointer)
	if id, ok := o.values["$id"].(string); ok && pointer != "" {
		return fault(pointer, "$id", "a schema with an address of its own (%q) inside of another is not supported", id)
	} else if ok {
		c.id = strings.TrimSuffix(id, "#")
	}
	if dialect, ok := o.values["$schema"].(string); ok && pointer == "" {
		if err := c.dialect(dialect); err != nil {
			return err
		}
	}
	if anchor, ok := o.values["$anchor"].(string); ok {
		c.anchors[anchor] = pointer
	}
	for _, key := range oneSchema {
		if err := c.index(pointer+"/"+key, o.values[key]); err != nil {
			return err
		}
	}
	for _, key := range schemaLists {
		list, _ := o.values[key].([]any)
		for i, s := range list {
			if err := c.index(fmt.Sprintf("%s/%s/%d", pointer, key, i), s); err != nil {
				return err
			}
		}
	}
	for _, key := range schemaMaps {
		members, _ := o.values[key].(*object)
		for _, name := range members.names() {
			if err := c.index(pointer+"/"+key+"/"+escapePointer(name), members.values[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// names returns the keys of an object; none for nil.
func (o *object) names() []string {
	if o == nil {
		return nil
	}
	return o.keys
}

// dialect checks $schema. Older drafts are taken where they mean the same.
func (c *schemaCompiler) dialect(name string) error {
	switch strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(name, "#"), "http://"), "https://") {
	case "json-schema.org/draft/2020-12/schema":
	case "json-schema.org/draft/2019-09/schema":
		c.older = true
	case "json-schema.org/draft-07/schema", "json-schema.org/draft-06/schema":
		c.older, c.draft7 = true, true
	default:
		return fault("", "$schema", "drafts 2020-12, 2019-09, 7 and 6 are supported; found %q", name)
	}
	return nil
}

// acyclic makes sure that following $ref, allOf, anyOf and oneOf from the schema at a pointer, and from those that it
// leads to, comes to an end: such a circle says nothing about values. state is 1 for those on the way, 2 when done
// with.
func (c *schemaCompiler) acyclic(pointer string, state map[string]uint8) error {
	switch state[pointer] {
	case 1:
		return fault(pointer, "$ref", "it leads back to itself without going into a value")
	case 2:
		return nil
	}
	state[pointer] = 1
	v, _ := c.at(pointer)
	o, _ := v.(*object)
	if o == nil {
		state[pointer] = 2
		return nil
	}
	if target, ok := o.values["$ref"].(string); ok {
		to, err := c.resolve(pointer, target)
		if err == nil {
			err = c.acyclic(to, state)
		}
		if err != nil {
			return err
		}
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		members, _ := o.values[key].([]any)
		for i := range members {
			if err := c.acyclic(fmt.Sprintf("%s/%s/%d", pointer, key, i), state); err != nil {
				return err
			}
		}
	}
	state[pointer] = 2
	return nil
}

func escapePointer(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}

// resolve returns the pointer that a $ref of the schema at a pointer leads to.
func (c *schemaCompiler) resolve(at, target string) (string, error) {
	document, fragment, _ := strings.Cut(target, "#")
	if document != "" && document != c.id {
		return "", fault(at, "$ref", "%q is in another document; everything has to be in the one schema", target)
	}
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return "", fault(at, "$ref", "%q is no reference: %v", target, err)
	}
	if fragment != "" && fragment[0] != '/' {
		pointer, ok := c.anchors[fragment]
		if !ok {
			return "", fault(at, "$ref", "there is no $anchor %q", fragment)
		}
		return pointer, nil
	}
	if _, ok := c.at(fragment); !ok {
		return "", fault(at, "$ref", "%q leads nowhere", target)
	}
	return fragment, nil
}

// at returns the value at a pointer.
func (c *schemaCompiler) at(pointer string) (any, bool) {
	v := c.root
	if pointer == "" {
		return v, true
	}
	for _, key := range strings.Split(pointer[1:], "/") {
		key = strings.ReplaceAll(strings.ReplaceAll(key, "~1", "/"), "~0", "~")
		switch here := v.(type) {
		case *object:
			next, ok := here.values[key]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(here) {
				return nil, false
			}
			v = here[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// element is a schema of a set that one value is held to, by its pointer. Flags say which of its keywords are done
// with.
type element struct {
	pointer string
	done    uint8
}

// Keywords that an element can be done with.
const (
	doneAnyOf = 1 << iota
	doneOneOf
)

// flat is a schema whose $ref and allOf have been followed.
type flat struct {
	element
	*object
}

// expand follows $ref and allOf. It gives the schemas that say something, each once; never says that nothing is valid.
func (c *schemaCompiler) expand(set []element) (schemas []flat, never bool, err error) {
	set = slices.Clone(set)
	at := map[string]int{}
	for i := 0; i < len(set); i++ {
		e := set[i]
		if n, seen := at[e.pointer]; seen {
			if n >= 0 {
				schemas[n].done |= e.done
			}
			continue
		}
		v, _ := c.at(e.pointer)
		if b, ok := v.(bool); ok {
			if !b {
				return nil, true, nil
			}
			at[e.pointer] = -1
			continue
		}
		o, ok := v.(*object)
		if !ok {
			return nil, false, fault(e.pointer, "", "expected a schema, found %T", v)
		}
		at[e.pointer] = len(schemas)
		schemas = append(schemas, flat{e, o})
		if err := c.keywords(e.pointer, o); err != nil {
			return nil, false, err
		}
		if target, ok := o.values["$ref"].(string); ok {
			to, err := c.resolve(e.pointer, target)
			if err != nil {
				return nil, false, err
			}
			set = append(set, element{pointer: to})
		}
		members, _ := o.values["allOf"].([]any)
		for i := range members {
			set = append(set, element{pointer: fmt.Sprintf("%s/allOf/%d", e.pointer, i)})
		}
	}
	schemas = slices.DeleteFunc(schemas, func(f flat) bool { return !f.asserts() })
	return schemas, false, nil
}
