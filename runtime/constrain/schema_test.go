package constrain

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSchemas(t *testing.T) {
	for _, test := range []struct {
		schema  string
		yes, no []string
	}{
		{`true`, []string{`1`, `{"a":[1,{"b":null}]}`, `"\u00e9\ud83d\ude00"`},
			[]string{``, `{`, `"\ud83d"`, `01`, `[1,]`}},
		{`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"],"additionalProperties":false}`,
			[]string{`{"a":1}`, `{"a": 1, "b": "x"}`, "{\n  \"a\": -2,\n  \"b\": \"\"\n}"},
			[]string{`{}`, `{"b":"x"}`, `{"a":1,"c":2}`, `{"a":1.5}`, `{"b":"x","a":1}`, ` {"a":1}`}},
		{`{"type":"object","properties":{"a":{"type":"integer"}}}`,
			[]string{`{}`, `{"a":1}`, `{"b":"x"}`, `{"a":1,"b":null,"aa":[]}`, `{"":1}`},
			[]string{`{"a":"x"}`, `{"\u0061":"x"}`, `{"b":1,"a":1}`}},
		{`{"type":"object","additionalProperties":{"type":"boolean"},"maxProperties":2,"minProperties":1}`,
			[]string{`{"x":true}`, `{"x":true,"y":false}`}, []string{`{}`, `{"x":1}`, `{"x":true,"y":true,"z":true}`}},
		{`{"type":"object","patternProperties":{"^s_":{"type":"string"},"_i$":{"type":"integer"}},"additionalProperties":false}`,
			[]string{`{"s_":"","x_i":2}`, `{}`}, []string{`{"s_i":""}`, `{"q":1}`, `{"s_":1}`}},
		{`{"type":"object","propertyNames":{"pattern":"^[a-c]+$"},"properties":{"a":{"const":1},"d":{"const":2}}}`,
			[]string{`{"a":1,"ab":3}`, `{}`}, []string{`{"d":2}`, `{"x":1}`}},
		{`{"type":"string","minLength":2,"maxLength":3}`, []string{`"ab"`, `"日本語"`, `"\ud83d\ude00é"`},
			[]string{`"a"`, `"abcd"`}},
		{`{"type":"string","pattern":"^[a-z]+$","maxLength":3}`, []string{`"ab"`}, []string{`""`, `"abcd"`, `"aB"`}},
		{`{"type":"string","pattern":"b\\d"}`, []string{`"b1"`, `"\"ab1c\n"`}, []string{`"ab"`}},
		{`{"type":"integer","minimum":-5,"exclusiveMaximum":120,"multipleOf":5}`,
			[]string{`-5`, `0`, `5`, `115`, `-0`}, []string{`120`, `-10`, `7`, `5.0`, `1000`}},
		{`{"type":"number","minimum":-1.25,"maximum":10.5}`,
			[]string{`-1.25`, `-1.2`, `-1.250`, `0`, `0.0`, `10.5`, `10.49999`, `9.999`, `-0.0`, `10.500`},
			[]string{`-1.26`, `10.51`, `11`, `-2`, `10.5001`, `1e1`}},
		{`{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1}`, []string{`0.5`, `0.0001`, `0.9999`},
			[]string{`0`, `1`, `0.0`, `1.0`, `-0.5`}},
		{`{"type":"number","multipleOf":0.01}`, []string{`1.25`, `3`}, []string{`1.255`}},
		{`{"type":"number","minimum":100,"multipleOf":2}`, []string{`100`, `1002`}, []string{`101`, `98`, `100.5`}},
		{`{"enum":["a",1,null,{"x":[1,2]}],"type":["string","object"]}`,
			[]string{`"a"`, `{"x":[1,2]}`, `{ "x": [ 1, 2 ] }`}, []string{`1`, `null`}},
		{`{"const":"q\"\u0001\n"}`, []string{`"q\"\u0001\n"`}, []string{`"q"`}},
		{`{"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":30}`, []string{`[1]`, `[1, 2,3]`},
			[]string{`[]`, `["a"]`, `[1,]`}},
		{`{"type":"array","prefixItems":[{"const":1},{"const":2}],"items":false,"minItems":1}`,
			[]string{`[1]`, `[1,2]`}, []string{`[]`, `[2]`, `[1,2,3]`}},
		{`{"type":"array","prefixItems":[{"const":1}],"items":{"const":3},"minItems":3,"maxItems":4}`,
			[]string{`[1,3,3]`, `[1,3,3,3]`}, []string{`[1,3]`, `[1,3,3,3,3]`}},
		{`{"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["v"],"additionalProperties":false}}}`,
			[]string{`{"v":1}`, `{"v":1,"kids":[{"v":2,"kids":[]},{"v":3}]}`},
			[]string{`{"kids":[]}`, `{"v":1,"kids":[1]}`}},
		{`{"$id":"http://x/y","$ref":"#item","$defs":{"a/b":{"$anchor":"item","anyOf":[{"type":"null"},{"$ref":"http://x/y#/$defs/a~1b/$defs/s"}],"$defs":{"s":{"const":"s"}}}}}`,
			[]string{`null`, `"s"`}, []string{`1`}},
		{`{"anyOf":[{"type":"string"},{"type":"integer"}],"allOf":[{"minimum":3},{"maxLength":1}]}`,
			[]string{`"a"`, `3`}, []string{`"ab"`, `2`, `null`}},
		{`{"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k","x"],"additionalProperties":false},
			{"type":"object","properties":{"k":{"const":"b"}},"required":["k"],"additionalProperties":false}]}`,
			[]string{`{"k":"a","x":1}`, `{"k":"b"}`}, []string{`{"k":"a"}`, `{"k":"c"}`}},
		{`{"oneOf":[{"type":"string","pattern":"^a"},{"type":"string","pattern":"^b"},{"maximum":3,"type":"number"},{"exclusiveMinimum":3,"type":"number"},{"enum":["c","d"]}]}`,
			[]string{`"a1"`, `"b"`, `3`, `4`, `"c"`}, []string{`"e"`, `null`}},
		{`{"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"type":"object","properties":{"b":{"type":"string"},"a":{"minimum":5}},"required":["b"]}]}`,
			[]string{`{"a":5,"b":""}`, `{"a":5,"b":"","c":1}`}, []string{`{"a":4,"b":""}`, `{"a":5}`}},
		{`{"type":"object","properties":{"a":false,"b":true},"required":["c"],"minProperties":1}`,
			[]string{`{"c":1}`, `{"b":1,"c":[]}`}, []string{`{"a":1,"c":1}`}},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a","definitions":{"a":{"type":["boolean","null"]}}}`, []string{`true`, `null`}, []string{`1`}},
		{"{\"type\":\"object\",\"patternProperties\":{\"^.$\":{\"const\":1},\"^b[^\\\\s]$\":{\"const\":2}},\"additionalProperties\":{\"const\":3}}",
			[]string{`{"a":1}`, `{"bc":2}`, `{"b ":3}`, `{"abc":3}`},
			[]string{`{"a":3}`, "{\"\u2028\":3}", "{\"\u2028\":1}", "{\"b\u00a0\":2}", "{\"b\u00a0\":3}"}},
		{`{"type":"string","format":"date"}`, []string{`"2024-02-29"`, `"2023-12-31"`, `"2000-02-29"`},
			[]string{`"2023-02-29"`, `"1900-02-29"`, `"2023-13-01"`, `"2023-1-1"`}},
		{`{"type":"string","format":"ipv6"}`,
			[]string{`"::"`, `"::1"`, `"1:2:3:4:5:6:7:8"`, `"1::8"`, `"::ffff:1.2.3.4"`},
			[]string{`"1:2"`, `":::"`, `"1:2:3:4:5:6:7:8:9"`}},
		{`{"type":"object","maxProperties":0}`, []string{`{}`}, []string{`{"a":1}`}},
		{`{"type":"integer","minimum":1e2,"maximum":3e2}`, []string{`100`, `299`}, []string{`99`, `301`}},
		{`{"type":"string","maxLength":1000000000000}`, []string{`"a"`}, []string{`1`}},
		{`{"not":{}, "type":["null","string"], "anyOf":[true]}`, nil, nil},
	} {
		if test.yes == nil {
			require.Contains(t, fails(t, JSONSchema, test.schema).Error(), "nothing satisfies it")
			continue
		}
		g := compile(t, JSONSchema, test.schema)
		for _, text := range test.yes {
			require.True(t, accepts(g, text), "%s of %s", test.schema, text)
		}
		for _, text := range test.no {
			require.False(t, accepts(g, text), "%s of %s", test.schema, text)
		}
	}
}

