package lower_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/bind"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
)

func TestZZPrint(t *testing.T) {
	name := os.Getenv("ZZ")
	if name == "" {
		t.Skip()
	}
	n, _ := strconv.Atoi(os.Getenv("ZN"))
	m := fusetest.Load(t, name)
	m, err := fuse.Fuse(m)
	if err != nil {
		t.Fatal(err)
	}
	p := eval.FP32
	if os.Getenv("ZP") != "" {
		p = eval.Mixed
	}
	if os.Getenv("ZF") == "" {
		m, err = lower.Run(m, bind.Shapes(m, n), &lower.Target{Machine: kernels.Machine{Target: kernels.CUDA}, Precision: p}, passes.Control{})
	}
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile("/tmp/zz-"+name+".txt", []byte(m.String()), 0o644)
}
