// bench memory: a memory of texts against a corpus of files.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <vector>

#include "bench/memory.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "services/cli/verbs.h"

namespace foretoken::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
constexpr std::size_t kLeastDocuments = 20;  // of which one is looked up

struct Corpus {
  std::vector<std::vector<TokenId>> documents;
  std::uint64_t n_tokens = 0;
  std::size_t n_left_out = 0;  // not text, or too long
};

// Ordered by path, so that two runs see the same.
std::vector<fs::path> files_of(const fs::path& corpus) {
  std::error_code error;
  if (fs::is_regular_file(corpus, error)) return {corpus};
  std::vector<fs::path> files;
  constexpr auto kSkip = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(corpus, kSkip, error), end; it != end;
       it.increment(error)) {
    if (error) break;
    std::error_code ignored;
    if (it->is_regular_file(ignored) && !it->is_symlink(ignored)) files.push_back(it->path());
  }
  if (error) throw FatalError(ErrorCode::kNotFound, corpus.string() + ": " + error.message());
  std::sort(files.begin(), files.end());
  return files;
}

Corpus read_corpus(const BenchMemoryOptions& chosen, const Tokenizer& tokenizer) {
  Corpus corpus;
  for (const fs::path& path : files_of(chosen.corpus)) {
    if (corpus.n_tokens >= chosen.tokens) break;
    const auto text = read_text_file(path, kMaxFileBytes);
    auto ids = text.ok() ? tokenizer.encode(*text, AddSpecialTokens::kNo)
                         : Result<std::vector<TokenId>>(text.error());
    if (!ids.ok() || ids->empty()) {
      ++corpus.n_left_out;
      continue;
    }
    corpus.n_tokens += ids->size();
    corpus.documents.push_back(std::move(*ids));
  }
  if (corpus.documents.size() < kLeastDocuments)
    throw FatalError(ErrorCode::kConfig,
                     chosen.corpus + " has " + std::to_string(corpus.documents.size()) +
                         " files of text; at least " + std::to_string(kLeastDocuments) +
                         " are needed, of at most 1 MiB each");
  return corpus;
}

}  // namespace

int run_bench_memory(const CliOptions& options) {
  const auto& chosen = options.bench_memory;
  if (const auto out = check_writable(chosen.out, "--out"); !out.ok())
    return report_error(out.error());
  const auto tokenizer = tokenizer_of(chosen.model, options.config);
  const bool says = !options.output.quiet && !options.output.json;
  if (says) std::cerr << "reading " << chosen.corpus << "\n";
  Corpus corpus = read_corpus(chosen, *tokenizer);
  if (says)
    std::cerr << corpus.documents.size() << " files, " << corpus.n_left_out
              << " left out that are no text or longer than 1 MiB\n";
  bench::MemoryReport report = bench::run_memory({.documents = std::move(corpus.documents)});
  report.machine = machine_description();
  const std::string json = to_text(report.to_json());
  if (!chosen.out.empty())
    if (const auto written = write_whole_file(chosen.out, json + "\n", Existing::kReplace);
        !written.ok())
      return report_error(written.error());
  std::cout << (options.output.json ? json : report.to_table()) << "\n";
  return kExitOk;
}

}  // namespace foretoken::cli
