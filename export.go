package etc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/calibration"
	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/internal/record"
	"github.com/etc-ml/etc/internal/weights"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/loaders/hub"
	"github.com/etc-ml/etc/passes"
)

// ExportOptions say how [Export] compiles a checkpoint. The zero value keeps the weights as they are. The fields are
// flags of etc export, whose help says more; the same options give the same bytes as the same flags.
type ExportOptions struct {
	// Linear is the form of linear weights: "none" (or ""), "4w", "8w", "mxfp4", "mxfp8" or "nvfp4". Embedding is the
	// form of the embedding.
	Linear, Embedding string
	// GroupSize and EmbeddingGroupSize are how many weights of a row share a scale: 32, 64 or 128; 0 is 64. mxfp4,
	// mxfp8 and nvfp4 have a size of their own.
	GroupSize, EmbeddingGroupSize int
	// TargetBits chooses the bits of each linear weight by measured error, so many a weight on average, in the place of
	// Linear; with Calibrate by what quantizing each alone does to predictions of the text. 0 leaves it out.
	TargetBits float64
	// Method chooses codes and scales: "best" (as ""), "minmax" or "hqq"; or, by what a text shows of the inputs of
	// each linear weight, "auto" (as "" with Calibrate), "learned", "gptq" or "weighted". For mxfp4, mxfp8 and nvfp4
	// "" is minmax.
	Method string
	// Calibrate is the text for methods that need one: "default" (as "") for the one in this library, or the path of a
	// file, .jsonl with an object with "text" or "messages" in each line, or any other text.
	Calibrate string
	// Recipe says which weights get which form: "" for the default, "executorch" for that of ExecuTorch's exporter, or
	// the text of a recipe (docs/recipes.md), beside which the fields above are left out.
	Recipe string
	// Sample fuses the sampling head: forward gives a token.
	Sample bool
	// Backend is "mlx" (as "") or "cuda", whose forward draws with the model's own sampler.
	Backend string
	// Portable writes the gated delta rule as a scan instead of a Metal kernel.
	Portable bool
	// MaxSeqLen is the context in tokens; 0 is 4096, or less where the model was made for less.
	MaxSeqLen int
	// MaxPrefillChunk is the most tokens of one call; 0 is the architecture's.
	MaxPrefillChunk int
	// Draft is the draft that the file gets: "" for none, "auto" for the checkpoint's own, if it has one, or the path
	// of a draft.
	Draft string
	// Resume goes on from what an export that was interrupted has left beside output, and leaves it when interrupted.
	// What another export has left is an [ErrUsage].
	Resume bool
	// Jobs is the number of workers; 0 is one for each CPU. The bytes do not depend on it.
	Jobs int
	// Progress is told of the bytes that are written; nil for nobody.
	Progress func(written, total int64)
	// Log is told what people want to know, as which tokens end an answer; nil for nobody.
	Log func(note string)
}

