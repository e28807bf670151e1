// Packed weights that are kept for the next load: the same model with them and without, whatever
// became of the file.
#include "common/model/packed_cache.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/model/digest.h"
#include "common/model/init_random.h"
#include "common/model/load_model.h"
#include "common/model/trim_packed_cache.h"
#include "tests/model/cpu_backend.h"
#include "tests/model/runner.h"
#include "tests/support/temp_folder.h"

namespace foretoken {
namespace {

using test::Runner;
using test::TempFolder;
using testing::AnyOf;
using testing::HasSubstr;
using Outcome = PackedCacheReport::Outcome;

class PackedCacheTest : public testing::Test {
 protected:
  PackedCacheTest() : backend_(make_backend({.n_threads = 2})) {
    recipe_.config = tiny_config(Family::kLlama);
    write_random_model(model(), recipe_);
  }

  std::filesystem::path model() const { return folder_ / "model"; }
  std::filesystem::path cache() const { return folder_ / "cache"; }

  struct Loaded {
    std::vector<std::vector<float>> logits;
    Fingerprint fingerprint = 0;
    std::string weight_types;
    std::vector<PackedCacheReport> reports;

    bool is_same(const Loaded& other) const {
      return logits == other.logits && fingerprint == other.fingerprint &&
             weight_types == other.weight_types;
    }
    Outcome outcome() const { return reports.back().outcome; }
  };

  Loaded load(LoadOptions options = {}) { return load(model(), options); }
  Loaded load(const std::filesystem::path& folder, LoadOptions options) {
    Loaded loaded;
    options.on_packed_cache = [&](const PackedCacheReport& report) {
      loaded.reports.push_back(report);
    };
    const auto model = load_model(folder, *backend_, options);
    const std::vector<TokenId> tokens{1, 5, 9, 2, 7, 3, 30, 11};
    loaded.logits = Runner(*model, *backend_).run(tokens, 64);
    loaded.fingerprint = model->fingerprint();
    loaded.weight_types = model->config().weight_types;
    return loaded;
  }
  LoadOptions keeping(WeightDType dtype = WeightDType::kAuto) const {
    return {.dtype = dtype,
            .packed_cache = {.folder = cache(),
                             .build = "1",
                             .least_bytes = 0,
                             .least_age = std::chrono::milliseconds(0)}};
  }

  // Another model in a folder of its own.
  std::filesystem::path another(const std::string& name) const {
    write_random_model(folder_ / name, recipe_);
    return folder_ / name;
  }
  static void set_unused_for(const std::filesystem::path& file, std::chrono::hours hours) {
    std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() - hours);
  }

