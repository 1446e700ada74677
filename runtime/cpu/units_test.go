package cpu

import (
	"testing"

	"github.com/etc-ml/etc/runtime/engine/enginetest"
)

func TestUnits(t *testing.T) { enginetest.Units(t, Engine{}) }
