package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/loaders/hub"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/passes"
)

// inputFlags name the checkpoint, beside the argument MODEL.
type inputFlags struct {
	modelDir, modelID, gguf, prequantized string
	unverified                            bool
}

func (f *inputFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.modelDir, "model-dir", "", "checkpoint directory, same as MODEL")
	fl.StringVar(&f.modelID, "model-id", "",
		"id of a checkpoint on the Hugging Face hub, org/name or org/name@revision, same as MODEL")
	fl.StringVar(&f.gguf, "gguf", "", "GGUF file, of a split model the first one, same as MODEL")
	addUnverified(cmd, &f.unverified)
	fl.StringVar(&f.prequantized, "prequantized", "",
		"directory that ExecuTorch's quantize_and_save wrote, same as MODEL")
}

// unverifiedFlag takes files of the hub that cannot be checked.
const unverifiedFlag = "unverified"

func addUnverified(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, unverifiedFlag, false, "take files of the hub for which it gives no hash to check them by")
}

// source returns the checkpoint that the arguments name, the current directory if they name none.
func (f inputFlags) source(args []string) (string, error) {
	var names, given []string
	if len(args) > 0 {
		names, given = append(names, args[0]), append(given, args[0])
	}
	for _, x := range []struct{ flag, value string }{{"model-dir", f.modelDir}, {"model-id", f.modelID},
		{"gguf", f.gguf}, {"prequantized", f.prequantized}} {
		if x.value != "" {
			names, given = append(names, x.value), append(given, "--"+x.flag+" "+x.value)
		}
	}
	switch {
	case len(names) > 1:
		return "", usagef("two checkpoints: %s", strings.Join(given, " and "))
	case len(names) == 1:
		return names[0], nil
	}
	return ".", nil
}

// openInput opens the checkpoint that name refers to: a directory, a GGUF file, or else an id on the hub, which is
// downloaded unless the cache has it.
func (f exportFlags) openInput(cmd *cobra.Command, name string) (*loaders.Checkpoint, error) {
	info, err := os.Stat(name)
	switch {
	case f.input.modelID != "":
		return openHub(cmd, name)
	case err == nil && f.input.gguf != "" && info.IsDir():
		return nil, usagef("--gguf %s: expected a GGUF file, found a directory", name)
	case err == nil && f.input.prequantized != "" && !info.IsDir():
		return nil, usagef("--prequantized %s: expected a directory, found a file", name)
	case err == nil && info.IsDir():
		if _, err := os.Stat(filepath.Join(name, huggingface.ConfigFile)); errors.Is(err, fs.ErrNotExist) {
			return nil, invalidError{fmt.Errorf(
				"%s: expected a checkpoint, found a directory without %s; name the checkpoint: etc export DIR, "+
					"FILE.gguf, or an id on the hub, ORG/NAME", name, huggingface.ConfigFile)}
		}
		c, err := loaders.Open(name)
		if err == nil && f.input.prequantized != "" && !c.Prequantized() {
			return nil, errors.Join(invalidError{fmt.Errorf(
				"%s: expected a directory that ExecuTorch's quantize_and_save wrote, found a checkpoint of another "+
					"form; name it without --prequantized", name)}, c.Close())
		}
		if err != nil {
			return nil, invalidInput(err)
		}
		return c, nil
	case err == nil && !info.IsDir() && (f.input.gguf != "" || strings.HasSuffix(name, ".gguf")):
		c, err := loaders.OpenGGUF(name, f.keepsSuperblocks(cmd))
		if err != nil {
			return nil, invalidInput(err)
		}
		return c, nil
	case err == nil:
		return nil, usagef("%s is neither a checkpoint directory nor a .gguf file", name)
	case f.input == (inputFlags{unverified: f.input.unverified}) && isHubID(name, err):
		return openHub(cmd, name)
	case strings.Contains(name, "://"):
		return nil, usagef("%s is an address: of a model on the hub give the id, ORG/NAME", name)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: no such file or directory, and no id on the hub, which is ORG/NAME", name)
	}
	return nil, err
}

// isHubID reports whether a name is an id on the hub. missing is the error of os.Stat for the name.
func isHubID(name string, missing error) bool {
	_, err := hub.ParseRepo(name)
	return err == nil && errors.Is(missing, fs.ErrNotExist) && !strings.HasSuffix(name, ".gguf")
}

