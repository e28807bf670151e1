// Where others' words have the codes and zero points of four-bit weights, by the definition of each
// layout alone. Sizes end within words, as a rank's rows do.
#include "common/model/int4_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "common/model/int4.h"

namespace foretoken {
namespace {

constexpr Int4Layout kLayouts[] = {Int4Layout::kRows, Int4Layout::kGptq, Int4Layout::kGptqV2,
                                   Int4Layout::kAwq};
constexpr std::size_t kAwqPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};  // of outputs 0 to 7 in a word

using Codes = std::vector<std::vector<std::uint8_t>>;

Codes random_codes(std::size_t n_rows, std::size_t n_columns) {
  std::mt19937 random(9);
  Codes codes(n_rows, std::vector<std::uint8_t>(n_columns));
  for (auto& row : codes)
    for (auto& code : row) code = static_cast<std::uint8_t>(random() % 16);
  return codes;
}

std::vector<std::byte> bytes_of(const std::vector<std::uint32_t>& words) {
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

// Words of `shape`; put(row, column) says in which word, and where in it, a code lies.
template <class Place>
std::vector<std::byte> packed(const Codes& codes,
                              const std::vector<std::int64_t>& shape,
                              Place&& place) {
  std::vector<std::uint32_t> words(static_cast<std::size_t>(shape[0] * shape[1]));
  for (std::size_t row = 0; row < codes.size(); ++row)
    for (std::size_t column = 0; column < codes[row].size(); ++column) {
      const auto [i, j, at] = place(row, column);
      words[i * static_cast<std::size_t>(shape[1]) + j] |= std::uint32_t{codes[row][column]}
                                                           << 4 * at;
    }
  return bytes_of(words);
}

struct Place {
  std::size_t i, j, at;
};

Place gptq_place(std::size_t row, std::size_t column) { return {column / 8, row, column % 8}; }
Place awq_place(std::size_t row, std::size_t column) {
  return {column, row / 8, kAwqPlaces[row % 8]};
}

TEST(Int4Words, CodesAreGatheredIntoTheRowsThatAreWanted) {
  for (const std::size_t n_out : {24u, 300u, 13u})
    for (const std::size_t n_in : {32u, 160u, 45u}) {
      const Codes codes = random_codes(n_out, n_in);
      const auto rows_total = static_cast<std::int64_t>(n_out),
                 columns = static_cast<std::int64_t>(n_in);
      for (const Int4Layout layout : {Int4Layout::kGptq, Int4Layout::kGptqV2, Int4Layout::kAwq}) {
        const auto shape = code_words_shape(layout, rows_total, columns);
        const auto words = layout == Int4Layout::kAwq ? packed(codes, shape, awq_place)
                                                      : packed(codes, shape, gptq_place);
        for (const Range rows :
             {Range{0, rows_total}, Range{3, 11}, Range{rows_total - 2, rows_total}}) {
          SCOPED_TRACE(testing::Message() << n_out << "x" << n_in << " " << rows.begin);
          const auto got = rows_of_words(layout, words, rows_total, columns, rows);
          const std::size_t stride = (n_in + 7) / 8 * 4;
          ASSERT_EQ(got.size(), static_cast<std::size_t>(rows.n()) * stride);
          for (std::int64_t r = rows.begin; r < rows.end; ++r) {
            std::vector<std::uint8_t> row(n_in);
            unpack_int4_words(
                std::span(got).subspan(static_cast<std::size_t>(r - rows.begin) * stride, stride),
                row);
            ASSERT_EQ(row, codes[static_cast<std::size_t>(r)]);
          }
        }
      }
    }
}

TEST(Int4Words, ZeroPointsAreThoseOfTheirOutputAndGroup) {
  for (const std::size_t n_out : {24u, 13u})
    for (const std::size_t n_groups : {1u, 5u}) {
      const Codes zeros = random_codes(n_out, n_groups);
      std::vector<std::uint8_t> expected;
      for (const auto& row : zeros) expected.insert(expected.end(), row.begin(), row.end());
      for (const Int4Layout layout : kLayouts) {
        const auto shape = zero_words_shape(layout, static_cast<std::int64_t>(n_out),
                                            static_cast<std::int64_t>(n_groups));
        auto words = packed(zeros, shape, [&](std::size_t row, std::size_t g) -> Place {
          if (layout == Int4Layout::kRows) return {row / 8, g, row % 8};
          return {g, row / 8, layout == Int4Layout::kAwq ? kAwqPlaces[row % 8] : row % 8};
        });
        if (layout == Int4Layout::kGptq)  // less 1, zeros too
          for (std::size_t i = 0; i < words.size(); i += 4) {
            std::uint32_t word = 0;
            std::memcpy(&word, words.data() + i, 4);
            word -= 0x11111111u;
            std::memcpy(words.data() + i, &word, 4);
          }
        EXPECT_EQ(zeros_of_words(layout, words, static_cast<std::int64_t>(n_out),
                                 static_cast<std::int64_t>(n_groups)),
                  expected)
            << static_cast<int>(layout);
      }
    }
}

TEST(Int4Words, ScalesAreTurnedIntoRows) {
  EXPECT_THAT(transposed(std::vector<float>{1, 2, 3, 4, 5, 6}, 2, 3),
              testing::ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(Int4Words, ColumnsAreInOrderWhereEachGroupHasItsOwnInTurn) {
  std::vector<std::int32_t> groups{0, 0, 0, 0, 1, 1, 1, 1, 2, 2};
  EXPECT_TRUE(is_in_order(groups, 4));
  EXPECT_FALSE(is_in_order(groups, 8));
  std::swap(groups[3], groups[4]);
  EXPECT_FALSE(is_in_order(groups, 4));
  EXPECT_TRUE(is_in_order(std::vector<std::int32_t>(10, 0), kWholeRow));
}

TEST(Int4Words, NamesStandBesideTheWeight) {
  EXPECT_EQ(name_beside("model.layers.0.mlp.down_proj.weight", "qweight"),
            "model.layers.0.mlp.down_proj.qweight");
  EXPECT_EQ(name_beside("lm_head.weight", "scales"), "lm_head.scales");
}

}  // namespace
}  // namespace foretoken
