#include "common/model/safetensors.h"

#include <gmock/gmock.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>

#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

std::string with_length(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, '\x01');
}

// A file with this header, padded as writers pad it.
std::string file_of(std::string header, std::size_t data_bytes) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return with_length(header, data_bytes);
}

std::string refusal(const TempFolder& folder, const std::string& bytes) {
  const auto path = folder.write("x.safetensors", bytes);
  try {
    SafetensorsFile file(path);
    return "accepted";
  } catch (const FatalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("x.safetensors")) << "names the file";
    return error.what();
  }
}

TEST(Safetensors, ReadsBackWhatItWrites) {
  TempFolder folder;
  const SafetensorsWriter::Plan plan[] = {{"a", TensorType::kF32, {2, 3}},
                                          {"none", TensorType::kF32, {0, 7}},
                                          {"scalar", TensorType::kBf16, {}},
                                          {"b", TensorType::kI8, {5}}};
  {
    SafetensorsWriter writer(folder / "model.safetensors", plan);
    const float a[] = {1, 2, 3, 4, 5, 6};
    const std::uint16_t scalar = 0x3f80;
    const std::int8_t b[] = {-1, -2, -3, -4, -5};
    writer.append(std::as_bytes(std::span(a).first(2)));
    writer.append(std::as_bytes(std::span(a).subspan(2)));
    writer.append(std::as_bytes(std::span(&scalar, 1)));
    writer.append(std::as_bytes(std::span(b)));
    writer.finish();
  }
  const Checkpoint checkpoint(folder.path());
  EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b", "none", "scalar"));
  EXPECT_EQ(checkpoint.total_bytes(), 24u + 2u + 5u);
  const TensorType types[] = {TensorType::kF32};
  const auto a = checkpoint.get("a", types, std::vector<std::int64_t>{2, 3});
  float last = 0;
  std::memcpy(&last, a.bytes.data() + 20, 4);
  EXPECT_EQ(last, 6);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.bytes.data()) % 4, 0u);
  EXPECT_EQ(static_cast<int>(checkpoint.at("b").bytes[4]), 0xfb);
}

// Pages of files that this process has in memory.
std::int64_t n_file_pages() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0, of_files = 0;
  statm >> size >> resident >> of_files;
  return of_files;
}

TEST(Safetensors, ATensorThatWasReleasedTakesNoMemoryAndIsReadAgain) {
  TempFolder folder;
  constexpr std::int32_t kBytes = 4 << 20;
  const auto path =
      folder.write("model.safetensors",
                   file_of(R"({"a":{"dtype":"I8","shape":[100],"data_offsets":[0,100]},)"
                           R"("b":{"dtype":"I8","shape":[4194304],"data_offsets":[100,4194404]},)"
                           R"("c":{"dtype":"I8","shape":[100],"data_offsets":[4194404,4194504]}})",
                           kBytes + 200));
  const SafetensorsFile file(path);
  const auto all_ones = [&] {
    return std::ranges::all_of(file.tensors(), [&](const TensorInfo& tensor) {
      return std::ranges::all_of(file.bytes(tensor), [](std::byte b) { return b == std::byte{1}; });
    });
  };
  EXPECT_TRUE(all_ones());
  const std::int64_t n_before = n_file_pages();
  file.release(file.tensors()[1]);
  // The kernel counts per processor, and adds up now and then.
  const std::int64_t n_pages = std::int64_t{kBytes} / ::getpagesize();
  EXPECT_LE(n_file_pages(), n_before - n_pages / 2);
  for (const TensorInfo& tensor : file.tensors()) file.release(tensor);  // no page of their own
  EXPECT_TRUE(all_ones());
}

