// A draft's trimmed head: which maps are refused, that logits of the rows it has are the
// reference's and none are of the others, and that guesses are those of the whole model among the
// same ids.
#include "common/model/head_ids.h"

#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <limits>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/engine/draft_engine.h"
#include "common/model/load_model.h"
#include "common/model/pair.h"
#include "common/model/quantize.h"
#include "common/model/shard.h"
#include "common/model/tensor_set.h"
#include "tests/engine/attach_request.h"
#include "tests/engine/draft_twins.h"
#include "tests/model/edit_tensors.h"
#include "tests/model/runner.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using testing::HasSubstr;
using Ids = std::vector<TokenId>;

constexpr TokenId kVocabulary = 256, kEnd = 2;  // of the fixture
const std::filesystem::path kWhole =
    std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures/models/llama2";

Ids every_third() {
  Ids ids;
  for (TokenId id = kEnd; id < kVocabulary; id += 3) ids.push_back(id);
  return ids;
}

std::string bytes_of(const Ids& ids) {
  std::string bytes;
  for (const TokenId id : ids)
    for (int shift = 0; shift < 32; shift += 8)
      bytes += static_cast<char>(static_cast<std::uint32_t>(id) >> shift);
  return bytes;
}

// The fixture with the head's rows of `ids`, and `map` as its draft_ids.i32.
class Trimmed {
 public:
  explicit Trimmed(const Ids& ids) : Trimmed(ids, bytes_of(ids)) {}
  Trimmed(const Ids& ids, const std::string& map) {
    for (const char* name : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(kWhole / name, folder_ / name);
    test::edit(folder_ / "model.safetensors", [&](test::Tensors& tensors) {
      test::Tensor& head = tensors.at("lm_head.weight");
      const std::size_t row = head.bytes.size() / static_cast<std::size_t>(head.shape[0]);
      std::vector<std::byte> kept;
      for (const TokenId id : ids) {
        const auto from = head.bytes.begin() + static_cast<std::ptrdiff_t>(row) * id;
        kept.insert(kept.end(), from, from + static_cast<std::ptrdiff_t>(row));
      }
      head.shape[0] = std::ssize(ids);
      head.bytes = std::move(kept);
    });
    folder_.write(kHeadIdsFile, map);
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  test::TempFolder folder_;
};

std::string refusal(const Trimmed& folder) {
  try {
    inspect_model(folder.path());
    return "accepted";
  } catch (const FatalError& error) {
    return std::string(error_code_name(error.code())) + ": " + error.what();
  }
}

TEST(HeadIds, AFolderWithoutTheFileHasAllRows) {
  EXPECT_TRUE(inspect_model(kWhole).config.head_ids.empty());
}

TEST(HeadIds, AreReadAndSaid) {
  const Trimmed folder(every_third());
  const ModelInfo info = inspect_model(folder.path());
  EXPECT_EQ(info.config.head_ids, every_third());
  const ModelInfo whole = inspect_model(kWhole);
  EXPECT_EQ(whole.n_parameters - info.n_parameters, (256u - every_third().size()) * 64);
  EXPECT_EQ(info.file_bytes - info.step_bytes, 256u * 64 * 4) << "the embedding is not read whole";
}

TEST(HeadIds, NameTheRowsOfAQuantisedHead) {
  const Trimmed folder(every_third());
  const test::TempFolder quantised;
  for (const DType to : {DType::kI8, DType::kI4, DType::kF8E4M3}) {
    SCOPED_TRACE(dtype_name(to));
    const auto out = quantised / std::string(dtype_name(to));
    quantize_model(folder.path(), out, {.to = to, .with_lm_head = true});
    EXPECT_EQ(inspect_model(out).config.head_ids, every_third());
  }
}

TEST(HeadIds, BadMapsAreRefusedWithTheRowAndTheLimit) {
  const Ids good = every_third();
  const auto with = [&](std::size_t row, TokenId id) {
    Ids ids = good;
    ids[row] = id;
    return refusal(Trimmed(good, bytes_of(ids)));
  };
  EXPECT_THAT(with(84, 256), HasSubstr("row 84 has id 256; it must be 0 to 255"));
  EXPECT_THAT(with(0, -1), HasSubstr("row 0 has id -1; it must be 0 to 255"));
  EXPECT_THAT(with(1, std::numeric_limits<TokenId>::min()),
              HasSubstr("row 1 has id -2147483648; it must be 0 to 255"));
  EXPECT_THAT(with(3, 8),
              HasSubstr("row 3 has id 8; it must be above 8, the id of the row before"));
  EXPECT_THAT(with(0, 1), HasSubstr("no row for end token 2"));
  for (const auto& [bytes, size] :
       {std::pair{bytes_of(good) + "x", "341"}, std::pair{std::string(), "0"},
        std::pair{std::string(1028, '\0'), "1028"}})
    EXPECT_THAT(refusal(Trimmed(good, bytes)),
                HasSubstr(std::string("has ") + size +
                          " bytes; it must have 4 for each row of lm_head.weight, at most 1024 for "
                          "the 256 ids of the vocabulary"));
  Ids fewer = good;
  fewer.pop_back();
  EXPECT_THAT(refusal(Trimmed(good, bytes_of(fewer))),
              HasSubstr("has 84 ids, and lm_head.weight has 85 rows; each row must have one"));
}

void tie(const std::filesystem::path& folder) {
  Json config = parse_json(value_or_throw(read_text_file(folder / "config.json", 1 << 20))).value();
  config["tie_word_embeddings"] = true;
  std::ofstream(folder / "config.json") << to_text(config);
}

TEST(HeadIds, AFolderWithoutAHeadOfItsOwnHasNoRowsToName) {
  const Trimmed folder(every_third());
  test::edit(folder.path() / "model.safetensors",
             [](test::Tensors& tensors) { tensors.erase("lm_head.weight"); });
  EXPECT_THAT(refusal(folder),
              HasSubstr("names the rows of lm_head.weight, and there is no such tensor"));
  tie(folder.path());
  const auto no_head_of_its_own =
      HasSubstr("config.json has tie_word_embeddings: true and the folder no head of its own");
  EXPECT_THAT(refusal(folder), no_head_of_its_own);
  test::edit(folder.path() / "model.safetensors", [](test::Tensors& tensors) {
    tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
  });
  EXPECT_THAT(refusal(folder), no_head_of_its_own) << "a copy of the embedding";
}

TEST(HeadIds, RanksAndTargetsAreRefused) {
  const Trimmed folder(every_third());
  const ModelConfig config = inspect_model(folder.path()).config;
  EXPECT_THAT(not_shardable(config, 2).value_or(""), HasSubstr("draft_ids.i32"));
  EXPECT_FALSE(not_shardable(config, 1));
  EXPECT_NO_THROW(refuse_trimmed_head(inspect_model(kWhole).config, kWhole, "a target"));
  try {
    refuse_trimmed_head(config, folder.path(), "a target");
    FAIL() << "accepted";
  } catch (const FatalError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupportedModel);
    EXPECT_THAT(error.what(), HasSubstr("85 of 256 ids"));
    EXPECT_THAT(error.what(), HasSubstr("a target needs logits of every id"));
  }
}

// The golden file has them of Transformers.
TEST(TrimmedHead, HasTheReferencesLogitsInItsRowsAndNoneElsewhere) {
  const Ids ids = every_third();
  const Trimmed folder(ids);
  const auto backend = make_backend({.n_threads = 1});
  const auto trimmed = load_model(folder.path(), *backend), whole = load_model(kWhole, *backend);
  EXPECT_NE(trimmed->fingerprint(), whole->fingerprint());
  const SafetensorsFile golden(kWhole / "golden.safetensors");
  Ids prompt, rows;
  std::vector<float> want;
  const auto read = [&](const char* name, auto& into) {
    for (const TensorInfo& tensor : golden.tensors())
      if (tensor.name == name) {
        into.resize(tensor.n_elements());
        std::memcpy(into.data(), golden.bytes(tensor).data(), golden.bytes(tensor).size());
      }
  };
  read("prompt.0", prompt);
  read("rows.0", rows);
  read("logits.0", want);
  const auto got = test::Runner(*trimmed, *backend).run(prompt, 64);
  const auto same = test::Runner(*whole, *backend).run(prompt, 64);
  int n_compared = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto row = static_cast<std::size_t>(rows[r]);
    if (row >= got.size()) continue;
    ++n_compared;
    for (std::size_t id = 0; id < kVocabulary; ++id) {
      if (id % 3 != 2) {
        EXPECT_EQ(got[row][id], -std::numeric_limits<float>::infinity());
        continue;
      }
      EXPECT_EQ(got[row][id], same[row][id]);
      EXPECT_NEAR(got[row][id], want[r * kVocabulary + id], 2e-4);
    }
  }
  EXPECT_GT(n_compared, 0);
}

