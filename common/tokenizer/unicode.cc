#include "common/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "common/base/check.h"
#include "common/base/utf8.h"

namespace foretoken::unicode {
namespace {

utf8proc_category_t category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Letters in circles are symbols by category and alphabetic by property.
bool is_circled_letter(char32_t code_point) {
  return (code_point >= 0x24B6 && code_point <= 0x24E9) ||
         (code_point >= 0x1F130 && code_point <= 0x1F149) ||
         (code_point >= 0x1F150 && code_point <= 0x1F169) ||
         (code_point >= 0x1F170 && code_point <= 0x1F189);
}

// The reference normalizes with the tables of Unicode 9. To it these later code points are plain:
// no decomposition, no combining class, never part of a composition. Found by comparing it, code
// point by code point, with Unicode 15.
struct CodePointRange {
  char32_t first;
  char32_t last;
};
constexpr CodePointRange kNewcomers[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},
    {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x10785}, {0x10787, 0x107B0},
    {0x107B2, 0x107BA}, {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E},
    {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
    {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F},
    {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
    {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};

// Punctuation is by the tables of Unicode 8 to the reference, which does not count these; found in
// the same way, with Unicode 15. Two that were punctuation then have become something else.
constexpr CodePointRange kLaterPunctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},
    {0xC84, 0xC84},     {0x1B7D, 0x1B7E},   {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},
    {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59}, {0x10F86, 0x10F89}, {0x1144B, 0x1144F},
    {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9},
    {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
    {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11C41, 0x11C45},
    {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF},
    {0x12FF1, 0x12FF2}, {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2}, {0x1E95E, 0x1E95F}};
constexpr char32_t kFormerPunctuation[] = {0x166D, 0x111C9};

template <std::size_t kSize>
bool is_among(char32_t code_point, const CodePointRange (&ranges)[kSize]) {
  if (code_point < ranges[0].first) return false;
  const auto* after =
      std::upper_bound(std::begin(ranges), std::end(ranges), code_point,
                       [](char32_t c, const CodePointRange& range) { return c < range.first; });
  return after != std::begin(ranges) && code_point <= std::prev(after)->last;
}

bool is_newcomer(char32_t code_point) { return is_among(code_point, kNewcomers); }

void decompose(std::string_view text,
               utf8proc_option_t options,
               std::vector<utf8proc_int32_t>& out) {
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint point = utf8::code_point_at(text, at);
    at += point.length;
    if (is_newcomer(point.value)) {
      out.push_back(static_cast<utf8proc_int32_t>(point.value));
      continue;
    }
    utf8proc_int32_t parts[32];  // the longest decomposition has 18
    int boundary_class = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point.value), parts, 32,
                                           options, &boundary_class);
    FORETOKEN_CHECK(n >= 0 && n <= 32, "decomposition of a valid code point");
    out.insert(out.end(), parts, parts + n);
  }
}

int combining_class(utf8proc_int32_t code_point) {
  const int known = utf8proc_get_property(code_point)->combining_class;
  return known == 0 || is_newcomer(static_cast<char32_t>(code_point)) ? 0 : known;
}

void sort_marks(std::vector<utf8proc_int32_t>& points) {
  for (std::size_t begin = 0; begin < points.size(); ++begin) {
    if (combining_class(points[begin]) == 0) continue;
    std::size_t end = begin;
    while (end < points.size() && combining_class(points[end]) != 0) ++end;
    std::stable_sort(points.begin() + static_cast<std::ptrdiff_t>(begin),
                     points.begin() + static_cast<std::ptrdiff_t>(end),
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

// Composes what lies between newcomers; returns the new length.
std::size_t compose(std::vector<utf8proc_int32_t>& points) {
  std::size_t written = 0;
  for (std::size_t begin = 0; begin < points.size();) {
    std::size_t end = begin;
    while (end < points.size() && !is_newcomer(static_cast<char32_t>(points[end]))) ++end;
    const auto n = utf8proc_normalize_utf32(
        points.data() + begin, static_cast<utf8proc_ssize_t>(end - begin),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    FORETOKEN_CHECK(n >= 0, "composition of valid text");
    std::copy_n(points.begin() + static_cast<std::ptrdiff_t>(begin), n,
                points.begin() + static_cast<std::ptrdiff_t>(written));
    written += static_cast<std::size_t>(n);
    if (end < points.size()) points[written++] = points[end++];
    begin = end;
  }
  return written;
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_numeric(char32_t code_point) {
  const auto kind = category(code_point);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) ||
           (c >= 0x7B && c <= 0x7E);
  const auto kind = category(c);
  if (kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO)
    return !is_among(c, kLaterPunctuation);
  return std::find(std::begin(kFormerPunctuation), std::end(kFormerPunctuation), c) !=
         std::end(kFormerPunctuation);
}

bool is_word(char32_t code_point) {
  const auto kind = category(code_point);
  return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NL) ||
         kind == UTF8PROC_CATEGORY_PC || code_point == 0x200C || code_point == 0x200D ||
         is_circled_letter(code_point);
}

int columns_of(char32_t code_point) {
  return utf8proc_charwidth(static_cast<utf8proc_int32_t>(code_point));
}

std::string normalize(std::string_view text, Form form) {
  if (is_ascii(text)) return std::string(text);
  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (form == Form::kNfkc || form == Form::kNfkd) options |= UTF8PROC_COMPAT;
  std::vector<utf8proc_int32_t> points;
  decompose(text, static_cast<utf8proc_option_t>(options), points);
  sort_marks(points);
  if (form == Form::kNfc || form == Form::kNfkc) points.resize(compose(points));
  std::string out;
  out.reserve(text.size());
  for (const utf8proc_int32_t point : points) utf8::append(out, static_cast<char32_t>(point));
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const utf8::CodePoint point = utf8::code_point_at(text, at);
    at += point.length;
    if (point.value == 0x130) {
      out.append("i\xCC\x87");  // the only letter whose lower case has two code points
    } else {
      utf8::append(
          out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point.value))));
    }
  }
  return out;
}

}  // namespace foretoken::unicode
