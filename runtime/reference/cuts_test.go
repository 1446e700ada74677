package reference_test

import (
	"testing"

	"github.com/etc-ml/etc/runtime/engine/enginetest"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestSlotCuts: see enginetest.Cuts.
func TestSlotCuts(t *testing.T) { enginetest.Cuts(t, reference.Engine{}) }
