#include "llm/program_model.h"

#include <algorithm>

namespace dovetail {
namespace {

bool IsIndex(DType t) { return t == DType::kI64; }

// The one tensor that `fits`, by name when one is given.
template <class Fits>
Result<size_t> Find(const std::vector<TensorInfo>& tensors, const std::string& name, std::string_view what, std::string_view flag, Fits fits) {
  std::string candidates;
  std::vector<size_t> found;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!name.empty() ? tensors[i].name == name : fits(tensors[i])) found.push_back(i);
    candidates += StrCat(candidates.empty() ? "" : ", ", tensors[i].name, ": ", tensors[i].type.ToString());
  }
  if (found.size() == 1) return found[0];
  if (!name.empty()) return InvalidArgument("the program has no '", name, "' for ", flag, "; it has ", candidates);
  return InvalidArgument(found.empty() ? "cannot find the " : "several tensors may be the ", what, " among ", candidates, "; name it with ", flag);
}

}  // namespace

Result<std::unique_ptr<ProgramModel>> ProgramModel::Create(Method* method, const Program& program, const ProgramModelOptions& options) {
  std::unique_ptr<ProgramModel> model(new ProgramModel);
  const MethodInfo& info = method->info();
  model->method_ = method;
  DT_ASSIGN_OR_RETURN(model->tokens_, Find(info.inputs, options.tokens_input, "tokens", "--tokens-input",
                                           [](const TensorInfo& t) { return IsIndex(t.type.dtype) && t.type.rank() == 2; }));
  Result<size_t> positions = Find(info.inputs, options.positions_input, "positions", "--positions-input",
                                  [](const TensorInfo& t) { return IsIndex(t.type.dtype) && t.type.rank() == 1; });
  if (!positions.ok()) return std::move(positions).status();
  model->positions_ = *positions;
  if (info.inputs.size() != 2) return InvalidArgument("the program takes ", info.inputs.size(), " inputs; text generation knows tokens and positions only");
  Result<size_t> logits_output = Find(info.outputs, options.logits_output, "logits", "--logits-output", [&](const TensorInfo& t) {
    return t.type.dtype == DType::kF32 && t.type.rank() >= 2 && !t.max_sizes.empty() && t.max_sizes.back() >= options.vocab_size &&
           t.max_sizes.back() < options.vocab_size + 4096;
  });
  if (!logits_output.ok()) return std::move(logits_output).status().While(StrCat("looking for the logits of the tokenizer's ", options.vocab_size, " tokens"));
  model->logits_ = *logits_output;
  const TensorInfo& tokens = info.inputs[model->tokens_];
  const TensorInfo& logits = info.outputs[model->logits_];
  // Those that a flag names may be anything.
  if (tokens.type.rank() != 2) return InvalidArgument("input '", tokens.name, "' is ", tokens.type.ToString(), "; tokens are [1, length]");
  if (logits.type.dtype != DType::kF32 || logits.type.rank() < 1)
    return InvalidArgument("output '", logits.name, "' is ", logits.type.ToString(), "; logits are f32, with the vocabulary as their last dimension");
  if (!logits.max_sizes.empty()) model->vocab_size_ = logits.max_sizes.back();
  model->max_chunk_ = std::max<int64_t>(tokens.max_sizes[1], 1);
  // The cache's length is the size that most states share at dimension 2 ([batch, heads, positions, width]).
  int64_t length = 0;
  for (const StateInfo& s : program.states())
    if (s.sizes.size() == 4) length = length == 0 ? s.sizes[2] : std::min(length, s.sizes[2]);
  model->context_length_ = length;
  if (!tokens.dynamic && tokens.max_sizes[1] != 1)
    return InvalidArgument("input '", tokens.name, "' has a fixed length of ", tokens.max_sizes[1], " tokens; export it with a dynamic length or of 1");
  model->token_data_.resize(static_cast<size_t>(model->max_chunk_) + 2);
  model->position_data_.resize(static_cast<size_t>(model->max_chunk_) + 2);
  model->inputs_.resize(2);
  return model;
}

Status ProgramModel::Forward(std::span<const int64_t> tokens, int64_t first_position, std::span<const float>* logits) {
  const int64_t n = static_cast<int64_t>(tokens.size()), known = vocab_size_;
  if (const auto beyond = std::find_if(tokens.begin(), tokens.end(), [=](int64_t t) { return known > 0 && t >= known; }); beyond != tokens.end())
    return InvalidArgument("the tokenizer gave token ", *beyond, " and the model knows ", known, ": they do not belong together");
  for (int64_t i = 0; i < n; ++i) {
    token_data_[static_cast<size_t>(i)] = tokens[static_cast<size_t>(i)];
    position_data_[static_cast<size_t>(i)] = first_position + i;
  }
  const int64_t token_shape[] = {1, n};
  inputs_[tokens_] = TensorView(DType::kI64, token_shape, token_data_.data());
  inputs_[positions_] = TensorView(DType::kI64, std::span(token_shape + 1, 1), position_data_.data());
  DT_RETURN_IF_ERROR(method_->Execute(inputs_));
  const TensorView& out = method_->outputs()[logits_];
  const int64_t vocab = out.sizes[out.rank - 1u];
  if (out.numel() < vocab) return InvalidArgument("the program gave no logits: they are ", out.type().ToString());
  *logits = std::span(out.as<const float>() + out.numel() - vocab, static_cast<size_t>(vocab));
  return OkStatus();
}

}  // namespace dovetail
