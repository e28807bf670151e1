#include "common/wire/codec.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/wire/body_fields.h"

namespace foretoken::wire {
namespace {

Error malformed(std::string sentence) { return {ErrorCode::kMalformed, std::move(sentence)}; }

template <class M>
Result<Message> read_as(std::string_view body) {
  MsgpackReader in(body);
  BodyReader reader(in);
  M message{};
  if (!reader.value(message))
    return malformed(std::string(M::kName) + (reader.path().empty() ? "" : "." + reader.path()) +
                     " " + in.error());
  if (!in.at_end())
    return malformed(std::string(M::kName) + " is followed by " + std::to_string(in.remaining()) +
                     " bytes");
  return Message(std::move(message));
}

template <std::size_t... I>
Result<Message> read_by_type(MessageType type, std::string_view body, std::index_sequence<I...>) {
  std::optional<Result<Message>> result;
  (void)((std::variant_alternative_t<I, Message>::kType == type
              ? (result.emplace(read_as<std::variant_alternative_t<I, Message>>(body)), true)
              : false) ||
         ...);
  if (result) return std::move(*result);
  return malformed("message type " + std::to_string(static_cast<unsigned>(type)) + " is not known");
}

Result<Message> read_body(MessageType type, std::string_view body) {
  return read_by_type(type, body, std::make_index_sequence<std::variant_size_v<Message>>{});
}

}  // namespace

Result<Frames> try_encode(Header header, const Message& message) {
  Frames frames(2);
  MsgpackWriter out(frames[1]);
  Packer packer(out);
  std::visit([&](const auto& m) { packer.value(m); }, message);
  const auto refuse = [&](const std::string& why) {
    const auto name = std::visit([](const auto& m) { return m.kName; }, message);
    return Error{ErrorCode::kInternal, "a message " + std::string(name) + " " + why};
  };
  if (!packer.too_large().empty()) return refuse(packer.too_large());
  if (frames[1].size() > kMaxInternalPartBytes)
    return refuse("has " + std::to_string(frames[1].size()) + " bytes; the limit is " +
                  std::to_string(kMaxInternalPartBytes));
  header.type = std::visit([](const auto& m) { return m.kType; }, message);
  header.body_bytes = static_cast<std::uint32_t>(frames[1].size());
  frames[0] = pack_header(header);
  return frames;
}

Frames encode(Header header, const Message& message) {
  auto frames = try_encode(header, message);
  FORETOKEN_CHECK(frames.ok(), "a message beyond messages/limits.h: use try_encode");
  return std::move(frames).value();
}

Result<Incoming> decode(const Frames& frames) {
  if (frames.size() < 2 || frames.size() > kMaxParts)
    return malformed("message has " + std::to_string(frames.size()) + " parts; it must have 2 to " +
                     std::to_string(kMaxParts));
  auto header = read_header(frames[0]);
  if (!header.ok()) return std::move(header).error();
  if (header->body_bytes != frames[1].size())
    return malformed("body has " + std::to_string(frames[1].size()) + " bytes; the header says " +
                     std::to_string(header->body_bytes));
  auto message = read_body(header->type, frames[1]);
  if (!message.ok()) return std::move(message).error();
  return Incoming{*header, std::move(message).value()};
}

}  // namespace foretoken::wire