// Export compiles a checkpoint to a program in the file output. source is a directory in the layout of Hugging Face, a
// GGUF file, or an id on the Hugging Face hub, org/name[@revision], which is fetched into the hub's cache. Memory does
// not grow with the checkpoint. When ctx ends, or after an error, output is what it was before.
func Export(ctx context.Context, source, output string, o ExportOptions) (err error) {
	// It is long because it is one sequence of steps, each of which needs what those before it made.
	if o.Log == nil {
		o.Log = func(string) {}
	}
	fill(&o.Linear, "none")
	fill(&o.Embedding, "none")
	fill(&o.Backend, "mlx")
	options, err := o.passes()
	if err != nil {
		return err
	}
	target := outfile.Options{Kind: outfile.Program, Inputs: []string{source}, Log: o.Log}
	if err := outfile.Check(output, target); err != nil {
		return kind.Of(kind.ErrUsage, err)
	}
	c, err := o.open(ctx, source)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := o.setDraft(c); err != nil {
		return err
	}
	if options.Recipe, options.Allocate, err = o.recipe(c); err != nil {
		return err
	}
	recorded := o.choice().Options()
	recorded.Backend, recorded.Sample, recorded.Portable = o.Backend, o.Sample, o.Portable
	text, err := o.calibrate(ctx, c, output, options)
	if err != nil {
		return err
	}
	defer func() { err = text.Close(err) }()
	m, err := c.Build(loaders.Options{MaxSeqLen: o.MaxSeqLen, MaxPrefillChunk: o.MaxPrefillChunk})
	if err != nil {
		return kind.Of(kind.ErrUsage, err)
	}
	if err := prompt.SetStopTokens(o.Log, c, m); err != nil {
		return err
	}
	if err := passes.Run(m, options); err != nil {
		err = fmt.Errorf("%s: %w", source, err)
		scheme, budget := (*passes.SchemeError)(nil), (*passes.BudgetError)(nil)
		if errors.As(err, &scheme) || errors.As(err, &budget) { // what the options ask for
			return kind.Of(kind.ErrUsage, err)
		}
		return err
	}
	file, err := record.NewFile(c, m, options, recorded, text.Record())
	if err != nil {
		return err
	}
	for _, s := range c.Sources() {
		if path, _, ok := s.Place(); ok && !slices.Contains(target.Inputs, path) {
			target.Inputs = append(target.Inputs, path)
		}
	}
	file.Target, file.Jobs, file.Progress, file.Log, file.Resume = target, o.Jobs, o.Progress, o.Log, o.Resume
	err = codegen.Write(ctx, output, file)
	if changed := (*codegen.ChangedError)(nil); errors.As(err, &changed) {
		return kind.Of(kind.ErrUsage, err)
	}
	if err != nil {
		return err
	}
	if card := text.Card(); card != "" {
		o.Log(card)
	}
	return nil
}

// calibrate runs the checkpoint over the text, where the recipe has a method that needs one; nil where none does.
func (o *ExportOptions) calibrate(ctx context.Context, c *loaders.Checkpoint, output string,
	options *passes.Options) (*calibration.Text, error) {
	if !calibration.Needed(options) {
		if _, byText := calibration.Methods[o.Method]; byText || o.Calibrate != "" {
			return nil, kind.Usagef("ExportOptions: Calibrate %q and Method %q, but no linear weight has a "+
				"method that "+
				"needs a text; set Linear 4w, and Method auto, learned, gptq or weighted", o.Calibrate, o.Method)
		}
		return nil, nil
	}
	fill(&o.Calibrate, calibration.Default)
	text, err := calibration.Read("ExportOptions.Calibrate", o.Calibrate)
	if err != nil {
		return nil, err
	}
	x := calibration.Options{Dir: output + ".calibration", Jobs: o.Jobs, Resume: o.Resume,
		Log: func(format string, args ...any) { o.Log(fmt.Sprintf(format, args...)) }}
	if err := text.Calibrate(ctx, c, options, x); err != nil {
		return nil, err
	}
	return text, nil
}

// passes returns the options of the passes, the recipe aside.
func (o *ExportOptions) passes() (*passes.Options, error) {
	out := &passes.Options{Sample: o.Sample, Portable: o.Portable, Report: &passes.Report{}}
	switch {
	case o.Jobs < 0 || o.MaxSeqLen < 0 || o.MaxPrefillChunk < 0:
		return nil, kind.Usagef("ExportOptions: Jobs %d, MaxSeqLen %d, MaxPrefillChunk %d: want 0 or more",
			o.Jobs, o.MaxSeqLen, o.MaxPrefillChunk)
	case o.MaxSeqLen == 1:
		return nil, kind.Usagef("ExportOptions.MaxSeqLen is 1, want at least 2")
	case o.Backend == "cuda" && o.Sample:
		return nil, kind.Usagef("ExportOptions.Sample with Backend cuda: forward keeps the model's own sampler there")
	case o.Backend == "cuda":
		out.Backend = passes.CUDA
	case o.Backend != "mlx":
		return nil, kind.Usagef("ExportOptions.Backend is %q, want mlx or cuda", o.Backend)
	}
	return out, nil
}

