package format

import (
	"strings"

	"github.com/etc-ml/etc/runtime/tokenizer"
)

// Kind is the kind of an event.
type Kind uint8

// The kinds of events.
const (
	Content   Kind = iota // text of the answer
	Reasoning             // text of thoughts
	Call                  // a call of a tool begins; Name is its name
	Arguments             // more of the arguments of the call, a part of a JSON object
)

// Event is a part of an answer.
type Event struct {
	Kind Kind
	// Text of Content, Reasoning and Arguments.
	Text string
	// Index counts the calls of an answer from 0, Name is the tool's.
	Index int
	Name  string
}

// Tool has what a parser needs to know about a tool: which parameters are texts.
type Tool struct {
	Name  string
	Texts map[string]bool
}

// section is the part of an answer that a token belongs to.
type section uint8

const (
	inContent section = iota
	inReasoning
	inCall
)

// Parser reads an answer token by token. It is for one goroutine.
type Parser struct {
	format *Format
	tools  []Tool // nil: calls are not looked for
	at     section
	stream *tokenizer.Stream
	call   caller // of inCall
	raw    strings.Builder
	index  int
	begun  bool   // something of the section was given
	space  string // white space that was read; it is given only when more text of the section follows
	header string // the rest of the header of thoughts, which is still to be read
	events []Event
}

// NewParser begins an answer; inside says that the prompt has opened thoughts. Calls are looked for where there are
// tools.
func (f *Format) NewParser(inside bool, tools []Tool) *Parser {
	p := &Parser{format: f, tools: tools}
	if !f.Calls() {
		p.tools = nil
	}
	if p.enter(inContent); inside {
		p.enter(inReasoning)
		p.header = "" // it is in the prompt
	}
	if !inside {
		p.begun = true // white space at the beginning of the text is dropped after thoughts alone
	}
	return p
}

// Thinking reports whether the next token is inside of thoughts.
func (p *Parser) Thinking() bool { return p.at == inReasoning }

// Calling reports whether the next token is inside of a call.
func (p *Parser) Calling() bool { return p.at == inCall }

// Calls is how many calls there were.
func (p *Parser) Calls() int { return p.index }

// enter begins a section.
func (p *Parser) enter(at section) {
	p.at, p.begun, p.space = at, false, ""
	p.stream = p.format.tokenizer.NewStream(true)
	switch at {
	case inReasoning:
		p.header = p.format.table.header
	case inCall:
		p.raw.Reset()
		p.call = newCaller(p.format.table.body, p.tools)
	}
}

// Push takes a token and returns the events that are certain now.
func (p *Parser) Push(id int) []Event {
	p.events = nil
	f := p.format
	switch {
	case id == f.Open && f.Thinks() && p.at == inContent:
		p.leave()
		p.enter(inReasoning)
	case id == f.Close && f.Thinks() && p.at == inReasoning:
		p.leave()
		p.enter(inContent)
	case id == f.Tool && p.tools != nil && p.at != inCall:
		p.leave()
		p.enter(inCall)
	case id == f.End && p.tools != nil && p.at == inCall:
		p.leave()
		p.enter(inContent)
	case id == f.Quote && p.at == inCall:
		p.text(p.stream.Flush())
		p.stream = f.tokenizer.NewStream(true)
		p.raw.WriteString(f.table.quote)
		p.call.quote()
	default:
		p.text(p.stream.Push(id))
	}
	return p.events
}

// Finish ends the answer.
func (p *Parser) Finish() []Event {
	p.events = nil
	p.leave()
	return p.events
}

// leave ends the section.
func (p *Parser) leave() {
	p.text(p.stream.Flush())
	if p.at == inCall {
		p.take(p.call.finish())
		if !p.call.begun() { // no call: it is told as it came
			p.events = append(p.events, Event{Kind: Content, Text: p.raw.String()})
			return
		}
		p.index++
		return
	}
	if p.at == inContent && p.space != "" && p.tools == nil {
		p.give(p.space)
	}
	p.space = ""
}

// give gives text of the section.
func (p *Parser) give(text string) {
	if text == "" {
		return
	}
	kind := Content
	if p.at == inReasoning {
		kind = Reasoning
	}
	p.events, p.begun = append(p.events, Event{Kind: kind, Text: text}), true
}

// text takes text of the section. White space around thoughts, after them and before calls is the format's.
func (p *Parser) text(text string) {
	if text == "" {
		return
	}
	if p.at == inCall {
		p.raw.WriteString(text)
		p.take(p.call.text(text))
		return
	}
	if p.header != "" && p.at == inReasoning {
		n := 0
		for n < len(text) && n < len(p.header) && text[n] == p.header[n] {
			n++
		}
		if n < len(text) && n < len(p.header) { // another text, or another channel
			p.header = ""
		} else {
			p.header, text = p.header[n:], text[n:]
		}
	}
	if !p.begun {
		if text = strings.TrimLeft(text, "\r\n"); text == "" {
			return
		}
	}
	if p.at == inContent && p.tools == nil {
		p.give(text)
		return
	}
	text = p.space + text
	kept := strings.TrimRight(text, " \t\r\n")
	p.space = text[len(kept):]
	p.give(kept)
}

// take passes on what a call gave.
func (p *Parser) take(name string, arguments string) {
	if name != "" {
		p.events = append(p.events, Event{Kind: Call, Index: p.index, Name: name})
	}
	if arguments != "" {
		p.events = append(p.events, Event{Kind: Arguments, Index: p.index, Text: arguments})
	}
}
