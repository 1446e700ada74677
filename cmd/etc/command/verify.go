package command

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/verify"
)

func newVerify() *cobra.Command {
	var asJSON bool
	var against, page, signed string
	var tokens int
	cmd := &cobra.Command{
		Use:   "verify FILE.pte",
		Short: "Check a program, alone or against its checkpoint",
		Long: `verify checks that what a .pte file promises fits together: container, memory plan, graph, constant methods,
tokenizer. It prints all findings. The exit code is 3 where one of them is an error.

With --against it runs the program beside the checkpoint that it was made of, in float32 and unquantized, and
reports the error of every kind of weight, of the residual stream at every layer, the routers' choices and
the logits, and whether the checkpoint's tensors have the hashes of the build record.

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
			if against != "" {
				return runAgainst(cmd, args[0], against, page, tokens, asJSON)
			}
			if anyChanged(cmd, "tokens", "html") {
				return usagef("--tokens and --html go with --against")
			}
			return runVerify(cmd, args[0], signature, asJSON)
		},
	}
	cmd.Flags().StringVar(&against, "against", "", "checkpoint to compare with: a directory, a GGUF file, or an id on the Hugging Face hub")
	cmd.Flags().StringVar(&signed, "signed", "", "public key of minisign, a file or the key itself, that must have signed the file")
	cmd.Flags().StringVar(&page, "html", "", "write the comparison as a page of pictures to this file")
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
}

// lookedAt says what a file is valid in.
const lookedAt = `looked at: container, memory plan, graph, constant methods, metadata, tokenizer, build record; the bytes of the weights were
not read: --against CHECKPOINT compares them with the checkpoint, --signed KEY checks every byte of the file`

func runVerify(cmd *cobra.Command, path string, signature *signedResult, asJSON bool) error {
	findings, err := verify.File(path)
	if err != nil {
		return err
	}
	findings = append(findings, verifyGeneration(path)...)
	findings = append(findings, verifyRecord(path)...)
	r := verifyResult{File: path, Valid: !verify.Invalid(findings), Findings: findings, Signed: signature}
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
	out := shownOut(cmd)
	if asJSON {
		if err := writeJSON(out, r); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			if _, err := fmt.Fprintln(out, f); err != nil {
				return err
			}
		}
		if r.Valid {
			if _, err := fmt.Fprintf(out, "%s: valid (warnings: %d, notes: %d)\n", path, r.Warnings, r.Notes); err != nil {
				return err
			}
			if signature == nil {
				if _, err := fmt.Fprintln(out, lookedAt); err != nil {
					return err
				}
			}
		}
	}
	if !r.Valid {
		return invalidError{fmt.Errorf("%s: invalid (errors: %d, warnings: %d, notes: %d)", path, r.Errors, r.Warnings, r.Notes)}
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
	b, ok := f.Lookup(keyGenerationConfig)
	if !ok {
		return nil
	}
	_, err = huggingface.ParseSampling(keyGenerationConfig, b)
	if config := (*huggingface.ConfigError)(nil); errors.As(err, &config) {
		return []verify.Finding{{Severity: verify.Error, Check: "metadata", Message: err.Error()}}
	}
	return nil
}
