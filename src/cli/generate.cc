#include "llm/generate.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/cli.h"
#include "cli/load_program.h"
#include "llm/chat_template.h"
#include "llm/program_model.h"

namespace dovetail::cli {
namespace {

struct GenerateFlags {
  std::string model, tokenizer, prompt, system, method;
  ProgramModelOptions names;
  bool chat = false;
  int64_t max_tokens = 256;
  SamplerOptions sampler;
  unsigned threads = 0;
  WeightsFlags weights;
  QnnFlags qnn;
};

// A folder's tokenizer.json, or the NAME.tokenizer.json of the model's name, or the only one.
Result<std::string> TokenizerFile(const std::string& path, const std::string& model) {
  namespace fs = std::filesystem;
  constexpr std::string_view kEnding = ".tokenizer.json";
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  const fs::path folder = path;
  for (const std::string& name : {std::string("tokenizer.json"), fs::path(model).stem().string() + std::string(kEnding)})
    if (fs::exists(folder / name, error)) return (folder / name).string();
  std::vector<std::string> found;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (std::string name = it->path().filename().string(); name.ends_with(kEnding)) found.push_back(std::move(name));
  if (error) return IoError("cannot list the folder '", path, "': ", error.message());
  if (found.size() == 1) return (folder / found[0]).string();
  if (found.empty()) return NotFound("the folder '", path, "' has no tokenizer.json and no NAME", kEnding);
  std::sort(found.begin(), found.end());
  std::string names;
  for (const std::string& name : found) names += StrCat(names.empty() ? "" : ", ", name);
  return InvalidArgument("the folder '", path, "' has several tokenizers; name one of them with --tokenizer: ", names);
}

class Session {
 public:
  Session(const GenerateFlags& flags, bool json) : flags_(flags), json_(json) {}

  Status Run(bool has_prompt) {
    DT_ASSIGN_OR_RETURN(const std::string tokenizer, TokenizerFile(flags_.tokenizer, flags_.model));
    DT_ASSIGN_OR_RETURN(tokenizer_, Tokenizer::Load(tokenizer));
    DT_ASSIGN_OR_RETURN(files_, LoadChatFiles(tokenizer));
    if (flags_.chat) {
      DT_ASSIGN_OR_RETURN(ChatTemplate t, TakeChatTemplate(&files_));
      template_ = std::move(t);
    }
    DT_ASSIGN_OR_RETURN(stop_, StopTokens(*tokenizer_, files_, template_ ? &*template_ : nullptr));
    DT_ASSIGN_OR_RETURN(loaded_, LoadProgram(flags_.model, flags_.method, flags_.threads, flags_.weights, flags_.qnn));
    ProgramModelOptions names = flags_.names;
    names.vocab_size = tokenizer_->vocab_size();
    DT_ASSIGN_OR_RETURN(model_, ProgramModel::Create(loaded_.method, *loaded_.program, names));
    if (has_prompt) return Answer(flags_.prompt);
    std::string line;
    while (Ask(), std::getline(std::cin, line)) DT_RETURN_IF_ERROR(Answer(line));
    return OkStatus();
  }

 private:
  static void Ask() {
    if (isatty(STDIN_FILENO)) std::fputs("> ", stderr);
  }

  Status Answer(const std::string& text) {
    std::string prompt = text;
    if (template_) {
      messages_.push_back({"user", text});
      DT_ASSIGN_OR_RETURN(prompt, template_->Render(messages_, true, files_.bos_token, files_.eos_token));
    }
    DT_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, tokenizer_->Encode(prompt, !template_));
    if (ids.empty()) return InvalidArgument("the prompt is empty");
    // Every turn reads the whole conversation again: the text of earlier turns, not the model's cache, is what counts.
    loaded_.instance->ResetStates();
    GenerateOptions options;
    options.max_tokens = flags_.max_tokens;
    options.sampler = flags_.sampler;
    options.stop_tokens = stop_;
    if (!json_) options.on_text = [](std::string_view piece) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
      return true;
    };
    DT_ASSIGN_OR_RETURN(const GenerateResult r, Generate(*model_, *tokenizer_, ids, options));
    if (template_) messages_.push_back({"assistant", r.text});
    if (json_) {
      PrintJson({{"text", r.text}, {"tokens", r.tokens}, {"prompt_tokens", r.prompt_tokens}, {"prefill_tokens_per_s", r.prefill_tokens_per_s},
                 {"decode_tokens_per_s", r.decode_tokens_per_s}, {"first_token_seconds", r.first_token_seconds}, {"load_seconds", loaded_.seconds}});
    } else {
      std::fputc('\n', stdout);
      std::fflush(stdout);  // what goes to stderr comes after it
      std::fprintf(stderr, "prefill %.1f tokens/s (%lld tokens), decode %.1f tokens/s (%zu tokens)%s\n", r.prefill_tokens_per_s,
                   static_cast<long long>(r.prompt_tokens), r.decode_tokens_per_s, r.tokens.size(),
                   r.reason == StopReason::kContextFull ? "; stopped because the cache is full" : "");
    }
    return OkStatus();
  }

  const GenerateFlags& flags_;
  const bool json_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ChatFiles files_;
  std::optional<ChatTemplate> template_;
  std::vector<int64_t> stop_;
  LoadedProgram loaded_;
  std::unique_ptr<ProgramModel> model_;
  std::vector<ChatMessage> messages_;
};

}  // namespace

void AddGenerate(Context& context) {
  auto flags = std::make_shared<GenerateFlags>();
  auto prompt = std::make_shared<CLI::Option*>(nullptr);
  CLI::App* verb = AddVerb(context, "generate", "generates text with a language model",
                           [flags, prompt, &context] { return Session(*flags, context.json).Run((*prompt)->count() > 0); });
  verb->add_option("MODEL", flags->model, "a .pte file")->required();
  verb->add_option("--tokenizer", flags->tokenizer, "a tokenizer.json, or the folder that has it, or NAME.tokenizer.json for NAME.pte")->required();
  *prompt = verb->add_option("--prompt", flags->prompt, "the text to continue, or with --chat to answer");
  verb->add_flag("--chat", flags->chat, "apply the tokenizer's chat template; without --prompt, read turns from stdin");
  verb->add_option("--max-tokens", flags->max_tokens, "most tokens to generate")->capture_default_str()->check(CLI::NonNegativeNumber);
  verb->add_option("--temperature", flags->sampler.temperature, "0: always the most likely token")->capture_default_str();
  verb->add_option("--top-p", flags->sampler.top_p, "keep the fewest tokens with this much probability")->capture_default_str();
  verb->add_option("--top-k", flags->sampler.top_k, "keep the k most likely tokens; 0: all")->capture_default_str();
  verb->add_option("--seed", flags->sampler.seed, "of the random choice")->capture_default_str();
  verb->add_option("--threads", flags->threads, "threads to use; 0: one per core");
  flags->weights.AddTo(verb);
  flags->qnn.AddTo(verb);
  verb->add_option("--method", flags->method, "the method to call");
  verb->add_option("--tokens-input", flags->names.tokens_input, "name of the input that takes tokens");
  verb->add_option("--positions-input", flags->names.positions_input, "name of the input that takes positions");
  verb->parse_complete_callback([flags, prompt] {
    if ((*prompt)->count() == 0 && !flags->chat) throw CLI::RequiredError("--prompt TEXT, or --chat to talk,");
  });
  verb->add_option("--logits-output", flags->names.logits_output, "name of the output with logits");
}

}  // namespace dovetail::cli
