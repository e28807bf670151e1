#include "services/edge/answer_bytes.h"

#include <algorithm>
#include <string>
#include <vector>

namespace foretoken::edge {
namespace {

// An allocation takes no less than 32 bytes: the short lists of the likeliest tokens' bytes are
// much of an answer with log probabilities.
std::size_t on_heap(std::size_t n_bytes) {
  return n_bytes == 0 ? 0 : std::max(std::size_t{32}, n_bytes + 16);
}
std::size_t on_heap(const std::string& text) {
  static const std::size_t n_in_place = std::string().capacity();
  return text.capacity() > n_in_place ? on_heap(text.capacity()) : 0;
}
template <class T>
std::size_t on_heap(const std::vector<T>& list) {
  return on_heap(list.capacity() * sizeof(T));
}

// Of lists that pieces which wait are joined in: the count of two is that of the one they become.
template <class T>
std::size_t in_list(const std::vector<T>& list) {
  return list.size() * sizeof(T);
}
std::size_t in_list(const std::vector<wire::LogprobEntry>& entries) {
  std::size_t bytes = 0;
  for (const auto& entry : entries) bytes += bytes_of(entry);
  return bytes;
}

template <class PieceOrReply>
std::size_t bytes_of_answer(const PieceOrReply& of) {
  return sizeof of + of.text.size() + in_list(of.token_ids) + in_list(of.token_ends) +
         in_list(of.logprobs);
}
template <class PieceOrReply>
std::size_t bytes_of_its_prompt(const PieceOrReply& of) {
  return in_list(of.prompt_logprobs) + in_list(of.prompt_token_ids);
}

}  // namespace

std::size_t bytes_of(const wire::LogprobEntry& entry) {
  std::size_t bytes = sizeof entry + on_heap(entry.top_ids) + on_heap(entry.top_logprobs) +
                      on_heap(entry.token) + on_heap(entry.bytes) + on_heap(entry.top_tokens) +
                      on_heap(entry.top_bytes);
  for (const auto& token : entry.top_tokens) bytes += on_heap(token);
  for (const auto& token : entry.top_bytes) bytes += on_heap(token);
  return bytes;
}

std::size_t bytes_of(const wire::ClientReply& reply) {
  return bytes_of_answer(reply) + bytes_of_its_prompt(reply);
}

std::size_t bytes_of(const wire::ClientPiece& piece) { return bytes_of_answer(piece); }

std::size_t bytes_of_prompt(const wire::ClientPiece& piece) { return bytes_of_its_prompt(piece); }

}  // namespace foretoken::edge
