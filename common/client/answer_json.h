// Replies as JSON documents, by the one listing of their fields.
#pragma once

#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "common/base/json.h"
#include "common/messages/client.h"

namespace foretoken {

template <class T>
concept HasFields = requires(T& value) {
  T::fields(value, [](std::string_view, auto&, std::string_view) {});
};

template <class T>
OrderedJson struct_json(const T& value);

template <class T>
OrderedJson value_json(const T& value) {
  if constexpr (std::is_same_v<T, wire::StopReason>) {
    if (const auto* id = std::get_if<TokenId>(&value)) return *id;
    if (const auto* text = std::get_if<std::string>(&value)) return *text;
    return nullptr;
  } else if constexpr (std::is_same_v<T, std::optional<double>>) {
    return value ? OrderedJson(*value) : OrderedJson(nullptr);
  } else if constexpr (std::is_same_v<T, std::optional<wire::AnswerForm>>) {
    return value ? struct_json(*value) : OrderedJson(nullptr);
  } else if constexpr (std::is_same_v<T, float>) {
    return shortest(value);
  } else if constexpr (HasFields<T>) {
    return struct_json(value);
  } else {
    return value;
  }
}

template <class T>
requires HasFields<T> OrderedJson value_json(const std::vector<T>& values) {
  OrderedJson list = OrderedJson::array();
  for (const auto& each : values) list.push_back(struct_json(each));
  return list;
}

template <class T>
OrderedJson struct_json(const T& value) {
  OrderedJson object = OrderedJson::object();
  T::fields(value, [&](std::string_view key, const auto& member, std::string_view) {
    object[std::string(key)] = value_json(member);
  });
  return object;
}

}  // namespace foretoken
