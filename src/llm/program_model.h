// A compiled program as a language model: finds its tokens, positions and logits by their types.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dovetail/program.h"
#include "llm/generate.h"

namespace dovetail {

// Names where the types leave a choice; empty ones are found: tokens = the integer input of rank 2, positions = the integer input of
// rank 1, logits = the output whose last size is the vocabulary. An ambiguity is an error that names the flag to give.
struct ProgramModelOptions {
  std::string tokens_input, positions_input, logits_output;
  int64_t vocab_size = 0;
};

class ProgramModel : public LanguageModel {
 public:
  // `method` must outlive the model.
  static Result<std::unique_ptr<ProgramModel>> Create(Method* method, const Program& program, const ProgramModelOptions& options);
  Status Forward(std::span<const int64_t> tokens, int64_t first_position, std::span<const float>* logits) override;
  int64_t max_chunk() const override { return max_chunk_; }
  int64_t context_length() const override { return context_length_; }

 private:
  Method* method_ = nullptr;
  size_t tokens_ = 0, positions_ = 0, logits_ = 0;
  bool has_positions_ = false;
  int64_t max_chunk_ = 1, context_length_ = 0, vocab_size_ = 0;
  std::vector<int64_t> token_data_, position_data_;
  std::vector<TensorView> inputs_;
};

}  // namespace dovetail