TEST(Safetensors, GetNamesFileTensorExpectationAndFinding) {
  TempFolder folder;
  folder.write("model.safetensors",
               file_of(R"({"w":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}})", 16));
  const Checkpoint checkpoint(folder.path());
  const TensorType types[] = {TensorType::kF32, TensorType::kBf16};
  const auto message = [&](const char* name, std::vector<std::int64_t> shape) -> std::string {
    try {
      checkpoint.get(name, types, shape);
    } catch (const FatalError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message("w", {3}),
              testing::AllOf(HasSubstr("model.safetensors"), HasSubstr("tensor w"),
                             HasSubstr("[2]"), HasSubstr("implies [3]")));
  EXPECT_THAT(message("w", {2}), testing::AllOf(HasSubstr("dtype F64"), HasSubstr("F32, BF16")));
  EXPECT_THAT(message("v", {2}), HasSubstr("no tensor v"));
}

struct Hostile {
  const char* name;
  std::string bytes;
  const char* reason;
};

// One F32 of 4 bytes at 0 unless the entry says otherwise.
std::string entry(const std::string& fields, std::size_t data_bytes = 4) {
  return file_of("{\"w\":{" + fields + "}}", data_bytes);
}

std::vector<Hostile> hostile_files() {
  const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  std::vector<Hostile> all{
      {"empty file", "", "has 0 bytes"},
      {"seven bytes", std::string(7, '\0'), "has 7 bytes"},
      {"only a length", std::string("\x08\0\0\0\0\0\0\0", 8), "only 0 follow"},
      {"length beyond the file", std::string("\xff\0\0\0\0\0\0\0{}", 10), "only 2 follow"},
      {"length near 2^64", std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10),
       "the limit is 16777216"},
      {"length 16 MiB + 8", std::string("\x08\0\0\x01\0\0\0\0{}", 10), "the limit is 16777216"},
      {"length zero", with_length("", 8), "does not begin with '{'"},
      {"length not a multiple of 8", with_length("{}", 0), "multiple of 8"},
      {"not JSON", file_of("not json", 0), "does not begin with '{'"},
      {"a list", file_of("[]", 0), "does not begin with '{'"},
      {"leading space", file_of(" {}", 0), "does not begin with '{'"},
      {"unterminated", file_of("{\"w\":", 0), "not valid JSON"},
      {"pointer of Git LFS",
       "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') +
           "\nsize 269060552\n",
       "is a Git LFS pointer"},
      {"zip file", file_of("PK\x03\x04", 0), "does not begin with '{'"},
      {"invalid UTF-8 in a name", file_of("{\"\xff\":{" + good + "}}", 4), "UTF-8"},
      {"nul in a name", file_of("{\"a\\u0000b\":{" + good + "}}", 4), "not printable"},
      {"newline in a name", file_of("{\"a\\nb\":{" + good + "}}", 4), "not printable"},
      {"empty name", file_of("{\"\":{" + good + "}}", 4), "is empty"},
      {"very long name", file_of("{\"" + std::string(600, 'n') + "\":{" + good + "}}", 4),
       "longer than 512"},
      {"the same tensor twice", file_of("{\"w\":{" + good + "},\"w\":{" + good + "}}", 4),
       "appears twice"},
      {"the same key twice", entry(good + ",\"dtype\":\"F32\""), "appears twice"},
      {"nested too deep", entry(good + ",\"x\":[[[[[[[[[1]]]]]]]]]"), "deeper than 8"},
      {"entry is no object", file_of("{\"w\":[1]}", 4), "must be an object"},
      {"entry is null", file_of("{\"w\":null}", 4), "must be an object"},
      {"unknown key", entry(good + ",\"strides\":[1]"), "unknown key \"strides\""},
      {"no dtype", entry(R"("shape":[1],"data_offsets":[0,4])"), "needs \"dtype\""},
      {"dtype a number", entry(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"),
       "needs \"dtype\""},
      {"unknown dtype", entry(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"),
       "dtype \"F31\""},
      {"dtype in lower case", entry(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])"),
       "dtype \"f32\""},
      {"no shape", entry(R"("dtype":"F32","data_offsets":[0,4])"), "needs \"shape\""},
      {"shape a number", entry(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"),
       "must be a list"},
      {"negative dimension", entry(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"),
       "whole numbers"},
      {"two negative dimensions", entry(R"("dtype":"F32","shape":[-1,-1],"data_offsets":[0,4])"),
       "whole numbers"},
      {"fractional dimension", entry(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"),
       "whole numbers"},
      {"dimension above 2^63",
       entry(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4])"), "overflows"},
      {"product overflows to 4",
       entry(R"("dtype":"F32","shape":[4611686018427387905,1],"data_offsets":[0,4])"), "overflows"},
      {"product overflows to 0",
       entry(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0),
       "overflows"},
      {"overflow hidden behind a zero",
       entry(R"("dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0])", 0),
       "overflows"},
      {"nine dimensions",
       entry(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])"), "limit is 8"},
      {"no offsets", entry(R"("dtype":"F32","shape":[1])"), "needs \"data_offsets\""},
      {"one offset", entry(R"("dtype":"F32","shape":[1],"data_offsets":[4])"), "two whole numbers"},
      {"three offsets", entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"),
       "two whole numbers"},
      {"negative offset", entry(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])"),
       "two whole numbers"},
      {"offsets as text", entry(R"("dtype":"F32","shape":[1],"data_offsets":["0","4"])"),
       "two whole numbers"},
      {"ends before it begins", entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"),
       "ends before it begins"},
      {"ends after the data", entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"),
       "cut short"},
      {"offset near 2^64",
       entry(
           R"("dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615])"),
       "cut short"},
      {"fewer bytes than the shape", entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"),
       "need 8"},
      {"more bytes than the shape", entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])", 8),
       "need 4"},
      {"a hole at the start", entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])", 8),
       "after a hole"},
      {"bytes after the last tensor", entry(good, 8), "tensors end at byte 4"},
      {"misaligned",
       file_of(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
           5),
       "not aligned"},
      {"a hole between",
       file_of(
           R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
           12),
       "after a hole"},
      {"overlap",
       file_of(
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
           12),
       "inside the one before"},
      {"the same bytes twice",
       file_of(
           R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
           4),
       "inside the one before"},
      {"metadata is a list", file_of(R"({"__metadata__":[],"w":{)" + good + "}}", 4),
       "must be an object"},
      {"metadata holds a number", file_of(R"({"__metadata__":{"a":1},"w":{)" + good + "}}", 4),
       "must be a string"},
      {"metadata holds an object", file_of(R"({"__metadata__":{"a":{}},"w":{)" + good + "}}", 4),
       "must be a string"},
      {"text after the header", file_of("{\"w\":{" + good + "}} x", 4), "not valid JSON"},
  };
  return all;
}

