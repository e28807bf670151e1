#include "tests/conformance/cases.h"

namespace foretoken::cases {

std::span<const Product> products() {
  static constexpr Product kCases[] =
      {
          {1, 1, 1},      {2, 2, 2},      {1, 31, 32},    {5, 32, 31},   {3, 33, 33},
          {6, 127, 128},  {7, 128, 127},  {13, 129, 129}, {1, 64, 256},  {31, 65, 255},
          {32, 63, 257},  {33, 192, 300}, {2, 200, 511},  {18, 64, 513}, {64, 130, 777},
          {127, 40, 65},  {128, 17, 40},  {129, 64, 16},  {511, 3, 5},   {5, 70, 530},
          {18, 64, 1100},  // several chunks of every kind, the last group short
      };
  return kCases;
}

std::span<const Attention> attentions() {
  static constexpr Attention kCases[] = {
      {1, 1, 0, 1, 1, 2, 16},     {1, 1, 31, 4, 2, 16, 16},  {3, 1, 32, 4, 4, 32, 16},
      {2, 5, 33, 8, 2, 64, 16},   {1, 31, 0, 6, 3, 33, 8},   {1, 33, 127, 4, 1, 80, 32},
      {2, 2, 128, 9, 3, 128, 16}, {1, 17, 129, 5, 1, 31, 1}, {4, 3, 14, 2, 2, 64, 48},
  };
  return kCases;
}

std::span<const Vocabulary> vocabularies() {
  static constexpr Vocabulary kCases[] = {
      {1, 1, 1},     {2, 31, 31},     {3, 33, 32},       {1, 128, 127},
      {7, 129, 129}, {2, 4096, 4000}, {1, 20000, 19999}, {5, 32000, 32000},
  };
  return kCases;
}

std::span<const DType> weight_dtypes() {
  static constexpr DType kDtypes[] = {DType::kF32, DType::kBf16, DType::kF16, DType::kI8};
  return kDtypes;
}

std::span<const DType> kv_dtypes() {
  static constexpr DType kDtypes[] = {DType::kF32, DType::kBf16, DType::kF16, DType::kF8E4M3};
  return kDtypes;
}

}  // namespace foretoken::cases
