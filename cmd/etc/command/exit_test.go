package command

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// Exit codes are a contract: 0 done, 1 failed, 2 wrong usage, 3 the input file is invalid, 4 would not fit in memory.
func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("disk full"), 1},
		{fs.ErrNotExist, 1},
		{usagef("--top-k"), 2},
		{invalidError{errors.New("no model")}, 3},
		{&container.Error{}, 3},
		{&safetensors.FormatError{}, 3},
		{&huggingface.ConfigError{}, 3},
		{&tokenizer.Error{}, 3},
		{memoryError{errors.New("67 GB")}, 4},
	} {
		require.Equal(t, test.want, exitCode(test.err), "%T", test.err)
		if test.err != nil {
			require.Equal(t, test.want, exitCode(fmt.Errorf("m.pte: %w", test.err)), "wrapped %T", test.err)
			require.Equal(t, test.want, exitCode(errors.Join(test.err, errors.New("close"))), "joined %T", test.err)
		}
	}
}

func TestVersion(t *testing.T) {
	info := func(version string, settings ...string) *debug.BuildInfo {
		i := &debug.BuildInfo{Main: debug.Module{Version: version}}
		for n := 0; n < len(settings); n += 2 {
			i.Settings = append(i.Settings, debug.BuildSetting{Key: settings[n], Value: settings[n+1]})
		}
		return i
	}
	for _, test := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{nil, "etc 0.1.0 devel go"},
		{info("(devel)"), "etc 0.1.0 devel go"},
		{info(""), "etc 0.1.0 devel go"},
		{info("v1.2.3"), "etc v1.2.3 go"},
		{info("v1.2.3", "vcs.revision", "abc", "vcs.modified", "false"), "etc v1.2.3 revision abc go"},
		{info("(devel)", "vcs.revision", "abc", "vcs.modified", "true", "vcs.time", "2026-11-21T00:00:00Z"),
			"etc 0.1.0 devel revision abc (modified) go"},
	} {
		require.Contains(t, versionOf(test.info).String(), test.want)
	}
	require.Equal(t, "2026-11-21T00:00:00Z", versionOf(info("", "vcs.time", "2026-11-21T00:00:00Z")).Time)
}

func TestReadJSON(t *testing.T) {
	for _, test := range []struct{ text, err string }{
		{"[1, 2]", ""}, {" [1]\n", ""}, {"", "nothing there"}, {"[1", "unexpected EOF"},
		{"[1] 2", "more text after the JSON document"},
		{`["a"]`, "cannot unmarshal"}, {"[1.5]", "cannot unmarshal"}, {"[1]]", "more text after the JSON document"},
	} {
		var v []int
		err := readJSON(strings.NewReader(test.text), &v)
		if test.err == "" {
			require.NoError(t, err, test.text)
			continue
		}
		require.ErrorContains(t, err, test.err, test.text)
	}
}
