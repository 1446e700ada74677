package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/session"
)

const chatHelp = `/reset          forget the conversation
/system TEXT    forget the conversation and start with a system prompt
/set NAME VALUE temperature, top-k, top-p, seed, max-tokens, think (on, off, unset)
/save FILE      write the conversation and the model's state to a file
/load FILE      go on with a conversation from a file
/stats          print the speed of the last answer
/help           print this
/exit           leave, as Ctrl-D does; Ctrl-C stops an answer`

// chatter is a chat on a terminal, or on any pair of streams.
type chatter struct {
	text         *text
	session      *session.Session
	conversation *chat.Conversation
	request      session.Request
	file         string // session file to write at the end
	last         session.Answer
	prompted     int
	out          io.Writer
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// runChat reads questions until the end of the input.
func runChat(cmd *cobra.Command, c *chatter) error {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !isTerminal(in) {
		return usagef("a chat needs a terminal")
	}
	c.out = cmd.OutOrStdout()
	fmt.Fprintln(cmd.ErrOrStderr(), "/help for commands, Ctrl-D to leave")
	// One terminal for the whole chat, so that its history lasts; raw only while a line is read.
	line := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{killLine{in}, cmd.ErrOrStderr()}, "> ")
	for {
		state, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return err
		}
		text, err := line.ReadLine()
		if restored := term.Restore(int(in.Fd()), state); restored != nil {
			return restored
		}
		if errors.Is(err, io.EOF) {
			fmt.Fprintln(cmd.ErrOrStderr())
			return c.close()
		}
		if err != nil && !errors.Is(err, term.ErrPasteIndicator) {
			return err
		}
		leave, err := c.handle(strings.TrimSpace(text))
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "etc: "+err.Error())
		}
		if leave {
			return c.close()
		}
	}
}

// killLine turns Ctrl-C into the key that clears the line: at the prompt there is no answer to stop.
type killLine struct{ io.Reader }

func (k killLine) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	for i, b := range p[:n] {
		if b == 3 {
			p[i] = 21
		}
	}
	return n, err
}

func (c *chatter) close() error {
	if c.file == "" {
		return nil
	}
	return saveSession(c.file, c.text, c.session, c.conversation)
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
		fmt.Fprintln(c.out, chatHelp)
		return false, nil
	case "/reset":
		return false, c.conversation.Reset(c.system())
	case "/system":
		return false, c.conversation.Reset(rest)
	case "/set":
		return false, c.set(rest)
	case "/save":
		if rest == "" {
			return false, errors.New("/save FILE: the file is missing")
		}
		return false, saveSession(rest, c.text, c.session, c.conversation)
	case "/load":
		if rest == "" {
			return false, errors.New("/load FILE: the file is missing")
		}
		return false, loadSession(rest, c.text, c.session, c.conversation)
	case "/stats":
		fmt.Fprintln(c.out, statsLine(c.prompted, c.last, c.request.Sampling.Seed))
		return false, nil
	}
	if strings.HasPrefix(name, "/") {
		return false, fmt.Errorf("no command %s; /help lists them", name)
	}
	return false, c.ask(context.Background(), line)
}

// system is the conversation's system prompt.
func (c *chatter) system() string {
	if m := c.conversation.Messages(); len(m) > 0 && m[0].Role == "system" {
		return m[0].Content
	}
	return ""
}

// ask prints the answer while it comes; Ctrl-C ends it.
func (c *chatter) ask(ctx context.Context, question string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	stream := c.text.stream()
	r := c.request
	r.Token = func(token int) bool {
		_, err := io.WriteString(c.out, stream.push(token))
		return err == nil
	}
	before := c.session.Position()
	a, err := c.conversation.Ask(ctx, question, r)
	if err != nil {
		return err
	}
	c.last, c.prompted = a, max(c.session.Position()-before-a.Decoded, 0)
	_, err = io.WriteString(c.out, stream.flush()+"\n")
	return err
}

// set changes a parameter of the answers to come.
func (c *chatter) set(arg string) error {
	name, value, _ := strings.Cut(arg, " ")
	value = strings.TrimSpace(value)
	next := c.request
	form := c.session.Model().Form
	bad := func(want string) error { return fmt.Errorf("/set %s %q: want %s", name, value, want) }
	switch strings.ReplaceAll(name, "_", "-") {
	case "temperature", "temp":
		v, err := strconv.ParseFloat(value, 32)
		if err != nil {
			return bad("a number of at least 0")
		}
		next.Sampling.Temperature = float32(v)
	case "top-p":
		v, err := strconv.ParseFloat(value, 32)
		if err != nil {
			return bad("a number in (0, 1]")
		}
		next.Sampling.TopP = float32(v)
	case "top-k":
		v, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return bad("an integer")
		}
		next.Sampling.TopK = v
	case "seed":
		v, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return bad("an integer")
		}
		next.Sampling.Seed = v
	case "max-tokens", "max-new-tokens":
		v, err := strconv.Atoi(value)
		if err != nil || v < 0 {
			return bad("a number of tokens, 0 for no limit")
		}
		next.MaxNewTokens = v
	case "think":
		switch value {
		case "on":
			c.text.think = new(bool)
			*c.text.think = true
		case "off":
			c.text.think = new(bool)
		case "unset":
			c.text.think = nil
		default:
			return bad("on, off or unset")
		}
		return nil
	default:
		return fmt.Errorf("/set %s: known are temperature, top-k, top-p, seed, max-tokens, think", name)
	}
	if err := next.Sampling.Check(); err != nil {
		return err
	}
	if form != session.Sampler && (name == "top-k" || name == "top-p" || name == "seed") {
		return next.Sampling.CheckFor(form, []string{name})
	}
	c.request = next
	return nil
}
