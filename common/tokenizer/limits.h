// The largest of everything a tokenizer file or a request may bring. Each number is far above what
// published models need and low enough that reaching it costs neither memory nor time worth
// mentioning.
#pragma once

#include <cstddef>
#include <cstdint>

namespace foretoken::tokenizer_limits {

inline constexpr std::size_t kMaxFileBytes =
    128u << 20;  // tokenizer.json; the largest published ones have 33 MB
inline constexpr std::size_t kMaxSideFileBytes = 8u
                                                 << 20;  // tokenizer_config.json and its neighbours
inline constexpr std::size_t kMaxTemplateBytes = 256u << 10;  // chat_template.jinja
inline constexpr std::size_t kMaxJsonDepth = 32;
inline constexpr std::int64_t kMaxTokenId = (1 << 22) - 1;  // ids are indices into arrays
inline constexpr std::size_t kMaxTokenBytes = 4096;         // one entry of the vocabulary
inline constexpr std::size_t kMaxMerges = 1u << 23;
inline constexpr std::size_t kMaxAddedTokens = 1u << 17;
inline constexpr std::size_t kMaxStages = 64;  // normalizers, pre-tokenizers, decoders in one file
inline constexpr std::size_t kMaxTemplatePieces = 64;  // special tokens around a sequence

inline constexpr std::size_t kMaxTextBytes = 16u << 20;  // one call of encode()
// Merging never looks further than this: longer pieces are cut where no merge can join, else at the
// limit itself.
inline constexpr std::size_t kMaxPieceBytes = 64u << 10;
inline constexpr std::uint32_t kRegexMatchLimit = 10'000'000;  // steps of one regex match
inline constexpr std::size_t kMaxStopStrings = 64;
inline constexpr std::size_t kMaxStopBytes = 4096;  // of one stop string

}  // namespace foretoken::tokenizer_limits
