// What our decoder makes of token ids in float32, for comparison with a reference:
//   model_probe FOLDER QUESTIONS ANSWERS
// QUESTIONS is JSON, [{"prompt": [id...], "chunk": n, "greedy": n}...]. For each, ANSWERS (raw
// little-endian) gets the logits of every position of the prompt as float32 and then the greedy ids
// as int32. A folder that is refused: the sentence on stdout and exit code 3.
#include <cstddef>
#include <fstream>
#include <iostream>
#include <iterator>

#include "common/base/json.h"
#include "common/base/result.h"
#include "common/model/load_model.h"
#include "tests/model/runner.h"

namespace foretoken {
namespace {

template <class T>
void write(std::ofstream& out, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

void answer(Model& model, Backend& backend, const Json& question, std::ofstream& out) {
  const auto prompt = question["prompt"].get<std::vector<TokenId>>();
  const auto chunk = question["chunk"].get<std::size_t>();
  const auto n_greedy = question["greedy"].get<std::size_t>();
  test::Runner runner(model, backend,
                      {.n_blocks = static_cast<std::int32_t>((prompt.size() + n_greedy) / 16 + 2)});
  test::Runner::Sequence sequence;
  TokenId next = 0;
  for (std::size_t begin = 0; begin < prompt.size(); begin += chunk) {
    const test::Runner::Part part{
        &sequence, std::span(prompt).subspan(begin, std::min(chunk, prompt.size() - begin))};
    for (const auto& row : runner.pass(std::span(&part, 1))) {
      write(out, row);
      next = test::argmax(row);
    }
  }
  std::vector<TokenId> greedy;
  while (greedy.size() < n_greedy) {
    greedy.push_back(next);
    const test::Runner::Part part{&sequence, std::span(&greedy.back(), 1)};
    if (greedy.size() < n_greedy) next = test::argmax(runner.pass(std::span(&part, 1)).back());
  }
  write(out, greedy);
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  using namespace foretoken;
  if (argc != 4) {
    std::cerr << "usage: model_probe FOLDER QUESTIONS ANSWERS\n";
    return 64;
  }
  std::ifstream file(argv[2], std::ios::binary);
  const auto questions = parse_json(std::string(std::istreambuf_iterator<char>(file), {}));
  if (!questions.ok()) {
    std::cerr << argv[2] << ": " << questions.error().message << "\n";
    return 65;
  }
  try {
    const auto backend = make_backend({.n_threads = 1});
    const auto model = load_model(argv[1], *backend, {.dtype = WeightDType::kF32});
    std::ofstream out(argv[3], std::ios::binary);
    for (const Json& question : *questions) answer(*model, *backend, question, out);
    std::cout << model->config().max_model_len << "\n";
  } catch (const FatalError& error) {
    std::cout << error.what() << "\n";
    return 3;
  }
}
