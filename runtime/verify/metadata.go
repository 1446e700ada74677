package verify

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/tokenizer"
	schema "github.com/etc-ml/etc/schema/program"
)

// methodKind is the kind of result of a known constant method.
type methodKind uint8

const (
	aBool methodKind = iota
	aCount
	anID
	someIDs
)

// known are the constant methods that runners of language models read.
var known = map[string]methodKind{
	"get_max_seq_len": aCount, "get_vocab_size": aCount, "get_n_layers": aCount, "get_max_prefill_chunk": aCount,
	"get_min_prefill_chunk": aCount,
	"use_kv_cache":          aBool, "use_sdpa_with_kv_cache": aBool, "enable_dynamic_shape": aBool,
	"use_sampling": aBool,
	"get_bos_id":   anID, "get_eos_id": anID, "get_eos_ids": someIDs,
}

// metadata checks the constant methods.
func (c *checker) metadata() {
	seen := map[string]bool{}
	for _, m := range c.file.Methods() {
		if seen[m.Name] {
			c.find(Error, "metadata", "method %s stands more than once", m.Name)
			continue
		}
		seen[m.Name] = true
		kind, ok := known[m.Name]
		if !ok {
			continue
		}
		if len(m.Inputs) > 0 || len(m.Calls) > 0 || len(m.Others) > 0 {
			c.find(Error, "metadata", "method %s computes, want a constant", m.Name)
			continue
		}
		c.constantMethod(m, kind)
	}
}

func (c *checker) constantMethod(m *container.Method, kind methodKind) {
	switch kind {
	case aBool:
		if _, _, err := c.file.ConstantBool(m.Name); err != nil {
			c.find(Error, "metadata", "%v", err)
		}
	case aCount:
		if v, _, err := c.file.ConstantInt(m.Name); err != nil {
			c.find(Error, "metadata", "%v", err)
		} else if v < 1 {
			c.find(Error, "metadata", "method %s gives %d, want at least 1", m.Name, v)
		}
	case anID, someIDs:
		ids, _, err := c.file.ConstantInts(m.Name)
		switch {
		case err != nil:
			c.find(Error, "metadata", "%v", err)
			return
		case kind == anID && len(ids) != 1:
			c.find(Error, "metadata", "method %s gives %d integers, want one", m.Name, len(ids))
		}
		if len(m.Outputs) > 0 && m.Values[m.Outputs[0]].Kind != schema.KernelTypesInt {
			c.find(Warning, "metadata", "method %s gives its ids in a list or a tensor; ExecuTorch's runners "+
				"read Ints only", m.Name)
		}
		for _, id := range ids {
			if id < 0 || c.vocab > 0 && id >= int64(c.vocab) {
				c.find(Error, "vocabulary", "method %s gives id %d, which is not in the vocabulary of %s", m.Name, id,
					plural(c.vocab, "token"))
			}
		}
	}
}

// text checks the texts that come with a model.
func (c *checker) text() {
	for _, n := range c.file.NamedData() {
		if !strings.HasPrefix(n.Key, metadataPrefix) || !strings.HasSuffix(n.Key, ".json") {
			continue
		}
		b := c.file.SegmentBytes(n.Segment)
		if n.Key == metadataPrefix+"tokenizer.json" {
			c.tokenizer(n.Key, b)
		} else if !json.Valid(b) {
			c.find(Error, "metadata", "%s is not valid JSON", n.Key)
		}
	}
}

// tokenizer checks that the tokenizer can be read and gives no ids that the model does not know.
func (c *checker) tokenizer(key string, b []byte) {
	t, err := tokenizer.Parse(b, key)
	if err != nil {
		c.find(Error, "tokenizer", "%v", err)
		return
	}
	for _, w := range t.Warnings() {
		c.find(Note, "tokenizer", "%s: %s", key, w)
	}
	if c.vocab == 0 {
		return
	}
	if t.VocabSize() > c.vocab {
		c.find(Error, "vocabulary", "%s has %s, the model's vocabulary %d", key, plural(t.VocabSize(), "token"),
			c.vocab)
	}
	for _, id := range t.SpecialIDs() {
		if id >= c.vocab {
			name, _ := t.IDToToken(id)
			c.find(Error, "vocabulary", "%s: special token %q has id %d, which is not in the model's vocabulary of %d",
				key, name, id, c.vocab)
		}
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
