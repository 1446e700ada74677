package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/ir"
)

// Keys that a terminal sends.
const (
	enter = "\r"
	ctrlC = "\x03"
	ctrlD = "\x04"
	up    = "\x1b[A"
)

// bracketedPaste drops the sequences that turn this mode on and off around every line.
var bracketedPaste = strings.NewReplacer("\x1b[?2004h", "", "\x1b[?2004l", "")

// questionPrompt is what the chat asks for a question with.
const questionPrompt = "> "

// terminal is etc on a pseudo-terminal, and a person in front of it.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	mu     sync.Mutex
	screen strings.Builder // all that has been written to the terminal
	seen   int             // what of it has been looked at
}

// openTerminal gives both ends of a new pseudo-terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	connection, err := master.SyscallConn()
	require.NoError(t, err)
	number := 0
	require.NoError(t, connection.Control(func(fd uintptr) {
		require.NoError(t, unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
		number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		require.NoError(t, err)
		require.NoError(t, unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}))
	}))
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	return master, slave
}

// startTerminal runs etc in a session of its own, whose terminal is the pseudo-terminal.
func startTerminal(t *testing.T, environment []string, args ...string) *terminal {
	t.Helper()
	master, slave := openTerminal(t)
	x := &terminal{t: t, cmd: exec.Command("etc", args...), master: master}
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, slave
	x.cmd.Env = append(os.Environ(), append(environment, "TERM=xterm")...)
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, x.cmd.Start())
	require.NoError(t, slave.Close())
	done := make(chan struct{})
	go func() { // until the other end is closed
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			x.mu.Lock()
			x.screen.Write(b[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		if x.cmd.ProcessState == nil {
			x.cmd.Process.Kill() //nolint:errcheck // it may have ended
			x.cmd.Wait()         //nolint:errcheck // it was killed
		}
		<-done
		require.NoError(t, master.Close())
	})
	return x
}

// sees waits until the terminal shows a text after what has been seen, and gives what comes before it.
func (x *terminal) sees(text string) string {
	x.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		x.mu.Lock()
		rest := bracketedPaste.Replace(x.screen.String())[x.seen:]
		x.mu.Unlock()
		if at := strings.Index(rest, text); at >= 0 {
			x.seen += at + len(text)
			return rest[:at]
		}
		if time.Now().After(deadline) {
			x.t.Fatalf("no %q on the terminal, but %q", text, rest)
		}
	}
}

func (x *terminal) types(keys string) {
	x.t.Helper()
	_, err := x.master.WriteString(keys)
	require.NoError(x.t, err)
}

// asks types a line at the prompt and waits for a text.
func (x *terminal) asks(line, want string) {
	x.t.Helper()
	x.sees(questionPrompt)
	x.types(line + enter)
	x.sees(want)
}

// leaves waits for the end and gives the exit code.
func (x *terminal) leaves() int {
	x.t.Helper()
	x.cmd.Wait() //nolint:errcheck // the code tells
	return x.cmd.ProcessState.ExitCode()
}

// alphabetFile writes the program that says the alphabet, with a tokenizer and a chat template.
func alphabetFile(t *testing.T, form string, context int) string {
	t.Helper()
	m := &ir.Module{Metadata: []ir.Method{
		{Name: "get_max_seq_len", Values: []any{int64(context)}},
		{Name: "get_vocab_size", Values: []any{int64(letters)}},
		{Name: "use_sampling", Values: []any{form == "sampler"}}, {Name: "get_eos_ids", Values: []any{int64(endToken)}},
	}}
	require.NoError(t, alphabet(m, form, 16))
	tokenizer, err := os.ReadFile(filepath.Join("testdata", "tokenizer.json"))
	require.NoError(t, err)
	const template = `{% for m in messages %}{{ '<s>' if m.role == 'user' }}{{ m.content }}{{ '</s>' if m.role == 'assistant' }}{% endfor %}` +
		`{{ 'c' if add_generation_prompt and enable_thinking is defined and enable_thinking }}`
	path := filepath.Join(t.TempDir(), "m.pte")
	require.NoError(t, codegen.Write(t.Context(), path, codegen.File{Module: m, Extra: []codegen.NamedBytes{
		{Key: prompt.KeyTokenizer, Bytes: tokenizer}, {Key: prompt.KeyChatTemplate, Bytes: []byte(template)}}}))
	return path
}

