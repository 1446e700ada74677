package command

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/loaders"
)

// Values of --draft beside a path.
const (
	draftAuto = "auto"
	draftNone = "none"
)

// addDraft adds --draft. None is its default: a draft makes the file larger by a layer of the model or more, and what
// does not speculate has nothing of it.
func (f *exportFlags) addDraft(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.draft, "draft", draftNone,
		"write a draft for speculation as the method draft: auto for the "+
			"checkpoint's own (mtp.*), none, or the path of a safetensors file of mtp.* tensors or of an "+
			"assistant's directory "+
			"(gemma4_assistant)")
}

// setDraft lets the program have the draft that --draft asks for.
func (f exportFlags) setDraft(cmd *cobra.Command, c *loaders.Checkpoint) error {
	switch f.draft {
	case "":
		return usagef("--draft is empty, want auto, none or a path")
	case draftNone:
		return nil
	case draftAuto:
		if why := c.FindDraft(); why != "" {
			logf(cmd.ErrOrStderr(), "etc: --draft auto: %s; the program has no draft", why)
		}
		return nil
	}
	err := c.OpenDraft(f.draft)
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("--draft %s: expected auto, none, a safetensors file or the directory of an assistant: %v",
			f.draft, err)
	}
	if err != nil {
		return invalidInput(err)
	}
	return nil
}

// draftPath returns the file or directory that --draft names, "" for none.
func (f exportFlags) draftPath() string {
	if f.draft == draftAuto || f.draft == draftNone {
		return ""
	}
	return f.draft
}
