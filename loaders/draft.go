package loaders

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/gemma4"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// The kinds of drafts.
const (
	// MultiTokenDraft is a checkpoint's head for multi-token prediction.
	MultiTokenDraft = "mtp"
	// AssistantDraft is a small model that reads the keys and values of the main one.
	AssistantDraft = "assistant"
)

// multiToken is a model that a head for multi-token prediction may belong to.
type multiToken interface {
	ReadMultiToken(t *builder.Tensors, own bool) (use func())
}

// assisted is a model that an assistant may belong to.
type assisted interface {
	ReadAssistant(c *huggingface.Gemma4Assistant, t *builder.Tensors) (use func(), err error)
}

// Draft returns the kind of the draft that modules have, [MultiTokenDraft] or [AssistantDraft]; "" for none.
func (c *Checkpoint) Draft() string { return c.draft }

// FindDraft lets modules have the method draft where the checkpoint holds all that it needs: its tensors of
// multi-token prediction. Where it does not, why says what is missing, and modules stay without.
func (c *Checkpoint) FindDraft() (why string) {
	m, ok := c.model.(multiToken)
	tensors := builder.NewMultiTokenTensors(c.list)
	tensors.Multipliers = c.multipliers
	switch {
	case tensors.Len() == 0:
		return "the checkpoint has no tensors of multi-token prediction (mtp.*)"
	case !ok:
		return "the checkpoint has tensors of multi-token prediction (mtp.*), which etc knows of other families than " +
			c.Family()
	}
	use := m.ReadMultiToken(tensors, false)
	if err := tensors.Err(c.Model.Dir, c.Model.Architecture); err != nil {
		problems := (*builder.TensorError)(nil)
		if errors.As(err, &problems) {
			p := problems.Problems[0]
			return fmt.Sprintf("the checkpoint's tensors of multi-token prediction (mtp.*) are not complete: "+
				"%s: expected %s, found %s", p.Tensor, p.Expected, p.Found)
		}
		return err.Error()
	}
	use()
	c.useDraft(MultiTokenDraft, usedSources(tensors, c.sourceOf))
	if c.skipped[builder.MultiToken] -= tensors.Len(); c.skipped[builder.MultiToken] == 0 {
		delete(c.skipped, builder.MultiToken)
	}
	return ""
}

func (c *Checkpoint) useDraft(kind string, sources []Source) {
	for i := range sources {
		sources[i].Draft = true
	}
	c.draft, c.sources = kind, append(c.sources, sources...)
}

// OpenDraft lets modules have the method draft, from a file of tensors of multi-token prediction (mtp.*) or from the
// directory of an assistant. The error tells what does not fit the model. Close closes the draft's files too.
func (c *Checkpoint) OpenDraft(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	var files []*safetensors.File
	var closer func() error
	config := []byte(nil)
	if info.IsDir() {
		config, err = os.ReadFile(filepath.Join(path, huggingface.ConfigFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		opened, err := safetensors.OpenCheckpoint(path)
		if err != nil {
			return err
		}
		files, closer = opened.Files(), opened.Close
	} else {
		opened, err := safetensors.Open(path)
		if err != nil {
			return err
		}
		files, closer = []*safetensors.File{opened}, opened.Close
	}
	if config != nil && huggingface.IsAssistant(config) {
		err = c.readAssistant(path, config, files)
	} else {
		err = c.readMultiToken(path, files)
	}
	if err != nil {
		return errors.Join(err, closer())
	}
	before := c.close
	c.close = func() error { return errors.Join(before(), closer()) }
	return nil
}

// readMultiToken reads a head for multi-token prediction from files of its own.
func (c *Checkpoint) readMultiToken(path string, files []*safetensors.File) error {
	m, ok := c.model.(multiToken)
	if !ok {
		return fmt.Errorf("%s: expected %s, the draft of a %s, found tensors without the configuration of one",
			path, c.wantedDraft(), c.Family())
	}
	list, source := tensorsOf(files, "")
	tensors := builder.NewMultiTokenTensors(list)
	if tensors.Len() == 0 {
		return fmt.Errorf("%s: expected tensors of multi-token prediction (mtp.*), found none", path)
	}
	use := m.ReadMultiToken(tensors, true)
	if err := tensors.Err(path, c.Model.Architecture); err != nil {
		return err
	}
	use()
	c.useDraft(MultiTokenDraft, usedSources(tensors, source))
	return nil
}

// readAssistant reads an assistant.
func (c *Checkpoint) readAssistant(path string, text []byte, files []*safetensors.File) error {
	m, ok := c.model.(assisted)
	if !ok {
		return fmt.Errorf("%s: expected %s, the draft of a %s, found a %s",
			path, c.wantedDraft(), c.Family(), huggingface.AssistantType)
	}
	config, err := huggingface.ParseAssistant(filepath.Join(path, huggingface.ConfigFile), text)
	if err != nil {
		return err
	}
	// The assistant's tensors have the same names as the model's, so their provenances get a prefix.
	list, source := tensorsOf(files, gemma4.AssistantNames)
	tensors := builder.NewTensors(list)
	use, err := m.ReadAssistant(config, tensors)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := tensors.Err(path, "Gemma 4 assistant"); err != nil {
		return err
	}
	use()
	c.useDraft(AssistantDraft, usedSources(tensors, source))
	return nil
}

// wantedDraft words what can be the draft of the model.
func (c *Checkpoint) wantedDraft() string {
	if _, ok := c.model.(multiToken); ok {
		return "a safetensors file of mtp.* tensors"
	}
	if _, ok := c.model.(assisted); ok {
		return "the directory of a " + huggingface.AssistantType
	}
	return "no draft: etc knows none for such models"
}

// tensorsOf returns the tensors of files, and what finds their sources.
func tensorsOf(files []*safetensors.File, prefix string) ([]builder.Tensor, func(name string) []Source) {
	var list []builder.Tensor
	byName := map[string]*safetensors.Tensor{}
	for _, f := range files {
		for _, t := range f.Tensors() {
			list = append(list, tensorOf(t, prefix))
			byName[t.Name] = t
		}
	}
	return list, func(name string) []Source { return []Source{sourceOf(byName[name], prefix)} }
}
