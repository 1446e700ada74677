package requirements

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/cmd/etc/command"
)

// asCommand makes the test program behave as etc.
const asCommand = "ETC_REQUIREMENTS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(command.Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// etc runs the command line and gives what it prints and its exit code.
func etc(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
	}
	return out.String(), log.String(), cmd.ProcessState.ExitCode()
}

// export writes a program of a checkpoint.
func export(t *testing.T, name string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.pte")
	_, stderr, code := etc(t, append([]string{"export", checkpoint(name), "--max-seq-len", "128", "-o", path}, flags...)...)
	require.Zero(t, code, stderr)
	return path
}

// result is what etc run --json prints.
type result struct {
	Tokens []int  `json:"tokens"`
	Text   string `json:"text"`
	Seed   int64  `json:"seed"`
}

// ask runs a program on a prompt; it gives the log too.
func ask(t *testing.T, path, prompt string, flags ...string) (result, string) {
	t.Helper()
	stdout, stderr, code := etc(t, append([]string{"run", path, "--raw", "--json", "--prompt", prompt}, flags...)...)
	require.Zero(t, code, stderr)
	var r result
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	return r, stderr
}

// turns are a question as the checkpoints were trained to read it.
func turns(name, question string) string {
	if name == "gemma4-chat" {
		return "<|turn>user\n" + question + "<turn|>\n<|turn>model\n"
	}
	return "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
}

// Trained models of both families answer with and without the sampling head, at group sizes 32 and 64, greedily and at
// a moderate temperature (B15, B26, E14).
func TestAnswers(t *testing.T) {
	t.Parallel()
	questions := map[string]string{
		"What is the capital of France?":        "The capital of France is Paris.",
		"Kyiv is the capital of which country?": "Kyiv is the capital of Ukraine.",
		"What is 5 plus 3?":                     "5 plus 3 is 8.",
	}
	for _, family := range families {
		for _, test := range []struct{ export, run []string }{
			{[]string{"--qlinear", "4w", "--group-size", "32"}, []string{"--temperature", "0"}},
			{[]string{"--qlinear", "4w", "--group-size", "64", "--sample"}, []string{"--temperature", "0"}},
			{[]string{"--qlinear", "4w", "--group-size", "32", "--sample"}, []string{"--temperature", "0.3", "--top-p", "0.9", "--top-k", "20", "--seed", "1"}},
		} {
			path := export(t, family.name, test.export...)
			for question, want := range questions {
				r, _ := ask(t, path, turns(family.name, question), test.run...)
				require.Equal(t, want, r.Text, "%s %v %v", family.name, test.export, test.run)
			}
		}
	}
}

var loggedSeed = regexp.MustCompile(`seed (\d+) \(key (-?\d+)\)`)

// Without --seed the seed is random, logged, and repeats the answer (B12, B13); with it the answer is always the same, 0
// and -1 are seeds too (B14, C4), and the program takes temperature, top-k and top-p from the flags (B7, B16, C6).
func TestSeedFlag(t *testing.T) {
	t.Parallel()
	path := export(t, "qwen35moe-chat", "--qlinear", "4w", "--sample")
	hot := []string{"--temperature", "5", "-n", "12", "--ignore-eos"}
	run := func(flags ...string) (result, string) {
		return ask(t, path, "Hello", append(append([]string{}, hot...), flags...)...)
	}
	seeds := map[int64]bool{}
	for range 2 {
		r, log := run()
		logged := loggedSeed.FindStringSubmatch(log)
		require.NotNil(t, logged, log)
		require.Equal(t, strconv.FormatInt(r.Seed, 10), logged[1])
		require.True(t, 0 <= r.Seed && r.Seed < 1<<31)
		again, log := run("--seed", logged[1])
		require.Equal(t, r.Tokens, again.Tokens)
		require.NotRegexp(t, loggedSeed, log)
		seeds[r.Seed] = true
	}
	require.Len(t, seeds, 2) // equal once in 2^31 runs
	answers := map[string]bool{}
	for _, seed := range []string{"0", "-1", "7"} {
		a, _ := run("--seed=" + seed)
		b, _ := run("--seed=" + seed)
		require.Equal(t, a, b)
		require.Equal(t, seed, strconv.FormatInt(a.Seed, 10))
		answers[a.Text] = true
	}
	require.Len(t, answers, 3)
	greedy, _ := run("--temp", "0")
	for _, filter := range []string{"--top-k=1", "--top_p=0.0001"} {
		one, _ := run("--seed", "3", filter)
		require.Equal(t, greedy.Tokens, one.Tokens, filter)
	}
}

// What a program has no use for is refused, with one text (B17, B22), and so is what is out of range (B19, B20); a program
// without a sampling head runs when none of it is given (C3, E6).
func TestRefusedFlags(t *testing.T) {
	t.Parallel()
	logits, sampler := export(t, "gemma4-chat"), export(t, "gemma4-chat", "--sample")
	const head = "needs a program with a sampling head (etc export --sample); this one supports temperature only"
	tests := []struct{ path, flag, want string }{
		{logits, "--top-p=0.9", "--top-p " + head},
		{logits, "--top-k=5", "--top-k " + head},
		{logits, "--seed=1", "--seed " + head},
		{logits, "--seed=0", "--seed " + head},
	}
	for _, path := range []string{logits, sampler} {
		for _, p := range []string{"0", "-0.1", "1.01", "NaN", "Inf"} {
			tests = append(tests, struct{ path, flag, want string }{path, "--top-p=" + p, "top-p"})
		}
		for _, v := range []string{"-1", "NaN", "Inf", "-Inf", "1e39"} {
			tests = append(tests, struct{ path, flag, want string }{path, "--temperature=" + v, "temperature"})
		}
	}
	for _, test := range tests {
		stdout, stderr, code := etc(t, "run", test.path, "--raw", "--prompt", "Hello", "-n", "1", test.flag)
		require.Equal(t, 2, code, "%s: %s", test.flag, stderr)
		require.Contains(t, stderr, test.want, test.flag)
		require.Empty(t, stdout)
	}
	for _, path := range []string{logits, sampler} {
		r, _ := ask(t, path, "Hello", "-n", "3", "--ignore-eos")
		require.Len(t, r.Tokens, 3)
	}
}