  std::vector<std::filesystem::path> kept() const {
    std::vector<std::filesystem::path> files;
    if (!std::filesystem::exists(cache())) return files;
    for (const auto& entry : std::filesystem::directory_iterator(cache()))
      files.push_back(entry.path());
    return files;
  }
  // That of the model as it is stored, for one process and no host.
  std::string name_of(const std::string& layout) const {
    Digest digest;
    digest.add(static_cast<std::uint64_t>(WeightDType::kAuto)).add(layout);
    digest.add(std::uint64_t{0}).add(std::uint64_t{1});  // the first of one rank
    digest.add(std::uint64_t{0});                        // no cache of eight bits
    digest.add(std::filesystem::weakly_canonical(model()).string()).add(std::string());
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx",
                  static_cast<unsigned long long>(digest.value()));
    return "model-" + std::string(digits) + ".packed";
  }
  static std::string contents(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void overwrite(const std::filesystem::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  TempFolder folder_;
  RandomModelRecipe recipe_;
  std::unique_ptr<Backend> backend_;
};

TEST_F(PackedCacheTest, TheNextLoadUsesItAndIsTheSameModel) {
  for (const Family family : {Family::kLlama, Family::kQwen2, Family::kQwen3}) {
    recipe_.config = tiny_config(family);
    write_random_model(model(), recipe_);
    for (const WeightDType dtype : {WeightDType::kAuto, WeightDType::kF32, WeightDType::kBf16,
                                    WeightDType::kF16, WeightDType::kI8, WeightDType::kI4}) {
      const Loaded plain = load({.dtype = dtype});
      EXPECT_TRUE(plain.reports.empty()) << "no folder was given";
      const Loaded first = load(keeping(dtype)), second = load(keeping(dtype));
      ASSERT_EQ(1u, first.reports.size());
      ASSERT_EQ(1u, second.reports.size());
      EXPECT_EQ(Outcome::kWritten, first.outcome());
      EXPECT_EQ(Outcome::kUsed, second.outcome());
      EXPECT_EQ(first.reports[0].file, second.reports[0].file);
      EXPECT_TRUE(first.is_same(plain));
      EXPECT_TRUE(second.is_same(plain));
    }
  }
  EXPECT_EQ(6u, kept().size()) << "one for each type, the last family's over those before";
}

TEST_F(PackedCacheTest, EachInstructionSetHasItsOwn) {
  std::size_t n_files = 0;
  for (const CpuIsa isa : test::kVectorPaths) {
    auto backend = test::backend_for(isa);
    if (backend == nullptr) continue;
    backend_ = std::move(backend);
    const Loaded first = load(keeping()), second = load(keeping());
    EXPECT_EQ(Outcome::kWritten, first.outcome());
    EXPECT_EQ(Outcome::kUsed, second.outcome());
    EXPECT_TRUE(first.is_same(second));
    ++n_files;
  }
  EXPECT_EQ(n_files, kept().size());
}

TEST_F(PackedCacheTest, OtherWeightsOfTheSameSizeAreNotTakenForThese) {
  load(keeping());
  recipe_.seed = 2;
  write_random_model(model(), recipe_);
  const Loaded plain = load(), after = load(keeping());
  ASSERT_EQ(1u, after.reports.size());
  EXPECT_EQ(Outcome::kWritten, after.outcome());
  EXPECT_TRUE(after.is_same(plain));
  EXPECT_EQ(1u, kept().size()) << "the stale one is gone";
  EXPECT_EQ(Outcome::kUsed, load(keeping()).outcome());
}

// The size and the time that programs can set are those of before.
TEST_F(PackedCacheTest, AByteThatChangedInPlaceIsSeenThoughTheTimeOfTheFileWasSetBack) {
  load(keeping());
  const auto file = model() / "model.safetensors";
  const auto time = std::filesystem::last_write_time(file);
  // File systems read a clock that ticks every 10 ms or faster: the change below must fall in
  // another tick, as in use least_age makes sure.
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  {
    std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(-2, std::ios::end);
    out.put('\1');
  }
  std::filesystem::last_write_time(file, time);
  const Loaded plain = load(), after = load(keeping());
  EXPECT_EQ(Outcome::kWritten, after.outcome());
  EXPECT_TRUE(after.is_same(plain));
}

// What is still read of the checkpoint is held against its digest, should its identity be a lie.
TEST_F(PackedCacheTest, ASmallTensorThatIsNotWhatItWasIsNotedAndAllIsPackedAgain) {
  recipe_.config = tiny_config(Family::kQwen2);
  write_random_model(model(), recipe_);
  const Loaded first = load(keeping());
  const auto file = kept().at(0);
  const std::string good = contents(file);
  // The digest in the table is changed, and with it the table's own.
  std::string changed = good;
  const auto name = changed.find("model.norm.weight");
  ASSERT_NE(std::string::npos, name);
  changed[name - 16] = static_cast<char>(changed[name - 16] ^ 1);
  std::uint64_t table_bytes = 0;
  std::memcpy(&table_bytes, changed.data() + 48, sizeof table_bytes);
  const std::uint64_t digest = digest_bytes(
      std::as_bytes(std::span(changed)).subspan(64, static_cast<std::size_t>(table_bytes)));
  std::memcpy(changed.data() + 56, &digest, sizeof digest);
  overwrite(file, changed);
  const Loaded after = load(keeping());
  ASSERT_EQ(2u, after.reports.size());
  EXPECT_EQ(Outcome::kNotUsed, after.reports[0].outcome);
  EXPECT_THAT(after.reports[0].problem, HasSubstr("does not fit"));
  EXPECT_TRUE(after.is_same(first));
  EXPECT_EQ(good, contents(file));
}

TEST_F(PackedCacheTest, TheFileOfAnotherTypeIsNotTakenForThis) {
  load(keeping(WeightDType::kF16));
  const auto other = kept().at(0);
  const Loaded plain = load(keeping(WeightDType::kBf16));
  for (const auto& file : kept())
    if (file != other)
      std::filesystem::copy_file(other, file, std::filesystem::copy_options::overwrite_existing);
  const Loaded after = load(keeping(WeightDType::kBf16));
  EXPECT_EQ(Outcome::kWritten, after.outcome());
  EXPECT_TRUE(after.is_same(plain));
}

TEST_F(PackedCacheTest, FoldersInEightAndFourBitsAreKeptToo) {
  for (const char* name :
       {"int8_channel", "int4_group", "int4_channel", "int4_zeros", "mxfp4", "gptq", "awq"}) {
    std::filesystem::remove_all(model());
    std::filesystem::copy(
        std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures/quantized" / name, model(),
        std::filesystem::copy_options::recursive);
    const Loaded plain = load(), first = load(keeping()), second = load(keeping());
    EXPECT_EQ(Outcome::kWritten, first.outcome());
    EXPECT_EQ(Outcome::kUsed, second.outcome());
    EXPECT_TRUE(first.is_same(plain));
    EXPECT_TRUE(second.is_same(plain));
  }
}

// The tensors are the same and config.json is no part of the checkpoint's identity.
TEST_F(PackedCacheTest, WhatTheConfigMakesOfTheSameWordsIsAnotherModel) {
  std::filesystem::remove_all(model());
  std::filesystem::copy(
      std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/fixtures/quantized/gptq", model(),
      std::filesystem::copy_options::recursive);
  const Loaded first = load(keeping());
  EXPECT_EQ(Outcome::kWritten, first.outcome());
  std::ifstream in(model() / "config.json", std::ios::binary);
  std::string config{std::istreambuf_iterator<char>(in), {}};
  in.close();
  const std::string method = "\"quant_method\": \"gptq\",";
  config.replace(config.find(method), method.size(), method + "\"checkpoint_format\":\"gptq_v2\",");
  std::ofstream(model() / "config.json", std::ios::binary | std::ios::trunc) << config;
  const Loaded second = load(keeping());
  EXPECT_EQ(Outcome::kWritten, second.outcome());
  EXPECT_FALSE(second.is_same(first));
  EXPECT_TRUE(second.is_same(load()));
}

TEST_F(PackedCacheTest, ACheckpointThatHasJustBeenWrittenIsNotKept) {
  LoadOptions options = keeping();
  options.packed_cache.least_age = std::chrono::hours(1);
  const Loaded loaded = load(options);
  EXPECT_EQ(Outcome::kNotWritten, loaded.outcome());
  EXPECT_THAT(loaded.reports[0].problem, HasSubstr("just been written"));
  EXPECT_TRUE(kept().empty());
}

TEST_F(PackedCacheTest, HostsThatShareTheFolderKeepFilesOfTheirOwn) {
  load(keeping());
  LoadOptions elsewhere = keeping();
  elsewhere.packed_cache.host = "b";
  EXPECT_EQ(Outcome::kWritten, load(elsewhere).outcome());
  EXPECT_EQ(Outcome::kUsed, load(keeping()).outcome());
  EXPECT_EQ(2u, kept().size());
}

TEST_F(PackedCacheTest, AFolderThatOthersMayWriteIsNotUsed) {
  load(keeping());
  ASSERT_EQ(0, ::chmod(cache().c_str(), 0777));
  const Loaded after = load(keeping());
  ASSERT_EQ(2u, after.reports.size());
  EXPECT_THAT(after.reports[0].problem, HasSubstr("in a folder"));
  EXPECT_EQ(Outcome::kNotWritten, after.reports[1].outcome);
  ASSERT_EQ(0, ::chmod(cache().c_str(), 0700));
}

// The default of several systems lets the group write.
TEST_F(PackedCacheTest, AFolderThatItMakesCanBeWrittenByThisUserAloneWhateverTheUmask) {
  const mode_t before = ::umask(002);
  LoadOptions options = keeping();
  options.packed_cache.folder = cache() / "within";
  const Loaded first = load(options), second = load(options);
  ::umask(before);
  EXPECT_EQ(Outcome::kWritten, first.outcome()) << first.reports.back().problem;
  EXPECT_EQ(Outcome::kUsed, second.outcome());
  EXPECT_EQ(std::filesystem::perms::owner_all,
            std::filesystem::status(options.packed_cache.folder).permissions());
}

TEST_F(PackedCacheTest, ItsOwnFolderIsClosedToOthers) {
  std::filesystem::create_directory(cache());
  ASSERT_EQ(0, ::chmod(cache().c_str(), 0775));
  LoadOptions options = keeping();
  options.packed_cache.is_own = true;
  EXPECT_EQ(Outcome::kWritten, load(options).outcome());
  EXPECT_EQ(std::filesystem::perms(0755), std::filesystem::status(cache()).permissions());
}

TEST_F(PackedCacheTest, AnotherBuildPacksAgain) {
  load(keeping());
  LoadOptions newer = keeping();
  newer.packed_cache.build = "2";
  EXPECT_EQ(Outcome::kWritten, load(newer).outcome());
  EXPECT_EQ(Outcome::kUsed, load(newer).outcome());
}

TEST_F(PackedCacheTest, ADamagedFileIsLeftAsideAndWrittenAnew) {
  const Loaded first = load(keeping(WeightDType::kI8));
  const auto file = kept().at(0);
  const std::string good = contents(file);
  std::vector<std::string> bad;
  // In the header, the table and two matrices; what fills up pages does not count.
  for (const std::size_t at :
       {std::size_t{40}, std::size_t{48}, std::size_t{56}, std::size_t{64}, std::size_t{72},
        std::size_t{200}, good.find_first_not_of('\0', good.size() / 4),
        good.find_first_not_of('\0', good.size() / 2)}) {
    std::string changed = good;
    changed[at] = static_cast<char>(changed[at] ^ 0x40);
    bad.push_back(changed);
  }
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{63}, std::size_t{64}, good.size() / 3, good.size() - 4096})
    bad.push_back(good.substr(0, size));
  for (const std::string& bytes : bad) {
    overwrite(file, bytes);
    const Loaded after = load(keeping(WeightDType::kI8));
    ASSERT_EQ(2u, after.reports.size());
    EXPECT_EQ(Outcome::kNotUsed, after.reports[0].outcome);
    EXPECT_THAT(after.reports[0].problem,
                AnyOf(HasSubstr("is damaged"), HasSubstr("is cut short")));
    EXPECT_EQ(Outcome::kWritten, after.reports[1].outcome);
    EXPECT_TRUE(after.is_same(first));
    EXPECT_EQ(good, contents(file));
  }
}