// As of a whole head, the one that is there counts, whatever config.json says.
TEST(TrimmedHead, OfAFolderThatSaysItIsTiedIsLoadedAndInspectedAlike) {
  const Trimmed own(every_third()), tied(every_third());
  tie(tied.path());
  const ModelInfo info = inspect_model(tied.path());
  EXPECT_FALSE(info.config.tie_word_embeddings);
  EXPECT_EQ(info.config.head_ids, every_third());
  const auto backend = make_backend({.n_threads = 1});
  const Ids prompt{1, 5, 7, 100};
  EXPECT_EQ(test::Runner(*load_model(tied.path(), *backend), *backend).run(prompt, 64),
            test::Runner(*load_model(own.path(), *backend), *backend).run(prompt, 64));
}

// What a draft with `folder` guesses after a prompt that has ids the head has not.
Ids guesses(const std::filesystem::path& folder, const SamplingParams& params) {
  const auto backend = make_backend({.n_threads = 1});
  const auto model = load_model(folder, *backend);
  DraftEngine engine(*model, *backend, test::draft_options(1, 4));
  test::SaidOf said;
  const Ids prompt{1, 5, 7, 100, 44, 3, 9, 1, 250, 17};
  const auto attached = engine.attach(
      test::kTarget, test::attach_message(SeqId{1}, test::kRoot, prompt, 24, params), test::kStart);
  EXPECT_TRUE(std::holds_alternative<Applied>(attached));
  test::run(engine, said);
  return said[1].tokens;
}