TEST(Safetensors, RefusesEveryHostileFileWithItsReason) {
  TempFolder folder;
  const auto files = hostile_files();
  ASSERT_GE(files.size(), 40u);
  for (const Hostile& file : files)
    EXPECT_THAT(refusal(folder, file.bytes), HasSubstr(file.reason)) << file.name;
  // The corpus is about one flaw each: without it the file is fine.
  EXPECT_EQ(refusal(folder, entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])")),
            "accepted");
  EXPECT_EQ(refusal(folder, file_of("{}", 0)), "accepted");
}

TEST(Safetensors, RefusesTooManyTensors) {
  std::string header = "{";
  for (std::size_t i = 0; i <= kMaxTensors + 1; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
              R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  const auto parsed = parse_safetensors_header(header + "}", 0);
  ASSERT_FALSE(parsed.ok());
  EXPECT_THAT(parsed.error().message, HasSubstr("the limit is 100000"));
}

TEST(Safetensors, RefusesWhatIsNoRegularFile) {
  TempFolder folder;
  std::filesystem::create_directory(folder / "model.safetensors");
  EXPECT_THROW(Checkpoint checkpoint(folder.path()), FatalError);
  TempFolder pipe;
  ASSERT_EQ(::mkfifo((pipe / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THROW(Checkpoint checkpoint(pipe.path()), FatalError) << "and does not wait for a writer";
}

TEST(Safetensors, SurvivesMutationsAndNeverReadsOutside) {
  constexpr unsigned kSeed = 11;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";
  int n_accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string mutant = header;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
      const std::size_t at = random() % mutant.size();
      switch (random() % 4) {
        case 0:
          mutant[at] = static_cast<char>(random());
          break;
        case 1:
          mutant.erase(at, 1 + random() % 3);
          break;
        case 2:
          mutant[at] = "0123456789"[random() % 10];
          break;
        default:
          mutant.insert(at, 1, "{}[],:\"019-"[random() % 11]);
      }
      if (mutant.empty()) mutant = "{";
    }
    const std::uint64_t data_bytes = random() % 4 == 0 ? random() % 64 : 32;
    const auto parsed = parse_safetensors_header(mutant, data_bytes);
    if (!parsed.ok()) continue;
    ++n_accepted;
    std::uint64_t covered = 0;
    for (const TensorInfo& tensor : *parsed) {
      ASSERT_EQ(tensor.begin, covered) << mutant;
      ASSERT_EQ(tensor.begin % size_bytes(tensor.type), 0u) << mutant;
      std::uint64_t bytes = size_bytes(tensor.type);
      for (std::int64_t dimension : tensor.shape) bytes *= static_cast<std::uint64_t>(dimension);
      ASSERT_EQ(tensor.end - tensor.begin, bytes) << mutant;
      covered = tensor.end;
    }
    ASSERT_EQ(covered, data_bytes) << mutant;
  }
  EXPECT_GT(n_accepted, 0) << "some mutations change only names";
}

// --- index
// ---------------------------------------------------------------------------------------------------------

std::string index_problem(const std::string& json) {
  const auto parsed = parse_safetensors_index(json);
  return parsed.ok() ? "accepted" : parsed.error().message;
}

TEST(SafetensorsIndex, RefusesNamesThatCouldLeaveTheFolder) {
  for (const char* name :
       {"../x.safetensors", "/etc/x.safetensors", "a/x.safetensors", "..", ".", "",
        "a\\\\x.safetensors", ".hidden.safetensors", "x.bin", "model.safetensors.index.json",
        "a\\u0000.safetensors", "./x.safetensors"}) {
    EXPECT_THAT(index_problem(std::string(R"({"weight_map":{"w":")") + name + "\"}}"),
                HasSubstr("plain name"))
        << name;
  }
  EXPECT_EQ(index_problem(R"({"weight_map":{"w":"x-1.safetensors"}})"), "accepted");
}

TEST(SafetensorsIndex, RefusesOtherShapes) {
  for (const char* text : {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})",
                           R"({"weight_map":{"w":1}})", R"({"weight_map":{"w":null}})",
                           R"({"weight_map":{"w":"a.safetensors","w":"a.safetensors"}})"}) {
    EXPECT_NE(index_problem(text), "accepted") << text;
  }
}

