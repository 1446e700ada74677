package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the repository's folder.
const root = "../.."

// TestStatic builds etc as archives and the image have it, and one that needs a dynamic loader.
func TestStatic(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds etc twice")
	}
	build := func(tags string) string {
		binary := filepath.Join(t.TempDir(), "etc")
		cmd := exec.Command("go", "build", "-trimpath", "-tags="+tags, "-o", binary, "./cmd/etc")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", text)
		return binary
	}
	static := build("nocuda")
	require.NoError(t, checkStatic(static))
	require.ErrorContains(t, checkStatic(build("")), "is to be static", "the loader of CUDA needs the C library's")

	t.Run("materials", func(t *testing.T) {
		fetched := exec.Command("go", "mod", "download", "-modfile=tools/release.mod",
			"github.com/CycloneDX/cyclonedx-gomod")
		fetched.Dir, fetched.Env = root, append(os.Environ(), "GOPROXY=off")
		if text, err := fetched.CombinedOutput(); err != nil {
			t.Skipf("cyclonedx-gomod is not fetched, and tests use no network: %s", text)
		}
		text, err := billOfMaterials(t.Context(), root, static)
		require.NoError(t, err)
		var bill struct {
			BOMFormat  string
			Components []struct{ Name, Version, Purl string }
		}
		require.NoError(t, json.Unmarshal(text, &bill))
		require.Equal(t, "CycloneDX", bill.BOMFormat)
		versions := map[string]string{}
		for _, c := range bill.Components {
			versions[c.Name] = c.Version
		}
		mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
		require.NoError(t, err)
		cobra := regexp.MustCompile(`github.com/spf13/cobra (v\S+)`).FindSubmatch(mod)
		require.Equal(t, string(cobra[1]), versions["github.com/spf13/cobra"])
		require.NotContains(t, versions, "github.com/stretchr/testify", "what only tests need is not in the binary")
	})
}

// TestWithoutToolHashes leaves all else of a bill as it is.
func TestWithoutToolHashes(t *testing.T) {
	out, err := withoutToolHashes([]byte(
		`{"metadata":{"tools":[{"name":"a","hashes":[1]}]},"components":[{"hashes":[2]}]}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"metadata":{"tools":[{"name":"a"}]},"components":[{"hashes":[2]}]}`, string(out))
	_, err = withoutToolHashes([]byte(`{}`))
	require.ErrorContains(t, err, "metadata")
}

// TestNotices: a module without a licence must not be distributed unseen.
func TestNotices(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	require.NoError(t, os.WriteFile(filepath.Join(dir, "NOTICE"), []byte("by its authors"), 0o644))
	require.ErrorContains(t, moduleNotices(&out, "example.com/m", dir), "has no licence")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "LICENSE.txt"), []byte("as you like"), 0o644))
	out.Reset()
	require.NoError(t, moduleNotices(&out, "example.com/m", dir))
	require.Contains(t, out.String(), "example.com/m, LICENSE.txt\n\nas you like\n")
	require.Contains(t, out.String(), "example.com/m, NOTICE\n\nby its authors\n")
}

// TestDockerfile holds what can be checked of the image without Docker to what a release is built with.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	require.NoError(t, err)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
	docker := string(text)

	stages := regexp.MustCompile(`(?m)^FROM (\S+)(?: AS (\S+))?$`).FindAllStringSubmatch(docker, -1)
	require.Len(t, stages, 2)
	require.Equal(t, "golang:"+string(version[1]), stages[0][1], "the image has the Go of go.mod")
	require.Equal(t, "scratch", stages[1][1])
	for _, flag := range []string{"CGO_ENABLED=0", "-trimpath", "-buildvcs=true", "-tags=nocuda", "./cmd/etc"} {
		require.Contains(t, docker, flag)
	}
	last := docker[strings.LastIndex(docker, "FROM "):]
	require.Regexp(t, `(?m)^USER [1-9]\d*:[1-9]\d*$`, last, "a user with a number, which scratch has no names of")
	for _, copied := range regexp.MustCompile(`(?m)^COPY (.*)$`).FindAllStringSubmatch(last, -1) {
		require.Contains(t, copied[1], "--from="+stages[0][2], "the image holds what the first stage made")
	}
	require.Regexp(t, `(?m)^ENTRYPOINT \["/usr/local/bin/etc"\]$`, last)
}
