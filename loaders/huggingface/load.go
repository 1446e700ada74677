package huggingface

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"
)

// Names of the files of a checkpoint directory.
const (
	ConfigFile           = "config.json"
	GenerationConfigFile = "generation_config.json"
	TokenizerFile        = "tokenizer.json"
	TokenizerConfigFile  = "tokenizer_config.json"
	ChatTemplateFile     = "chat_template.jinja"

	oldChatTemplateFile = "chat_template.json" // {"chat_template": "…"}, written by transformers 4.4x
)

// Limits of the files' sizes in bytes. Gemma4's tokenizer.json has 33 MB, the largest of the others 1 MB.
const (
	maxTextBytes      = 16 << 20
	maxTokenizerBytes = 256 << 20
)

// Model has the content of a checkpoint directory except for the weights.
type Model struct {
	Dir          string
	Architecture string // class name in transformers, one of [Architectures]
	Family       string // name of the class's [Family]
	Config       Config
	Tokens       Tokens
	Sampling     Sampling

	// Quantization is the JSON of quantization_config, or else of quantization (MLX), in config.json; nil if there is
	// neither. The weights of such a checkpoint are no plain tensors: who cannot read the kind that it names must
	// refuse the checkpoint.
	Quantization json.RawMessage

	// ChatTemplate is the Jinja template: of chat_template.jinja, or else of tokenizer_config.json (with several:
	// the one named "default"), or else of chat_template.json; "" if there is none.
	ChatTemplate string

	Files Files
}

// Files are files of the directory as they are, nil where there is none.
type Files struct {
	Config           []byte
	GenerationConfig []byte
	Tokenizer        []byte
	TokenizerConfig  []byte
	ChatTemplate     []byte // chat_template.jinja
}

// Load reads the text files of a checkpoint directory. Only config.json must be there. An error in the contents of a
// file joins one [*ConfigError] per key.
func Load(dir string) (*Model, error) {
	m := &Model{Dir: dir}
	var oldTemplate []byte
	for _, f := range []struct {
		name  string
		limit int64
		into  *[]byte
	}{
		{ConfigFile, maxTextBytes, &m.Files.Config},
		{GenerationConfigFile, maxTextBytes, &m.Files.GenerationConfig},
		{TokenizerFile, maxTokenizerBytes, &m.Files.Tokenizer},
		{TokenizerConfigFile, maxTextBytes, &m.Files.TokenizerConfig},
		{ChatTemplateFile, maxTextBytes, &m.Files.ChatTemplate},
		{oldChatTemplateFile, maxTextBytes, &oldTemplate},
	} {
		text, err := readFile(filepath.Join(dir, f.name), f.limit)
		if errors.Is(err, fs.ErrNotExist) && f.name != ConfigFile {
			continue
		}
		if err != nil {
			return nil, err
		}
		*f.into = text
	}
	return m.read(oldTemplate)
}

// Parse is [Load] of files that are in memory already; source stands for the directory in messages.
func Parse(source string, files Files) (*Model, error) {
	m := &Model{Dir: source, Files: files}
	return m.read(nil)
}

// read reads the files.
func (m *Model) read(oldTemplate []byte) (*Model, error) {
	if err := m.readConfigs(); err != nil {
		return nil, err
	}
	if err := m.readTemplate(oldTemplate); err != nil {
		return nil, err
	}
	return m, nil
}

// readFile reads a file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, &ConfigError{File: path, Expected: fmt.Sprintf("at most %d bytes", limit), Found: "more"}
	}
	return text, nil
}

// readConfigs reads config.json and generation_config.json.
func (m *Model) readConfigs() error {
	doc, root := parse(filepath.Join(m.Dir, ConfigFile), m.Files.Config)
	if err := doc.err(); err != nil {
		return err
	}
	class, family, config := readConfig(root)
	if err := doc.err(); err != nil {
		return err
	}
	m.Architecture, m.Family, m.Config = class, family.Name, config
	text, nested := root.object("text_config")
	if !nested {
		text = section{doc: doc}
	}
	generationDoc, generation := &document{}, section{}
	if m.Files.GenerationConfig != nil {
		generationDoc, generation = parse(filepath.Join(m.Dir, GenerationConfigFile), m.Files.GenerationConfig)
	}
	m.Tokens = readTokens(m.Config.Vocabulary(), generation, root, text)
	m.Sampling = readSampling(generation)
	m.Quantization = quantization(root, text)
	return errors.Join(generationDoc.err(), doc.err())
}

// quantization finds the description of quantized weights.
func quantization(sections ...section) json.RawMessage {
	for _, s := range sections {
		for _, key := range []string{"quantization_config", "quantization"} {
			if s.has(key) {
				text, _ := json.Marshal(s.values[key]) // JSON that was decoded can be encoded
				return text
			}
		}
	}
	return nil
}

// readTemplate finds the chat template.
func (m *Model) readTemplate(old []byte) error {
	path := func(name string) string { return filepath.Join(m.Dir, name) }
	if m.Files.ChatTemplate != nil {
		if !utf8.Valid(m.Files.ChatTemplate) {
			return &ConfigError{File: path(ChatTemplateFile), Expected: "text in UTF-8", Found: "other bytes"}
		}
		m.ChatTemplate = string(m.Files.ChatTemplate)
	}
	for _, source := range []struct {
		name string
		text []byte
	}{{TokenizerConfigFile, m.Files.TokenizerConfig}, {oldChatTemplateFile, old}} {
		if source.text == nil {
			continue
		}
		doc, root := parse(path(source.name), source.text)
		template := ""
		if doc.err() == nil {
			template = chatTemplate(root)
		}
		if err := doc.err(); err != nil {
			return err
		}
		if m.ChatTemplate == "" {
			m.ChatTemplate = template
		}
	}
	return nil
}

// chatTemplate reads a template, or the one named "default" of an array of {"name": …, "template": …}.
func chatTemplate(s section) string {
	const key = "chat_template"
	if _, several := s.values[key].([]any); !several {
		return s.text(key)
	}
	list, _ := s.array(key)
	found := ""
	for i, entry := range list {
		values, ok := entry.(map[string]any)
		named := section{doc: s.doc, path: fmt.Sprintf("%s[%d]", s.key(key), i), values: values}
		if !ok {
			s.doc.fault(named.path, "an object with name and template", show(entry))
			continue
		}
		template := named.text("template")
		if named.text("name") == "default" {
			found = template
		}
	}
	return found
}
