// Package tokenizer turns text into token ids and back as a Hugging Face tokenizer.json says, exactly as the
// tokenizers library (0.23.2, the Rust one) does. It is made for the two layouts of the models that etc runs, and
// takes every other file that is made of the same parts:
//
//   - byte-level BPE (GPT-2, Llama 3, Qwen): normalizer NFC, pre-tokenizers Split with a regular expression and
//     ByteLevel, decoder ByteLevel;
//   - SentencePiece-style BPE (Gemma, Llama 2): normalizer Replace, byte fallback, fused unknown tokens, a template
//     that adds <bos>, decoders Replace, ByteFallback, Fuse.
//
// # How a text is encoded
//
// Added tokens such as <|im_end|> are cut out first (added.go). What is between them is normalized (normalize.go);
// added tokens that ask for it are cut out of the result; the rest is cut into words by the pre-tokenizers
// (pretokenize.go, scanner.go), each word is merged by the model (bpe.go, word.go), and the post-processor puts its
// tokens around (postprocess.go). A text from a reader is cut before all that, where it makes no difference
// (chunks.go). Decoding is a row of stages (decode.go) that Stream feeds one id at a time.
//
// # What is supported
//
//	model           BPE: unk_token, fuse_unk, byte_fallback, ignore_merges, continuing_subword_prefix,
//	                end_of_word_suffix; both forms of merges; no dropout
//	normalizer      NFC NFD NFKC NFKD Replace Prepend Strip Lowercase ByteLevel Sequence
//	pre_tokenizer   ByteLevel Split Digits Metaspace Punctuation Whitespace WhitespaceSplit CharDelimiterSplit
//	                BertPreTokenizer Sequence
//	post_processor  TemplateProcessing BertProcessing RobertaProcessing ByteLevel Sequence; single texts only
//	decoder         ByteLevel Replace ByteFallback Fuse Strip Metaspace BPEDecoder Sequence
//	added_tokens    single_word, lstrip, rstrip, normalized, special
//
// Regular expressions are those of package internal/regex: the part of Oniguruma's language that published tokenizers
// use. All else - other types, unknown keys, wrong kinds of values, what the library makes depend on chance, such as
// two tokens with one id - is an error that names the place in the file, what was found and what is supported.
// The library's oddities are kept: merges that come twice, added tokens whose ids in the file are not those that they
// get, ids that are no token (Decode skips them). Warnings tells of those that are in the file. Only where the library
// panics or is asked to shorten texts (truncation, padding: as in transformers, that is up to the caller, and not
// done here) does this package go its own way.
//
// # Invariants
//
// Parse never panics, and takes time and memory in proportion to the file. Encode takes O(n log n) for n bytes of
// normalized text, whatever the text (and at worst n times the length of the longest added token): a word of a
// megabyte is no exception, and no regular expression can blow up. Normalizers and decoders that could make a text
// more than 4096 times longer are refused. Answers depend on the file and the text
// only, not on the Go release: the Unicode tables are the library's (internal/ucd). Parts of a Stream are whole
// characters, and joined they are what Decode returns.
//
// # Tests
//
// testdata holds what the real library does, on 340 texts with each of two tokenizers, and for single components; the
// scripts beside it record it again, or more of it. Recordings of 90,000 texts with four tokenizers (the two, and two
// of 30,000 tokens trained for it), of 100,000 texts with 4,000 random configurations, and of 300,000 matches of
// regular expressions were compared when the package was written, without a difference.
//
// # Speed
//
// On one core of a shared Xeon (4 virtual CPUs), prose, code and other scripts mixed, in MB of text per second:
//
//	                             byte-level   SentencePiece-style
//	encode, the tokenizers here      22              25            go test -bench Encode
//	encode, 30,000 tokens            13              12
//	encode, 30,000 tokens, by line   13              11
//	decode, 30,000 tokens            48              50
//
// A file of 250,000 tokens and 500,000 merges (20 MB) is parsed in 0.7 s.
//
// The package imports its internal packages only, nothing else of ours.
package tokenizer
