package command

import (
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/serve"
)

// serveText returns the tokenizer, the template and the defaults of the file for the server. limits are the limits of
// the program as the server runs it.
func (s *servedFile) serveText(limits batch.Limits) (*serve.Text, error) {
	now, err := templateClock("")
	if err != nil {
		return nil, err
	}
	defaults, unused, err := s.text.BatchDefaults(limits)
	if err != nil {
		return nil, err
	}
	for _, key := range unused {
		s.log("etc: %s: the %s of the generation config is not used: the program draws its tokens itself", s.Path, key)
	}
	t := &serve.Text{Tokenizer: s.text.Tokenizer, Stop: s.text.Stop, Now: now, Defaults: defaults}
	if c := s.text.Template; c != nil {
		t.Template, t.Source, t.Special = c.Parsed, c.Source, c.Tokens
	}
	return t, nil
}
