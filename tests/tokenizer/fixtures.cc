#include "tests/tokenizer/fixtures.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "common/base/json.h"

namespace foretoken::testing {
namespace {

Json read(const std::filesystem::path& path) {
  Result<Json> json = parse_json(read_file(path));
  FORETOKEN_CHECK(json.ok(), "a fixture is not JSON");
  return *json;
}

TokenId digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '-' ? 62 : 63;
}

std::vector<TokenId> unpack(const std::string& packed) {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i + 1 < packed.size(); i += 2)
    ids.push_back(digit(packed[i]) * 64 + digit(packed[i + 1]));
  return ids;
}

}  // namespace

std::filesystem::path fixture_folder(const std::string& name) {
  return std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/tokenizer/fixtures" / name;
}

std::vector<std::string> fixture_families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(fixture_folder()))
    if (std::filesystem::exists(entry.path() / "golden.json"))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

const std::vector<std::string>& fixture_strings() {
  static const std::vector<std::string> strings =
      read(fixture_folder("strings.json")).get<std::vector<std::string>>();
  return strings;
}

std::unique_ptr<Tokenizer> load_fixture(const std::string& family,
                                        const TokenizerOptions& options) {
  auto loaded = Tokenizer::load(fixture_folder(family), options);
  if (!loaded.ok())
    std::fprintf(stderr, "%s: %s\n", family.c_str(), loaded.error().message.c_str());
  FORETOKEN_CHECK(loaded.ok(), "a fixture does not load");
  return std::move(*loaded);
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  FORETOKEN_CHECK(stream.good(), "a fixture is missing");
  std::stringstream bytes;
  bytes << stream.rdbuf();
  return bytes.str();
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = std::filesystem::temp_directory_path() / "foretoken-tokenizer-XXXXXX";
  FORETOKEN_CHECK(mkdtemp(pattern.data()) != nullptr, "no temporary folder");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void TemporaryFolder::write(const std::string& name, std::string_view bytes) const {
  std::ofstream(path_ / name, std::ios::binary) << bytes;
}

std::string file_hash(const std::filesystem::path& path) {
  std::uint64_t value = 0xCBF29CE484222325ull;
  for (const char byte : read_file(path))
    value = (value ^ static_cast<unsigned char>(byte)) * 0x100000001B3ull;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string demo_golden_hash() {
  return read(fixture_folder("demo_target_golden.json")).at("file_hash");
}

SentencePieceGolden read_sentencepiece_golden(const std::string& family) {
  const Json json = read(fixture_folder(family) / "golden_sentencepiece.json");
  SentencePieceGolden golden;
  for (const auto& [index, entry] : json.at("cases").items())
    golden.texts.push_back(
        {std::stoul(index), unpack(entry.at(0).get<std::string>()), entry.at(1)});
  for (const Json& entry : json.at("sequences"))
    golden.sequences.emplace_back(unpack(entry.at(0).get<std::string>()),
                                  entry.at(1).get<std::string>());
  return golden;
}

Golden read_golden(const std::string& family) {
  return read_golden_file(fixture_folder(family) / "golden.json");
}

Golden read_golden_file(const std::filesystem::path& path) {
  const Json json = read(path);
  Golden golden;
  for (const Json& ids : json.at("ids")) golden.ids.push_back(unpack(ids.get<std::string>()));
  for (const auto& [index, ids] : json.at("ids_with_special").items())
    golden.ids_with_special[std::stoul(index)] = unpack(ids.get<std::string>());
  for (const auto& [index, text] : json.at("decoded").items())
    golden.decoded[std::stoul(index)] = text.get<std::string>();
  for (const auto& [index, text] : json.at("decoded_without_special").items())
    golden.decoded_without_special[std::stoul(index)] = text.get<std::string>();
  for (const Json& entry : json.at("sequences"))
    golden.sequences.push_back({unpack(entry.at(0).get<std::string>()), entry.at(1), entry.at(2)});
  return golden;
}

std::string escaped(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 200)) {
    char buffer[8];
    std::snprintf(buffer, sizeof buffer, c >= 0x20 && c < 0x7F ? "%c" : "\\x%02x",
                  static_cast<unsigned char>(c));
    out += buffer;
  }
  return out + (text.size() > 200 ? "…\"" : "\"");
}

}  // namespace foretoken::testing
