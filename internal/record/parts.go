package record

import (
	"fmt"
	"io"

	"github.com/etc-ml/etc/calibrate"
)

// Draft is the part of a record about the file's draft.
type Draft struct {
	// Kind is mtp or assistant.
	Kind    string   `json:"kind"`
	Sources []Source `json:"sources"`
}

// Calibration is the part of a record about the calibration.
type Calibration struct {
	// Text names the text, and SHA256 is its hash.
	Text   string `json:"text"`
	SHA256 string `json:"text_sha256"` // not sha256, which are the sources' keys
	// Quality is the measured quality on the held-out part of the text; nil if nothing was held out.
	Quality *calibrate.Quality `json:"quality,omitempty"`
}

// write prints the record for people.
func (c *Calibration) write(out io.Writer) error {
	_, err := fmt.Fprintf(out, "           calibrated with %s (SHA-256 %.16s…)", c.Text, c.SHA256)
	if q := c.Quality; err == nil && q != nil {
		_, err = fmt.Fprintf(out, ": on what was held out KL %.5f mean, %.5f median, %.4f 99th percentile; same "+
			"first token %.1f %%; perplexity %.3f, the checkpoint's %.3f",
			q.Mean, q.Median, q.P99, 100*q.Top1, q.Perplexity, q.Reference)
	}
	if err == nil {
		_, err = fmt.Fprintln(out)
	}
	return err
}
