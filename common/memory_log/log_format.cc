#include "common/memory_log/log_format.h"

#include <algorithm>
#include <bit>
#include <boost/crc.hpp>
#include <cstring>
#include <vector>

#include "common/base/check.h"

namespace foretoken {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "FTKNMEM1";
constexpr std::size_t kSaltBegin = 16;
constexpr std::size_t kSaltEnd = kSaltBegin + sizeof(std::uint64_t);
constexpr std::size_t kBeforeTokens = sizeof(std::uint64_t) + sizeof(std::uint32_t);
constexpr std::size_t kAroundTokens = kBeforeTokens + sizeof(std::uint32_t);

std::uint32_t crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

template <class Number>
void put(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <class Number>
Number get(std::string_view bytes, std::size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

void seal(std::string& bytes, std::size_t begin) {
  put(bytes, crc32c(std::string_view(bytes).substr(begin)));
}

bool is_sealed(std::string_view bytes) {
  const std::size_t n = bytes.size() - sizeof(std::uint32_t);
  return get<std::uint32_t>(bytes, n) == crc32c(bytes.substr(0, n));
}

}  // namespace

std::string log_header(const LogHeader& header) {
  std::string bytes(kMagic);
  put(bytes, header.vocabulary);
  put(bytes, header.salt);
  put(bytes, std::uint32_t{0});
  seal(bytes, 0);
  FORETOKEN_CHECK(bytes.size() == kLogHeaderBytes);
  return bytes;
}

bool is_cut_log_header(std::string_view bytes, Fingerprint vocabulary) {
  if (bytes.size() >= kLogHeaderBytes) return false;
  LogHeader header{.vocabulary = vocabulary};
  std::size_t n_known = kSaltBegin;  // without the whole salt what follows cannot be computed
  if (bytes.size() >= kSaltEnd) {
    header.salt = get<std::uint64_t>(bytes, kSaltBegin);
    n_known = kLogHeaderBytes;
  }
  return log_header(header).starts_with(bytes.substr(0, n_known));
}

void add_log_record(std::string& bytes, const LogRecord& record) {
  FORETOKEN_CHECK(record.tokens.size() <= kMaxRecordTokens);
  const std::size_t begin = bytes.size();
  put(bytes, record.document);
  put(bytes, static_cast<std::uint32_t>(record.tokens.size()));
  bytes.append(reinterpret_cast<const char*>(record.tokens.data()), record.tokens.size_bytes());
  seal(bytes, begin);
}

LogContents read_log(std::string_view bytes, const LogVisitor& visitor) {
  LogContents contents;
  if (!bytes.starts_with(kMagic) || bytes.size() < kLogHeaderBytes ||
      !is_sealed(bytes.substr(0, kLogHeaderBytes)))
    return contents;
  contents.header = {.vocabulary = get<std::uint64_t>(bytes, 8),
                     .salt = get<std::uint64_t>(bytes, kSaltBegin)};
  contents.n_good_bytes = kLogHeaderBytes;
  contents.end = LogEnd::kWhole;
  if (!visitor.wanted(contents.header)) return contents;
  std::vector<TokenId> tokens;
  for (std::size_t at = kLogHeaderBytes; at < bytes.size(); at = contents.n_good_bytes) {
    const std::string_view rest = bytes.substr(at);
    const std::size_t n_tokens =
        rest.size() < kBeforeTokens ? 0 : get<std::uint32_t>(rest, sizeof(std::uint64_t));
    const std::size_t n_bytes = kAroundTokens + n_tokens * sizeof(TokenId);
    contents.end = n_tokens > kMaxRecordTokens ? LogEnd::kDamaged : LogEnd::kTorn;
    if (n_tokens > kMaxRecordTokens || rest.size() < n_bytes) return contents;
    contents.end = LogEnd::kDamaged;
    if (!is_sealed(rest.substr(0, n_bytes))) return contents;
    tokens.resize(n_tokens);
    if (n_tokens > 0)
      std::memcpy(tokens.data(), rest.data() + kBeforeTokens, n_tokens * sizeof(TokenId));
    if (std::any_of(tokens.begin(), tokens.end(),
                    [&](TokenId t) { return t < 0 || t >= visitor.n_ids; }))
      return contents;
    visitor.record(contents.header, {.document = get<std::uint64_t>(rest, 0), .tokens = tokens});
    contents.n_good_bytes = at + n_bytes;
    contents.n_tokens += n_tokens;
    contents.end = LogEnd::kWhole;
  }
  return contents;
}

}  // namespace foretoken
