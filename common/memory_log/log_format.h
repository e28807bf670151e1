// The bytes of one file of a memory's log: a header with vocabulary and tenant, then records
// (document, n, tokens, CRC32C), each of which stands by itself. Numbers are little-endian. A file
// is read up to its first record that is not whole and right: what follows cannot be trusted.
// Pure; reads anything without harm.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "common/base/ids.h"

namespace foretoken {

inline constexpr std::size_t kLogHeaderBytes = 32;
// Tokens of one record; longer texts take several.
inline constexpr std::size_t kMaxRecordTokens = 65536;

struct LogHeader {
  Fingerprint vocabulary = 0;  // of the ids
  std::uint64_t salt = 0;      // of the tenant
};

// A text, or the next part of one. No tokens: the document has ended.
struct LogRecord {
  std::uint64_t document = 0;
  std::span<const TokenId> tokens;
};

std::string log_header(const LogHeader& header);
// Whether the bytes are the beginning of such a header, or nothing: its writer was stopped early.
bool is_cut_log_header(std::string_view bytes, Fingerprint vocabulary);
// At most kMaxRecordTokens.
void add_log_record(std::string& bytes, const LogRecord& record);

enum class LogEnd : std::uint8_t {
  kWhole,    // all of it was read
  kTorn,     // the last record is not complete: its writer was stopped
  kDamaged,  // a record is not what was written
  kForeign,  // not a file of a log, or of another version: nothing was read
};

struct LogContents {
  LogHeader header;
  LogEnd end = LogEnd::kForeign;
  std::size_t n_good_bytes = 0;  // before the record that is not right
  std::uint64_t n_tokens = 0;
};

// `wanted` decides by the header whether records are read. Ids from n_ids on are no tokens, and
// a record with one is damaged.
struct LogVisitor {
  TokenId n_ids = 0;
  std::function<bool(const LogHeader&)> wanted;
  std::function<void(const LogHeader&, const LogRecord&)> record;
};
LogContents read_log(std::string_view bytes, const LogVisitor& visitor);

}  // namespace foretoken
