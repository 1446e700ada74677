package command

import (
	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/record"
	"github.com/etc-ml/etc/internal/version"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/report"
)

// keyBuild is the key of the build record in a file.
const keyBuild = record.Key

// buildRecord says how a file was made.
type buildRecord = record.Record

// toolVersion is the version that files record.
const toolVersion = version.Tool

// figuresOf returns the quality card for a page, none where no text chose a weight.
func figuresOf(r *buildRecord) []report.Figure {
	if r == nil || r.Calibration == nil {
		return nil
	}
	return qualityFigures(r.Calibration.Quality, "what was held out of "+r.Calibration.Text)
}

// newFile puts a module and what belongs to it in a file: tokenizer, template, configuration, record.
func newFile(c *loaders.Checkpoint, m *ir.Module, o *passes.Options, f exportFlags) (codegen.File, error) {
	recorded := f.choice.Options()
	recorded.Backend, recorded.Sample, recorded.Portable = f.backend, f.sample, f.portable
	return record.NewFile(c, m, o, recorded, f.calibration.Record())
}