TEST_F(PackedCacheTest, AFileThatOthersMayWriteIsNotUsed) {
  const Loaded first = load(keeping());
  const auto file = kept().at(0);
  ASSERT_EQ(0, ::chmod(file.c_str(), 0666));
  const Loaded open = load(keeping());
  ASSERT_EQ(2u, open.reports.size());
  EXPECT_THAT(open.reports[0].problem, HasSubstr("only this user can write"));
  EXPECT_TRUE(open.is_same(first));
  EXPECT_EQ(Outcome::kUsed, load(keeping()).outcome()) << "its own is in its place";
  std::filesystem::rename(file, folder_ / "elsewhere");
  std::filesystem::create_symlink(folder_ / "elsewhere", file);
  EXPECT_EQ(Outcome::kNotUsed, load(keeping()).reports[0].outcome);
  EXPECT_FALSE(std::filesystem::is_symlink(file));
}

TEST_F(PackedCacheTest, WhereItCannotBeWrittenTheModelIsLoadedAllTheSame) {
  LoadOptions options = keeping();
  options.packed_cache.folder = folder_.write("a file", "") / "cache";
  const Loaded loaded = load(options);
  EXPECT_EQ(Outcome::kNotWritten, loaded.outcome());
  EXPECT_THAT(loaded.reports.back().problem, HasSubstr("cannot create"));
  std::filesystem::create_directories(cache());
  const auto file = load(keeping()).reports.back().file;
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  EXPECT_THAT(load(keeping()).reports.back().problem, HasSubstr("cannot get its name"));
  EXPECT_EQ(1u, kept().size()) << "what was written is gone";
  EXPECT_TRUE(loaded.is_same(load()));
}

