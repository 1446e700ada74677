package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Names of the files that a checkpoint is made of.
const (
	configFile = "config.json"
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

// textFiles are fetched where the repository has them.
var textFiles = []string{configFile, "generation_config.json", "tokenizer.json", "tokenizer_config.json",
	"chat_template.jinja", "chat_template.json"}

// Fetch brings the files of a checkpoint that etc reads into the cache and gives the directory of the snapshot: the
// configuration, the tokenizer's files, and the safetensors files that the index lists. What the cache has is not
// asked for again; a commit that it has whole needs no network. Where the hub cannot be reached the snapshot that
// the cache knows for the revision is used, with a warning.
func Fetch(ctx context.Context, r Repo, o Options) (dir string, err error) {
	f := &fetcher{repo: r, options: o, cache: newCache(o, r)}
	if f.client, err = newClient(o); err != nil {
		return "", err
	}
	defer f.client.close()
	if known, ok := f.cache.commit(r.Revision); ok && (o.Offline || known == r.Revision) {
		if problem := f.complete(known); problem == nil {
			return f.cache.snapshot(known), nil
		} else if o.Offline {
			return "", fmt.Errorf("%s: %w, and HF_HUB_OFFLINE forbids to download it", r, problem)
		}
	} else if o.Offline {
		return "", fmt.Errorf("%s: expected a snapshot of it in %s, found none, and HF_HUB_OFFLINE forbids to "+
			"download it", r, f.cache.root)
	}
	if err := f.list(ctx); err != nil {
		known, ok := f.cache.commit(r.Revision)
		var status *statusError
		if ok && f.complete(known) == nil && ctx.Err() == nil && (!errors.As(err, &status) || status.status >= 500) {
			o.logf("%v; using the snapshot of %s in the cache", err, known)
			return f.cache.snapshot(known), nil
		}
		return "", err
	}
	if err := f.all(ctx); err != nil {
		return "", err
	}
	return f.cache.snapshot(f.commit), f.cache.setCommit(r.Revision, f.commit)
}

// fetcher fetches one repository.
type fetcher struct {
	repo    Repo
	options Options
	cache   cache
	client  *client
	commit  string
	names   []string // of all files of the repository

	done, total atomic.Int64
}

// list asks for the commit and the files of the revision.
func (f *fetcher) list(ctx context.Context) error {
	body, err := f.client.get(ctx, f.repo.String(), fmt.Sprintf("%s/api/models/%s/revision/%s", f.options.Endpoint,
		f.repo.Name, strings.ReplaceAll(f.repo.Revision, "/", "%2F")))
	if err != nil {
		return err
	}
	var answer struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || !commit.MatchString(answer.SHA) {
		return fmt.Errorf("%s: expected the commit and the files of the revision, found %.200q", f.repo, body)
	}
	f.commit = answer.SHA
	for _, s := range answer.Siblings {
		f.names = append(f.names, s.Name)
	}
	if !slices.Contains(f.names, configFile) {
		var gguf []string
		for _, n := range f.names {
			if strings.HasSuffix(n, ".gguf") {
				gguf = append(gguf, n)
			}
		}
		if gguf != nil {
			return fmt.Errorf("%s: expected a checkpoint with %s, found GGUF files; download one and export it by "+
				"its path: %s", f.repo, configFile, strings.Join(gguf[:min(len(gguf), 20)], ", "))
		}
		return fmt.Errorf("%s: expected a checkpoint with %s, found %d files without it", f.repo,
			configFile, len(f.names))
	}
	return nil
}

// all fetches the text files, then the weights that they name.
func (f *fetcher) all(ctx context.Context) error {
	texts := append([]string{}, textFiles...)
	if !slices.Contains(f.names, singleFile) {
		texts = append(texts, indexFile)
	}
	texts = slices.DeleteFunc(texts, func(n string) bool { return !slices.Contains(f.names, n) })
	if err := f.fetch(ctx, texts); err != nil {
		return err
	}
	weights, err := f.weights(f.commit, f.names)
	if err != nil {
		return err
	}
	return f.fetch(ctx, weights)
}

// weights lists the files of the weights of a snapshot whose index is there.
func (f *fetcher) weights(commit string, names []string) ([]string, error) {
	if slices.Contains(names, singleFile) {
		return []string{singleFile}, nil
	}
	if !slices.Contains(names, indexFile) {
		var found []string
		for _, n := range names {
			if strings.HasSuffix(n, ".safetensors") && !strings.Contains(n, "/") {
				found = append(found, n)
			}
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("%s: expected %s or %s, found %d *.safetensors files", f.repo,
				singleFile, indexFile, len(found))
		}
		return found, nil
	}
	text, err := os.ReadFile(f.cache.file(commit, indexFile))
	if err != nil {
		return nil, err
	}
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", f.repo, indexFile, err)
	}
	seen := map[string]bool{}
	var files []string
	for tensor, file := range index.Map {
		if !strings.HasSuffix(file, ".safetensors") || !filepath.IsLocal(file) ||
			strings.ContainsAny(file, "/\\:\x00") {
			return nil, fmt.Errorf("%s: %s: tensor %.100q: expected the name of a *.safetensors file, found %.100q",
				f.repo, indexFile, tensor, file)
		}
		if !seen[file] {
			seen[file] = true
			files = append(files, file)
		}
	}
	slices.Sort(files)
	return files, nil
}

// complete reports what a snapshot in the cache lacks to be exported; nil for nothing.
func (f *fetcher) complete(commit string) error {
	entries, err := os.ReadDir(f.cache.snapshot(commit))
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	weights, err := f.weights(commit, names)
	if err != nil {
		return err
	}
	for _, n := range append([]string{configFile}, weights...) {
		if !f.cache.has(commit, n) {
			return fmt.Errorf("expected %s in %s, found none", n, f.cache.snapshot(commit))
		}
	}
	return nil
}

// defaultJobs is the number of files that are downloaded at a time.
const defaultJobs = 4

// fetch brings files into the snapshot, several at a time. The first error ends the others.
func (f *fetcher) fetch(ctx context.Context, names []string) error {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return f.cache.has(f.commit, n) })
	files := make([]remote, len(names))
	if err := f.each(ctx, len(names), func(ctx context.Context, i int) (err error) {
		if files[i], err = f.client.describe(ctx, f.repo, f.commit, names[i]); err == nil {
			f.total.Add(files[i].size)
		}
		return err
	}); err != nil {
		return err
	}
	if err := os.MkdirAll(f.cache.blob(""), 0o777); err != nil {
		return err
	}
	return f.each(ctx, len(files), func(ctx context.Context, i int) error {
		if err := f.client.download(ctx, f.repo, f.commit, files[i], f.cache, f.progress); err != nil {
			return err
		}
		return f.cache.link(f.commit, files[i].name, files[i].hash)
	})
}

func (f *fetcher) progress(n int64) {
	done := f.done.Add(n)
	if f.options.Progress != nil {
		f.options.Progress(done, f.total.Load())
	}
}

// each calls work for 0 to n-1 on several goroutines.
func (f *fetcher) each(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	jobs := f.options.Jobs
	if jobs <= 0 {
		jobs = defaultJobs
	}
	var next atomic.Int64
	var once sync.Once
	var first error
	var group sync.WaitGroup
	for range min(jobs, n) {
		group.Go(func() {
			for i := int(next.Add(1) - 1); i < n && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				if err := work(ctx, i); err != nil {
					once.Do(func() { first = err; cancel() })
				}
			}
		})
	}
	group.Wait()
	if first == nil {
		first = ctx.Err()
	}
	return first
}
