#include "common/model/int4_words.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/check.h"

namespace foretoken {
namespace {

constexpr std::int64_t kCodesOfWord = 8;
// Columns of words that are turned into rows together: those of a line of memory.
constexpr std::int64_t kWordsAtOnce = 16;
// AutoAWQ: the output, of eight, whose code is in bits 4i to 4i + 3.
constexpr std::array<std::int64_t, kCodesOfWord> kAwqOutputs{0, 2, 4, 6, 1, 3, 5, 7};

std::int64_t words_for(std::int64_t n_codes) { return (n_codes + kCodesOfWord - 1) / kCodesOfWord; }

std::uint32_t word_at(std::span<const std::byte> words, std::int64_t i) {
  std::uint32_t word = 0;
  std::memcpy(&word, words.data() + i * 4, sizeof word);
  return word;
}

void put_word(std::span<std::byte> words, std::int64_t i, std::uint32_t word) {
  std::memcpy(words.data() + i * 4, &word, sizeof word);
}

// A word has eight inputs of one output, as a row's have: words change places.
void gather_gptq(std::span<const std::byte> words,
                 std::int64_t n_out,
                 std::int64_t n_row_words,
                 const Range& rows,
                 std::span<std::byte> to) {
  for (std::int64_t begin = rows.begin; begin < rows.end; begin += kWordsAtOnce) {
    const std::int64_t end = std::min(begin + kWordsAtOnce, rows.end);
    for (std::int64_t i = 0; i < n_row_words; ++i)
      for (std::int64_t row = begin; row < end; ++row)
        put_word(to, (row - rows.begin) * n_row_words + i, word_at(words, i * n_out + row));
  }
}

// Code i of a word becomes one of row kAwqOutputs[i]. inputs: the words of up to eight inputs, of
// the same eight outputs.
std::array<std::uint32_t, kCodesOfWord> turned_awq(std::span<const std::uint32_t> inputs) {
  std::array<std::uint32_t, kCodesOfWord> rows{};
  for (std::size_t input = 0; input < inputs.size(); ++input)
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[static_cast<std::size_t>(kAwqOutputs[i])] |= (inputs[input] >> 4 * i & 15u) << 4 * input;
  return rows;
}

// A word has eight outputs of one input.
void gather_awq(std::span<const std::byte> words,
                std::int64_t n_out,
                std::int64_t n_in,
                const Range& rows,
                std::span<std::byte> to) {
  const std::int64_t n_columns = words_for(n_out), n_row_words = words_for(n_in);
  const Range columns{rows.begin / kCodesOfWord, words_for(rows.end)};
  for (std::int64_t begin = columns.begin; begin < columns.end; begin += kWordsAtOnce)
    for (std::int64_t i = 0; i < n_row_words; ++i)
      for (std::int64_t column = begin; column < std::min(begin + kWordsAtOnce, columns.end);
           ++column) {
        std::array<std::uint32_t, kCodesOfWord> inputs{};
        const auto n = static_cast<std::size_t>(std::min(kCodesOfWord, n_in - i * kCodesOfWord));
        for (std::size_t input = 0; input < n; ++input)
          inputs[input] = word_at(
              words, (i * kCodesOfWord + static_cast<std::int64_t>(input)) * n_columns + column);
        const auto turned = turned_awq(std::span(inputs).first(n));
        for (std::int64_t row = std::max(rows.begin, column * kCodesOfWord);
             row < std::min(rows.end, (column + 1) * kCodesOfWord); ++row)
          put_word(to, (row - rows.begin) * n_row_words + i,
                   turned[static_cast<std::size_t>(row % kCodesOfWord)]);
      }
}

// Where in a word the code of an output is that others share it with.
std::int64_t place_of(Int4Layout layout, std::int64_t output) {
  const std::int64_t i = output % kCodesOfWord;
  if (layout != Int4Layout::kAwq) return i;
  return std::ranges::find(kAwqOutputs, i) - kAwqOutputs.begin();
}

}  // namespace

std::string name_beside(std::string_view weight, std::string_view part) {
  return std::string(weight.substr(0, weight.rfind('.') + 1)) + std::string(part);
}

std::vector<std::int64_t> code_words_shape(Int4Layout layout,
                                           std::int64_t n_out,
                                           std::int64_t n_in) {
  switch (layout) {
    case Int4Layout::kRows:
      return {n_out, words_for(n_in)};
    case Int4Layout::kGptq:
    case Int4Layout::kGptqV2:
      return {words_for(n_in), n_out};
    case Int4Layout::kAwq:
      return {n_in, words_for(n_out)};
  }
  FORETOKEN_CHECK(false, "unknown layout");
}

std::vector<std::int64_t> zero_words_shape(Int4Layout layout,
                                           std::int64_t n_out,
                                           std::int64_t n_groups) {
  if (is_transposed(layout)) return {n_groups, words_for(n_out)};
  return {words_for(n_out), n_groups};
}

std::vector<std::byte> rows_of_words(Int4Layout layout,
                                     std::span<const std::byte> words,
                                     std::int64_t n_out,
                                     std::int64_t n_in,
                                     const Range& rows) {
  FORETOKEN_CHECK(is_transposed(layout));
  std::vector<std::byte> to(static_cast<std::size_t>(rows.n() * words_for(n_in) * 4));
  if (layout == Int4Layout::kAwq)
    gather_awq(words, n_out, n_in, rows, to);
  else
    gather_gptq(words, n_out, words_for(n_in), rows, to);
  return to;
}

// AutoGPTQ's first format has 1 subtracted from every zero point, from word to word: where one was
// 0 it borrowed from its neighbour, so words are added, not codes.
std::vector<std::uint8_t> zeros_of_words(Int4Layout layout,
                                         std::span<const std::byte> words,
                                         std::int64_t n_out,
                                         std::int64_t n_groups) {
  const std::uint32_t more = layout == Int4Layout::kGptq ? 0x11111111u : 0u;
  std::vector<std::uint8_t> zeros;
  zeros.reserve(static_cast<std::size_t>(n_out * n_groups));
  for (std::int64_t row = 0; row < n_out; ++row)
    for (std::int64_t g = 0; g < n_groups; ++g) {
      const std::int64_t column = row / kCodesOfWord;
      const std::int64_t at =
          is_transposed(layout) ? g * words_for(n_out) + column : column * n_groups + g;
      const std::uint32_t word = word_at(words, at) + more;
      zeros.push_back(static_cast<std::uint8_t>(word >> 4 * place_of(layout, row) & 15u));
    }
  return zeros;
}

std::vector<float> transposed(std::span<const float> scales,
                              std::int64_t n_groups,
                              std::int64_t n_out) {
  std::vector<float> rows;
  rows.reserve(scales.size());
  for (std::int64_t row = 0; row < n_out; ++row)
    for (std::int64_t g = 0; g < n_groups; ++g)
      rows.push_back(scales[static_cast<std::size_t>(g * n_out + row)]);
  return rows;
}

bool is_in_order(std::span<const std::int32_t> of_input, std::int64_t group) {
  for (std::size_t i = 0; i < of_input.size(); ++i)
    if (of_input[i] != static_cast<std::int64_t>(i) / group) return false;
  return true;
}

}  // namespace foretoken
