package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/devices"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/gpu/tune"
	"github.com/etc-ml/etc/runtime/host"
)

func newDoctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine can run, and why not",
		Long: `doctor shows what matters to etc on this machine: processor and memory, whether files can be mapped,
which devices run programs and why the others do not, the space for temporary files. It always succeeds; what is
wrong is part of what it shows.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := examine()
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), d)
			}
			return d.writeText(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// bitsPerWeight is the size of a weight at 4 bits in groups of 64, with a scale and a bias of 16 bits.
const bitsPerWeight = 4.5

// diagnosis is what --json prints. Sizes are in bytes; what the system does not say is 0 or empty.
type diagnosis struct {
	Version  versionInfo `json:"version"`
	CPU      string      `json:"cpu"`
	Cores    int         `json:"cores"`
	Threads  int         `json:"threads"`
	Features []string    `json:"cpu_features"`
	// Levels are those that --cpu-features takes here, the default last.
	Levels []string    `json:"cpu_levels"`
	Memory host.Memory `json:"memory"`
	// Weights is how many weights of 4 bits fit the memory that is available.
	Weights  int64  `json:"weights_4bit"`
	PageSize int    `json:"page_size"`
	TempDir  string `json:"temp_dir"`
	TempFree int64  `json:"temp_free"`
	// Mapping is whether files can be mapped, which loading needs; Temp whether temporary files can be written.
	Mapping check `json:"mapping"`
	Temp    check `json:"temp"`
	// Devices are those that a build of etc may have, in the order in which --device auto tries them.
	Devices []deviceState `json:"devices"`
	CUDA    string        `json:"cuda_driver"`
}

// check is whether something works, and why not.
type check struct {
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitempty"`
}

func checked(err error) check {
	if err != nil {
		return check{Problem: err.Error()}
	}
	return check{OK: true}
}

// deviceState is whether a device runs programs here, and why not.
type deviceState struct {
	Name string `json:"name"`
	check
	// About describes a GPU.
	About string `json:"about,omitempty"`
	// KernelsPassed counts the kernels that have passed their self-tests on a GPU, KernelsFailed tells of those that
	// have not, in the programs that have run.
	KernelsPassed int      `json:"kernels_passed,omitempty"`
	KernelsFailed []string `json:"kernels_failed,omitempty"`
	// Auto marks the one that --device auto takes.
	Auto bool `json:"auto"`
}

// examine looks at this machine.
func examine() diagnosis {
	info, _ := debug.ReadBuildInfo()
	d := diagnosis{Version: versionOf(info), CPU: host.CPUModel(), Cores: runtime.NumCPU(),
		Threads:  runtime.GOMAXPROCS(0),
		Features: host.CPUFeatures(), Levels: kernel.Levels(), Memory: host.ReadMemory(), PageSize: os.Getpagesize(),
		TempDir: os.TempDir(), CUDA: host.CUDADriver()}
	d.Weights = int64(float64(d.Memory.Usable()) * 8 / bitsPerWeight)
	d.Temp, d.Mapping = tryFiles(d.TempDir)
	if free, err := host.DiskFree(d.TempDir); err == nil {
		d.TempFree = free
	}
	d.Devices = deviceStates()
	return d
}

// tryFiles writes a temporary file and opens it as a program, which maps it.
func tryFiles(dir string) (temp, mapping check) {
	work, err := os.MkdirTemp(dir, "etc-doctor-")
	if err != nil {
		return checked(err), check{Problem: "not tried: no temporary file can be written"}
	}
	defer os.RemoveAll(work)
	path := filepath.Join(work, "empty.pte")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		return checked(err), check{Problem: "not tried: no temporary file can be written"}
	}
	f, err := container.Open(path)
	switch {
	case err == nil:
		return check{OK: true}, checked(f.Close())
	case errors.Is(err, container.ErrInvalid):
		return check{OK: true}, check{OK: true} // it was mapped, and its content read
	}
	return check{OK: true}, checked(err)
}

// deviceStates opens every GPU and says of every device whether programs run on it, the one first that --device
// auto takes; what cannot run comes last.
func deviceStates() []deviceState {
	var out, missing []deviceState
	for _, g := range devices.GPUs {
		d, err := g.Open()
		if err != nil {
			missing = append(missing, deviceState{Name: g.Name(), check: checked(err)})
			continue
		}
		info := d.Info()
		s := deviceState{Name: g.Name(), check: checked(d.Close()), About: info.Description}
		s.KernelsPassed, s.KernelsFailed = selftest.Summary(tune.Identity(info), info.Target, *g.SelfTest)
		out = append(out, s)
	}
	for _, e := range devices.Engines {
		out = append(out, deviceState{Name: e.Name(), check: check{OK: true}})
	}
	out[0].Auto = true
	return append(out, missing...)
}

// writeText writes the diagnosis for people.
func (d diagnosis) writeText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(label, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", label, fmt.Sprintf(format, args...))
	}
	row("etc", "%s", d.Version)
	row("cpu", "%s, %d cores, %d threads", orUnknown(d.CPU), d.Cores, d.Threads)
	row("cpu features", "%s", orUnknown(strings.Join(d.Features, " ")))
	row("cpu kernels", "%s", strings.Join(d.Levels, ", "))
	memory := sizeText(d.Memory.Total)
	if d.Memory.Available > 0 {
		memory += ", " + sizeText(d.Memory.Available) + " available"
	}
	if d.Memory.Limit > 0 {
		memory += ", limited to " + sizeText(d.Memory.Limit)
	}
	row("memory", "%s; pages of %s", memory, humanize.IBytes(uint64(d.PageSize)))
	if d.Weights > 0 {
		row("", "room for %.1f billion weights of 4 bits (%.1f with their scales)",
			float64(d.Weights)/1e9, bitsPerWeight)
	}
	row("mapped files", "%s", d.Mapping)
	temp := d.TempDir
	if d.TempFree > 0 {
		temp += ", " + humanize.IBytes(uint64(d.TempFree)) + " free"
	}
	if !d.Temp.OK {
		temp += ": " + d.Temp.Problem
	}
	row("temporary files", "%s", temp)
	for _, x := range d.Devices {
		state := x.check.String()
		if x.About != "" {
			state += ", " + x.About
		}
		if x.Auto {
			state += ", what --device auto takes"
		}
		row("device "+x.Name, "%s", state)
		if x.KernelsPassed > 0 || len(x.KernelsFailed) > 0 {
			row("", "%d kernels have passed their self-tests, %d have failed", x.KernelsPassed, len(x.KernelsFailed))
		}
		for _, wrong := range x.KernelsFailed {
			row("", "kernel %s", wrong)
		}
	}
	cuda := d.CUDA
	if cuda == "" {
		cuda = "none"
	}
	row("cuda driver", "%s", cuda)
	return t.Flush()
}

// String returns "ok" or a description of what is wrong.
func (c check) String() string {
	if c.OK {
		return "ok"
	}
	return "no: " + c.Problem
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func sizeText(n int64) string {
	if n == 0 {
		return "unknown"
	}
	return humanize.IBytes(uint64(n))
}