TEST_F(PackedCacheTest, SmallWeightsAreNotKept) {
  LoadOptions options = keeping();
  options.packed_cache.least_bytes = 1u << 30;
  EXPECT_TRUE(load(options).reports.empty());
  EXPECT_TRUE(kept().empty());
}

TEST_F(PackedCacheTest, TheFileOfAFolderThatIsGoneIsRemovedWhenAnotherIsWritten) {
  const auto file = load(keeping()).reports.back().file;
  std::filesystem::remove_all(model());
  const Loaded after = load(another("b"), keeping());
  ASSERT_EQ(2u, after.reports.size());
  EXPECT_EQ(Outcome::kRemoved, after.reports[0].outcome);
  EXPECT_EQ(file, after.reports[0].file);
  EXPECT_GT(after.reports[0].size_bytes, 0u);
  EXPECT_EQ("its model folder is not there any more: " + model().string(),
            after.reports[0].problem);
  EXPECT_EQ(Outcome::kWritten, after.reports[1].outcome);
  EXPECT_THAT(kept(), testing::ElementsAre(after.reports[1].file));
}

// As after an update of the program that packs other bytes: the number of the layout is part of the
// name.
TEST_F(PackedCacheTest, TheFilesOfOlderLayoutsAreRemovedWhenTheirWeightsAreWritten) {
  const std::string layout = backend_->packed_layout();
  const std::string without_number = layout.substr(0, layout.rfind('/') + 1);
  const auto file = load(keeping()).reports.back().file;
  ASSERT_EQ(name_of(layout), file.filename().string());
  ASSERT_NE(without_number + "1", layout) << "there is no older one";
  const auto older = cache() / name_of(without_number + "1");
  const auto another_isa = cache() / name_of("cpu/another/1");
  std::filesystem::copy_file(file, older);
  std::filesystem::copy_file(file, another_isa);
  EXPECT_EQ(Outcome::kUsed, load(keeping()).outcome());
  EXPECT_EQ(3u, kept().size()) << "nothing is written: nothing is removed";
  LoadOptions newer = keeping();
  newer.packed_cache.build = "2";
  const Loaded after = load(newer);
  ASSERT_EQ(2u, after.reports.size());
  EXPECT_EQ(Outcome::kRemoved, after.reports[0].outcome);
  EXPECT_EQ(older, after.reports[0].file);
  EXPECT_THAT(after.reports[0].problem, HasSubstr("older layout"));
  EXPECT_EQ(Outcome::kWritten, after.reports[1].outcome);
  EXPECT_THAT(kept(), testing::UnorderedElementsAre(file, another_isa));
}