// open opens the checkpoint that a source stands for.
func (o *ExportOptions) open(ctx context.Context, source string) (*loaders.Checkpoint, error) {
	info, err := os.Stat(source)
	switch {
	case err == nil && info.IsDir():
		return checkpoint(loaders.Open(source))
	case err == nil && strings.HasSuffix(source, ".gguf"):
		return checkpoint(loaders.OpenGGUF(source, o.Linear == "none" && o.Recipe == "" && o.TargetBits == 0))
	case err == nil:
		return nil, kind.Usagef("%s is neither a checkpoint's directory nor a .gguf file", source)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	repository, bad := hub.ParseRepo(source)
	if bad != nil {
		return nil, fmt.Errorf("%w; it is no id on the hub either, which is org/name", err)
	}
	h, err := hub.Environment(os.Getenv)
	if err != nil {
		return nil, kind.Of(kind.ErrUsage, err)
	}
	h.Log = func(format string, args ...any) { o.Log(fmt.Sprintf(format, args...)) }
	dir, err := hub.Fetch(ctx, repository, h)
	if err != nil {
		return nil, fmt.Errorf("no file or directory has the name %s, and from the hub: %w", source, err)
	}
	o.Log(fmt.Sprintf("%s is %s", repository, filepath.Base(dir)))
	return checkpoint(loaders.Open(dir))
}

// checkpoint gives an error of opening a checkpoint its kind.
func checkpoint(c *loaders.Checkpoint, err error) (*loaders.Checkpoint, error) {
	if err != nil && !os.IsNotExist(err) && !os.IsPermission(err) {
		err = kind.Of(kind.ErrInvalid, err)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// setDraft lets the program have the draft that is asked for.
func (o *ExportOptions) setDraft(c *loaders.Checkpoint) error {
	switch o.Draft {
	case "", "none":
		return nil
	case "auto":
		if why := c.FindDraft(); why != "" {
			o.Log("the program has no draft: " + why)
		}
		return nil
	}
	_, err := checkpoint(c, c.OpenDraft(o.Draft))
	return err
}

// choice returns what is asked for of the weights, a recipe's text aside.
func (o *ExportOptions) choice() weights.Choice {
	named := o.Recipe == "" || o.Recipe == weights.Default || o.Recipe == weights.ExecuTorch
	return weights.Choice{Linear: o.Linear, Embedding: o.Embedding, Group: o.GroupSize,
		EmbeddingGroup: o.EmbeddingGroupSize, Method: o.Method, Text: o.Calibrate != "" && named, Recipe: o.Recipe,
		Names: weights.Names{Linear: "ExportOptions.Linear", Embedding: "ExportOptions.Embedding",
			Method: "ExportOptions.Method", Recipe: "ExportOptions.Recipe", TargetBits: "ExportOptions.TargetBits",
			Calibrate: "ExportOptions.Calibrate"}}
}

// recipe returns the recipe, and with TargetBits the choices that weights have.
func (o *ExportOptions) recipe(c *loaders.Checkpoint) (none passes.Recipe, _ *passes.Allocation, err error) {
	for _, n := range []int{o.GroupSize, o.EmbeddingGroupSize} {
		if n != 0 && n != 32 && n != 64 && n != 128 {
			return none, nil, kind.Usagef("ExportOptions.GroupSize and EmbeddingGroupSize are %d and %d, want 32, 64 or 128, "+
				"or 0", o.GroupSize, o.EmbeddingGroupSize)
		}
	}
	open := o.Linear == "none" && o.Recipe == ""
	switch o.Recipe {
	case "", weights.Default, weights.ExecuTorch:
		if o.TargetBits == 0 {
			r, err := o.choice().MakeRecipe(c)
			return r, nil, err
		}
		if !open {
			return none, nil, kind.Usagef("ExportOptions.TargetBits with Linear or Recipe: it alone decides how linear " +
				"weights are quantized")
		}
		return o.choice().Allocate(c, o.TargetBits)
	}
	if o.Linear != "none" || o.Embedding != "none" || o.Method != "" || o.GroupSize != 0 || o.EmbeddingGroupSize != 0 ||
		o.TargetBits != 0 {
		return none, nil, kind.Usagef("ExportOptions.Recipe is a recipe's text, which alone says how weights are " +
			"quantized; leave Linear, Embedding, Method, TargetBits and the group sizes out")
	}
	r, err := passes.ParseRecipe("recipe", o.Recipe)
	return r, nil, kind.Of(kind.ErrInvalid, err)
}
