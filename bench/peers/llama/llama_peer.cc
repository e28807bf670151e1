// A peer that is built on llama.h, for bench/peers: a JSON line asks on stdin, a JSON line answers
// on stdout. Prompts and answers are token ids; decoding is greedy and does not stop at an end
// token. Speculation is the plain scheme: K guesses of a draft model or of the last place where the
// text's end stood before, one pass of the target over them, kept as far as they are its own
// choice. One sequence at a time, one thread; the library's threads compute. Knows nothing of
// Foretoken.
//
//   {"do": "load", "model": FILE, "draft": FILE or "", "threads": 2, "context": 2048}
//   {"do": "generate", "ids": [..], "n": 128, "k": 0, "source": "draft" or "lookup"}
//   {"do": "rows", "ids": [..], "rows": [1, 2, 5], "repeats": 5}        one pass of so many rows
//   behind ids
//   {"do": "compare", "ids": [..]}            the logits of the target beside those of the draft,
//   which is the same model in more bits
//
//   llama_peer quantize IN OUT f16|q8_0|q4_0 THREADS

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/base/json.h"
#include "llama.h"

namespace {

using foretoken::Json;
using Tokens = std::vector<llama_token>;

constexpr int kBatchTokens = 2048;
constexpr size_t kLongestMatch = 4,
                 kShortestMatch = 2;  // as the other peers have

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The two generations of llama.h differ in these names.
#ifdef PEER_HAS_OLD_NAMES
void free_model(llama_model* model) { llama_free_model(model); }
void use_flash_attention(llama_context_params& params) { params.flash_attn = true; }
void forget_from(llama_context* context, int position) {
  llama_kv_cache_seq_rm(context, 0, position, -1);
}
#else
void free_model(llama_model* model) { llama_model_free(model); }
void use_flash_attention(llama_context_params& params) {
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
}
void forget_from(llama_context* context, int position) {
  llama_memory_seq_rm(llama_get_memory(context), 0, position, -1);
}
#endif

// A model with the cache of one sequence. What the cache holds is `size` tokens.
class Model {
 public:
  Model(const std::string& path, int n_threads, int n_context)
      : model_(llama_model_load_from_file(path.c_str(), llama_model_default_params())) {
    if (!model_) throw std::runtime_error("cannot load " + path);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(n_context);
    params.n_batch = kBatchTokens;
    params.n_threads = params.n_threads_batch = n_threads;
    use_flash_attention(params);
    context_ = llama_init_from_model(model_, params);
    if (!context_) throw std::runtime_error("no context for " + path);
    n_vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
    batch_ = llama_batch_init(kBatchTokens, 0, 1);
  }
  ~Model() {
    llama_batch_free(batch_);
    llama_free(context_);
    free_model(model_);
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  size_t size() const { return size_; }

  void keep(size_t n_tokens) {
    if (n_tokens >= size_) return;
    forget_from(context_, static_cast<int>(n_tokens));
    size_ = n_tokens;
  }

  // Runs tokens behind those that the cache holds; the last n_choices of them choose a token each,
  // the likeliest.
  Tokens run(std::span<const llama_token> tokens, size_t n_choices) {
    Tokens choices;
    each_row(tokens, n_choices, [&](const float* logits) {
      choices.push_back(
          static_cast<llama_token>(std::max_element(logits, logits + n_vocab_) - logits));
    });
    return choices;
  }

  // The same; the last n_rows rows of logits, one behind the other.
  std::vector<float> logits_of(std::span<const llama_token> tokens, size_t n_rows) {
    std::vector<float> all;
    each_row(tokens, n_rows,
             [&](const float* logits) { all.insert(all.end(), logits, logits + n_vocab_); });
    return all;
  }
  size_t n_vocab() const { return static_cast<size_t>(n_vocab_); }

 private:
  template <typename Use>  // (const float* logits), of the last n_rows tokens
  void each_row(std::span<const llama_token> tokens, size_t n_rows, const Use& use) {
    for (size_t begin = 0; begin < tokens.size(); begin += kBatchTokens) {
      const size_t count = std::min<size_t>(kBatchTokens, tokens.size() - begin);
      batch_.n_tokens = static_cast<int>(count);
      for (size_t i = 0; i < count; ++i) {
        batch_.token[i] = tokens[begin + i];
        batch_.pos[i] = static_cast<llama_pos>(size_ + i);
        batch_.n_seq_id[i] = 1;
        batch_.seq_id[i][0] = 0;
        batch_.logits[i] = begin + i + n_rows >= tokens.size();
      }
      if (llama_decode(context_, batch_) != 0) throw std::runtime_error("llama_decode failed");
      size_ += count;
      for (size_t i = 0; i < count; ++i) {
        if (!batch_.logits[i]) continue;
        const float* logits = llama_get_logits_ith(context_, static_cast<int>(i));
        if (!logits) throw std::runtime_error("no logits");
        use(logits);
      }
    }
  }

  llama_model* model_;
  llama_context* context_ = nullptr;
  llama_batch batch_{};
  int n_vocab_ = 0;
  size_t size_ = 0;
};

// What followed where the end of text, of four tokens or else three or two, stood last.
Tokens looked_up(const Tokens& text, size_t k) {
  for (size_t length = kLongestMatch; length >= kShortestMatch; --length) {
    if (text.size() <= length) continue;
    const auto tail = text.end() - static_cast<std::ptrdiff_t>(length);
    const auto found = std::find_end(text.begin(), text.end() - 1, tail, text.end());
    if (found == text.end() - 1) continue;
    const auto next = found + static_cast<std::ptrdiff_t>(length);
    const auto count = std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(k), text.end() - next);
    return {next, next + count};
  }
  return {};
}

Tokens drafted(Model& draft, const Tokens& text, size_t k) {
  draft.keep(std::min(draft.size(), text.size() - 1));
  Tokens guesses = draft.run(std::span(text).subspan(draft.size()), 1);
  while (guesses.size() < k) guesses.push_back(draft.run(std::span(&guesses.back(), 1), 1)[0]);
  return guesses;
}

class Peer {
 public:
  Json answer(const Json& request) {
    const std::string what = request.at("do");
    if (what == "load") return load(request);
    if (what == "generate") return generate(request);
    if (what == "rows") return rows(request);
    if (what == "compare") return compare(request);
    throw std::runtime_error("unknown request " + what);
  }

