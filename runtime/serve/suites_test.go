package serve

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/batch"
)

// These tests run suites that others wrote for servers of this kind. They are fetched by make test-clients and never
// part of this repository; without them the tests are skipped. The model's answers are scripted, so that calls and
// thoughts come where a suite expects them.

// suiteTime bounds a suite, so that a request that hangs does not take hours.
const suiteTime = 2 * time.Minute

// python finds an interpreter that has some modules.
func python(t *testing.T, modules ...string) string {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		path, err := exec.LookPath(name)
		if err == nil && exec.Command(path, "-c", "import "+strings.Join(modules, ", ")).Run() == nil {
			return path
		}
	}
	t.Skipf("no python3 that has %s (Debian: apt-get install python3-%s)", strings.Join(modules, ", "),
		strings.Join(modules, " python3-"))
	return ""
}

// pytest runs tests of a folder.
func pytest(t *testing.T, python, dir string, env []string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteTime)
	defer cancel()
	c := exec.CommandContext(ctx, python, append([]string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short",
		"--basetemp=" + filepath.Join(t.TempDir(), "pytest")}, args...)...)
	c.Dir = dir
	c.Env = append(append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1"), env...)
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	summary := lines[len(lines)-1]
	t.Log(summary)
	require.Contains(t, summary, "passed")
	require.NotContains(t, summary, "skipped")
}

// suiteAnswer is what the scripted model says: a call where it is asked to use a tool, thoughts where the template
// opens them.
func suiteAnswer(prompt string) string {
	call := func(text, name, parameter, value string) string {
		return text + "<tool_call>\n<function=" + name + ">\n<parameter=" + parameter + ">\n" + value +
			"\n</parameter>\n</function>\n</tool_call>"
	}
	_, asked, _ := strings.Cut(prompt, "</tools>")
	switch {
	case strings.HasSuffix(prompt, "<think>\n"):
		return "Two and two are four.\n</think>\n\nIt is 4."
	case strings.Contains(prompt, "<tool_response>"):
		return "That is what it gave."
	case strings.Contains(asked, "Paris") && strings.Contains(prompt, "location"):
		return call("", "get_weather", "location", "Paris")
	case strings.Contains(asked, "Paris"):
		return call("", "get_weather", "city", "Paris")
	case strings.Contains(asked, "Calculate"):
		return call("Let me see.\n\n", "calculator", "expression", "2+2")
	case strings.Contains(asked, "test tool"):
		return call("Gladly.\n\n", "test_tool", "param", "x")
	case strings.Contains(prompt, "你好世界"):
		return "你好世界 🌍 café"
	}
	return "Good day to you."
}

// suiteServer serves the scripted model under a name.
func suiteServer(t *testing.T, name string) *testServer {
	t.Helper()
	return startServer(t, suiteAnswer, func(o *Options, _ *scripted, _ *batch.Options) { o.Files[0].Name = name })
}

// TestToolClients has clients from npm call tools, and validates the answers: tools.test.mjs and openapi.test.mjs of
// the folder tools/clients, with its modules, which ETC_CLIENTS names.
func TestToolClients(t *testing.T) {
	dir := os.Getenv("ETC_CLIENTS")
	if dir == "" {
		t.Skip("ETC_CLIENTS names no folder with the clients: make test-clients fetches them")
	}
	s := startServer(t, func(prompt string) string {
		thought := ""
		if strings.HasSuffix(prompt, "<think>\n") {
			thought = "Where?\n</think>\n\n"
		}
		_, asked, _ := strings.Cut(prompt, "</tools>")
		switch {
		case strings.Contains(prompt, "<tool_response>"):
			return thought + "It rains."
		case strings.Contains(asked, "both"):
			return thought + weatherCall + "\n" + strings.Replace(weatherCall, "Bern", "Rome", 1)
		case strings.Contains(asked, "weather?"):
			return thought + "I ask.\n\n" + weatherCall
		}
		return thought + "Good day."
	}, func(o *Options, _ *scripted, _ *batch.Options) { o.Files[0].Name = "qwen" })
	ctx, cancel := context.WithTimeout(t.Context(), suiteTime)
	defer cancel()
	c := exec.CommandContext(ctx, "node", "--test", "--test-reporter=spec", "--test-timeout=60000", "tools.test.mjs",
		"openapi.test.mjs")
	c.Dir = dir
	c.Env = append(os.Environ(), "ETC_URL="+s.http.URL)
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
	require.Regexp(t, `pass [12][0-9]\b`, string(out))
}

// TestExecuTorchContract runs test_openai_contract.py of ExecuTorch's examples/llm_server/conformance, which
// ETC_EXECUTORCH_CONTRACT names.
func TestExecuTorchContract(t *testing.T) {
	file := os.Getenv("ETC_EXECUTORCH_CONTRACT")
	if file == "" {
		t.Skip("ETC_EXECUTORCH_CONTRACT names no copy of ExecuTorch's test_openai_contract.py: make test-clients fetches one where it can")
	}
	interpreter := python(t, "pytest")
	s := suiteServer(t, "executorch")
	pytest(t, interpreter, filepath.Dir(file),
		[]string{"OPENAI_BASE_URL=" + s.http.URL + "/v1", "OPENAI_MODEL=executorch"}, file)
}

// llamaTests are the tests of llama.cpp's tools/server/tests that apply: not those of endpoints and parameters of its
// own, of texts of its test model, and of a server that they start with other flags.
var llamaTests = []string{"unit/test_basic.py::test_server_start_simple",
	"unit/test_tokenize.py::test_tokenize_detokenize",
	"unit/test_compat_anthropic.py"}

// llamaOthers are those of the files above that do not apply, and why.
var llamaOthers = map[string]string{
	"test_anthropic_tool_result_with_image":              "images are not supported",
	"test_anthropic_vision_format_accepted":              "images are not supported",
	"test_anthropic_vision_base64_with_multimodal_model": "images are not supported",
	"test_anthropic_empty_messages":                      "no messages are a 400, as in Anthropic's API",
	"test_anthropic_thinking_history_in_template":        "/apply-template is llama.cpp's own",
	"test_anthropic_thinking_history_in_count_tokens":    "it is about a template of Qwen3, which the scripted model does not have",
}

// TestLlamaSuite runs what applies of llama.cpp's tools/server/tests, a folder that ETC_LLAMA_TESTS names.
func TestLlamaSuite(t *testing.T) {
	dir := os.Getenv("ETC_LLAMA_TESTS")
	if dir == "" {
		t.Skip("ETC_LLAMA_TESTS names no copy of llama.cpp's tools/server/tests: make bench-peers fetches one")
	}
	interpreter := python(t, "pytest", "requests", "filelock", "wget")
	s := suiteServer(t, "test")
	args := slices.Clone(llamaTests)
	for name, why := range llamaOthers {
		t.Logf("left out: %s: %s", name, why)
		args = append(args, "--deselect", "unit/test_compat_anthropic.py::"+name)
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(s.http.URL, "http://"), ":")
	pytest(t, interpreter, dir, []string{"DEBUG_EXTERNAL=1", "PORT=" + port}, args...)
	r, err := http.Get(s.http.URL + "/health")
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusOK, r.StatusCode)
}