// A chat on a terminal: questions, commands, history of the lines, Ctrl-C at the prompt, Ctrl-D.
func TestChatOnTerminal(t *testing.T) {
	t.Parallel()
	saved := filepath.Join(t.TempDir(), "chat")
	x := startTerminal(t, nil, "run", alphabetFile(t, "logits", 60))
	x.sees("/help for commands, Ctrl-D to leave\r\n")
	x.asks("/stats", "prompt 0 tokens, ")
	x.asks("abc", "\r\ndefgh\r\n")
	x.asks("/stats", "prompt 4 tokens, ")
	x.asks("e", "\r\nfgh\r\n")
	x.asks("/stats", "prompt 3 tokens, ") // </s><s>e: what is before has been fed
	x.asks("/save "+saved, "\r\nsaved ")
	x.asks("f", "\r\ngh\r\n")
	x.asks("/load "+saved, "\r\nloaded ")
	x.asks("g", "\r\nh\r\n")
	x.asks("/stats", "prompt 3 tokens, ")

	x.asks("/system ab", "\r\n")
	x.asks("e", "\r\nfgh\r\n")
	x.asks("/stats", "prompt 4 tokens, ") // ab<s>e
	x.asks("/reset", "\r\n")
	x.asks("e", "\r\nfgh\r\n")
	x.asks("/stats", "prompt 4 tokens, ") // the system prompt stays
	x.asks("/help", "/system TEXT    forget the conversation and start with a system prompt\r\n")

	x.sees(questionPrompt)
	x.types("no question" + ctrlC + "abc" + enter)
	x.sees("\r\ndefgh\r\n")
	x.sees(questionPrompt)
	x.types(up + enter)
	x.sees("\r\ndefgh\r\n")
	x.asks("  ", "\r\n")
	x.sees(questionPrompt)
	x.types("\x1b[200~ab\rc\x1b[201~" + enter) // a pasted text of two lines is one question
	x.sees("\r\ndefgh\r\n")

	x.asks("/set", "\r\ntemperature 0, max-tokens 0, think unset\r\n")
	x.asks("/set temperature 0.001", "\r\n")
	x.asks("/set max_tokens 2", "\r\n")
	x.asks("/set think on", "\r\n")
	x.asks("/set", "\r\ntemperature 0.001, max-tokens 2, think on\r\n")
	x.asks("z", "\r\nde\r\n") // thinking is a "c" here
	x.asks("/set think off", "\r\n")
	x.asks("/set think unset", "\r\n")
	for line, want := range map[string]string{
		"/set think maybe":        `/set think "maybe": want on, off or unset`,
		"/set temperature -1":     `/set temperature "-1": want a number of at least 0`,
		"/set temp x":             `/set temp "x": want a number of at least 0`,
		"/set top_p 1":            "top-p needs a program with a sampling head",
		"/set top-p 1.01":         `/set top-p "1.01": want a number above 0, at most 1`,
		"/set top-k x":            `/set top-k "x": want an integer`,
		"/set top_k 3":            "top-k needs a program with a sampling head",
		"/set seed 3":             "seed needs a program with a sampling head",
		"/set max-tokens -1":      `/set max-tokens "-1": want a number of tokens`,
		"/set beams 4":            "/set beams: known are temperature, ",
		"/set min-p 0.5":          "/set min-p needs --sampler runtime",
		"/set logit-bias 1:1":     "/set logit-bias needs --sampler runtime",
		"/nonsense":               "no command /nonsense; /help lists them",
		"/save":                   "/save FILE: the file is missing",
		"/load":                   "/load FILE: the file is missing",
		"/load " + saved + "x":    "no such file",
		"/load /dev/null":         "expected a regular file",
		strings.Repeat("abc", 30): "tokens and an answer of 2 do not fit the context of 60 tokens",
	} {
		x.asks(line, "\r\netc: ")
		x.sees(want)
	}
	x.asks("/reset", "\r\n")
	x.asks("abc", "\r\nde\r\n")
	x.sees(questionPrompt)
	x.types(ctrlD)
	require.Zero(t, x.leaves())
}

