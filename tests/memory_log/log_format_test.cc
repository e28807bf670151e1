#include "common/memory_log/log_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/memory_log/written_texts.h"

namespace foretoken {
namespace {

struct Read {
  LogContents contents;
  std::vector<WrittenRecord> records;
};

Read read(std::string_view bytes, TokenId n_ids = kWrittenIds) {
  Read read;
  read.contents =
      read_log(bytes, {.n_ids = n_ids,
                       .wanted = [](const LogHeader& header) { return header.vocabulary == 5; },
                       .record =
                           [&](const LogHeader& header, const LogRecord& record) {
                             read.records.push_back({header.salt,
                                                     record.document,
                                                     {record.tokens.begin(), record.tokens.end()}});
                           }});
  return read;
}

// Of one tenant, with the offset at which each record ends.
struct File {
  std::string bytes = log_header({.vocabulary = 5, .salt = 1});
  std::vector<WrittenRecord> records;
  std::vector<std::size_t> ends;
};

File file_of(std::size_t n_records) {
  File file;
  for (std::uint64_t number = 1; file.records.size() < n_records; number += 3) {
    file.records.push_back(written_record(number));
    add_log_record(file.bytes, {file.records.back().document, file.records.back().tokens});
    file.ends.push_back(file.bytes.size());
  }
  return file;
}

TEST(LogFormat, ReadsWhatWasWritten) {
  const File file = file_of(100);
  const Read found = read(file.bytes);
  EXPECT_EQ(found.contents.end, LogEnd::kWhole);
  EXPECT_EQ(found.contents.header.salt, 1u);
  EXPECT_EQ(found.contents.n_good_bytes, file.bytes.size());
  EXPECT_EQ(found.records, file.records);
}

// Files of a version that was released must be read for good. The bytes are computed apart from
// this code, with the checksum by its polynomial.
TEST(LogFormat, HasTheBytesOfItsFirstVersion) {
  std::string bytes = log_header({.vocabulary = 0x0102030405060708, .salt = 9});
  add_log_record(bytes, {7, std::vector<TokenId>{1, 258}});
  std::string hex;
  for (const char c : bytes) {
    hex += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
    hex += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
  }
  EXPECT_EQ(hex,
            "46544b4e4d454d3108070605040302010900000000000000"
            "000000009605f51307000000000000000200000001000000"
            "02010000b5f4f709");
}

TEST(LogFormat, EndsBeforeARecordThatIsNotComplete) {
  const File file = file_of(20);
  for (std::size_t n = kLogHeaderBytes; n < file.bytes.size(); ++n) {
    std::size_t n_whole = 0;
    while (file.ends[n_whole] <= n) ++n_whole;
    const Read found = read(std::string_view(file.bytes).substr(0, n));
    const std::size_t good = n_whole == 0 ? kLogHeaderBytes : file.ends[n_whole - 1];
    ASSERT_EQ(found.records.size(), n_whole) << n;
    ASSERT_EQ(found.contents.n_good_bytes, good);
    ASSERT_EQ(found.contents.end, n == good ? LogEnd::kWhole : LogEnd::kTorn);
  }
}

TEST(LogFormat, ReadsNothingFromForeignBytes) {
  const File file = file_of(3);
  EXPECT_EQ(read("").contents.end, LogEnd::kForeign);
  EXPECT_EQ(read(std::string(100, 'x')).contents.end, LogEnd::kForeign);
  EXPECT_EQ(read(file.bytes.substr(0, kLogHeaderBytes - 1)).contents.end, LogEnd::kForeign);
  std::string other = log_header({.vocabulary = 6, .salt = 1});
  other += file.bytes.substr(kLogHeaderBytes);
  EXPECT_TRUE(read(other).records.empty());
  EXPECT_EQ(read(other).contents.header.vocabulary, 6u);
}

TEST(LogFormat, TakesNoIdsThatAreNoTokens) {
  std::string bytes = log_header({.vocabulary = 5, .salt = 1});
  add_log_record(bytes, {1, std::vector<TokenId>{1, 2}});
  add_log_record(bytes, {1, std::vector<TokenId>{1, 50}});
  EXPECT_EQ(read(bytes).records.size(), 1u);
  EXPECT_EQ(read(bytes).contents.end, LogEnd::kDamaged);
  std::string negative = log_header({.vocabulary = 5, .salt = 1});
  add_log_record(negative, {1, std::vector<TokenId>{-1}});
  EXPECT_EQ(read(negative).contents.end, LogEnd::kDamaged);
}

// Whatever is done to a file, what is read from it was written, in that order, from the first on.
TEST(LogFormat, ReadsOnlyWhatWasWrittenFromMutatedFiles) {
  std::mt19937 random(31);
  const File file = file_of(60);
  std::uint64_t n_read = 0, n_cut = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = file.bytes;
    for (auto n = 1 + random() % 3; n > 0 && !bytes.empty(); --n) {
      const std::size_t at = random() % bytes.size();
      const std::size_t size = random() % 40;
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 1:
          bytes.erase(at, size);
          break;
        case 2:
          bytes.insert(at, bytes.substr(random() % bytes.size(), size));
          break;
        default:
          bytes.resize(at);
          break;
      }
    }
    const Read found = read(bytes);
    ASSERT_LE(found.contents.n_good_bytes, bytes.size());
    // A record that was repeated or left out whole is right by itself.
    for (const WrittenRecord& record : found.records)
      ASSERT_NE(std::find(file.records.begin(), file.records.end(), record), file.records.end());
    n_read += found.records.size();
    n_cut += found.contents.end != LogEnd::kWhole;
  }
  EXPECT_GT(n_read, 200'000u);
  EXPECT_GT(n_cut, 15'000u);
}

}  // namespace
}  // namespace foretoken