// The noise is of the target's ids, so a draft that lacks some guesses as one that may not say
// them.
TEST(TrimmedHead, GuessesAsTheWholeModelThatMaySayNothingElse) {
  const Trimmed folder(every_third());
  SamplingParams params{.repetition_penalty = 1.2f, .seed = 5, .max_tokens = 100};
  params.presence_penalty = 0.5f;
  SamplingParams among = params;
  for (TokenId id = 0; id < kVocabulary; ++id)
    if (id % 3 != 2) among.logit_bias.emplace_back(id, -100.0f);
  for (const float temperature : {0.0f, 0.7f, 1.5f})
    for (const float top_p : {1.0f, 0.9f}) {
      params.temperature = among.temperature = temperature;
      params.top_p = among.top_p = top_p;
      const Ids got = guesses(folder.path(), params);
      EXPECT_GT(got.size(), 1u);
      EXPECT_EQ(got, guesses(kWhole, among)) << temperature << ", top_p " << top_p;
    }
}

// Where a request forces or forbids what the head has or has not.
TEST(TrimmedHead, NoBiasLiftsAnIdTheHeadHasNot) {
  const Trimmed folder(every_third());
  SamplingParams params{.temperature = 0, .max_tokens = 100};
  params.logit_bias = {{4, 100.0f}};
  for (const TokenId id : guesses(folder.path(), params)) EXPECT_EQ(id % 3, 2);
  params.logit_bias.clear();
  for (const TokenId id : every_third()) params.logit_bias.emplace_back(id, -100.0f);
  EXPECT_EQ(guesses(folder.path(), params).size(), 24u) << "a bias is no ban";
}

}  // namespace
}  // namespace foretoken
