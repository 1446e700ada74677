package command

import (
	"errors"
	"fmt"
	"io"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/verify"
)

// newVerify makes the command etc verify. It is long because it is the list of its flags, with the checks of them.
func newVerify() *cobra.Command {
	var asJSON, weights bool
	var against, page, signed, text string
	var tokens int
	cmd := &cobra.Command{
		Use:   "verify FILE.pte",
		Short: "Check a program, alone or against its checkpoint",
		Long: `verify checks that what a .pte file promises fits together: container, memory plan, graph, constant methods,
tokenizer. It prints all findings. The exit code is 3 where one of them is an error.

With --weights it also reads every byte of the file: weights, tokenizer, texts and program must have the hashes
that the build record has. That finds damage; who changes a file on purpose can change its record too, and
--signed is for that.

With --against it runs the program beside the checkpoint that it was made of, in float32 and unquantized, and
reports the error of every kind of weight, of the residual stream at every layer, the routers' choices and
the logits, and whether the checkpoint's tensors have the hashes of the build record. With --text it also gives the
quality card of a text, as eval --against does; without, the one in the build record of a calibrated export.

With --signed it computes the root hash of the file again and checks the signature beside it (FILE.root and
FILE.root.minisig, as etc export --sign writes them) with a public key of minisign.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var signature *signedResult
			if anyChanged(cmd, "signed") {
				var err error
				if signature, err = checkSigned(cmd.Context(), args[0], signed); err != nil {
					return err
				}
				logf(cmd.ErrOrStderr(), "etc: %s: signed by %s, root %s", args[0], signature.Key, signature.Root)
			}
			if against != "" && weights {
				return usagef("--weights checks the file by its own build record, --against by the checkpoint: give " +
					"one of them")
			}
			if against != "" {
				return runAgainst(cmd, args[0], against, page, text, tokens, asJSON)
			}
			if anyChanged(cmd, "text") {
				return usagef("--text goes with --against")
			}
			if anyChanged(cmd, "tokens", "html") {
				return usagef("--tokens and --html go with --against")
			}
			return runVerify(cmd, args[0], verifyFlags{json: asJSON, weights: weights}, signature)
		},
	}
	cmd.Flags().BoolVar(&weights, "weights", false,
		"read every byte of the file and check it by the hashes of the build record")
	cmd.Flags().StringVar(&against, "against", "",
		"checkpoint to compare with: a directory, a GGUF file, or an id on the Hugging Face hub")
	cmd.Flags().StringVar(&signed, "signed", "",
		"public key of minisign, a file or the key itself, that must have signed the file")
	cmd.Flags().StringVar(&page, "html", "", "write the comparison as a page of pictures to this file")
	cmd.Flags().StringVar(&text, "text", "",
		"text for the quality card of --against: a text file, .jsonl as export --calibrate takes it, or default for "+
			"the held-out part of the one in this program")
	cmd.Flags().IntVar(&tokens, "tokens", 64, "tokens to run for --against")
	var unverified bool // openHub looks at the flag
	addUnverified(cmd, &unverified)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// verifyResult is what --json prints.
type verifyResult struct {
	File     string           `json:"file"`
	Valid    bool             `json:"valid"`
	Errors   int              `json:"errors"`
	Warnings int              `json:"warnings"`
	Notes    int              `json:"notes"`
	Findings []verify.Finding `json:"findings"`
	Signed   *signedResult    `json:"signed,omitempty"`
	Weights  *weightsResult   `json:"weights,omitempty"`
}

type verifyFlags struct{ json, weights bool }

// lookedAt says what a file is valid in.
func (r *verifyResult) lookedAt() string {
	const static = "looked at: container, memory plan, graph, constant methods, metadata, tokenizer, build record; "
	switch {
	case r.Weights != nil:
		return fmt.Sprintf("%severy\nbyte but the record's own (%s): program, weights and texts, %d in all, have the "+
			"hashes of the build record",
			static, humanize.IBytes(uint64(r.Weights.Bytes)), r.Weights.Pieces)
	case r.Signed != nil:
		return ""
	}
	return static + `the bytes of the weights were
not read: --weights checks them by the build record, --against CHECKPOINT compares them with the checkpoint,
--signed KEY checks every byte of the file`
}

func runVerify(cmd *cobra.Command, path string, flags verifyFlags, signature *signedResult) error {
	findings, err := verify.File(path)
	if err != nil {
		return err
	}
	findings = append(findings, verifyGeneration(path)...)
	findings = append(findings, verifyRecord(path)...)
	r := verifyResult{File: path, Valid: !verify.Invalid(findings), Findings: findings, Signed: signature}
	if flags.weights && r.Valid {
		var different []verify.Finding
		if r.Weights, different, err = verifyWeights(cmd.Context(), path); err != nil {
			return err
		}
		findings = append(findings, different...)
		r.Findings, r.Valid = findings, !verify.Invalid(findings)
	}
	if r.Findings == nil {
		r.Findings = []verify.Finding{}
	}
	for _, f := range findings {
		switch f.Severity {
		case verify.Error:
			r.Errors++
		case verify.Warning:
			r.Warnings++
		default:
			r.Notes++
		}
	}
	if err := r.write(shownOut(cmd), flags.json); err != nil {
		return err
	}
	if !r.Valid {
		return invalidError{fmt.Errorf("%s: invalid (errors: %d, warnings: %d, notes: %d)", path,
			r.Errors, r.Warnings, r.Notes)}
	}
	return nil
}

// write prints the result. That a file is invalid is said by the command's error.
func (r *verifyResult) write(out io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(out, r)
	}
	for _, f := range r.Findings {
		if _, err := fmt.Fprintln(out, f); err != nil {
			return err
		}
	}
	if !r.Valid {
		return nil
	}
	if _, err := fmt.Fprintf(out, "%s: valid (warnings: %d, notes: %d)\n", r.File, r.Warnings, r.Notes); err != nil {
		return err
	}
	if text := r.lookedAt(); text != "" {
		if _, err := fmt.Fprintln(out, text); err != nil {
			return err
		}
	}
	return nil
}

// verifyGeneration checks the generation config, whose reader belongs to the loaders and so not to
// package verify.
func verifyGeneration(path string) []verify.Finding {
	f, err := container.Open(path)
	if err != nil {
		return nil // package verify has said so
	}
	defer f.Close()
	b, ok := f.Lookup(prompt.KeyGenerationConfig)
	if !ok {
		return nil
	}
	_, err = huggingface.ParseSampling(prompt.KeyGenerationConfig, b)
	if config := (*huggingface.ConfigError)(nil); errors.As(err, &config) {
		return []verify.Finding{{Severity: verify.Error, Check: "metadata", Message: err.Error()}}
	}
	return nil
}
