package command

import (
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/calibration"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/passes"
)

// openCalibration reads the text of --calibrate; nil where nothing asks for one.
func (f exportFlags) openCalibration(cmd *cobra.Command, o *passes.Options) (*calibration.Text, error) {
	if !calibration.Needed(o) {
		if anyChanged(cmd, "calibrate") {
			return nil, usagef("--calibrate %s: the recipe has no linear weight whose method needs a text; give "+
				"--qlinear 4w, and --quant-method auto, learned, gptq or weighted", f.calibrate)
		}
		if _, ok := calibration.Methods[f.method]; ok {
			return nil, usagef("--quant-method %s chooses linear weights by a text, and none is quantized: give "+
				"--qlinear 4w", f.method)
		}
		return nil, nil
	}
	for _, x := range []struct {
		flag string
		set  bool
	}{{"--plan", f.plan}, {"--emit " + f.emit, f.emit != "pte"}} {
		if x.set {
			return nil, usagef("%s with a method that is calibrated: sizes, rules and program are those of "+
				"--quant-method best; ask with that", x.flag)
		}
	}
	return calibration.Read("--calibrate", f.calibrate)
}

// calibrationSlack is what a calibration leaves of the limit, besides a sixteenth of it, to what the garbage collector
// does not see. What package calibrate holds at a time is less than the rest.
const calibrationSlack = 40 << 20

// calibrationGarbage is the garbage that a calibration within a limit leaves uncollected, in percent of what is alive.
// Nearly all of it are arrays of numbers, which the collector does not look into.
const calibrationGarbage = 25

// calibrated sets what the passes need of a calibration, where the recipe asks for one.
func (f exportFlags) calibrated(cmd *cobra.Command, in *loaders.Checkpoint, o *passes.Options) (*calibration.Text,
	error) {
	c, err := f.openCalibration(cmd, o)
	if c == nil || err != nil {
		return nil, err
	}
	limit, err := f.limit(cmd)
	if err != nil {
		return nil, err
	}
	x := calibration.Options{Dir: f.output + ".calibration", Resume: f.resume, Jobs: f.jobs, MaxRAM: limit,
		Log: func(format string, args ...any) { logf(cmd.ErrOrStderr(), "etc: "+format, args...) },
		Fits: func(what string, need int64) error {
			if limit == 0 || need <= limit {
				return nil
			}
			return memoryError{fmt.Errorf("--max-ram %s: %s needs %s (--max-ram %d)", f.maxRAM, what,
				humanize.IBytes(uint64(need)), need)}
		}}
	if limit > 0 {
		boundCollector(limit, calibrationSlack+limit/16)
		defer debug.SetGCPercent(debug.SetGCPercent(calibrationGarbage))
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := c.Calibrate(ctx, in, o, x); err != nil {
		return nil, err
	}
	return c, nil
}
