// Package etc compiles language models to ExecuTorch programs and runs them.
//
// [Export] compiles a checkpoint of Hugging Face to one .pte file, which holds the weights, the tokenizer and the chat
// template. [Open] opens such a file, whether etc or ExecuTorch's own exporter wrote it, on a GPU or the CPU:
//
//	model, err := etc.Open("qwen.pte", etc.Options{})
//	if err != nil {
//		return err
//	}
//	defer model.Close()
//	question := []etc.Message{{Role: "user", Content: "Why is the sky blue?"}}
//	for token, err := range model.Chat(ctx, question, etc.Parameters{}) {
//		if err != nil {
//			return err
//		}
//		fmt.Print(token.Text)
//	}
//
// # Many answers, or one user
//
// A [Model] gives many answers at a time. A [Session] gives one at a time, to one user, as fast as the device can: it
// holds the state of a conversation, which [Session.Ask] goes on with and [Session.Save] keeps in a file, and it can
// look into the program, by [Parameters].Logits and [Parameters].ForceTokens. Both take the same options and
// parameters, and give the same answers.
//
// # From text to tokens and back
//
// A model reads and writes token ids. [Model.Chat] makes its prompt of messages by the file's chat template, in which
// no message can name a token that steers the model; [Model.Generate] takes a prompt as it is. [Model.Prompt] and
// [Model.Tokenizer] do each step by itself, [LoadTokenizer] and [LoadChatTemplate] do it without a model, and a
// [Sequence] is tokens that grow by texts, ids and answers.
//
// # Many at a time
//
// A Model is safe for concurrent use. Answers that are asked for at the same time share the calls of the program, up to
// Options.Concurrent, and the rest wait. What an answer is does not depend on who shares its calls: to the rounding of
// sums by default, and to the bit with Options.Deterministic. States stay in a cache while there is room: a prompt that
// begins as one before costs only what is new in it.
//
// Options.Speculate has answers draft tokens, by a draft that Export has put into the file (ExportOptions.Draft) or
// from their own text. Drafts make answers faster where they are right, and change none. Options.KVCache and
// Options.State keep states in fewer bits, so that more answers fit in memory.
//
// # Zero values
//
// The zero [Options] choose the fastest device that the machine has. The zero [Parameters] are those of the file's
// generation config, with a random seed. The zero [ExportOptions] keep the weights as they are. Fields that are
// pointers tell "not set" from zero; new(0.7) is such a pointer.
//
// # Errors
//
// errors.Is finds [ErrUsage] in errors of what was asked for, [ErrInvalid] in those of a file's content, and
// [ErrMemory] in those of a model that does not fit. An answer ends when its context does, within one call of the
// program.
//
// Package etc stands on internal packages and on those of the folders loaders, passes, codegen and runtime, which may
// change; it imports all of them, and none of them may import it.
package etc