// A chat changes every parameter of the runtime's own sampler.
func TestChatSetsTheRuntimesSampler(t *testing.T) {
	t.Parallel()
	x := startTerminal(t, nil, "run", alphabetFile(t, "logits", 60), "--sampler", "runtime", "--seed", "3")
	const off = "min-p 0, repeat-penalty 1, presence-penalty 0, frequency-penalty 0, repeat-last-n 64, logit-bias off, "
	x.asks("/set", "\r\ntemperature 0, top-k 0, top-p 1, seed 3, "+off+"max-tokens 0, think unset\r\n")
	x.asks("/set max-tokens 3", "\r\n")
	ask := func(question, answer string) {
		t.Helper()
		x.asks(question, "\r\n"+answer+"\r\n")
		x.asks("/reset", "\r\n")
	}
	ask("abc", "def")
	x.asks("/set logit-bias 9:100", "\r\n")
	ask("a", "hhh")
	x.asks("/set frequency-penalty 45", "\r\n")
	x.asks("/set", "frequency-penalty 45, repeat-last-n 64, logit-bias 9:100, ")
	ask("a", "hhh")
	x.asks("/set frequency_penalty 98", "\r\n")
	ask("a", "h") // and the end
	x.asks("/set frequency-penalty 0", "\r\n")
	x.asks("/set repeat-penalty 30", "\r\n")
	ask("h", "")
	x.asks("/set repeat-penalty 1", "\r\n")
	x.asks("/set presence-penalty 98", "\r\n")
	x.asks("/set repeat-last-n 1", "\r\n")
	ask("a", "h")
	x.asks("/set presence-penalty 0", "\r\n")
	x.asks("/set logit-bias off", "\r\n")
	x.asks("/set temperature 50", "\r\n")
	x.asks("/set min_p 1", "\r\n")
	ask("abc", "def")
	for line, want := range map[string]string{
		"/set min-p 2":              `/set min-p "2": want a number of at least 0, at most 1`,
		"/set repeat-penalty 0":     `/set repeat-penalty "0": want a number above 0; 1 is off`,
		"/set presence-penalty inf": `/set presence-penalty "inf": want a number; 0 is off`,
		"/set frequency-penalty x":  `/set frequency-penalty "x": want a number; 0 is off`,
		"/set repeat-last-n 65":     `/set repeat-last-n "65": want a number of tokens from 1 to 64; --repeat-last-n of etc run makes it more`,
		"/set logit-bias 9":         `/set logit-bias "9": want off, or up to 16 times a token id and a number, as 42:1.5 or 42:-inf`,
		"/set logit-bias 1:1 1:2":   `/set logit-bias "1:1 1:2": want off`,
		"/set logit-bias 1000000:2": `/set logit-bias "1000000:2": want off`,
		"/set logprobs 2":           "/set logprobs: a chat does not print log-probabilities",
	} {
		x.asks(line, "\r\netc: ")
		x.sees(want)
	}
	x.asks("/exit", "\r\n")
	require.Zero(t, x.leaves())
}

