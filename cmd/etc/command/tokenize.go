package command

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc"
)

type tokenizeFlags struct{ json, decode, noSpecial bool }

func newTokenize() *cobra.Command {
	var f tokenizeFlags
	cmd := &cobra.Command{
		Use:   "tokenize FILE.pte|tokenizer.json [TEXT|IDS]",
		Short: "Turn text into token ids and back",
		Long: `tokenize prints the token ids of a text, separated by commas as run --tokens takes them. The text is the second
argument or standard input, to its last byte. Names of special tokens in it are those tokens, and the tokens
that the post-processor adds are added unless --no-special.

Standard input is encoded as it comes, in little memory, however long it is: it is cut where that changes no id, as
between a word and a space. A text that has no such place in 64 MiB, or a tokenizer that needs it whole, is an
error, and so are more than 64 MiB with --json and --decode.

--decode prints the text of ids, without the special tokens if --no-special. With --json, standard input is a
JSON array of texts and the result an array of arrays of ids, or with --decode the other way.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error { return runTokenize(cmd, args, f) },
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "read and print JSON arrays")
	cmd.Flags().BoolVar(&f.decode, "decode", false, "from ids to text")
	cmd.Flags().BoolVar(&f.noSpecial, "no-special", false, "add no special tokens; with --decode, leave them out")
	return cmd
}

func runTokenize(cmd *cobra.Command, args []string, f tokenizeFlags) error {
	if f.json && len(args) > 1 {
		return usagef("--json reads standard input: %q is one argument too many", args[1])
	}
	t, err := loadTokenizer(args[0])
	if err != nil {
		return err
	}
	in, out := cmd.InOrStdin(), cmd.OutOrStdout()
	if f.json {
		b, err := readAtMost(in, "-", maxPromptFile)
		if err != nil {
			return err
		}
		return tokenizeJSON(bytes.NewReader(b), out, t, f)
	}
	if !f.decode {
		if len(args) > 1 {
			in = strings.NewReader(args[1])
		}
		return printIDs(in, out, t, f)
	}
	text := ""
	if len(args) > 1 {
		text = args[1]
	} else {
		b, err := readAtMost(in, "-", maxPromptFile)
		if err != nil {
			return err
		}
		text = string(b)
	}
	ids, err := parseTokens("--decode", strings.Join(strings.Fields(text), ","))
	if err != nil {
		return err
	}
	if err := checkTokens(t, ids); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, visible(out, f.decodeIDs(t, ids)))
	return err
}

// printIDs prints the ids of a text as it comes, on one line.
func printIDs(in io.Reader, out io.Writer, t *etc.Tokenizer, f tokenizeFlags) error {
	w := bufio.NewWriter(out)
	var field []byte
	err := t.EncodeReader(in, f.encodeOptions(), func(ids []int) error {
		for _, id := range ids {
			field = strconv.AppendInt(field, int64(id), 10)
			if _, err := w.Write(field); err != nil {
				return err
			}
			field = append(field[:0], ',') // before the next
		}
		return nil
	})
	if errors.Is(err, etc.ErrInvalid) {
		err = fmt.Errorf("standard input: %w", err)
	}
	if err == nil {
		err = w.WriteByte('\n')
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// encodeOptions: as for the tokenizers library, names of special tokens in a text are those tokens.
func (f tokenizeFlags) encodeOptions() etc.EncodeOptions {
	return etc.EncodeOptions{Special: !f.noSpecial, ParseSpecial: true}
}

// decodeIDs returns the text of ids.
func (f tokenizeFlags) decodeIDs(t *etc.Tokenizer, ids []int) string {
	if f.noSpecial {
		return t.Decode(ids)
	}
	return t.DecodeSpecial(ids)
}

func tokenizeJSON(in io.Reader, out io.Writer, t *etc.Tokenizer, f tokenizeFlags) error {
	if f.decode {
		var lists [][]int
		if err := readJSON(in, &lists); err != nil {
			return usagef("standard input: want a JSON array of arrays of token ids: %w", err)
		}
		texts := make([]string, len(lists))
		for i, ids := range lists {
			if ids == nil {
				return usagef("standard input: element %d is null, want an array", i)
			}
			if err := checkTokens(t, ids); err != nil {
				return fmt.Errorf("array %d: %w", i, err)
			}
			texts[i] = f.decodeIDs(t, ids)
		}
		return writeJSONLine(out, texts)
	}
	var texts []*string
	if err := readJSON(in, &texts); err != nil {
		return usagef("standard input: want a JSON array of strings: %w", err)
	}
	lists := make([][]int, len(texts))
	for i, text := range texts {
		if text == nil {
			return usagef("standard input: element %d is null, want a string", i)
		}
		lists[i] = t.Encode(*text, f.encodeOptions())
	}
	return writeJSONLine(out, lists)
}

// checkTokens refuses ids that are no token, which decoding would skip.
func checkTokens(t *etc.Tokenizer, ids []int) error {
	for i, id := range ids {
		if _, ok := t.Token(id); !ok {
			return usagef("id %d (number %d) is no token of the tokenizer, which has %d", id, i, t.Size())
		}
	}
	return nil
}

// loadTokenizer reads a tokenizer.json, or the one that a .pte holds.
func loadTokenizer(path string) (*etc.Tokenizer, error) {
	t, err := etc.LoadTokenizer(path)
	if strings.HasSuffix(path, ".pte") {
		err = programError(path, err)
	}
	return t, err
}
