// The fingerprint of a folder, found without a load, is that of the model loaded from it: of every
// family, in every way of storing matrices, with and without scales of a KV cache.
#include "common/model/fingerprint.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "common/base/result.h"
#include "common/model/load_model.h"

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

TEST_F(FolderFingerprint, NeedsAFolderThatCanBeLoaded) {
  EXPECT_THROW(fingerprints_of_folder("/no/such/folder"), FatalError);
}

}  // namespace
}  // namespace foretoken
