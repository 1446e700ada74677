package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/etc-ml/etc"
	"github.com/etc-ml/etc/runtime/chat"
)

const chatHelp = `/reset          forget the conversation
/system TEXT    forget the conversation and start with a system prompt
/set            show the settings
/set NAME VALUE temperature, top-k, top-p, seed, max-tokens, think (on, off, unset);
                with --sampler runtime also min-p, repeat-penalty, presence-penalty,
                frequency-penalty, repeat-last-n, logit-bias (ID:VALUE ..., or off)
/save FILE      write the conversation and the model's state to a file
/load FILE      go on with a conversation from a file
/stats          print the speed of the last answer
/help           print this
/exit           leave, as Ctrl-D does; Ctrl-C stops an answer
A line that ends with \ goes on in the next one; a pasted text may have many lines.`

// chatter is a chat on a terminal, or on any pair of streams.
type chatter struct {
	session *etc.Session
	file    string    // session file to write at the end
	stats   bool      // print statistics after every answer
	last    etc.End   // of the last answer
	out     io.Writer // answers
	log     io.Writer // all else
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// runChat reads questions until the end of the input. However it ends, the session file is written.
func runChat(cmd *cobra.Command, c *chatter) error {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !isTerminal(in) {
		return usagef("a chat needs a terminal")
	}
	screen := cmd.ErrOrStderr()
	if !isTerminal(screen) {
		screen = cmd.OutOrStdout()
	}
	interruptsOwned.Store(true) // they stop answers, and clear lines
	fmt.Fprintln(c.log, "/help for commands, Ctrl-D to leave")
	// One terminal for the whole chat, so that its history lasts.
	line := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{keys{in}, screen}, chatPrompt)
	for {
		text, err := readQuestion(in, line)
		if errors.Is(err, io.EOF) {
			fmt.Fprintln(screen)
			return c.close()
		}
		if err != nil {
			return errors.Join(err, c.close())
		}
		leave, err := c.handle(strings.TrimSpace(text))
		if full := (*chat.ContextError)(nil); errors.As(err, &full) {
			err = fmt.Errorf("%w; /reset forgets the conversation, and etc export --max-seq-len makes a program "+
				"with more room", err)
		}
		if err != nil {
			logf(c.log, "etc: %s", flagNames.Replace(err.Error()))
		}
		if leave {
			return c.close()
		}
	}
}

// readLine reads a line from a terminal, which is raw only meanwhile. A pasted text of several lines is one.
func readLine(in *os.File, line *term.Terminal) (string, error) {
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return "", err
	}
	defer term.Restore(int(in.Fd()), state) //nolint:errcheck // the next MakeRaw tells of a lost terminal
	if width, height, err := term.GetSize(int(in.Fd())); err == nil && width > 0 {
		if err := line.SetSize(width, height); err != nil {
			return "", err
		}
	}
	line.SetBracketedPasteMode(true)
	defer line.SetBracketedPasteMode(false)
	var pasted strings.Builder
	for {
		text, err := line.ReadLine()
		pasted.WriteString(text)
		if !errors.Is(err, term.ErrPasteIndicator) {
			return pasted.String(), err
		}
		pasted.WriteByte('\n')
	}
}

// Prompts of a chat: for a question, and for a line that goes on with it.
const (
	chatPrompt = "> "
	morePrompt = "| "
)

// readQuestion reads a line and those that go on with it: a backslash at the end of a line asks for another one.
func readQuestion(in *os.File, line *term.Terminal) (string, error) {
	defer line.SetPrompt(chatPrompt)
	var lines []string
	for {
		text, err := readLine(in, line)
		part, more := strings.CutSuffix(text, `\`)
		lines = append(lines, part)
		if !more || err != nil {
			return strings.Join(lines, "\n"), err
		}
		line.SetPrompt(morePrompt)
	}
}

// keys are the keys of a terminal as package term takes them. Ctrl-C becomes the key that clears the line: at the
// prompt there is no answer to stop. Home and End have several codes: those of tmux and the Linux console, of rxvt, of
// keypads.
type keys struct{ io.Reader }

var otherKeys = []struct{ from, to string }{
	{"\x03", "\x15"},
	{"\x1b[1~", "\x1b[H"}, {"\x1b[7~", "\x1b[H"}, {"\x1bOH", "\x1b[H"},
	{"\x1b[4~", "\x1b[F"}, {"\x1b[8~", "\x1b[F"}, {"\x1bOF", "\x1b[F"},
}

func (k keys) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	text := p[:n]
	for _, key := range otherKeys { // none becomes longer
		if bytes.Contains(text, []byte(key.from)) {
			text = bytes.ReplaceAll(text, []byte(key.from), []byte(key.to))
		}
	}
	return copy(p, text), err
}

// handle runs a command or asks a question; it reports whether the chat is over.
func (c *chatter) handle(line string) (leave bool, err error) {
	if line == "" {
		return false, nil
	}
	name, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch name {
	case "/exit", "/quit", "/bye":
		return true, nil
	case "/help":
		fmt.Fprintln(c.log, chatHelp)
		return false, nil
	case "/reset":
		return false, c.session.Reset(c.system())
	case "/system":
		return false, c.session.Reset(rest)
	case "/set":
		return false, c.set(rest)
	case "/save":
		if rest == "" {
			return false, errors.New("/save FILE: the file is missing")
		}
		return false, c.save(rest)
	case "/load":
		if rest == "" {
			return false, errors.New("/load FILE: the file is missing")
		}
		return false, c.load(rest)
	case "/stats":
		fmt.Fprintln(c.log, statsLine(c.last, c.seed()))
		return false, nil
	}
	if strings.HasPrefix(name, "/") {
		return false, fmt.Errorf("no command %s; /help lists them", name)
	}
	err = c.ask(context.Background(), line)
	if err == nil {
		c.tune(context.Background())
	}
	return false, err
}

// system returns the conversation's system prompt.
func (c *chatter) system() string {
	if m := c.session.Messages(); len(m) > 0 && m[0].Role == "system" {
		return m[0].Content
	}
	return ""
}

// seed returns the seed of the answers to come; 0 where nothing draws with it.
func (c *chatter) seed() int64 {
	if p := c.session.Parameters(); p.Seed != nil {
		return *p.Seed
	}
	return 0
}

// ask prints the answer while it comes; Ctrl-C ends it.
func (c *chatter) ask(ctx context.Context, question string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	_, end, err := printAnswer(c.out, c.session.Ask(ctx, question))
	if end.Reason == "" { // there is none
		return err
	}
	c.last = end
	defer logFull(c.log, c.session, end)
	if c.stats {
		logf(c.log, "%s", statsLine(end, end.Seed))
	}
	return err
}

// tune measures kernels after an answer, if it was not stopped; Ctrl-C ends that.
func (c *chatter) tune(ctx context.Context) {
	if c.last.Reason == etc.Cancelled {
		return
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	tuneAfter(ctx, c.log, c.session)
}

// visible leaves out the control characters that a model could steer a terminal with.
func visible(out io.Writer, text string) string {
	if !isTerminal(out) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}