// As it looks while a disk is not mounted: its mount point is empty, or not there.
TEST_F(PackedCacheTest, TheFileOfAFolderOnADiskThatIsNotMountedStays) {
  const auto disk = folder_ / "disk";
  std::filesystem::create_directory(disk);
  const auto file = load(another("disk/a"), keeping()).reports.back().file;
  std::filesystem::remove_all(disk / "a");
  EXPECT_EQ(1u, load(another("b"), keeping()).reports.size());
  overwrite(disk / "not_mounted", "a lone file");
  EXPECT_EQ(1u, load(another("c"), keeping()).reports.size());
  std::filesystem::remove_all(disk);
  EXPECT_EQ(1u, load(another("d"), keeping()).reports.size());
  EXPECT_TRUE(std::filesystem::exists(file));
}

// Which host wrote it is not known, nor whether a process there has it mapped.
TEST_F(PackedCacheTest, AFileOfAnotherFormatStaysAndDoesNotCount) {
  const auto file = load(keeping()).reports.back().file, former = cache() / "former.packed";
  std::string bytes = contents(file);
  bytes[16] = 1;  // the number of the format, behind the name of the kind
  overwrite(former, bytes);
  set_unused_for(former, std::chrono::hours(3));
  LoadOptions options = keeping();
  options.packed_cache.most_bytes = 2 * std::filesystem::file_size(file);
  EXPECT_EQ(1u, load(another("b"), options).reports.size()) << "two of this format fit";
  std::filesystem::remove_all(model());
  options.packed_cache.most_bytes = 1;
  EXPECT_EQ(3u, load(another("c"), options).reports.size()) << "the two, and the new one";
  EXPECT_TRUE(std::filesystem::exists(former));
  EXPECT_EQ(2u, kept().size());
}

