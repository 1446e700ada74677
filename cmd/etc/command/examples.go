package command

// examples are shown in the help of each command.
var examples = map[string]string{
	"etc": `  etc export Qwen3.5-35B-A3B -o qwen.pte --qlinear 4w
  etc run qwen.pte "What is the capital of France?"`,
	"export": `  etc export Qwen3.5-35B-A3B -o qwen.pte --qlinear 4w --sample
  etc export google/gemma-4-31b-it --target-bpw 5 -o gemma.pte
  etc export qwen.gguf -o qwen.pte
  etc export Qwen3.5-35B-A3B --plan`,
	"link": `  etc export MODEL --part 1/2      # on one machine
  etc export MODEL --part 2/2      # on another
  etc link model-1-of-2.part model-2-of-2.part -o model.pte`,
	"cache": `  etc export MODEL --cache ~/etc-cache
  etc cache ~/etc-cache --check`,
	"run": `  etc run model.pte                               # a chat
  etc run model.pte "What is the capital of France?"
  etc run model.pte --prompt-file question.txt --temperature 0 -n 200
  etc run model.pte "And of Italy?" --session chat`,
	"serve": `  etc serve model.pte
  etc serve qwen.pte gemma.pte --host 0.0.0.0 --api-key-file keys`,
	"exec": `  etc exec model.pte --inputs in.safetensors --outputs out.safetensors`,
	"inspect": `  etc inspect model.pte
  etc inspect model.pte --html model.html
  etc inspect model.pte --plan --device cpu`,
	"verify": `  etc verify model.pte
  etc verify model.pte --weights
  etc verify model.pte --against Qwen3.5-35B-A3B --html error.html
  etc verify model.pte --signed key.pub`,
	"tokenize": `  etc tokenize model.pte "Hello, world"
  echo 1,2,3 | etc tokenize model.pte --decode`,
	"template": `  etc template model.pte --context messages.json`,
	"version":  `  etc version --json`,
	"bench": `  etc bench model.pte
  etc bench model.pte -p 512,2048 -n 128 -d 4096 --json
  etc bench --serve http://127.0.0.1:8080 --concurrent 1,8,32 -p 512 -n 128`,
	"eval": `  etc eval model.pte --qa questions.json
  etc eval model.pte --text book.txt --reference other.pte`,
	"diff":   `  etc diff a.pte b.pte`,
	"doctor": `  etc doctor`,
}