 private:
  Json load(const Json& request) {
    const int n_threads = request.at("threads"), n_context = request.at("context");
    target_ = std::make_unique<Model>(request.at("model"), n_threads, n_context);
    if (const std::string draft = request.at("draft"); !draft.empty())
      draft_ = std::make_unique<Model>(draft, n_threads, n_context);
    return Json::object();
  }

  Json generate(const Json& request) {
    const double begin = now_s();
    Tokens text = request.at("ids");
    const size_t n_prompt = text.size(), end = n_prompt + request.at("n").get<size_t>();
    const size_t k = request.at("k");
    const bool lookup = request.value("source", "draft") == "lookup";
    target_->keep(0);
    if (draft_) draft_->keep(0);
    text.push_back(target_->run(text, 1)[0]);
    const double first = now_s();
    size_t n_guesses = 0, n_accepted = 0, n_rounds = 0;
    while (text.size() < end) {
      const size_t room = std::min(k, end - text.size() - 1);
      Tokens rows;
      if (room > 0) rows = lookup ? looked_up(text, room) : drafted(*draft_, text, room);
      n_guesses += rows.size();
      rows.insert(rows.begin(), text.back());
      const Tokens choices = target_->run(rows, rows.size());
      size_t n = 0;
      while (n + 1 < rows.size() && choices[n] == rows[n + 1]) ++n;
      text.insert(text.end(), choices.begin(),
                  choices.begin() + static_cast<std::ptrdiff_t>(n) + 1);
      target_->keep(text.size() - 1);
      if (draft_) draft_->keep(text.size() - 1);
      n_accepted += n;
      ++n_rounds;
    }
    const double done = now_s();
    return {{"ids", Tokens(text.begin() + static_cast<std::ptrdiff_t>(n_prompt), text.end())},
            {"first_s", first - begin},
            {"seconds", done - begin},
            {"n_first", 1},
            {"guesses", n_guesses},
            {"accepted", n_accepted},
            {"rounds", n_rounds}};
  }

  Json rows(const Json& request) {
    const Tokens ids = request.at("ids");
    target_->keep(0);
    target_->run(ids, 1);
    Json milliseconds = Json::object();
    for (const size_t n_rows : request.at("rows").get<std::vector<size_t>>()) {
      std::vector<double> read;
      for (int i = 0; i <= request.at("repeats").get<int>(); ++i) {
        const double begin = now_s();
        target_->run(std::span(ids).first(n_rows), n_rows);
        read.push_back(1000 * (now_s() - begin));
        target_->keep(ids.size());
      }
      std::sort(read.begin() + 1, read.end());  // the first one prepares a pass of this size
      milliseconds[std::to_string(n_rows)] = read[1 + (read.size() - 1) / 2];
    }
    return {{"ms", milliseconds}};
  }

  // KL divergence of the target's law from the draft's, mean over positions, in nats; and where
  // both hold the same token for the likeliest.
  Json compare(const Json& request) {
    const Tokens ids = request.at("ids");
    const size_t n_vocab = target_->n_vocab();
    const std::vector<float> ours = target_->logits_of(ids, ids.size()),
                             reference = draft_->logits_of(ids, ids.size());
    double sum = 0;
    size_t n_same = 0;
    for (size_t at = 0; at < reference.size(); at += n_vocab) {
      const std::span<const float> p(&reference[at], n_vocab), q(&ours[at], n_vocab);
      const double log_p = log_sum_exp(p), log_q = log_sum_exp(q);
      for (size_t i = 0; i < n_vocab; ++i)
        sum += std::exp(p[i] - log_p) * ((p[i] - log_p) - (q[i] - log_q));
      n_same += std::ranges::max_element(p) - p.begin() == std::ranges::max_element(q) - q.begin();
    }
    return {{"positions", ids.size()},
            {"same_top", n_same},
            {"kl", sum / static_cast<double>(ids.size())}};
  }

  static double log_sum_exp(std::span<const float> logits) {
    const double most = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - most);
    return most + std::log(sum);
  }

  std::unique_ptr<Model> target_, draft_;
};

int quantize(const std::string& in,
             const std::string& out,
             const std::string& type,
             int n_threads) {
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = type == "f16"    ? LLAMA_FTYPE_MOSTLY_F16
                 : type == "q8_0" ? LLAMA_FTYPE_MOSTLY_Q8_0
                                  : LLAMA_FTYPE_MOSTLY_Q4_0;
  params.nthread = n_threads;
  return llama_model_quantize(in.c_str(), out.c_str(), &params) == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::cerr << text;
      },
      nullptr);
  llama_backend_init();
  if (argc == 6 && std::string(argv[1]) == "quantize")
    return quantize(argv[2], argv[3], argv[4], std::stoi(argv[5]));
  if (argc != 1) {
    std::cerr << "usage: llama_peer, or llama_peer quantize IN OUT f16|q8_0|q4_0 THREADS\n";
    return 2;
  }
  Peer peer;
  for (std::string line; std::getline(std::cin, line);) {
    Json answer;
    try {
      answer = peer.answer(Json::parse(line));
    } catch (const std::exception& error) {
      answer = {{"error", error.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
}
