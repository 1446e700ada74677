package serve

import (
	"strings"

	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/format"
)

// block is a part of an answer of one kind: text, thoughts, or a call of a tool.
type block struct {
	kind   format.Kind // Content, Reasoning or Call
	id     string
	callID string
	name   string
	text   strings.Builder // of a call: its arguments
	tokens []batch.Token
}

// blocks is an answer as a list of blocks, for APIs that want it so.
type blocks struct {
	list []*block
}

// goesOn reports whether a piece continues the last block.
func (b *blocks) goesOn(p piece) bool {
	if len(b.list) == 0 || p.Kind == format.Call {
		return false
	}
	last := b.list[len(b.list)-1].kind
	return last == p.Kind || last == format.Call && p.Kind == format.Arguments
}

// add takes a piece. opened says that it begins a block, which is then the last one.
func (b *blocks) add(p piece) (last *block, opened bool) {
	if opened = !b.goesOn(p); opened {
		k := &block{kind: p.Kind}
		switch p.Kind {
		case format.Call:
			k.id, k.callID, k.name = newID("fc_"), newID("call_"), p.Name
		case format.Reasoning:
			k.id = newID("rs_")
		default:
			k.id = newID("msg_")
		}
		b.list = append(b.list, k)
	}
	last = b.list[len(b.list)-1]
	if p.Kind != format.Call {
		last.text.WriteString(p.Text)
	}
	last.tokens = append(last.tokens, p.tokens...)
	return last, opened
}
