// usage: board_reader DEVICE CARD ENTRY TAG   what another process finds on a board: "N TOKEN", or
//                                             why it cannot look
//        board_reader DEVICE make             the card of a board that is gone when it is read
// The other process of boards_test.cc. Cards in hexadecimal.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "kernels/include/backend.h"

namespace foretoken {
namespace {

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

template <class T>
Buffer put(Backend& backend, const T& value) {
  Buffer buffer = backend.allocate(sizeof value);
  backend.upload(buffer.as<T>(), &value, sizeof value);
  return buffer;
}

int look(Backend& backend, const std::string& card, std::int32_t entry, std::uint64_t tag) {
  std::string why;
  const auto view = backend.open_board(from_hex(card), why);
  if (view == nullptr) {
    std::printf("%s\n", why.c_str());
    return 0;
  }
  constexpr std::int32_t kDrafted = 9;
  struct Ten {
    std::int32_t value[kDrafted + 1];
  };
  struct Range {
    std::int32_t begin, end;
  };
  const Buffer entries = put(backend, entry), tags = put(backend, tag),
               n_drafted = put(backend, kDrafted), row_begin = put(backend, Range{0, kDrafted + 1});
  const Buffer tokens = put(backend, Ten{}), logit_rows = put(backend, std::int32_t{0}),
               rules = put(backend, RowRule{}), taken = put(backend, Verdict{});
  view->wait();
  backend.take_verdicts({.board = view->entries(),
                         .n_entries = view->n_entries(),
                         .n_sequences = 1,
                         .entries = entries.as<std::int32_t>(),
                         .tags = tags.as<std::uint64_t>(),
                         .n_drafted = n_drafted.as<std::int32_t>(),
                         .n_ids = 1000,
                         .row_begin = row_begin.as<std::int32_t>(),
                         .tokens = tokens.as<std::int32_t>(),
                         .logit_rows = logit_rows.as<std::int32_t>(),
                         .rules = rules.as<RowRule>(),
                         .taken = taken.as<Verdict>()});
  if (!view->settled(std::chrono::seconds(20))) return 1;
  Verdict verdict;
  backend.download(&verdict, taken.as<Verdict>(), sizeof verdict);
  std::printf("%d %d\n", verdict.n_accepted, verdict.next_token);
  return 0;
}

int show_card(Backend& backend) {
  std::string why;
  const auto board = backend.make_board(8, why);
  if (board == nullptr) return 1;
  for (const std::byte b : board->card()) std::printf("%02x", std::to_integer<unsigned>(b));
  std::printf("\n");
  return 0;
}

int run(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto backend = make_backend({.device = argv[1], .n_threads = 1});
  if (std::strcmp(argv[2], "make") == 0) return show_card(*backend);
  if (argc < 5) return 2;
  return look(*backend, argv[2], std::atoi(argv[3]), std::strtoull(argv[4], nullptr, 10));
}

}  // namespace
}  // namespace foretoken

int main(int argc, char** argv) {
  try {
    return foretoken::run(argc, argv);
  } catch (const foretoken::FatalError& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