// openAgainst opens what --against of etc verify names: a directory, a GGUF file, whose weights are compared by value
// in whichever form the program has them, or an id on the hub.
func openAgainst(cmd *cobra.Command, name string) (*loaders.Checkpoint, error) {
	if _, err := os.Stat(name); isHubID(name, err) {
		return openHub(cmd, name)
	} else if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--against %s: expected a directory, a GGUF file, or an id on the Hugging Face hub, "+
			"org/name or org/name@revision, found none: %w", name, err)
	}
	open := loaders.Open
	if strings.HasSuffix(name, ".gguf") {
		open = func(name string) (*loaders.Checkpoint, error) { return loaders.OpenGGUF(name, false) }
	}
	c, err := open(name)
	if err != nil {
		return nil, invalidInput(err)
	}
	return c, nil
}

// keepsSuperblocks reports whether weights of K-quants keep their values, in more bits: where nothing asks for others.
func (f exportFlags) keepsSuperblocks(cmd *cobra.Command) bool {
	return f.linear == "none" && !anyChanged(cmd, "recipe", "target-bpw")
}

// openHub fetches a checkpoint from the hub, with a progress bar where somebody watches, and opens it.
func openHub(cmd *cobra.Command, id string) (*loaders.Checkpoint, error) {
	repo, err := hub.ParseRepo(id)
	if err != nil {
		return nil, usageError{err}
	}
	o, err := hub.Environment(os.Getenv)
	if err != nil {
		return nil, usageError{err}
	}
	o.Unverified = anyChanged(cmd, unverifiedFlag) && cmd.Flag(unverifiedFlag).Value.String() == "true"
	o.Log = func(format string, args ...any) { logf(cmd.ErrOrStderr(), "etc: "+format, args...) }
	if stderr, ok := cmd.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(stderr.Fd())) {
		bar := progressbar.NewOptions64(1, progressbar.OptionSetWriter(stderr), progressbar.OptionShowBytes(true),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetDescription(repo.Name), progressbar.OptionClearOnFinish(),
			progressbar.OptionUseANSICodes(true))
		o.Progress = func(done, total int64) {
			bar.ChangeMax64(total)
			bar.Set64(done) //nolint:errcheck // a bar that cannot be drawn is no reason to stop
		}
	}
	dir, err := hub.Fetch(cmd.Context(), repo, o)
	if errors.Is(err, context.Canceled) {
		return nil, fmt.Errorf("%s: interrupted; what has come is kept for the next time", repo)
	}
	if err != nil {
		return nil, fmt.Errorf("no file or directory has the name %s, and from the hub: %w", id, err)
	}
	logf(cmd.ErrOrStderr(), "etc: %s is %s", repo, filepath.Base(dir))
	c, err := loaders.Open(dir)
	if err != nil {
		return nil, invalidInput(err)
	}
	return c, nil
}

// checkGiven refuses flags that have nothing to do because the checkpoint holds every weight quantized that they are
// about, and a recipe that is about other weights than such.
func (f exportFlags) checkGiven(cmd *cobra.Command, name string, report *passes.Report) error {
	for _, x := range []struct {
		flag, what string
		kind       passes.WeightKind
	}{{"qlinear", "linear", passes.LinearWeight}, {"qembedding", "embedding", passes.EmbeddingWeight}} {
		given, all := 0, 0
		for _, w := range report.Weights {
			if w.Kind == x.kind {
				all++
				if w.Given {
					given++
				}
			}
		}
		if given > 0 && f.recipe == "executorch" {
			return usagef("--recipe executorch, which gives every weight what ExecuTorch's exporter makes of it: %s "+
				"holds weights that are quantized already", name)
		}
		if given > 0 && given == all && anyChanged(cmd, x.flag) && cmd.Flag(x.flag).Value.String() != "none" {
			return usagef("--%s %s: %s holds every %s weight quantized already, and they are written as they are; "+
				"leave the flag out", x.flag, cmd.Flag(x.flag).Value, name, x.what)
		}
	}
	return nil
}

// logInput says what of the input is left out or changed.
func (f exportFlags) logInput(cmd *cobra.Command, c *loaders.Checkpoint) {
	for _, note := range c.Notes() {
		logf(cmd.ErrOrStderr(), "etc: %s", note)
	}
	wide := 0
	for _, s := range c.Sources() {
		if (s.DType == "Q5_K" || s.DType == "Q6_K") && f.keepsSuperblocks(cmd) {
			wide++
		}
	}
	if wide > 0 {
		logf(cmd.ErrOrStderr(), "etc: %d tensors of Q5_K or Q6_K are written in float32, as MLX has no form that "+
			"holds them exactly; --qlinear 4w or 8w (--qembedding for the embedding) quantizes them anew", wide)
	}
}