// Home and End have the codes of several terminals, a question may have several lines, and what is typed names no token
// that steers the model.
func TestKeysOfAChat(t *testing.T) {
	t.Parallel()
	x := startTerminal(t, nil, "run", alphabetFile(t, "logits", 60))
	for _, home := range []string{"\x1b[H", "\x1b[1~", "\x1b[7~", "\x1bOH"} {
		x.sees(questionPrompt)
		x.types("bc" + home + "a" + enter)
		x.sees("\r\ndefgh\r\n")
		x.asks("/reset", "\r\n")
	}
	for _, end := range []string{"\x1b[F", "\x1b[4~", "\x1b[8~", "\x1bOF"} {
		x.sees(questionPrompt)
		x.types("bc\x1b[Ha" + end + "d" + enter)
		x.sees("\r\nefgh\r\n")
		x.asks("/reset", "\r\n")
	}
	x.asks(`ab\`, "\r\n"+morePrompt)
	x.types("c" + enter)
	x.sees("\r\ndefgh\r\n")
	x.asks("b<s>", "\r\ntuvwxyz") // <s> is a letter here; as a token it would end the question
	x.asks("/exit", "\r\n")
	require.Zero(t, x.leaves())
}

// Ctrl-C stops an answer, not the chat; what came of it is part of the conversation.
func TestCtrlCStopsAnAnswer(t *testing.T) {
	t.Parallel()
	x := startTerminal(t, []string{delayHook + "=300ms"}, "run", alphabetFile(t, "logits", 60))
	x.sees(questionPrompt)
	x.types("h0" + enter) // what no token is for is left out
	x.sees("\r\n")
	x.asks("i", "j")
	x.types(ctrlC)
	rest := x.sees("\r\n")
	require.NotContains(t, rest, "z", "the whole answer is jklmnopqrstuvwxyz")
	x.asks("g", "h")
	x.sees("\r\n")
	x.asks("/stats", "answer 1 tokens")
	x.asks("/exit", "\r\n")
	require.Zero(t, x.leaves())
}

// Without a chat Ctrl-C ends the run, with what there is of the answer.
func TestCtrlCStopsARun(t *testing.T) {
	t.Parallel()
	for _, more := range [][]string{nil, {"--session", filepath.Join(t.TempDir(), "chat")}} {
		x := startTerminal(t, []string{delayHook + "=300ms"},
			append([]string{"run", alphabetFile(t, "logits", 60), "i"}, more...)...)
		x.sees("j")
		x.types(ctrlC)
		require.NotContains(t, x.sees("etc: the answer was stopped\r\n"), "z")
		require.Equal(t, exitFailed, x.leaves())
	}
}

// A session file keeps the chat when it ends; a seed that was drawn is told.
func TestChatWithSessionFile(t *testing.T) {
	t.Parallel()
	path, file := alphabetFile(t, "sampler", 60), filepath.Join(t.TempDir(), "chat")
	x := startTerminal(t, nil, "run", path, "--session", file, "--temperature", "0.01")
	x.sees("etc: seed ")
	x.asks("abc", "\r\ndefgh\r\n")
	x.asks("/set seed -1", "\r\n")
	x.asks("/set top-k 1", "\r\n")
	x.asks("/set", "temperature 0.01, top-k 1, top-p 1, seed -1, max-tokens 0, think unset\r\n")
	x.sees(questionPrompt)
	x.types(ctrlD)
	require.Zero(t, x.leaves())

	x = startTerminal(t, nil, "run", path, "--session", file, "--temperature", "0", "--stats")
	x.asks("e", "\r\nfgh\r\nprompt 3 tokens, ")
	x.asks("/quit", "\r\n")
	require.Zero(t, x.leaves())

	// One answer on a terminal is no chat; control characters do not reach it.
	x = startTerminal(t, nil, "run", path, "abc", "--session", file, "--temperature", "0")
	x.sees("defgh\r\n")
	require.Zero(t, x.leaves())
}

// What a model says cannot steer a terminal.
func TestVisible(t *testing.T) {
	master, slave := openTerminal(t)
	defer master.Close()
	defer slave.Close()
	const text = "a\x1b[2Jb\u009bc\x07\r\n\td\x7f"
	require.Equal(t, "a[2Jbc\n\td", visible(slave, text))
	require.Equal(t, text, visible(new(strings.Builder), text))
}
