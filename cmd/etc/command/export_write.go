package command

import (
	"context"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/minisign"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
)

// writeFlags say how a file is written; its bytes do not depend on them.
type writeFlags struct {
	resume, plan, json bool
	maxRAM, sign, part string
	cacheDir, cacheMax string
	key                *minisign.PrivateKey // of sign
}

func (f *writeFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.resume, "resume", false,
		"go on from what an interrupted export has left; keep what is there when interrupted")
	fl.BoolVar(&f.plan, "plan", false, "write nothing; print what would be written, and what writing and "+
		"running it need")
	fl.BoolVar(&f.json, "json", false, "with --plan: print one JSON object")
	fl.StringVar(&f.sign, "sign", "", "private key of minisign to sign the file with; writes FILE.root and "+
		"FILE.root.minisig")
	fl.StringVar(&f.cacheDir, "cache", "", "directory to keep computed weights in, and to take them from")
	fl.StringVar(&f.cacheMax, "cache-size", "40GiB",
		"what --cache may hold; what was not used for the longest time goes first")
	fl.StringVar(&f.part, "part", "", "write part I of N of the program, as 3/8, for etc link (default output: "+
		"model-I-of-N.part)")
	fl.StringVar(&f.maxRAM, "max-ram", "",
		"memory that the export may take, as 2GiB or 500MB (default: as much as the workers need)")
}

// check refuses flags that do not go together.
func (f *writeFlags) check(cmd *cobra.Command, emit string) error {
	if f.json && !f.plan {
		return usagef("--json goes with --plan")
	}
	if emit != "pte" {
		for _, flag := range []string{"resume", "plan", "max-ram", "sign", "part", "cache", "cache-size"} {
			if anyChanged(cmd, flag) {
				return usagef("--%s goes with --emit pte", flag)
			}
		}
	}
	if anyChanged(cmd, "part") {
		if _, _, err := f.parsePart(); err != nil {
			return err
		}
		for _, flag := range []string{"plan", "sign"} {
			if anyChanged(cmd, flag) {
				return usagef("--%s with --part: it goes with the whole file", flag)
			}
		}
	}
	return f.readKey(cmd)
}

// parsePart reads --part.
func (f writeFlags) parsePart() (part, parts int, err error) {
	first, second, ok := strings.Cut(f.part, "/")
	part, errPart := strconv.Atoi(first)
	parts, errParts := strconv.Atoi(second)
	if !ok || errPart != nil || errParts != nil || part < 1 || part > parts || parts > codegen.MaxParts {
		return 0, 0, usagef("--part %q, want I/N with I from 1 to N, at most %d", f.part, codegen.MaxParts)
	}
	return part, parts, nil
}

// partName returns the default name of a part.
func (f writeFlags) partName() string {
	return "model-" + strings.ReplaceAll(f.part, "/", "-of-") + ".part"
}

// write writes a file, or the part of it that --part asks for.
func (f writeFlags) write(ctx context.Context, path string, file codegen.File) error {
	if f.part == "" {
		return exportError(codegen.Write(ctx, path, file))
	}
	part, parts, err := f.parsePart()
	if err != nil {
		return err
	}
	return exportError(codegen.WritePart(ctx, path, file, part, parts))
}

// readKey reads the key of --sign, before anything is written.
func (f *writeFlags) readKey(cmd *cobra.Command) error {
	if !anyChanged(cmd, "sign") || f.plan {
		return nil
	}
	key, err := readKey(f.sign, cmd.ErrOrStderr())
	f.key = &key
	return err
}

// signed signs what has been written, where a key was given.
func (f writeFlags) signed(cmd *cobra.Command, path string) error {
	if f.key == nil {
		return nil
	}
	if err := sign(cmd.Context(), path, *f.key, 0); err != nil {
		return err
	}
	logf(cmd.ErrOrStderr(), "etc: signed %s with the key %s", path, f.key.Public().Name())
	return nil
}

// limit returns the memory that the export may take, 0 for any.
func (f writeFlags) limit(cmd *cobra.Command) (int64, error) {
	if !anyChanged(cmd, "max-ram") {
		return 0, nil
	}
	return parseSize("--max-ram", f.maxRAM)
}

// collectorSlack is the part of the limit that the garbage collector does not see: code, and pages that go back late.
const collectorSlack = 24 << 20

// bound sets the number of workers so that the export stays within the limit of memory.
func (f writeFlags) bound(cmd *cobra.Command, file *codegen.File, l *codegen.Layout) error {
	limit, err := f.limit(cmd)
	if err != nil || limit == 0 {
		return err
	}
	memory := l.Memory()
	jobs := memory.Jobs(limit, file.Workers())
	if jobs == 0 {
		return memoryError{fmt.Errorf("--max-ram %s: one worker needs %s (--max-ram %d)", f.maxRAM,
			humanize.IBytes(uint64(memory.For(1))), memory.For(1))}
	}
	file.Jobs = jobs
	boundCollector(limit, collectorSlack)
	return nil
}

// boundCollector has the garbage collector keep what it sees within a limit of memory, less the part that it does not
// see, but within no less than half of the limit.
func boundCollector(limit, slack int64) { debug.SetMemoryLimit(max(limit-slack, limit/2)) }

// prepare does what comes before writing: it sets the bounds of memory, or prints the plan. It reports whether nothing
// is to be written.
func (f exportFlags) prepare(cmd *cobra.Command, file *codegen.File, m *ir.Module, weights *passes.Report) (bool,
	error) {
	file.Jobs = f.jobs
	if !f.plan && f.maxRAM == "" && !anyChanged(cmd, "max-ram") {
		return false, nil
	}
	l, err := codegen.Plan(*file)
	if err != nil {
		return true, err
	}
	if err := f.bound(cmd, file, l); err != nil || !f.plan {
		return err != nil, err
	}
	p, err := newExportPlan(cmd.Context(), f.output, *file, l, m, weights)
	if err != nil {
		return true, err
	}
	if f.json {
		return true, writeJSON(cmd.OutOrStdout(), p)
	}
	return true, p.write(shownOut(cmd))
}