TEST_F(PackedCacheTest, AFolderThatCannotBeLookedAtCountsAsThere) {
  const auto parent = folder_ / "parent";
  std::filesystem::create_directory(parent);
  const auto file = load(another("parent/a"), keeping()).reports.back().file;
  std::filesystem::remove_all(parent);
  std::filesystem::create_symlink("parent", parent);  // a loop: neither there nor not
  EXPECT_EQ(1u, load(keeping()).reports.size());
  EXPECT_TRUE(std::filesystem::exists(file));
}

TEST_F(PackedCacheTest, WhatAnotherHostOrProgramKeepsInTheFolderIsLeft) {
  LoadOptions elsewhere = keeping();
  elsewhere.packed_cache.host = "b";
  load(elsewhere);
  const std::string ours = contents(load(keeping()).reports.back().file);
  std::filesystem::remove_all(model());
  overwrite(cache() / "theirs.packed", "something else");
  overwrite(cache() / "notes.txt", ours);
  std::filesystem::create_symlink(cache() / "notes.txt", cache() / "link.packed");
  LoadOptions options = keeping();
  options.packed_cache.most_bytes = 1;
  EXPECT_EQ(2u, load(another("b"), options).reports.size()) << "the one of this host, and the new";
  EXPECT_EQ(5u, kept().size());
}

TEST_F(PackedCacheTest, BeyondTheLimitTheLongestUnusedIsRemoved) {
  const auto a = another("a"), b = another("b"), c = another("c");
  const auto file_a = load(a, keeping()).reports.back().file;
  const auto file_b = load(b, keeping()).reports.back().file;
  set_unused_for(file_a, std::chrono::hours(3));
  set_unused_for(file_b, std::chrono::hours(2));
  EXPECT_EQ(Outcome::kUsed, load(a, keeping()).outcome());
  LoadOptions options = keeping();
  options.packed_cache.most_bytes =
      std::filesystem::file_size(file_a) + std::filesystem::file_size(file_b);
  const Loaded after = load(c, options);
  ASSERT_EQ(2u, after.reports.size());
  EXPECT_EQ(Outcome::kRemoved, after.reports[0].outcome);
  EXPECT_EQ(file_b, after.reports[0].file);
  EXPECT_THAT(after.reports[0].problem, HasSubstr("least recently used"));
  EXPECT_EQ(Outcome::kUsed, load(a, keeping()).outcome());
  EXPECT_EQ(Outcome::kUsed, load(c, keeping()).outcome());
  options.packed_cache.most_bytes = 1;
  EXPECT_EQ(Outcome::kWritten, load(b, options).outcome());
  EXPECT_EQ(1u, kept().size()) << "the one that is larger than the limit alone stays";
}

