// The CUDA library as a file: found, judged and refused with sentences. Runs on machines without a
// GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/base/result.h"
#include "kernels/include/backend.h"
#include "kernels/include/device_identity.h"

namespace foretoken {
namespace {

struct Refusal {
  ErrorCode code = ErrorCode::kInternal;
  std::string sentence;  // empty: a backend was made
};

Refusal ask(const std::string& device, const char* library) {
  if (library != nullptr)
    setenv("FORETOKEN_CUDA_LIBRARY", library, 1);
  else
    unsetenv("FORETOKEN_CUDA_LIBRARY");
  try {
    make_backend({.device = device});
  } catch (const FatalError& error) {
    return {error.code(), error.what()};
  }
  return {};
}

bool has(const Refusal& refusal, const std::string& words) {
  return refusal.sentence.find(words) != std::string::npos;
}

TEST(CudaLibrary, AFileThatIsNotThereIsNamed) {
  const Refusal refusal = ask("cuda", "/nowhere/libforetoken_cuda.so");
  EXPECT_EQ(refusal.code, ErrorCode::kUnavailable);
  EXPECT_TRUE(has(refusal, "/nowhere/libforetoken_cuda.so") && has(refusal, "not built"))
      << refusal.sentence;
}

TEST(CudaLibrary, AFileThatIsNoLibraryIsRefused) {
  const Refusal refusal = ask("cuda:1", FORETOKEN_SOURCE_DIR "/README.md");
  EXPECT_EQ(refusal.code, ErrorCode::kUnavailable);
  EXPECT_TRUE(has(refusal, "README.md") && has(refusal, "cannot be loaded")) << refusal.sentence;
}

TEST(CudaLibrary, ALibraryOfAnotherProjectIsRefused) {
  const Refusal refusal = ask("cuda", "libm.so.6");
  EXPECT_EQ(refusal.code, ErrorCode::kUnavailable);
  EXPECT_TRUE(has(refusal, "is not a CUDA backend of this project")) << refusal.sentence;
}

TEST(CudaLibrary, OddDeviceNamesAreRefusedBeforeAnythingIsLoaded) {
  for (const char* device : {"cuda:", "cuda:x", "cuda:-1", "cuda:1 ", "cuda:12345"})
    EXPECT_EQ(ask(device, nullptr).code, ErrorCode::kConfig) << device;
  EXPECT_EQ(ask("cuda2", nullptr).code, ErrorCode::kConfig);
}

// The library beside this program loads and answers. Which answer depends on the machine: a
// backend, or a sentence about driver or device; never a crash, never another reason.
TEST(CudaLibrary, TheBuiltOneLoadsAndSpeaksOfTheDevice) {
  const std::string file =
      std::filesystem::path(FORETOKEN_BIN_DIR).parent_path() / "lib/libforetoken_cuda.so";
  ASSERT_TRUE(std::filesystem::exists(file)) << file;
  const Refusal refusal = ask("cuda", nullptr);
  if (refusal.sentence.empty()) {
    EXPECT_EQ(device_identity("cuda").size(), 32u);  // a UUID
    EXPECT_EQ(device_identity("cuda:0"), device_identity("cuda"));
    return;
  }
  try {
    ADD_FAILURE() << device_identity("cuda");
  } catch (const FatalError& error) {  // the library's own words, not that it lacks the symbol
    EXPECT_EQ(std::string(error.what()).find("lacks a part"), std::string::npos) << error.what();
  }
  EXPECT_EQ(refusal.code, ErrorCode::kUnavailable);
  EXPECT_TRUE(has(refusal, "driver") || has(refusal, "no CUDA device") ||
              has(refusal, "compute capability"))
      << refusal.sentence;
  EXPECT_TRUE(has(refusal, file)) << refusal.sentence;
}

}  // namespace
}  // namespace foretoken
