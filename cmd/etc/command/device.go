package command

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
)

// engines lists the engines in the order in which --device auto tries them.
var engines = []engine.Engine{reference.Engine{}}

// addDeviceFlags adds --device and --threads.
func addDeviceFlags(cmd *cobra.Command, device *string, threads *int) {
	cmd.Flags().StringVar(device, "device", "auto", "what runs the program: auto, "+strings.Join(engineNames(), ", "))
	cmd.Flags().IntVar(threads, "threads", 0, "worker threads, 0 for one per CPU")
}

func engineNames() []string {
	names := make([]string, len(engines))
	for i, e := range engines {
		names[i] = e.Name()
	}
	return names
}

// findEngine finds an engine by its name.
func findEngine(name string) (engine.Engine, error) {
	if name == "auto" {
		return engines[0], nil
	}
	for _, e := range engines {
		if e.Name() == name {
			return e, nil
		}
	}
	return nil, usagef("--device %q: this build has auto, %s", name, strings.Join(engineNames(), ", "))
}
