package command

import (
	"encoding/json"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/etc-ml/etc/runtime/inspect"
)

// sizes holds a plan against what inspect says of the file that was written by it: sizes PLAN INSPECTED.
func sizes(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "sizes PLAN INSPECTED")
	var plan exportPlan
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &plan))
	var report inspect.Report
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &report))
	g := report.Methods[0].Graph
	for _, x := range []struct {
		what      string
		got, want int64
	}{
		{"size", plan.Size, report.Size},
		{"disk", plan.Export.Disk, report.Size},
		{"weights", plan.Run.Weights, g.WeightSize},
		{"state", plan.Run.Cache + plan.Run.State, g.BufferSize},
	} {
		if x.got != x.want {
			ts.Fatalf("%s: planned %d, the file has %d", x.what, x.got, x.want)
		}
	}
	if len(plan.Weights) == 0 || plan.Run.Cache == 0 || plan.Run.State == 0 || plan.Run.Prefill <= plan.Run.Decode ||
		plan.Run.Decode <= 0 {
		ts.Fatalf("the plan leaves something out: %+v", plan.Run)
	}
}
