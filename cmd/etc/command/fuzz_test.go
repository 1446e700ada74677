package command

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/record"
)

// FuzzRecord: any text is a build record or an error.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"tool":"etc 0.1.0","sources":[{"name":"a","sha256":"` + "00" + `"}]}`))
	f.Add([]byte(`{"sources":[{"name":"a"},{"name":"a"}],"draft":{"kind":"mtp","sources":null}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := record.Parse(text)
		if err != nil {
			return
		}
		require.NoError(t, r.Write(t.Output()))
	})
}