TEST_F(PackedCacheTest, AModelThatIsNotKeptRemovesNoOther) {
  const auto file = load(another("a"), keeping()).reports.back().file;
  LoadOptions options = keeping();
  options.packed_cache.most_bytes = 1;
  options.packed_cache.least_age = std::chrono::hours(1);
  const Loaded after = load(another("b"), options);
  ASSERT_EQ(1u, after.reports.size());
  EXPECT_EQ(Outcome::kNotWritten, after.outcome());
  const auto planned = trim_packed_cache(cache(), {.host = "", .most_bytes = 1}, Trim::kPlan);
  ASSERT_EQ(1u, planned.size());
  EXPECT_EQ(file, planned[0].file);
  EXPECT_TRUE(std::filesystem::exists(file));
}

// As by several targets that start at once. The first process keeps the file open, and one in its
// place would leave it without a name on the disk.
TEST_F(PackedCacheTest, AFileOfTheSameKeyIsNotWrittenAgain) {
  const std::vector<float> values(64 * 32, 1.0f);
  const std::vector<LinearSource> sources{{.data = values.data(), .n_out = 64, .n_in = 32}};
  const Linear packed = backend_->pack(sources);
  PackedCacheWriter writer;
  writer.add(packed);
  const PackedOrigin origin{.model_folder = model().string(), .host = ""};
  const std::map<std::string, std::uint64_t> digests;
  const auto path = cache() / "a.packed";
  const auto write = [&](std::uint64_t key, const std::function<void()>& on_piece) {
    const auto written =
        writer.write(path, {.key = key, .origin = origin, .digests = digests}, on_piece);
    EXPECT_TRUE(written.ok() && *written != nullptr && (*written)->is_held());
    struct stat status {};
    EXPECT_EQ(0, ::stat(path.c_str(), &status));
    return status.st_ino;
  };
  const auto nothing = [] {};
  const ino_t first = write(1, nothing);
  EXPECT_EQ(first, write(1, nothing));
  std::filesystem::remove(path);
  ino_t others = 0;
  const ino_t after = write(1, [&] {
    if (others == 0) others = write(1, nothing);  // while it is being written
  });
  EXPECT_EQ(others, after);
  EXPECT_NE(others, write(2, nothing)) << "a stale one is replaced";
  EXPECT_EQ(1u, kept().size());
}

TEST_F(PackedCacheTest, AFileThatIsInUseIsNotRemoved) {
  LoadOptions options = keeping();
  options.packed_cache.most_bytes = 1;
  const auto a = another("a"), b = another("b");
  auto wrote = load_model(a, *backend_, options);
  load(b, options);
  auto maps = load_model(b, *backend_, options);
  std::filesystem::remove_all(a);
  EXPECT_EQ(1u, load(options).reports.size());
  EXPECT_EQ(3u, kept().size());
  wrote.reset();
  maps.reset();
  EXPECT_EQ(3u, load(another("c"), options).reports.size() - 1) << "a, b and the first";
  EXPECT_EQ(1u, kept().size());
}

TEST_F(PackedCacheTest, ABackendTakesNoBytesOfAnotherSize) {
  const std::vector<float> values(64 * 32, 1.0f);
  const std::vector<LinearSource> sources{{.data = values.data(), .n_out = 64, .n_in = 32}};
  const Linear packed = backend_->pack(sources);
  const std::span<const std::byte> all(packed.weights.as<const std::byte>(),
                                       packed.weights.size_bytes());
  const auto keeper = std::make_shared<int>();
  EXPECT_TRUE(backend_->adopt(sources, Stacking::kRows, {.weights = all}, keeper).has_value());
  EXPECT_FALSE(
      backend_->adopt(sources, Stacking::kRows, {.weights = all.first(all.size() - 64)}, keeper));
  EXPECT_FALSE(backend_->adopt(sources, Stacking::kRows, {.weights = all, .scales = all.first(256)},
                               keeper));
  EXPECT_FALSE(
      backend_->adopt(sources, Stacking::kRows, {.weights = all, .bias = all.first(256)}, keeper));
  EXPECT_EQ(1, keeper.use_count()) << "what was refused is not held";
}

}  // namespace
}  // namespace foretoken
