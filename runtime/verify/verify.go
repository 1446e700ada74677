package verify

import (
	"errors"
	"fmt"

	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/program"
)

// Severity ranks findings.
type Severity string

const (
	// Error is the severity of findings that make a file invalid.
	Error Severity = "error"
	// Warning is what some runtime, or some input, will stumble over.
	Warning Severity = "warning"
	// Note is worth knowing and harmless.
	Note Severity = "note"
)

// Finding is one thing that a check found.
type Finding struct {
	Severity Severity `json:"severity"`
	// Check names what was checked: container, segments, named-data, method, memory-plan, constants,
	// alignment, item-int, metal, metadata, entries, draft, language-model, prefill-chunk, vocabulary, tokenizer.
	Check string `json:"check"`
	// Message says where it is, what was found, what was expected and what follows.
	Message string `json:"message"`
}

// String returns the finding on one line.
func (f Finding) String() string { return fmt.Sprintf("%s: %s: %s", f.Severity, f.Check, f.Message) }

// File checks a file. The error is one of the system; what is wrong with the content is a finding.
func File(path string) ([]Finding, error) {
	p, err := program.Open(path)
	if errors.Is(err, container.ErrInvalid) {
		return []Finding{{Error, "container", err.Error()}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return Program(p), nil
}

// Program checks an open program, whose container has been checked by opening it.
func Program(p *program.Program) []Finding {
	c := &checker{program: p, file: p.File}
	c.segments()
	weights := map[string]bool{}
	for i, m := range p.File.Methods() {
		if len(m.Inputs) == 0 && len(m.Calls) == 0 && len(m.Others) == 0 {
			continue
		}
		c.memoryPlan(i, m)
		c.method(m, weights)
	}
	c.entries()
	c.namedData(weights)
	c.metadata()
	c.text()
	return c.findings
}

// Invalid reports whether a finding is an error.
func Invalid(findings []Finding) bool {
	for _, f := range findings {
		if f.Severity == Error {
			return true
		}
	}
	return false
}

type checker struct {
	program  *program.Program
	file     *container.File
	findings []Finding
	vocab    int // size of the vocabulary of a language model, 0 where it is not known

}

func (c *checker) find(s Severity, check, format string, args ...any) {
	c.findings = append(c.findings, Finding{s, check, fmt.Sprintf(format, args...)})
}
