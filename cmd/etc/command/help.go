package command

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the number of columns that help is written for, whatever the terminal has.
const helpWidth = 80

// writeHelp writes the help of a command: what it does, how it is called, examples, commands, flags.
func writeHelp(w io.Writer, cmd *cobra.Command) error {
	var b strings.Builder
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	b.WriteString(reflow(text, helpWidth) + "\n")
	usage := cmd.UseLine()
	if !cmd.HasParent() {
		usage = "etc COMMAND [flags]"
	}
	fmt.Fprintf(&b, "\nUsage:\n%s\n", indent(usage, 2, helpWidth))
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				writeEntry(&b, c.Use, c.Short)
			}
		}
		b.WriteString("\n" + reflow(cmd.CommandPath()+" COMMAND --help tells more of a command.", helpWidth) + "\n")
	}
	if cmd.HasAvailableFlags() {
		b.WriteString("\nFlags:\n")
		eachFlag(cmd, func(names, usage string) { writeEntry(&b, names, usage) })
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// eachFlag gives the flags of a command in the order of their names, as help shows them.
func eachFlag(cmd *cobra.Command, show func(names, usage string)) {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		names := "--" + f.Name
		if f.Shorthand != "" {
			names = "-" + f.Shorthand + ", " + names
		}
		if value != "" {
			names += " " + value
		}
		if d := shownDefault(f); d != "" {
			usage += " (default " + d + ")"
		}
		show(names, usage)
	})
}

// shownDefault returns the default of a flag, "" where the flag's text says it, or where it is nothing.
func shownDefault(f *pflag.Flag) string {
	d := strings.Trim(f.DefValue, "[]")
	if d == "" || d == "false" || d == "0" || strings.Contains(f.Usage, "(default") {
		return ""
	}
	return d
}

// entryColumn is where the texts of flags and commands begin.
const entryColumn = 27

// writeEntry writes a name and its text, which begins in a column of its own.
func writeEntry(b *strings.Builder, name, text string) {
	lines := strings.Split(wrap(text, helpWidth-entryColumn), "\n")
	head := "  " + name
	if utf8.RuneCountInString(head)+2 > entryColumn {
		b.WriteString(head + "\n")
	} else {
		fmt.Fprintf(b, "%-*s%s\n", entryColumn, head, lines[0])
		lines = lines[1:]
	}
	for _, line := range lines {
		b.WriteString(strings.Repeat(" ", entryColumn) + line + "\n")
	}
}

// indent wraps a text to width and puts by spaces before each line.
func indent(text string, by, width int) string {
	space := strings.Repeat(" ", by)
	return space + strings.ReplaceAll(wrap(text, width-by), "\n", "\n"+space)
}

// reflow wraps the paragraphs of a text; lines that begin with a space stay as they are.
func reflow(text string, width int) string {
	var out []string
	for _, paragraph := range strings.Split(text, "\n\n") {
		if !strings.HasPrefix(paragraph, " ") {
			paragraph = wrap(paragraph, width)
		}
		out = append(out, paragraph)
	}
	return strings.Join(out, "\n\n")
}

// wrap breaks a text between words into lines of at most width columns. Only a longer word makes a longer line.
func wrap(text string, width int) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+n > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

// newMan returns a hidden command: it prints the manual page.
func newMan(root *cobra.Command) *cobra.Command {
	return &cobra.Command{Use: "man", Short: "Print the manual page", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return writeMan(cmd.OutOrStdout(), root) }}
}

// writeMan writes the manual page of etc and all its commands.
func writeMan(w io.Writer, root *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH ETC 1 \"\" \"%s\" \"User Commands\"\n.SH NAME\netc \\- %s\n.SH SYNOPSIS\n.B etc\nCOMMAND "+
		"[flags]\n.SH DESCRIPTION\n",
		roff(toolVersion), roff(strings.ToLower(root.Short[:1])+root.Short[1:]))
	b.WriteString(manText(root.Long))
	b.WriteString(".SH COMMANDS\n")
	for _, c := range root.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		fmt.Fprintf(&b, ".SS etc %s\n", roff(c.Use))
		b.WriteString(manText(c.Long))
		eachFlag(c, func(names, usage string) { fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(names), roff(usage)) })
		if c.Example != "" {
			fmt.Fprintf(&b, ".PP\n.nf\n%s\n.fi\n", roff(c.Example))
		}
	}
	b.WriteString(".SH EXIT STATUS\n")
	for _, x := range exitCodes {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", x.code, roff(x.meaning))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// manText makes paragraphs of a text.
func manText(text string) string {
	var b strings.Builder
	for _, p := range strings.Split(text, "\n\n") {
		if p != "" {
			fmt.Fprintf(&b, ".PP\n%s\n", roff(p))
		}
	}
	return b.String()
}

// roff escapes what a manual page's formatter would obey.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
