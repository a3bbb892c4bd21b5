// Times llama.cpp on a sequence of tokens: first prefill, more prefills, then single tokens.
//
//   llamacpp_run MODEL.gguf TOKENS PROMPT CALLS WARM STEPS CONTEXT THREADS CACHE OUT
//
// TOKENS is a file of int32; CACHE is f16 or q8_0, the type of the cached keys and values. Prints one JSON object and writes to
// OUT the logits of the last prefill and of the last single token, float32.

#include <llama.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "llamacpp_run: %s\n", what);
  std::exit(1);
}

double decode(llama_context* context, std::vector<llama_token>& tokens) {
  const double start = now();
  // Logits of the last token only, which is what llama_batch_get_one asks for.
  if (llama_decode(context, llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()))) != 0) die("llama_decode failed");
  llama_synchronize(context);
  if (llama_get_logits_ith(context, -1) == nullptr) die("no logits");
  return now() - start;
}

void print_list(const char* name, const std::vector<double>& values) {
  std::printf(", \"%s\": [", name);
  for (size_t i = 0; i < values.size(); ++i) std::printf("%s%.9g", i == 0 ? "" : ", ", values[i]);
  std::printf("]");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 11) die("wrong number of arguments");
  const int prompt = std::atoi(argv[3]), calls = std::atoi(argv[4]), warm = std::atoi(argv[5]), steps = std::atoi(argv[6]);
  std::ifstream file(argv[2], std::ios::binary);
  std::vector<llama_token> tokens(prompt + (steps > 0 ? warm + steps : 0));
  if (!file.read(reinterpret_cast<char*>(tokens.data()), static_cast<std::streamsize>(tokens.size() * sizeof(llama_token)))) die("too few tokens");
  llama_log_set([](ggml_log_level level, const char* text, void*) { if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr); }, nullptr);

  const double start = now();
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) die("cannot load the model");
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(std::atoi(argv[7]));
  params.n_batch = params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = std::atoi(argv[8]);
  params.type_k = params.type_v = std::strcmp(argv[9], "q8_0") == 0 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) die("cannot make a context");
  const double load = now() - start;

  const size_t vocab = static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  std::ofstream out(argv[10], std::ios::binary);
  auto write_logits = [&] {
    out.write(reinterpret_cast<const char*>(llama_get_logits_ith(context, -1)), static_cast<std::streamsize>(vocab * sizeof(float)));
  };
  auto prefill = [&] {
    double seconds = 0;
    for (int begin = 0; begin < prompt; begin += static_cast<int>(params.n_batch)) {
      const int end = std::min(prompt, begin + static_cast<int>(params.n_batch));
      std::vector<llama_token> part(tokens.begin() + begin, tokens.begin() + end);
      seconds += decode(context, part);
    }
    return seconds;
  };
  std::vector<double> prefills, decodes;
  const double first = prefill();
  std::printf("{\"load_s\": %.9g, \"first_s\": %.9g, \"first_at\": %.9g", load, first, now());
  for (int i = 0; i < calls; ++i) {
    llama_memory_clear(llama_get_memory(context), false);
    prefills.push_back(prefill());
  }
  write_logits();
  print_list("prefill_s", prefills);
  if (steps > 0) {
    for (int i = 0; i < warm + steps; ++i) {
      std::vector<llama_token> one{tokens[static_cast<size_t>(prompt + i)]};
      const double seconds = decode(context, one);
      if (i >= warm) decodes.push_back(seconds);
    }
    write_logits();
    print_list("decode_s", decodes);
  }
  std::printf("}\n");
  llama_free(context);
  llama_model_free(model);
  return 0;
}
