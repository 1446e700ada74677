package tokenizer

// A template is what a post-processor puts around the tokens of a text: a row of pieces, each the text or some ids.
type template []templatePiece

type templatePiece struct {
	text bool
	ids  []int
}

// maxPieces bounds a template. Published ones have two or three pieces.
const maxPieces = 64

var onlyText = template{{text: true}}

// readPostProcessor reads the section post_processor. Ids need not be in the vocabulary, as in the library.
func readPostProcessor(v value) template {
	c := newComponent(v)
	t := onlyText
	switch c.oneOf("type", "TemplateProcessing", "ByteLevel", "BertProcessing", "RobertaProcessing", "Sequence") {
	case "ByteLevel": // changes offsets only
		c.need("add_prefix_space").boolean()
		c.need("trim_offsets").boolean()
		c.flag("use_regex", true)
	case "RobertaProcessing":
		c.need("trim_offsets").boolean()
		c.need("add_prefix_space").boolean()
		t = readClassifier(c)
	case "BertProcessing":
		t = readClassifier(c)
	case "TemplateProcessing":
		t = readTemplate(c)
	case "Sequence":
		var one *value
		for _, item := range c.need("processors").want(array).items {
			inner := readPostProcessor(item)
			if len(inner) == 1 && inner[0].text {
				continue
			}
			if one != nil {
				fail(item.at, "two processors that add tokens are not supported; %s is the first", one.at)
			}
			t, one = inner, &item
		}
	}
	c.done()
	return t
}

// readClassifier reads the pairs cls and sep, a token and its id each: the text stands between them.
func readClassifier(c *component) template {
	token := func(key string) templatePiece {
		pair := c.need(key).want(array)
		if len(pair.items) != 2 {
			fail(pair.at, "found %d elements, expected a token and its id", len(pair.items))
		}
		pair.items[0].str()
		return templatePiece{ids: []int{pair.items[1].natural()}}
	}
	return template{token("cls"), {text: true}, token("sep")}
}

func readTemplate(c *component) template {
	special := map[string][]int{}
	tokens := c.need("special_tokens").want(object)
	for i, key := range tokens.keys {
		token := newComponent(tokens.items[i])
		token.need("id").str()
		var ids []int
		for _, id := range token.need("ids").want(array).items {
			ids = append(ids, id.natural())
		}
		for _, s := range token.need("tokens").want(array).items {
			s.str()
		}
		token.done()
		special[key] = ids
	}
	single := readPieces(c.need("single"), special, false)
	readPieces(c.need("pair"), special, true) // must be right, but pairs of texts are not encoded
	return single
}

func readPieces(v value, special map[string][]int, pair bool) template {
	var t template
	items := v.want(array).items
	if len(items) > maxPieces {
		fail(v.at, "found %d pieces, at most %d are supported", len(items), maxPieces)
	}
	for _, item := range items {
		c := newComponent(item)
		token, isToken := c.get("SpecialToken")
		text, isText := c.get("Sequence")
		if isToken == isText {
			fail(item.at, "expected either SpecialToken or Sequence")
		}
		c.done()
		if isText {
			text := newComponent(text)
			if id := text.oneOf("id", "A", "B"); id == "B" && !pair {
				fail(text.at, "the template of a single text has a text B")
			}
			text.need("type_id").natural()
			text.done()
			t = append(t, templatePiece{text: true})
			continue
		}
		name := newComponent(token)
		id := name.need("id")
		name.need("type_id").natural()
		name.done()
		ids, ok := special[id.str()]
		if !ok {
			fail(id.at, "found %s, which is not in special_tokens", id.describe())
		}
		t = append(t, templatePiece{ids: ids})
	}
	return t
}
