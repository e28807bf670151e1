// The fingerprint of a folder, found without a load, is that of the model loaded from it: of every
// family, in every way of storing matrices, with and without scales of a KV cache.
#include "common/model/fingerprint.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>

#include "common/base/result.h"
#include "common/model/config.h"
#include "common/model/init_random.h"
#include "common/model/load_model.h"
#include "tests/model/edit_tensors.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using testing::ElementsAre;

std::vector<std::filesystem::path> folders_of(const std::string& kind) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures" / kind))
    if (entry.is_directory()) found.push_back(entry.path());
  return found;
}

class FolderFingerprint : public testing::Test {
 protected:
  FolderFingerprint() : backend_(make_backend({.n_threads = 1})) {}
  Fingerprint loaded(const std::filesystem::path& folder, const LoadOptions& options) {
    return load_model(folder, *backend_, options)->fingerprint();
  }
  std::unique_ptr<Backend> backend_;
};

TEST_F(FolderFingerprint, IsThatOfTheLoadedModelOfEveryFamily) {
  const auto folders = folders_of("models");
  ASSERT_GE(folders.size(), 10u);
  for (const auto& folder : folders)
    EXPECT_THAT(fingerprints_of_folder(folder), ElementsAre(loaded(folder, {}))) << folder;
}

TEST_F(FolderFingerprint, IsThatOfTheLoadedModelHoweverMatricesAreStoredAndHeld) {
  const auto folders = folders_of("quantized");
  ASSERT_GE(folders.size(), 10u);
  for (const auto& folder : folders)
    for (const WeightDType dtype : {WeightDType::kBf16, WeightDType::kI8})
      EXPECT_THAT(fingerprints_of_folder(folder), ElementsAre(loaded(folder, {.dtype = dtype})))
          << folder;
}

TEST_F(FolderFingerprint, IsAnotherOneWithScalesOfTheCache) {
  const auto folders = folders_of("kv_scales");
  ASSERT_EQ(folders.size(), 2u);
  for (const auto& folder : folders)
    EXPECT_THAT(
        fingerprints_of_folder(folder),
        ElementsAre(loaded(folder, {.dtype = WeightDType::kF32}),
                    loaded(folder, {.dtype = WeightDType::kF32, .kv_dtype = DType::kF8E4M3})))
        << folder;
}

TEST_F(FolderFingerprint, OfSamplesIsAnotherOneWhereANormOrTheBeginOfAMatrixDiffers) {
  const test::TempFolder folder;
  const ModelConfig config = tiny_config(Family::kLlama);
  const auto written = [&](const std::string& changed) {
    const auto path = folder / ("other " + changed);
    write_random_model(path, {.config = config, .seed = 3});
    if (!changed.empty())
      test::edit(path / "model.safetensors",
                 [&](test::Tensors& all) { all.at(changed).bytes.front() ^= std::byte{1}; });
    return sampled_fingerprint(path);
  };
  const Fingerprint one = written("");
  EXPECT_EQ(written(""), one);
  EXPECT_NE(written("model.layers.1.post_attention_layernorm.weight"), one);
  EXPECT_NE(written("model.layers.1.mlp.down_proj.weight"), one);
}

TEST_F(FolderFingerprint, OfSamplesIsAnotherOneWhereAScaleOfTheCacheDiffers) {
  for (const auto& original : folders_of("kv_scales")) {
    const test::TempFolder folder;
    std::filesystem::copy(original, folder / "copy", std::filesystem::copy_options::recursive);
    EXPECT_EQ(sampled_fingerprint(folder / "copy"), sampled_fingerprint(original));
    test::edit(folder / "copy" / "model.safetensors", [](test::Tensors& all) {
      const auto scale = std::ranges::find_if(
          all, [](const auto& one) { return one.first.ends_with(".k_scale"); });
      ASSERT_NE(scale, all.end());
      scale->second.bytes.front() ^= std::byte{1};
    });
    EXPECT_NE(sampled_fingerprint(folder / "copy"), sampled_fingerprint(original)) << original;
  }
}

TEST_F(FolderFingerprint, NeedsAFolderThatCanBeLoaded) {
  EXPECT_THROW(fingerprints_of_folder("/no/such/folder"), FatalError);
}

}  // namespace
}  // namespace foretoken
