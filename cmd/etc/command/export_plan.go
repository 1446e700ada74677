package command

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/report"
	"github.com/etc-ml/etc/runtime/session"
)

// exportPlan is what an export would write, and what writing it and running the result need. Sizes are in bytes.
type exportPlan struct {
	File    string       `json:"file"`
	Size    int64        `json:"size"`
	Weights []planWeight `json:"weights"`
	Export  planExport   `json:"export"`
	Run     planRun      `json:"run"`
	rows    []*qualityRow
}

type planWeight struct {
	Name          string  `json:"name"`
	Elements      int64   `json:"elements"`
	Size          int64   `json:"size"`
	Bits          int     `json:"bits,omitempty"` // absent: not quantized
	GroupSize     int     `json:"group_size,omitempty"`
	Mode          string  `json:"mode,omitempty"` // absent: affine
	BitsPerWeight float64 `json:"bits_per_weight"`
}

type planExport struct {
	Jobs   int   `json:"jobs"`
	Memory int64 `json:"memory"`
	Disk   int64 `json:"disk"`
	// DiskFree is absent where the system does not tell.
	DiskFree *int64 `json:"disk_free,omitempty"`
	Read     int64  `json:"read"`
	Written  int64  `json:"written"`
	// Compute is measured on a small part; transfer is at an assumed rate. They overlap.
	ComputeSeconds  float64 `json:"compute_seconds"`
	TransferSeconds float64 `json:"transfer_seconds"`
	Seconds         float64 `json:"seconds"`
}

type planRun struct {
	Weights   int64 `json:"weights"`
	MaxSeqLen int   `json:"max_seq_len"`
	// Cache is the part of the state that grows with the context, at its longest; State is the rest.
	Cache   int64 `json:"kv_cache"`
	State   int64 `json:"state"`
	Chunk   int   `json:"prefill_chunk"`
	Prefill int64 `json:"prefill_peak"`
	Decode  int64 `json:"decode_peak"`
	// Total is weights, caches, state and the larger peak.
	Total int64 `json:"total"`
}

// assumedTransfer is the rate of reading and writing that a plan counts with, in bytes per second: that of a
// common solid-state disk, which is not measured, since a plan writes nothing.
const assumedTransfer = 1 << 30

func newExportPlan(ctx context.Context, output string, file codegen.File, l *codegen.Layout, m *ir.Module,
	weights *passes.Report) (*exportPlan, error) {
	p := &exportPlan{File: output, Size: l.Size, Weights: []planWeight{}}
	if weights != nil {
		for _, w := range weights.Weights {
			mode := ""
			if w.Mode != ir.Affine {
				mode = w.Mode.String()
			}
			p.Weights = append(p.Weights, planWeight{w.Name, w.Elements, w.Bytes, w.Bits, w.GroupSize,
				mode, w.BitsPerWeight()})
		}
		p.rows = qualityRows(weights)
	}
	work, err := l.Estimate(ctx, file.Inputs)
	if err != nil {
		return nil, err
	}
	e := &p.Export
	e.Jobs, e.Memory = file.Workers(), l.Memory().For(file.Workers())
	e.Disk, e.Read, e.Written = l.Size, work.Read, work.Written
	if _, free := l.Disk(output); free >= 0 {
		e.DiskFree = &free
	}
	e.ComputeSeconds = work.Computing.Seconds() / float64(e.Jobs)
	e.TransferSeconds = float64(work.Read+work.Written) / assumedTransfer
	e.Seconds = max(e.ComputeSeconds, e.TransferSeconds)
	return p, p.Run.fill(m)
}

// fill sets what running a module needs, with the figures that etc inspect gives for a file.
func (r *planRun) fill(m *ir.Module) error {
	d, err := session.Describe(m)
	if err != nil {
		return err
	}
	memory := session.MeasureMemory(m, d.MaxSeqLen, eval.Mixed)
	end := int64(d.MaxSeqLen)
	r.MaxSeqLen, r.Chunk, r.Weights = d.MaxSeqLen, d.MaxChunk, memory.Weights
	r.Cache = memory.Position * end
	r.State = memory.State - r.Cache
	r.Prefill, r.Decode = report.Peak(m, int64(d.MaxChunk), end), report.Peak(m, 1, end)
	r.Total = r.Weights + r.Cache + r.State + max(r.Prefill, r.Decode)
	return nil
}

func (p *exportPlan) write(out io.Writer) error {
	size := func(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	line("would write\t%s, %s (%s bytes); nothing has been written", p.File, size(p.Size), humanize.Comma(p.Size))
	if len(p.rows) > 0 {
		line("\nweights\tcount\tstored\tbits/weight\tsize")
		var elements, bytes int64
		for _, r := range p.rows {
			line("%s\t%d\t%s\t%.3f\t%s", r.kind, r.count, r.stored, 8*float64(r.bytes)/float64(max(r.elements, 1)),
				size(r.bytes))
			elements, bytes = elements+r.elements, bytes+r.bytes
		}
		line("all\t%d\t\t%.3f\t%s", len(p.Weights), 8*float64(bytes)/float64(max(elements, 1)), size(bytes))
	}
	e, r := p.Export, p.Run
	line("\nto export\t")
	line("memory\tabout %s with %d workers (--jobs, --max-ram)", size(e.Memory), e.Jobs)
	free := ""
	if e.DiskFree != nil {
		free = fmt.Sprintf(", %s are free", size(*e.DiskFree))
		if *e.DiskFree < e.Disk {
			free += ": too little"
		}
	}
	line("disk\t%s%s", size(e.Disk), free)
	line("time\t%s: computing %s; reading %s and writing %s at %s/s, %s", seconds(e.Seconds), seconds(e.ComputeSeconds),
		size(e.Read), size(e.Written), humanize.IBytes(assumedTransfer), seconds(e.TransferSeconds))
	line("\nto run\t")
	line("weights\t%s", size(r.Weights))
	line("KV cache\t%s for %d positions", size(r.Cache), r.MaxSeqLen)
	line("other state\t%s", size(r.State))
	line("peak of temporaries\tprefill %s (%d tokens), decode %s", size(r.Prefill), r.Chunk, size(r.Decode))
	line("all\t%s", size(r.Total))
	return w.Flush()
}

// seconds writes a duration with as many digits as an estimate deserves.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < time.Second:
		return "under 1 s"
	case d < time.Minute:
		return fmt.Sprintf("about %.0f s", s)
	}
	return fmt.Sprintf("about %d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
}