std::string one_tensor(const char* name) {
  return file_of(
      std::string("{\"") + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4);
}

std::string checkpoint_problem(const TempFolder& folder) {
  try {
    const Checkpoint checkpoint(folder.path());
    return "accepted";
  } catch (const FatalError& error) {
    return error.what();
  }
}

TEST(SafetensorsIndex, MustAgreeWithItsFiles) {
  TempFolder folder;
  const auto index = [&](const char* map) {
    folder.write("model.safetensors.index.json", std::string(R"({"weight_map":)") + map + "}");
  };
  folder.write("a.safetensors", one_tensor("v"));
  folder.write("b.safetensors", one_tensor("w"));
  index(R"({"v":"a.safetensors","w":"b.safetensors"})");
  EXPECT_EQ(checkpoint_problem(folder), "accepted");
  index(R"({"v":"a.safetensors","w":"a.safetensors"})");
  EXPECT_THAT(checkpoint_problem(folder), HasSubstr("which does not hold it"));
  index(R"({"v":"a.safetensors","w":"b.safetensors","x":"b.safetensors"})");
  EXPECT_THAT(checkpoint_problem(folder), HasSubstr("places tensor x in b.safetensors"));
  index(R"({"v":"a.safetensors","w":"c.safetensors"})");
  EXPECT_THAT(checkpoint_problem(folder), HasSubstr("c.safetensors: cannot open"));
  index(R"({"v":"a.safetensors","u":"b.safetensors"})");
  EXPECT_THAT(checkpoint_problem(folder), HasSubstr("does not list tensor w"));
  folder.write("b.safetensors", one_tensor("v"));
  index(R"({"v":"a.safetensors","w":"b.safetensors"})");
  EXPECT_THAT(checkpoint_problem(folder), HasSubstr("holds one too"));
}

TEST(SafetensorsIndex, SaysWhatIsMissingFromAFolderWithoutWeights) {
  TempFolder folder;
  EXPECT_THAT(checkpoint_problem(folder), HasSubstr("neither model.safetensors nor"));
  folder.write("pytorch_model.bin", "");
  EXPECT_THAT(checkpoint_problem(folder), HasSubstr("pickled weights are not read"));
}

TEST(Safetensors, NoticesAFileThatChangedUnderTheMap) {
  TempFolder folder;
  folder.write("model.safetensors", one_tensor("w"));
  const Checkpoint checkpoint(folder.path());
  EXPECT_NO_THROW(checkpoint.check_unchanged());
  std::ofstream(folder / "model.safetensors", std::ios::app) << "more";
  EXPECT_THROW(checkpoint.check_unchanged(), FatalError);
}

}  // namespace
}  // namespace foretoken
