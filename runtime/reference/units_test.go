package reference_test

import (
	"testing"

	"github.com/etc-ml/etc/runtime/engine/enginetest"
	"github.com/etc-ml/etc/runtime/reference"
)

func TestUnits(t *testing.T) { enginetest.Units(t, reference.Engine{}) }