func TestSchemaRefusals(t *testing.T) {
	for _, test := range [][2]string{
		{`{"type":"object","properties":{"a/b":{"if":{},"then":false}}}`,
			`JSON schema at #/properties/a~1b: "then": conditions are not supported; list the cases in anyOf`},
		{`{"not":{"type":"string"}}`, `at #: "not"`},
		{`{"type":"array","uniqueItems":true}`, `at #: "uniqueItems"`},
		{`{"type":"array","contains":{}}`, `"contains"`},
		{`{"anyOf":[{"type":"object"},{"type":"array","items":{"dependentRequired":{"a":["b"]}}}]}`,
			`#/anyOf/1/items: "dependentRequired"`},
		{`{"oneOf":[{"type":"integer"},{"type":"number"}]}`,
			`#: "oneOf": alternatives 0 and 1 may take the same value`},
		{`{"oneOf":[{"enum":["a",0]},{"type":"number"}]}`, `#: "oneOf": alternatives 0 and 1 may take`},
		{`{"$ref":"http://example.com/x"}`, `http://example.com/x`},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"type":"null"},{"allOf":[{"$ref":"#/$defs/a"}]}]}}}`,
			`leads back to itself`},
		{`{"$ref":"#/$defs/x"}`, `$defs/x`},
		{`{"type":"string","pattern":"(?=a)b"}`, `"pattern"`},
		{`{"type":"string","pattern":"a\\b"}`, `#: "pattern": it is no valid schema`},
		{`{"type":"string","format":"iri"}`, `#: "format": "iri" is not one of the formats`},
		{`{"type":"object","properties":{"x":{"$id":"http://y"}}}`, `#/properties/x: "$id"`},
		{`{"types":"string"}`, `#: "types": there is no such keyword`},
		{`{"type":"strin"}`, `at #: "type": it is no valid schema`},
		{`{"type":"number","minimum":1e999}`, `#/minimum: the number 1e999 is out of range`},
		{`{"type":"number","multipleOf":0.3}`, `#: "multipleOf"`},
		{`{"type":"string","pattern":"a{500}b.*a{500}","maxLength":90000}`, `too large an automaton`},
		{`{"type":"object","minProperties":3}`, `#: "minProperties"`},
		{`{"type":"object","properties":{"a":true,"b":true},"maxProperties":1}`, `#: "maxProperties"`},
		{`{"allOf":[true],"unevaluatedProperties":false}`, `#: "unevaluatedProperties"`},
		{`{"$schema":"http://json-schema.org/draft-04/schema#"}`, `"$schema"`},
		{`{"type":"string","type":"null"}`, `the member "type" is there twice`},
		{`{} {}`, `something follows the schema`},
		{`{"type":"integer","minimum":5,"maximum":4}`, `nothing satisfies it`},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/a"},"minItems":1}}}`,
			`nothing satisfies it`},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"$dynamicRef":"#"}}}`, `"$dynamicRef"`},
	} {
		require.Contains(t, fails(t, JSONSchema, test[0]).Error(), test[1], test[0])
	}
}
